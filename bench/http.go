package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// wireConn is a bare HTTP/1.1 client connection. net/http's client costs more
// than the servers measured here, and the load shares their cores.
type wireConn struct {
	nc  net.Conn
	br  *bufio.Reader
	buf []byte
}

// reply is what a load needs to know of an answer. Body is valid until the next call.
type reply struct {
	status int
	index  uint64
	length int
	body   []byte
	closed bool
}

const ioDeadline = 30 * time.Second

func dialWire(ctx context.Context, addr string, readBytes int) (*wireConn, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &wireConn{nc: nc, br: bufio.NewReaderSize(nc, readBytes)}, nil
}

// request renders a request once, to be sent many times.
func request(method, host, path, token string, body []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, host)
	if token != "" {
		fmt.Fprintf(&b, "X-Consul-Token: %s\r\n", token)
	}
	if body != nil {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

func (c *wireConn) send(raw []byte) error {
	_, err := c.nc.Write(raw)
	return err
}

// do sends and receives with a deadline. keep tells whether the body is wanted.
func (c *wireConn) do(raw []byte, keep bool, deadline time.Duration) (reply, error) {
	if err := c.nc.SetDeadline(time.Now().Add(deadline)); err != nil {
		return reply{}, err
	}
	if err := c.send(raw); err != nil {
		return reply{}, err
	}
	return c.receive(keep)
}

var (
	headerLength  = []byte("Content-Length:")
	headerIndex   = []byte("X-Consul-Index:")
	headerChunked = []byte("Transfer-Encoding:")
	headerConn    = []byte("Connection:")
	wordClose     = []byte("close")
)

func (c *wireConn) receive(keep bool) (reply, error) {
	var r reply
	line, err := c.br.ReadSlice('\n')
	if err != nil {
		return r, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return r, fmt.Errorf("no HTTP/1.1 status line: %q", line)
	}
	if r.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return r, fmt.Errorf("bad status line: %q", line)
	}
	chunked := false
	for {
		if line, err = c.br.ReadSlice('\n'); err != nil {
			return r, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		switch {
		case hasFold(line, headerLength):
			r.length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(headerLength):])))
		case hasFold(line, headerIndex):
			r.index, err = strconv.ParseUint(string(bytes.TrimSpace(line[len(headerIndex):])), 10, 64)
		case hasFold(line, headerChunked):
			chunked = true
		case hasFold(line, headerConn):
			r.closed = bytes.EqualFold(bytes.TrimSpace(line[len(headerConn):]), wordClose)
		}
		if err != nil {
			return r, fmt.Errorf("bad header line %q: %w", line, err)
		}
	}
	if chunked {
		return r, c.chunks(&r, keep)
	}
	return r, c.content(&r, r.length, keep)
}

func hasFold(line, name []byte) bool {
	return len(line) >= len(name) && bytes.EqualFold(line[:len(name)], name)
}

func (c *wireConn) content(r *reply, n int, keep bool) error {
	if !keep {
		_, err := c.br.Discard(n)
		return err
	}
	start := len(r.body)
	if start == 0 {
		r.body = c.buf[:0]
	}
	for len(r.body) < start+n {
		r.body = append(r.body, 0)
		r.body = r.body[:min(cap(r.body), start+n)]
	}
	_, err := io.ReadFull(c.br, r.body[start:])
	c.buf = r.body
	return err
}

func (c *wireConn) chunks(r *reply, keep bool) error {
	r.length = 0
	for {
		line, err := c.br.ReadSlice('\n')
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil {
			return fmt.Errorf("bad chunk size: %w", err)
		}
		if err := c.content(r, int(n), keep); err != nil {
			return err
		}
		if _, err := c.br.Discard(2); err != nil {
			return err
		}
		r.length += int(n)
		if n == 0 {
			return nil
		}
	}
}

func (c *wireConn) Close() error { return c.nc.Close() }

// loadSpec is a closed-loop load: each connection sends its next request when the former is answered.
type loadSpec struct {
	addr        string
	connections int
	duration    time.Duration
	warmup      time.Duration
	// pace is the least time between the starts of one connection's requests; 0 is none.
	pace time.Duration
	// next renders connection conn's n-th request; it may return a shared slice.
	next func(conn int, n int64) []byte
	// ok judges an answer; nil takes 200.
	ok func(reply) bool
}

type loadResult struct {
	requests, errors int64
	seconds          float64
	hist             *hdr.Histogram
	firstError       error
}

// runLoad drives the load until the duration is over or ctx ends.
func runLoad(ctx context.Context, spec loadSpec) (*loadResult, error) {
	total := &loadResult{hist: newHistogram()}
	conns := make([]*wireConn, spec.connections)
	for i := range conns {
		c, err := dialWire(ctx, spec.addr, 64<<10)
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", spec.addr, err)
		}
		defer c.Close() //nolint:errcheck // a load connection has nothing left to lose
		conns[i] = c
	}
	begin := time.Now().Add(spec.warmup)
	end := begin.Add(spec.duration)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i, c := range conns {
		wg.Go(func() {
			part := loadOne(ctx, c, i, begin, end, &spec)
			mu.Lock()
			defer mu.Unlock()
			total.requests += part.requests
			total.errors += part.errors
			total.hist.Merge(part.hist)
			if total.firstError == nil {
				total.firstError = part.firstError
			}
		})
	}
	wg.Wait()
	total.seconds = min(time.Since(begin), spec.duration).Seconds()
	if total.requests == 0 {
		return nil, fmt.Errorf("no request was answered: %w", errors.Join(total.firstError, ctx.Err()))
	}
	return total, nil
}

func loadOne(ctx context.Context, c *wireConn, conn int, begin, end time.Time, spec *loadSpec) *loadResult {
	part := &loadResult{hist: newHistogram()}
	for n := int64(0); ctx.Err() == nil; n++ {
		start := time.Now()
		if start.After(end) {
			return part
		}
		r, err := c.do(spec.next(conn, n), false, ioDeadline)
		good := err == nil && (spec.ok == nil && r.status == 200 || spec.ok != nil && spec.ok(r))
		if start.After(begin) {
			part.requests++
			record(part.hist, time.Since(start))
		}
		if !good {
			part.errors++
			if part.firstError == nil {
				part.firstError = errors.Join(fmt.Errorf("status %d", r.status), err)
			}
		}
		if err != nil {
			return part
		}
		if rest := spec.pace - time.Since(start); rest > 0 {
			settle(ctx, rest)
		}
	}
	return part
}

func (l *loadResult) row(what, floor string) Row {
	return Row{What: what, Requests: l.requests, Errors: l.errors, PerSecond: float64(l.requests) / l.seconds,
		Millis: millis(l.hist), Floor: floor}
}
