package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// WatchOptions are the options of the fan-out bench.
type WatchOptions struct {
	Options
	// Watchers is the number of blocking queries, each on a connection of its own.
	Watchers int
	// Instances of the watched service: 10 make an answer of 7 kB, 94 one of 69 kB.
	Instances int
	// Rounds is how many changes are made, one after the other.
	Rounds int
	// FleetNodes registers a fleet of that many nodes with six instances each
	// beside the watched service; 0 is none.
	FleetNodes int
}

// watcher holds one blocking query. Parked watchers own no buffer: bytes are
// read into a pooled one when the socket becomes readable.
type watcher struct {
	nc    net.Conn
	raw   syscall.RawConn
	index uint64
	req   []byte
}

var watchBuffers = sync.Pool{New: func() any { b := make([]byte, 128<<10); return &b }}

// await reads one whole answer and returns its index and length.
func (w *watcher) await() (index uint64, length int, err error) {
	var state answerState
	for !state.done && err == nil {
		var inner error
		err = w.raw.Read(func(fd uintptr) bool {
			buf := watchBuffers.Get().(*[]byte)
			defer watchBuffers.Put(buf)
			n, readErr := syscall.Read(int(fd), *buf)
			switch {
			case readErr == syscall.EAGAIN || readErr == syscall.EINTR:
				return false
			case readErr != nil:
				inner = readErr
			case n == 0:
				inner = errors.New("the server closed the connection")
			default:
				inner = state.feed((*buf)[:n])
			}
			return true
		})
		err = errors.Join(err, inner)
	}
	return state.index, state.got, err
}

// answerState follows one HTTP answer over several reads.
type answerState struct {
	head    []byte
	inBody  bool
	chunked bool
	want    int
	got     int
	tail    [5]byte
	index   uint64
	done    bool
}

var chunkEnd = []byte("0\r\n\r\n")

func (s *answerState) feed(p []byte) error {
	if !s.inBody {
		s.head = append(s.head, p...)
		i := bytes.Index(s.head, []byte("\r\n\r\n"))
		if i < 0 {
			if len(s.head) > 64<<10 {
				return errors.New("answer header past 64 KiB")
			}
			return nil
		}
		if err := s.parseHead(s.head[:i]); err != nil {
			return err
		}
		p = s.head[i+4:]
		s.inBody = true
	}
	s.got += len(p)
	if s.chunked {
		n := min(len(p), len(s.tail))
		copy(s.tail[:], s.tail[n:])
		copy(s.tail[len(s.tail)-n:], p[len(p)-n:])
		s.done = bytes.Equal(s.tail[:], chunkEnd)
		return nil
	}
	s.done = s.got >= s.want
	return nil
}

func (s *answerState) parseHead(head []byte) (err error) {
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 200")) {
		return fmt.Errorf("answer is not 200: %.60q", head)
	}
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		switch {
		case hasFold(line, headerLength):
			s.want, err = strconv.Atoi(string(bytes.TrimSpace(line[len(headerLength):])))
		case hasFold(line, headerIndex):
			s.index, err = strconv.ParseUint(string(bytes.TrimSpace(line[len(headerIndex):])), 10, 64)
		case hasFold(line, headerChunked):
			s.chunked = true
		}
		if err != nil {
			return fmt.Errorf("bad header %q: %w", line, err)
		}
	}
	return nil
}

const watchedService = "edge"

// park sends the blocking query for what follows the watcher's index.
func (w *watcher) park(host, token string) error {
	w.req = w.req[:0]
	w.req = fmt.Appendf(w.req, "GET /v1/health/service/%s?index=%d&wait=300s HTTP/1.1\r\nHost: %s\r\n", watchedService, w.index, host)
	if token != "" {
		w.req = fmt.Appendf(w.req, "X-Consul-Token: %s\r\n", token)
	}
	w.req = append(w.req, "\r\n"...)
	_, err := w.nc.Write(w.req)
	return err
}

// RunWatch measures how long one change takes to reach all blocking watchers,
// from just before the write is sent to the last byte of each answer.
func RunWatch(ctx context.Context, o WatchOptions) (*Result, error) {
	if o.Watchers == 0 {
		o.Watchers = 1000
	}
	if o.Instances == 0 {
		o.Instances = 10
	}
	if o.Rounds == 0 {
		o.Rounds = 10
	}
	if o.Watchers < 0 || o.Watchers > 60000 || o.Instances < 0 || o.Instances > 5000 || o.Rounds < 0 {
		return nil, errors.New("--watchers must be at most 60000 and --instances at most 5000, none below zero")
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	c, err := openCluster(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if o.FleetNodes > 0 {
		if err := fillFleet(ctx, c, o.FleetNodes); err != nil {
			return nil, err
		}
	}
	if err := fillService(ctx, c, watchedService, 1<<20, o.Instances); err != nil {
		return nil, err
	}
	r := newResult("watch", &o.Options)
	row, err := watchRounds(ctx, c, &o)
	if err != nil {
		return nil, err
	}
	r.Rows = append(r.Rows, *row)
	o.Connections = 64
	return r, r.addFloors(ctx, &o.Options)
}

func watchRounds(ctx context.Context, c *cluster, o *WatchOptions) (*Row, error) {
	hist := newHistogram()
	var began, length atomic.Int64
	var mu sync.Mutex
	var failed error
	answered, parked := make(chan struct{}, o.Watchers), make(chan struct{}, o.Watchers)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); wg.Wait() }()
	o.say("opening %d watchers ...", o.Watchers)
	for range o.Watchers {
		w, err := openWatcher(ctx, c)
		if err != nil {
			return nil, err
		}
		wg.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = w.nc.Close() })
			defer stop()
			for {
				if err := w.park(c.http, o.Token); err != nil {
					return
				}
				parked <- struct{}{}
				index, n, err := w.await()
				took := time.Since(time.Unix(0, began.Load()))
				mu.Lock()
				if err != nil {
					if ctx.Err() == nil {
						failed = errors.Join(failed, err)
					}
					mu.Unlock()
					answered <- struct{}{}
					return
				}
				record(hist, took)
				mu.Unlock()
				w.index = index
				length.Store(int64(n))
				answered <- struct{}{}
			}
		})
	}
	rss := int64(0)
	for round := range o.Rounds {
		if err := drain(ctx, parked, o.Watchers); err != nil {
			return nil, fmt.Errorf("waiting for the watchers to park: %w", err)
		}
		settle(ctx, 300*time.Millisecond)
		rss = max(rss, c.rssBytes())
		raw := request("PUT", c.http, "/v1/catalog/register", o.Token, instance(watchedService, 1<<20, 9000+round))
		began.Store(time.Now().UnixNano())
		if _, err := runCount(ctx, c.http, 1, 1, func(int) []byte { return raw }); err != nil {
			return nil, fmt.Errorf("make the change: %w", err)
		}
		if err := drain(ctx, answered, o.Watchers); err != nil {
			return nil, fmt.Errorf("waiting for the answers: %w", err)
		}
		mu.Lock()
		err := failed
		mu.Unlock()
		if err != nil {
			return nil, err
		}
		rss = max(rss, c.rssBytes())
		o.say("round %d of %d: max so far %.1f ms", round+1, o.Rounds, float64(maxLocked(&mu, hist))/1000)
	}
	return &Row{What: fmt.Sprintf("one change to %d watchers, %d instances", o.Watchers, o.Instances),
		Requests: int64(o.Watchers * o.Rounds), Millis: millis(hist), RSSBytes: rss,
		Note: fmt.Sprintf("answer of %d bytes, %d rounds", length.Load(), o.Rounds)}, nil
}

func maxLocked(mu *sync.Mutex, h *hdr.Histogram) int64 {
	mu.Lock()
	defer mu.Unlock()
	return h.Max()
}

// openWatcher connects and learns the current index.
func openWatcher(ctx context.Context, c *cluster) (*watcher, error) {
	conn, err := dialWire(ctx, c.http, 4096)
	if err != nil {
		return nil, err
	}
	r, err := conn.do(request("GET", c.http, "/v1/health/service/"+watchedService, c.opts.Token, nil), false, ioDeadline)
	if err != nil {
		return nil, err
	}
	if r.status != 200 || r.index == 0 {
		return nil, fmt.Errorf("first read of a watcher: status %d, index %d", r.status, r.index)
	}
	if err := conn.nc.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	raw, err := conn.nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	return &watcher{nc: conn.nc, raw: raw, index: r.index}, nil
}

func drain(ctx context.Context, ch <-chan struct{}, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i := range n {
		select {
		case <-ch:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d after %w", i, n, ctx.Err())
		}
	}
	return nil
}

// settle leaves the machine quiet for a moment, so that one round's tail does not count in the next.
func settle(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
