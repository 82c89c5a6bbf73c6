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

// Reply is what a load needs to know of an answer. Body is valid until the next call.
type Reply struct {
	Status int
	index  uint64
	length int
	Body   []byte
	closed bool
}

// Index is the answer's X-Consul-Index, 0 without one.
func (r Reply) Index() uint64 { return r.index }

const IoDeadline = 30 * time.Second

func DialWire(ctx context.Context, addr string, readBytes int) (*wireConn, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &wireConn{nc: nc, br: bufio.NewReaderSize(nc, readBytes)}, nil
}

// Request renders a request once, to be sent many times.
func Request(method, host, path, token string, body []byte) []byte {
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

// Do sends and receives with a deadline. keep tells whether the body is wanted.
func (c *wireConn) Do(raw []byte, keep bool, deadline time.Duration) (Reply, error) {
	if err := c.nc.SetDeadline(time.Now().Add(deadline)); err != nil {
		return Reply{}, err
	}
	if err := c.send(raw); err != nil {
		return Reply{}, err
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

func (c *wireConn) receive(keep bool) (Reply, error) {
	var r Reply
	line, err := c.br.ReadSlice('\n')
	if err != nil {
		return r, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return r, fmt.Errorf("no HTTP/1.1 status line: %q", line)
	}
	if r.Status, err = strconv.Atoi(string(line[9:12])); err != nil {
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

func (c *wireConn) content(r *Reply, n int, keep bool) error {
	if !keep {
		_, err := c.br.Discard(n)
		return err
	}
	start := len(r.Body)
	if start == 0 {
		r.Body = c.buf[:0]
	}
	for len(r.Body) < start+n {
		r.Body = append(r.Body, 0)
		r.Body = r.Body[:min(cap(r.Body), start+n)]
	}
	_, err := io.ReadFull(c.br, r.Body[start:])
	c.buf = r.Body
	return err
}

func (c *wireConn) chunks(r *Reply, keep bool) error {
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

// LoadSpec is a closed-loop load: each connection sends its next request when the former is answered.
type LoadSpec struct {
	Addr        string
	Connections int
	Duration    time.Duration
	Warmup      time.Duration
	// Pace is the least time between the starts of one connection's requests; 0 is none.
	Pace time.Duration
	// Next renders connection conn's n-th request; it may return a shared slice.
	Next func(conn int, n int64) []byte
	// OK judges an answer; nil takes 200.
	OK func(Reply) bool
}

type LoadResult struct {
	Requests, Errors int64
	seconds          float64
	Hist             *hdr.Histogram
	FirstError       error
}

// RunLoad drives the load until the duration is over or ctx ends. Each connection is measured with one request at
// least, so that a slow target gives a low figure and not none.
func RunLoad(ctx context.Context, spec LoadSpec) (*LoadResult, error) {
	total := &LoadResult{Hist: NewHistogram()}
	conns := make([]*wireConn, spec.Connections)
	for i := range conns {
		c, err := DialWire(ctx, spec.Addr, 64<<10)
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", spec.Addr, err)
		}
		defer c.Close() //nolint:errcheck // a load connection has nothing left to lose
		conns[i] = c
	}
	begin := time.Now().Add(spec.Warmup)
	end := begin.Add(spec.Duration)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i, c := range conns {
		wg.Go(func() {
			part := loadOne(ctx, c, i, begin, end, &spec)
			mu.Lock()
			defer mu.Unlock()
			total.Requests += part.Requests
			total.Errors += part.Errors
			total.Hist.Merge(part.Hist)
			if total.FirstError == nil {
				total.FirstError = part.FirstError
			}
		})
	}
	wg.Wait()
	total.seconds = time.Since(begin).Seconds()
	if total.Requests == 0 {
		return nil, fmt.Errorf("no request was answered: %w", errors.Join(total.FirstError, ctx.Err()))
	}
	return total, nil
}

func loadOne(ctx context.Context, c *wireConn, conn int, begin, end time.Time, spec *LoadSpec) *LoadResult {
	part := &LoadResult{Hist: NewHistogram()}
	for n := int64(0); ctx.Err() == nil; n++ {
		start := time.Now()
		if start.After(end) && part.Requests > 0 {
			return part
		}
		r, err := c.Do(spec.Next(conn, n), false, IoDeadline)
		good := err == nil && (spec.OK == nil && r.Status == 200 || spec.OK != nil && spec.OK(r))
		if start.After(begin) {
			part.Requests++
			Record(part.Hist, time.Since(start))
		}
		if !good {
			part.Errors++
			if part.FirstError == nil {
				part.FirstError = errors.Join(fmt.Errorf("status %d", r.Status), err)
			}
		}
		if err != nil {
			return part
		}
		if rest := spec.Pace - time.Since(start); rest > 0 {
			Settle(ctx, rest)
		}
	}
	return part
}

func (l *LoadResult) Row(what, floor string) Row {
	return Row{What: what, Requests: l.Requests, Errors: l.Errors, PerSecond: float64(l.Requests) / l.seconds,
		Millis: Millis(l.Hist), Floor: floor}
}
