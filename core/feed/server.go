package feed

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

// Hello is what a connection begins with, for ServerConfig.Admit to judge.
type Hello struct {
	Node, Token string // as the agent says
	Remote      net.Addr
	TLS         *tls.ConnectionState // nil on a plain connection
}

// ServerConfig bounds a Server. The zero value of each field means its default.
type ServerConfig struct {
	// Source gives the values. Required.
	Source Source
	// Admit refuses a connection with an error; nil admits all that wire let in.
	Admit func(Hello) error
	// Lag is for how long what Source says may be behind the cluster: since a leader
	// was heard. It rides on heartbeats, so that agents leave a server that was cut off. nil: never.
	Lag func() time.Duration

	// MaxConns bounds the connections; 20,000. One more is told to go elsewhere.
	MaxConns int
	// MaxFollows bounds the subjects of one connection; 8,192.
	MaxFollows int
	// Heartbeat is the interval of heartbeats on each connection; 1 s.
	Heartbeat time.Duration
	// WriteTimeout cuts a connection that did not take what was written to it within so long; 10 s.
	WriteTimeout time.Duration
	// HelloTimeout cuts a connection that did not say who it is; 5 s.
	HelloTimeout time.Duration
	// InFlightBytes is how much all connections together may hold in buffers that are
	// being written; 64 MiB. Beyond it each writes a few kB at a time.
	InFlightBytes int64

	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *telemetry.Registry
}

func (c *ServerConfig) complete() error {
	setDefault(&c.MaxConns, 20_000)
	setDefault(&c.MaxFollows, 8192)
	setDefault(&c.Heartbeat, time.Second)
	setDefault(&c.WriteTimeout, 10*time.Second)
	setDefault(&c.HelloTimeout, 5*time.Second)
	setDefault(&c.InFlightBytes, 64<<20)
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var wrong []error
	if c.Source == nil {
		wrong = append(wrong, errors.New("a source is needed"))
	}
	if c.MaxConns < 0 || c.MaxFollows < 0 || c.InFlightBytes < 0 {
		wrong = append(wrong, errors.New("limits are not negative"))
	}
	if c.Heartbeat < 10*time.Millisecond {
		wrong = append(wrong, errors.New("a heartbeat interval is at least 10 ms"))
	}
	return errkind.E(errkind.Invalid, "feed: server", errors.Join(wrong...))
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Server gives agents the values of a Source.
//
// A connection costs one goroutine, which reads; a second one exists while there is
// something to write. A change is a call of set for each follower: it marks the
// subject in its connection and wakes the writer, encodes nothing and waits for nobody.
// What a connection has not taken yet is its set of marked subjects, so memory for a slow
// one is bounded by what it follows, and what it gets in the end is the newest.
type Server struct {
	cfg      ServerConfig
	meters   serverMeters
	buffers  sync.Pool // of *outBuffer, large
	small    sync.Pool // of *outBuffer, for one or two small values
	inFlight atomic.Int64
	// followed and dirtied are the subjects followed, and those of them that wait to be written.
	followed, dirtied atomic.Int64
	served            sync.WaitGroup // goroutines of connections

	lastBeat atomic.Pointer[heartbeat] // of the newest tick

	mu       sync.Mutex // guards the following; never held while calling out
	conns    []*serverConn
	draining bool
}

// NewServer returns a Server that does nothing before Run.
func NewServer(cfg ServerConfig) (*Server, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg}
	s.buffers.New = func() any { return &outBuffer{b: make([]byte, 0, largeBufferBytes)} }
	s.small.New = func() any { return &outBuffer{b: make([]byte, 0, smallBufferBytes)} }
	s.meters = newServerMeters(cfg.Metrics, s)
	return s, nil
}

// ticksPerHeartbeat spreads the heartbeats of all connections over their interval.
const ticksPerHeartbeat = 8

// Run serves the connections of l until ctx ends, then tells each that it closes and
// returns after their last goroutine. It closes l.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	tickCtx, cancel := context.WithCancel(ctx)
	var ticking sync.WaitGroup
	ticking.Go(func() { s.tick(tickCtx) })
	var err error
	for {
		conn, acceptErr := l.Accept()
		if acceptErr != nil {
			if ctx.Err() == nil {
				err = errkind.E(errkind.Unavailable, "feed: accept", acceptErr)
			}
			break
		}
		s.serve(conn)
	}
	l.Close()
	cancel()
	ticking.Wait()
	s.stop()
	return err
}

func (s *Server) serve(conn net.Conn) {
	c := newServerConn(s, conn)
	s.mu.Lock()
	var err error
	switch {
	case s.draining:
		err = errDraining
	case len(s.conns) >= s.cfg.MaxConns:
		err = errkind.Errorf(errkind.Overloaded, "feed: the server has its %d connections", s.cfg.MaxConns)
	default:
		s.conns = append(s.conns, c)
		c.place = len(s.conns) - 1
	}
	s.mu.Unlock()
	if err != nil {
		s.refuse(conn, err)
		return
	}
	s.meters.conns.Add(1)
	s.served.Go(c.read)
}

// refuse tells a connection that is not taken in to go elsewhere: a few bytes into an empty socket, which wait for
// nobody.
func (s *Server) refuse(conn net.Conn, err error) {
	s.meters.refused.Add(1)
	_ = conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
	_, _ = conn.Write(appendBye(nil, err))
	conn.Close()
}

// remove forgets a connection that serve took in.
func (s *Server) remove(c *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.place < 0 {
		return
	}
	last := len(s.conns) - 1
	s.conns[c.place] = s.conns[last]
	s.conns[c.place].place = c.place
	s.conns[last] = nil
	s.conns = s.conns[:last]
	c.place = -1
	s.meters.conns.Add(-1)
}

var (
	errDraining = errkind.New(errkind.Unavailable, "feed: the server drains")
	errStops    = errkind.New(errkind.Unavailable, "feed: the server stops")
)

// stop says goodbye to all connections and waits for their goroutines.
func (s *Server) stop() {
	s.dismiss(errStops)
	s.served.Wait()
}

// dismiss tells all agents to go elsewhere. They wait up to ClientConfig.Jitter, so that they do not come to another
// server all at once.
func (s *Server) dismiss(bye error) {
	s.mu.Lock()
	s.draining = true
	conns := append([]*serverConn(nil), s.conns...)
	s.mu.Unlock()
	for _, c := range conns {
		c.end(bye)
	}
}

// Drain tells all agents to go elsewhere, also those that come from now on, and returns once they have gone or ctx
// ended, with how many are left.
func (s *Server) Drain(ctx context.Context) int {
	s.dismiss(errDraining)
	timer := s.cfg.Clock.NewTimer(0)
	defer timer.Stop()
	for {
		left := s.Stats().Conns
		if left == 0 {
			return 0
		}
		timer.Reset(drainLook)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return left
		}
	}
}

// drainLook is how often Drain counts who is left.
const drainLook = 10 * time.Millisecond

// tick sends heartbeats and cuts connections that make no progress, an eighth of them at a time.
func (s *Server) tick(ctx context.Context) {
	interval := s.cfg.Heartbeat / ticksPerHeartbeat
	timer := s.cfg.Clock.NewTimer(interval)
	defer timer.Stop()
	var batch []*serverConn
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		s.mu.Lock()
		batch = batch[:0]
		for i := turn % ticksPerHeartbeat; i < len(s.conns); i += ticksPerHeartbeat {
			batch = append(batch, s.conns[i])
		}
		s.mu.Unlock()
		// Newest before the values are looked at: what it covers is marked in every connection by now.
		now := s.cfg.Clock.Now()
		beat := s.beat(now)
		s.lastBeat.Store(&beat)
		for _, c := range batch {
			c.tick(now, beat)
		}
		if turn%ticksPerHeartbeat == ticksPerHeartbeat-1 {
			s.meters.late.Tell()
		}
		clear(batch)
		timer.Reset(interval)
	}
}

// beat is a heartbeat of now.
func (s *Server) beat(now time.Time) heartbeat {
	beat := heartbeat{now: now.UnixNano()}
	beat.generation, beat.known = s.cfg.Source.Newest()
	if s.cfg.Lag != nil {
		beat.lag = s.cfg.Lag()
	}
	return beat
}

// Stats are numbers of now.
type Stats struct {
	Conns   int   // connections
	Follows int64 // subjects followed, over all connections
	Dirty   int64 // of those, the ones whose newest value has not been written yet
	// InFlightBytes are in buffers that are being written.
	InFlightBytes int64
}

// Stats returns the numbers of now.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	conns := len(s.conns)
	s.mu.Unlock()
	return Stats{conns, s.followed.Load(), s.dirtied.Load(), s.inFlight.Load()}
}
