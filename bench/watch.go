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

	"corbel.dev/corbel/kit/rawsock"
	"corbel.dev/corbel/kit/spawn"
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
	// Slow adds watchers that ask without end and read one byte a second; they are not counted.
	Slow int
}

// watcher holds one blocking query. Parked watchers own no buffer: bytes are
// read into a pooled one when the socket becomes readable.
type watcher struct {
	nc    net.Conn
	raw   syscall.RawConn
	index uint64
	req   []byte

	took   time.Duration // of the last answer; read by others between the rounds only
	length int
	state  answerState
	err    error // of the read under way
	// look is set for the few watchers that look for the change in the answer's body.
	look  func() []byte
	saw   bool
	carry []byte // the end of the bytes before, while the change was not seen
	onFD  func(fd uintptr) bool
	begun *atomic.Int64
}

var watchBuffers = sync.Pool{New: func() any { b := make([]byte, 128<<10); return &b }}

// await reads one whole answer.
func (w *watcher) await() error {
	w.state = answerState{head: w.state.head[:0]}
	w.saw, w.carry = w.look == nil, w.carry[:0]
	for !w.state.done {
		w.err = nil
		if err := errors.Join(w.raw.Read(w.onFD), w.err); err != nil {
			return err
		}
	}
	w.took = time.Since(time.Unix(0, w.begun.Load()))
	switch s := &w.state; {
	case s.index <= w.index:
		return fmt.Errorf("an answer has index %d, which is not past %d", s.index, w.index)
	case !s.chunked && s.got != s.want:
		return fmt.Errorf("an answer has %d bytes and says %d", s.got, s.want)
	case !w.saw:
		return fmt.Errorf("the answer of index %d does not show the change %q", s.index, w.look())
	}
	w.index, w.length = w.state.index, w.state.got
	return nil
}

// read takes what the socket has.
func (w *watcher) read(fd uintptr) bool {
	buf := watchBuffers.Get().(*[]byte)
	defer watchBuffers.Put(buf)
	n, err := rawsock.Read(fd, *buf)
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR:
		return false
	case err != nil:
		w.err = err
	case n == 0:
		w.err = errors.New("the server closed the connection")
	default:
		w.search((*buf)[:n])
		w.err = w.state.feed((*buf)[:n])
	}
	return true
}

// search looks for the change in the answer's next bytes.
func (w *watcher) search(p []byte) {
	if w.saw {
		return
	}
	want := w.look()
	w.carry = append(w.carry, p[:min(len(p), len(want))]...)
	w.saw = bytes.Contains(p, want) || bytes.Contains(w.carry, want)
	w.carry = append(w.carry[:0], p[max(0, len(p)-len(want)):]...)
}

// answerState follows one HTTP answer over several reads.
type answerState struct {
	head    []byte // of an answer whose head came in pieces
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
		if len(s.head) > 0 {
			s.head = append(s.head, p...)
			p = s.head
		}
		i := bytes.Index(p, []byte("\r\n\r\n"))
		if i < 0 {
			if len(p) > 64<<10 {
				return errors.New("answer header past 64 KiB")
			}
			if len(s.head) == 0 {
				s.head = append(s.head, p...)
			}
			return nil
		}
		if err := s.parseHead(p[:i]); err != nil {
			return err
		}
		p = p[i+4:]
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
	for len(head) > 0 {
		line := head
		if i := bytes.IndexByte(head, '\n'); i >= 0 {
			line, head = head[:i], head[i+1:]
		} else {
			head = nil
		}
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
func (w *watcher) park(tail []byte) error {
	w.req = append(w.req[:0], "GET /v1/health/service/"+watchedService+"?index="...)
	w.req = append(strconv.AppendUint(w.req, w.index, 10), tail...)
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
	if o.Slow < 0 || o.Slow > 5000 {
		return nil, errors.New("--slow must be 0 to 5000")
	}
	if o.Watchers < 0 || o.Watchers > 60000 || o.Instances < 0 || o.Instances > 5000 || o.Rounds < 0 {
		return nil, errors.New("--watchers must be at most 60000 and --instances at most 5000, none below zero")
	}
	if err := o.Complete(); err != nil {
		return nil, err
	}
	c, err := OpenTarget(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	if o.FleetNodes > 0 {
		if err := fillFleet(ctx, c, o.FleetNodes); err != nil {
			return nil, err
		}
	}
	if err := fillService(ctx, c, watchedService, 1<<20, o.Instances); err != nil {
		return nil, err
	}
	r := NewResult("watch", &o.Options)
	row, err := watchRounds(ctx, c, &o)
	if err != nil {
		return nil, err
	}
	r.Rows = append(r.Rows, *row)
	o.Connections = 64
	return r, r.AddFloors(ctx, &o.Options)
}

// lookEvery is how many watchers there are for one that searches each answer for the change.
const lookEvery = 50

// watchers are all of them and what they tell.
type watchers struct {
	list             []*watcher
	tail             []byte // of each query, behind the index
	begun            atomic.Int64
	change           atomic.Pointer[[]byte] // what the answers must show
	parked, answered tally

	mu     sync.Mutex // guards failed
	failed error
}

// tally counts to a number and tells when it is reached.
type tally struct {
	left    atomic.Int64
	reached chan struct{}
}

func (t *tally) start(n int) {
	t.left.Store(int64(n))
	select {
	case <-t.reached:
	default:
	}
}

func (t *tally) add() {
	if t.left.Add(-1) == 0 {
		t.reached <- struct{}{}
	}
}

func (t *tally) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	select {
	case <-t.reached:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d are missing: %w", t.left.Load(), ctx.Err())
	}
}

func (c *watchers) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = errors.Join(c.failed, err)
}

func (c *watchers) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// run asks again and again until ctx ends.
func (c *watchers) run(ctx context.Context, w *watcher) {
	stop := context.AfterFunc(ctx, func() { _ = w.nc.Close() })
	defer stop()
	for {
		if err := w.park(c.tail); err != nil {
			return
		}
		c.parked.add()
		err := w.await()
		if err != nil && ctx.Err() == nil {
			c.fail(err)
		}
		c.answered.add()
		if err != nil {
			return
		}
	}
}

func watchRounds(ctx context.Context, c *Target, o *WatchOptions) (*Row, error) {
	hist := NewHistogram()
	all := &watchers{parked: tally{reached: make(chan struct{}, 1)}, answered: tally{reached: make(chan struct{}, 1)}}
	all.tail = fmt.Appendf(nil, "&wait=300s HTTP/1.1\r\nHost: %s\r\n", c.HTTP)
	if o.Token != "" {
		all.tail = fmt.Appendf(all.tail, "X-Consul-Token: %s\r\n", o.Token)
	}
	all.tail = append(all.tail, "\r\n"...)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); wg.Wait() }()
	o.Say("opening %d watchers ...", o.Watchers)
	all.parked.start(o.Watchers)
	for i := range o.Watchers {
		w, err := openWatcher(ctx, c)
		if err != nil {
			return nil, err
		}
		w.begun, w.onFD = &all.begun, w.read
		if i%lookEvery == 0 {
			w.look = func() []byte { return *all.change.Load() }
		}
		all.list = append(all.list, w)
		wg.Go(func() { all.run(ctx, w) })
	}
	slow, err := openSlow(ctx, c, o)
	defer slow.close()
	if err != nil {
		return nil, err
	}
	rss := int64(0)
	for round := range o.Rounds {
		if err := all.parked.wait(ctx); err != nil {
			return nil, fmt.Errorf("waiting for the watchers to park: %w", errors.Join(err, all.failure()))
		}
		Settle(ctx, 300*time.Millisecond)
		rss = max(rss, c.rssBytes())
		if err := all.round(ctx, c, o, 9000+round); err != nil {
			return nil, err
		}
		slowest := time.Duration(0)
		for _, w := range all.list {
			Record(hist, w.took)
			slowest = max(slowest, w.took)
		}
		rss = max(rss, c.rssBytes())
		o.Say("round %d of %d: max %.1f ms", round+1, o.Rounds, slowest.Seconds()*1000)
	}
	return &Row{What: fmt.Sprintf("one change to %d watchers, %d instances", o.Watchers, o.Instances),
		Requests: int64(o.Watchers * o.Rounds), Millis: Millis(hist), RSSBytes: rss,
		Note: fmt.Sprintf("answer of %d bytes, %d rounds%s", all.list[0].length, o.Rounds, slow.note())}, nil
}

// round makes one change and waits until every watcher has read its answer.
func (all *watchers) round(ctx context.Context, c *Target, o *WatchOptions, port int) error {
	raw := Request("PUT", c.HTTP, "/v1/catalog/register", o.Token, instance(watchedService, 1<<20, port))
	change := fmt.Appendf(nil, `"Port":%d`, port)
	all.change.Store(&change)
	all.parked.start(len(all.list)) // who is answered asks again at once
	all.answered.start(len(all.list))
	all.begun.Store(time.Now().UnixNano())
	if _, err := RunCount(ctx, c.HTTP, 1, 1, func(int) []byte { return raw }); err != nil {
		return fmt.Errorf("make the change: %w", err)
	}
	if err := all.answered.wait(ctx); err != nil {
		return fmt.Errorf("waiting for the answers: %w", errors.Join(err, all.failure()))
	}
	return all.failure()
}

// openWatcher connects and learns the current index.
func openWatcher(ctx context.Context, c *Target) (*watcher, error) {
	conn, err := DialWire(ctx, c.HTTP, 4096)
	if err != nil {
		return nil, err
	}
	r, err := conn.Do(Request("GET", c.HTTP, "/v1/health/service/"+watchedService, c.Opts.Token, nil), false, IoDeadline)
	if err != nil {
		return nil, err
	}
	if r.Status != 200 || r.index == 0 {
		return nil, fmt.Errorf("first read of a watcher: status %d, index %d", r.Status, r.index)
	}
	if err := conn.nc.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	raw := rawsock.Of(conn.nc)
	if raw == nil {
		return nil, errors.New("watchers need sockets of Unix: run this bench on Linux or macOS")
	}
	return &watcher{nc: conn.nc, raw: raw, index: r.index, length: r.length}, nil
}

// Settle leaves the machine quiet for a moment, so that one round's tail does not count in the next.
func Settle(ctx context.Context, d time.Duration) { _ = spawn.Sleep(ctx, d) }
