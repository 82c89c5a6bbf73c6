package remote

import (
	"bufio"
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

// call is a command that waits for its answer.
type call struct {
	words []string
	begun time.Time
	done  chan struct{}
	reply Reply
	err   error
}

func newCall(words ...string) *call {
	return &call{words: words, begun: time.Now(), done: make(chan struct{})}
}

func (c *call) end(r Reply, err error) {
	c.reply, c.err = r, err
	close(c.done)
}

// host is one of the cache's.
type host struct {
	c     *Client
	addr  string
	end   func() // its connections; the client's lock guards it
	queue chan *call
	// roundtrip is usage.cache.roundtrip of this host: the slow one of a cache is to be seen.
	roundtrip *telemetry.Timing
	draining  atomic.Bool
	copies    atomic.Bool // it copies by itself what is written to it
	slow      slowness
}

// send hands a command over; it is refused when too many wait.
func (h *host) send(call *call) {
	select {
	case h.queue <- call:
	default:
		h.c.meters.refused.Add(1)
		call.end(Reply{}, ErrFull)
	}
}

// run keeps a connection until ctx ends.
func (h *host) run(ctx context.Context) {
	pause := backoff.Backoff{Min: 10 * time.Millisecond, Max: time.Second}
	for ctx.Err() == nil {
		began := time.Now()
		err := h.connection(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > time.Second {
			pause = backoff.Backoff{Min: pause.Min, Max: pause.Max}
		}
		h.c.cfg.Log.Debug("a connection to the cache ended", "host", h.addr, "error", err)
		t := time.NewTimer(pause.Next())
		h.refuse(ctx, t.C, err) // who waits learns it at once: the replica may know
		t.Stop()
	}
	h.refuse(ctx, nil, ErrEnded)
}

// refuse ends the calls that wait, until a time, or until there are none.
func (h *host) refuse(ctx context.Context, until <-chan time.Time, err error) {
	for {
		if until == nil || ctx.Err() != nil {
			select {
			case call := <-h.queue:
				call.end(Reply{}, ErrEnded)
				continue
			default:
				return
			}
		}
		select {
		case call := <-h.queue:
			call.end(Reply{}, errkind.E(errkind.Unavailable, "usage cache "+h.addr, err))
		case <-until:
			return
		case <-ctx.Done():
		}
	}
}

// connection connects, and serves the queue until the connection fails.
func (h *host) connection(ctx context.Context) error {
	cfg := &h.c.cfg
	within, cancel := context.WithTimeout(ctx, cfg.Timeout)
	nc, err := cfg.Dial(within, h.addr)
	cancel()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	defer func() { _ = nc.Close() }()
	in := bufio.NewReaderSize(nc, maxReplyLine)
	if err := h.greet(nc, in); err != nil {
		return err
	}
	sent := make(chan []*call, maxInFlight)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := h.receive(nc, in, sent); err != nil {
			_ = nc.Close() // the sender ends with it
		}
	})
	err = h.transmit(ctx, nc, sent)
	_ = nc.Close()
	close(sent)
	wg.Wait()
	return err
}

// maxInFlight is how many batches of a connection wait for their answers.
const maxInFlight = 64

func (h *host) greet(nc net.Conn, in *bufio.Reader) error {
	cfg := &h.c.cfg
	if err := nc.SetDeadline(time.Now().Add(cfg.Timeout)); err != nil {
		return err
	}
	words := []string{"HELLO", "3"}
	if cfg.Password != nil {
		if secret := cfg.Password(); secret != "" {
			words = append(words, "AUTH", cfg.user(), secret)
		}
	}
	words = append(words, "SETNAME", cfg.Name)
	if _, err := nc.Write(AppendCommand(nil, words...)); err != nil {
		return err
	}
	reply, err := ReadReply(in)
	if err == nil {
		err = reply.Err()
	}
	if err != nil {
		return err
	}
	// A host of Corbel's in a cluster then takes the keys that it has a copy of; any other knows no such command.
	if _, err := nc.Write(AppendCommand(nil, "USAGE.REPLICA")); err != nil {
		return err
	}
	reply, err = ReadReply(in)
	h.copies.Store(err == nil && string(reply.Text) == "COPIES")
	return err
}

// transmit writes what waits, in batches.
func (h *host) transmit(ctx context.Context, nc net.Conn, sent chan<- []*call) error {
	cfg := &h.c.cfg
	look := time.NewTicker(cfg.DrainLook)
	defer look.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var buf []byte
	for {
		var batch []*call
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
			batch = append(batch, newCall("EXISTS", cfg.MaintenanceKey))
		case first := <-h.queue:
			batch = h.inTime(h.gather(append(batch, first), timer))
		}
		if len(batch) == 0 {
			continue
		}
		buf = buf[:0]
		for _, call := range batch {
			buf = AppendCommand(buf, call.words...)
		}
		err := nc.SetDeadline(time.Now().Add(cfg.Timeout))
		if err == nil {
			select {
			case sent <- batch:
				_, err = nc.Write(buf)
			case <-time.After(cfg.Timeout):
				err = errkind.New(errkind.Unavailable, "it does not answer")
				fail(batch, h.addr, err)
			}
		} else {
			fail(batch, h.addr, err)
		}
		if err != nil {
			return err
		}
		if cap(buf) > 1<<20 {
			buf = nil
		}
	}
}

// inTime leaves out the calls that nobody waits for any more.
func (h *host) inTime(batch []*call) []*call {
	oldest := time.Now().Add(-h.c.cfg.Timeout)
	return slices.DeleteFunc(batch, func(call *call) bool {
		late := call.begun.Before(oldest)
		if late {
			call.end(Reply{}, context.DeadlineExceeded)
		}
		return late
	})
}

func fail(batch []*call, addr string, err error) {
	for _, call := range batch {
		call.end(Reply{}, errkind.E(errkind.Unavailable, "usage cache "+addr, err))
	}
}

// gather adds to a batch what comes soon. Where nobody else waits it does not wait either: alone, a call is not slower.
func (h *host) gather(batch []*call, timer *time.Timer) []*call {
	cfg := &h.c.cfg
	for len(batch) < cfg.BatchKeys { // what is there already
		select {
		case call := <-h.queue:
			batch = append(batch, call)
			continue
		default:
		}
		break
	}
	if len(batch) == 1 || len(batch) >= cfg.BatchKeys {
		return batch
	}
	timer.Reset(cfg.BatchWait)
	for len(batch) < cfg.BatchKeys {
		select {
		case call := <-h.queue:
			batch = append(batch, call)
		case <-timer.C:
			return batch
		}
	}
	return batch
}

// receive gives answers to those who wait for them, in their order.
func (h *host) receive(nc net.Conn, in *bufio.Reader, sent <-chan []*call) (err error) {
	for batch := range sent {
		for i, call := range batch {
			var reply Reply
			if err == nil {
				reply, err = h.next(in)
			}
			if err != nil {
				fail(batch[i:], h.addr, err)
				_ = nc.Close() // and the batches after this one fail as well
				break
			}
			if len(call.words) == 2 && call.words[1] == h.c.cfg.MaintenanceKey && call.words[0] == "EXISTS" {
				h.drains(reply.Kind == ':' && reply.Int > 0)
			}
			took := time.Since(call.begun)
			h.slow.add(took)
			h.roundtrip.Observe(took)
			call.end(reply, nil)
		}
	}
	return err
}

// next reads an answer; a push before it is heard.
func (h *host) next(in *bufio.Reader) (Reply, error) {
	for {
		reply, err := ReadReply(in)
		if err != nil || reply.Kind != '>' {
			return reply, err
		}
		if len(reply.List) > 0 && string(reply.List[0].Text) == "maintenance" {
			h.drains(true)
		}
	}
}

func (h *host) drains(now bool) {
	if h.draining.Swap(now) != now {
		h.c.cfg.Log.Info("a host of the cache says whether it drains", "host", h.addr, "draining", now)
		h.c.turned()
	}
}

// moved is where a key is, of an answer MOVED.
func moved(r Reply) (addr string, ok bool) {
	words := strings.Fields(string(r.Text))
	if r.Kind != '-' || len(words) != 3 || words[0] != "MOVED" {
		return "", false
	}
	return words[2], true
}

// slowness remembers the last round trips of a host.
type slowness struct {
	mu   sync.Mutex
	last [128]time.Duration
	n    int
	p95  atomic.Int64
}

func (s *slowness) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[s.n%len(s.last)] = d
	if s.n++; s.n%len(s.last) == 0 {
		sorted := s.last
		slices.Sort(sorted[:])
		s.p95.Store(int64(sorted[len(sorted)*95/100]))
	}
}

// patience is how long to wait before the replica is asked too.
func (s *slowness) patience() time.Duration {
	return max(time.Duration(s.p95.Load()), leastPatience)
}

// leastPatience keeps a fast network's noise from doubling its reads.
const leastPatience = time.Millisecond
