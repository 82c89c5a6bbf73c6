package monitorload

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/bench"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"corbel.dev/corbel/bench/agents"
	"corbel.dev/corbel/client/sensu"
)

// followers learn when the sample's events were stored, and when a handler got them. Events carry the time at which
// they were sent; servers show an event once it is durable, and call handlers then.
type followers struct {
	ctx    context.Context
	cancel context.CancelFunc
	sink   net.Listener
	wg     sync.WaitGroup
	alarms atomic.Int64 // results of the check keepalive that are not OK
	broken atomic.Int64 // streams that ended

	mu              sync.Mutex
	on              bool
	stored, handled *hdr.Histogram
}

func newFollowers() (*followers, error) {
	sink, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &followers{sink: sink, stored: bench.NewHistogram(), handled: bench.NewHistogram()}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.wg.Go(f.accept)
	return f, nil
}

func (f *followers) address() (host string, port int) {
	a := f.sink.Addr().(*net.TCPAddr)
	return a.IP.String(), a.Port
}

// accept takes what the handler sends: one event for each connection.
func (f *followers) accept() {
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		nc, err := f.sink.Accept()
		if err != nil {
			return
		}
		conns.Go(func() {
			defer func() { _ = nc.Close() }()
			_ = nc.SetDeadline(time.Now().Add(bench.IoDeadline))
			event, err := io.ReadAll(io.LimitReader(nc, 1<<20))
			if err == nil {
				f.note(f.handled, event, time.Now())
			}
		})
	}
}

// watch follows a server's events: the sample's, and failures of keepalives in both namespaces.
func (f *followers) watch(c *sensu.Client) {
	f.wg.Go(func() {
		for event, err := range c.Follow(f.ctx, url.Values{"namespace": {agents.SampleNamespace}}) {
			if err != nil {
				f.broken.Add(1)
				continue
			}
			f.note(f.stored, event, time.Now())
		}
	})
	f.wg.Go(func() {
		for event, err := range c.Follow(f.ctx, url.Values{"check": {"keepalive"}, "changes": {"true"}}) {
			var e struct {
				Check struct{ Status int }
			}
			if err == nil && json.Unmarshal(event, &e) == nil && e.Check.Status != 0 {
				f.alarms.Add(1)
			}
		}
	})
}

var sentMark = []byte("sent=")

// note records how long ago the event was sent.
func (f *followers) note(h *hdr.Histogram, event []byte, now time.Time) {
	_, rest, ok := bytes.Cut(event, sentMark)
	if !ok || len(rest) < 20 {
		return
	}
	nanos, err := strconv.ParseInt(string(rest[:20]), 10, 64)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.on {
		bench.Record(h, now.Sub(time.Unix(0, nanos)))
	}
}

// Record begins and ends what counts.
func (f *followers) Record(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on = on
}

// Forget begins the latencies anew.
func (f *followers) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stored.Reset()
	f.handled.Reset()
}

// Latencies are those of the stored and of the handled sample.
func (f *followers) Latencies() (stored, handled map[string]float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bench.Millis(f.stored), bench.Millis(f.handled)
}

func (f *followers) close() {
	f.cancel()
	_ = f.sink.Close()
	f.wg.Wait()
}
