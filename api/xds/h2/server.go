package h2

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/telemetry"
)

// Config says what a Server serves and what it allows. Zero limits mean the defaults.
type Config struct {
	// Start begins a call or refuses it. It runs under the connection's lock.
	Start func(s *Stream, method string, md Metadata) (Call, *Status)
	// Written is told after each system call when the content that it carried was
	// changed (see Message.Changed), in nanoseconds since 1970, oldest stream first.
	Written func(changed []int64, now time.Time)
	Log     *slog.Logger
	Metrics *telemetry.Registry
	// Prefix begins the metrics' names, "grpc" by default.
	Prefix string

	MaxConns          int // 20,000
	MaxStreams        int // on all connections; 250,000
	MaxStreamsPerConn int // 1,024
	MaxMessage        int // bytes of a request; 4 MiB
	MaxPartial        int // bytes of half-received requests on all connections; 256 MiB
	// Bytes is the budget of requests beyond limit.FreeBytes, of all ports of the process; nil has no end.
	Bytes *limit.Bytes

	HandshakeTimeout time.Duration // for TLS and the connection's preface; 10 s
	RequestTimeout   time.Duration // for a stream's first message, and for the rest of one that began; 30 s
	StallTimeout     time.Duration // for a write, and for a message that waits for the peer's window; 30 s
	KeepAlive        time.Duration // silence after which the peer is asked whether it lives; 60 s
	KeepAliveTimeout time.Duration // for its answer; 20 s
	IdleTimeout      time.Duration // for a connection without streams; 5 min
	Sweep            time.Duration // how often deadlines are looked at; 2 s
}

func (c *Config) complete() {
	for _, d := range []struct {
		field    *time.Duration
		standard time.Duration
	}{
		{&c.HandshakeTimeout, 10 * time.Second}, {&c.RequestTimeout, 30 * time.Second}, {&c.StallTimeout, 30 * time.Second},
		{&c.KeepAlive, time.Minute}, {&c.KeepAliveTimeout, 20 * time.Second}, {&c.IdleTimeout, 5 * time.Minute},
		{&c.Sweep, 2 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.standard
		}
	}
	for _, n := range []struct {
		field    *int
		standard int
	}{
		{&c.MaxConns, 20_000}, {&c.MaxStreams, 250_000}, {&c.MaxStreamsPerConn, 1024}, {&c.MaxMessage, 4 << 20},
		{&c.MaxPartial, 256 << 20},
	} {
		if *n.field <= 0 {
			*n.field = n.standard
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Prefix == "" {
		c.Prefix = "grpc"
	}
	if c.Written == nil {
		c.Written = func([]int64, time.Time) {}
	}
}

// Server serves gRPC streams. Use New.
type Server struct {
	cfg   Config
	epoch time.Time // deadlines are kept as nanoseconds since then

	conns, streams, partial atomic.Int64
	flushes, bytes          *telemetry.Counter
	refused, cut            *telemetry.Counter
	late                    *telemetry.Laggards
}

// New makes a server; Run serves a listener.
func New(cfg Config) *Server {
	cfg.complete()
	s := &Server{cfg: cfg, epoch: time.Now()}
	m := cfg.Metrics
	s.flushes, s.bytes = m.Counter(cfg.Prefix+".flushes"), m.Counter(cfg.Prefix+".written_bytes")
	s.refused, s.cut = m.Counter(cfg.Prefix+".refused"), m.Counter(cfg.Prefix+".cut")
	s.late = m.Laggards(strings.TrimSuffix(cfg.Prefix, ".grpc"))
	m.GaugeFunc(cfg.Prefix+".connections", func() float64 { return float64(s.conns.Load()) })
	m.GaugeFunc(cfg.Prefix+".partial_bytes", func() float64 { return float64(s.partial.Load()) })
	return s
}

// Streams is how many streams are open.
func (s *Server) Streams() int { return int(s.streams.Load()) }

func (s *Server) since(now time.Time) int64 { return int64(now.Sub(s.epoch)) }

// Run serves the connections of a listener until ctx ends: TCP or unix, plain
// HTTP/2 with prior knowledge, or what tls.NewListener made with "h2" among its
// NextProtos. It closes the listener, tells the clients, and returns when all its
// goroutines have ended. It may run for several listeners at once.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	run, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	all.Go(func() {
		<-run.Done()
		_ = listener.Close()
	})
	mine := &connSet{}
	all.Go(func() { s.sweep(run, mine) })
	err := s.accept(run, listener, mine, &all)
	stop()
	for _, c := range mine.list() {
		c.shutDown()
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (s *Server) accept(ctx context.Context, listener net.Listener, mine *connSet, all *sync.WaitGroup) error {
	for {
		nc, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return err
			}
			s.cfg.Log.Warn("grpc: accepting a connection failed", "error", err)
			select { // out of descriptors, say: others may be freed
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		if s.conns.Add(1) > int64(s.cfg.MaxConns) {
			s.conns.Add(-1)
			s.refused.Add(1)
			_ = nc.Close()
			continue
		}
		c := newConn(s, nc)
		mine.add(c)
		all.Go(func() {
			defer s.conns.Add(-1)
			defer mine.remove(c)
			c.run(ctx)
		})
	}
}

func (s *Server) sweep(ctx context.Context, conns *connSet) {
	tick := time.NewTicker(s.cfg.Sweep)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, c := range conns.list() {
				c.sweep(now)
			}
			s.late.Tell()
		}
	}
}

type connSet struct {
	mu  sync.Mutex
	all map[*Conn]struct{}
}

func (s *connSet) add(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*Conn]struct{}{}
	}
	s.all[c] = struct{}{}
}

func (s *connSet) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
}

func (s *connSet) list() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Conn, 0, len(s.all))
	for c := range s.all {
		out = append(out, c)
	}
	return out
}

// handshake completes TLS, if any, and makes sure that both sides mean HTTP/2.
func handshake(ctx context.Context, nc net.Conn) error {
	t, ok := nc.(*tls.Conn)
	if !ok {
		return nil
	}
	if err := t.HandshakeContext(ctx); err != nil {
		return err
	}
	if p := t.ConnectionState().NegotiatedProtocol; !slices.Contains([]string{"h2", ""}, p) {
		return errors.New("the client speaks " + p + " and not h2")
	}
	return nil
}
