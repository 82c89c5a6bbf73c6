// Package childcall is how a parent process asks things of a child that it
// started: JSON calls, one after the other, over the child's standard input and
// output.
//
// The child serves until its input ends, so that it never outlives a parent that
// forgot it. A call that fails below the handler breaks the line for good: the
// parent ends the child then.
package childcall

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// MaxBytes bounds one call and one answer.
const MaxBytes = 256 << 20

type call struct {
	Method string          `json:"method"`
	Body   json.RawMessage `json:"body,omitempty"`
}

type answer struct {
	Error string          `json:"error,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

// Handler answers one call. What it returns is encoded as JSON.
type Handler func(ctx context.Context, method string, body json.RawMessage) (any, error)

// Serve answers the calls of in on out, one after the other, until in ends.
func Serve(ctx context.Context, in io.Reader, out io.Writer, handle Handler) error {
	lines := bufio.NewReaderSize(in, 64<<10)
	enc := json.NewEncoder(out)
	for {
		var c call
		switch err := readLine(lines, &c); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read a call: %w", err)
		}
		var a answer
		body, err := handle(ctx, c.Method, c.Body)
		if err == nil {
			a.Body, err = json.Marshal(body)
		}
		if err != nil {
			a = answer{Error: err.Error()}
		}
		if err := enc.Encode(a); err != nil {
			return fmt.Errorf("answer %s: %w", c.Method, err)
		}
	}
}

func readLine(r *bufio.Reader, into any) error {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return json.Unmarshal(line, into)
		case errors.Is(err, bufio.ErrBufferFull) && len(line) < MaxBytes:
		case errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("a line of more than %d bytes", MaxBytes)
		case errors.Is(err, io.EOF) && len(line) > 0:
			return io.ErrUnexpectedEOF
		default:
			return err
		}
	}
}

// Caller is the parent's side. It is safe for concurrent use.
type Caller struct {
	mu     sync.Mutex // guards all below: one call at a time
	in     io.WriteCloser
	out    io.ReadCloser
	lines  *bufio.Reader
	broken error
}

// NewCaller takes the child's standard input and output.
func NewCaller(in io.WriteCloser, out io.ReadCloser) *Caller {
	return &Caller{in: in, out: out, lines: bufio.NewReaderSize(out, 64<<10)}
}

// Call sends a call and decodes the answer into result, unless that is nil. When
// ctx ends first the line is closed.
func (c *Caller) Call(ctx context.Context, method string, body, result any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return c.broken
	}
	stop := context.AfterFunc(ctx, func() { _, _ = c.in.Close(), c.out.Close() })
	a, err := c.exchange(method, body)
	if !stop() && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		c.broken = fmt.Errorf("%s: %w", method, err)
		return c.broken
	}
	if a.Error != "" {
		return fmt.Errorf("%s: %s", method, a.Error)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(a.Body, result); err != nil {
		return fmt.Errorf("%s: the answer: %w", method, err)
	}
	return nil
}

func (c *Caller) exchange(method string, body any) (a answer, err error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return a, err
	}
	line, err := json.Marshal(call{method, raw})
	if err != nil {
		return a, err
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		return a, err
	}
	return a, readLine(c.lines, &a)
}

// Close ends the child's input, which tells it to leave.
func (c *Caller) Close() error { return c.in.Close() }
