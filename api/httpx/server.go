package httpx

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/hothttp"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/telemetry"
)

// Listen is one place that a Server serves at.
type Listen struct {
	// Address is host:port, or unix:///path for a socket.
	Address string
	// TLS, when set, makes it HTTPS.
	TLS *tls.Config
	// Proxied, when set, has connections tell where they come from by the PROXY protocol.
	Proxied *Proxied
}

// UnixMode is who may use a socket. Empty fields leave what the system gives.
type UnixMode struct{ User, Group, Mode string }

// ServerConfig configures a Server. Zero fields mean the defaults in brackets.
type ServerConfig struct {
	Name    string // for logs and metrics: "catalog"
	Listen  []Listen
	Unix    UnixMode
	Handler http.Handler
	// Hot, when set, is asked first on plain connections (see api/hothttp); what it
	// declines goes to Handler.
	Hot hothttp.Handler

	// HTTP2 offers HTTP/2 to clients with TLS, up to 100 requests of a connection at once.
	HTTP2 bool

	// Open opens a socket of TCP; nil is net.Listen.
	Open func(network, address string) (net.Listener, error)

	Conns             *limit.Conns  // of each address; nil has no limit
	ExemptLoopback    bool          // loopback clients are not counted
	ReadHeaderTimeout time.Duration // [10 s]
	IdleTimeout       time.Duration // [2 min]
	// BodyGrace is how long a body may take to come, beside a second for each KiB [30 s].
	BodyGrace time.Duration
	// WriteTimeout is how long a request may take from its header to the last byte of its answer; zero: as long as its
	// handler does. On connections that Hot serves it bounds how long an answer may wait for a slow client, zero being
	// 30 s.
	WriteTimeout   time.Duration
	MaxHeaderBytes int // [1 MiB]
	// DrainGrace is how long requests in flight may still work undisturbed when
	// the server stops; then parked requests and streams are told to end [500 ms].
	DrainGrace time.Duration
	// DrainTimeout bounds the whole drain [5 s].
	DrainTimeout time.Duration

	// Bytes is the budget that large bodies and answers count in; nil has no end.
	Bytes *limit.Bytes

	Logger  *slog.Logger
	Metrics *telemetry.Registry
}

// Server serves one handler at its listeners. Bind opens them, Run serves until its
// context ends and then drains.
type Server struct {
	cfg       ServerConfig
	log       *slog.Logger
	http      *http.Server
	refuse    *http.Server
	limit     *connLimit
	seen      hangUps
	mu        sync.Mutex // guards listeners and paths
	listeners []net.Listener
	base      context.Context
	endBase   context.CancelFunc
	ran       atomic.Bool
}

// NewServer checks the configuration; it opens nothing.
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.Handler == nil {
		return nil, errors.New("httpx: Handler is missing")
	}
	if len(cfg.Listen) == 0 {
		return nil, errors.New("httpx: Listen is empty")
	}
	if cfg.Open == nil {
		cfg.Open = net.Listen
	}
	setDefault(&cfg.ReadHeaderTimeout, 10*time.Second)
	setDefault(&cfg.IdleTimeout, 2*time.Minute)
	setDefault(&cfg.BodyGrace, 30*time.Second)
	setDefault(&cfg.MaxHeaderBytes, 1<<20)
	setDefault(&cfg.DrainGrace, 500*time.Millisecond)
	setDefault(&cfg.DrainTimeout, 5*time.Second)
	s := &Server{cfg: cfg, log: cfg.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.base, s.endBase = context.WithCancel(withBytes(context.Background(), cfg.Bytes))
	quiet := slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
	s.http = &http.Server{
		Handler: s.paced(cfg.Handler), ErrorLog: quiet,
		ReadHeaderTimeout: cfg.ReadHeaderTimeout, WriteTimeout: cfg.WriteTimeout, IdleTimeout: cfg.IdleTimeout,
		MaxHeaderBytes: cfg.MaxHeaderBytes,
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: 100},
		BaseContext:    func(net.Listener) context.Context { return s.base },
		ConnContext:    s.seen.opened, ConnState: s.seen.changed,
	}
	s.refuse = &http.Server{
		Handler: http.HandlerFunc(refuseConn), ErrorLog: quiet,
		ReadHeaderTimeout: refuseTimeout, ReadTimeout: refuseTimeout, WriteTimeout: refuseTimeout,
		MaxHeaderBytes: cfg.MaxHeaderBytes,
	}
	s.limit = newConnLimit(&cfg)
	return s, nil
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Bind opens the listeners; on an error none stays open.
func (s *Server) Bind() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listeners) > 0 {
		return nil
	}
	for _, l := range s.cfg.Listen {
		ln, err := s.open(l)
		if err != nil {
			for _, o := range s.listeners {
				_ = o.Close()
			}
			s.listeners = nil
			return fmt.Errorf("listen on %s: %w", l.Address, err)
		}
		s.listeners = append(s.listeners, ln)
	}
	return nil
}

// Addrs returns where the server listens, in the order of Config.Listen; empty before Bind.
func (s *Server) Addrs() []net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	addrs := make([]net.Addr, len(s.listeners))
	for i, l := range s.listeners {
		addrs[i] = l.Addr()
	}
	return addrs
}

func (s *Server) open(l Listen) (net.Listener, error) {
	if path, ok := strings.CutPrefix(l.Address, "unix://"); ok {
		return OpenUnix(path, s.cfg.Unix)
	}
	ln, err := s.cfg.Open("tcp", l.Address)
	if err != nil {
		return nil, err
	}
	if l.Proxied != nil {
		ln = l.Proxied.wrap(ln)
	}
	return s.limit.wrap(ln, l.TLS, s.cfg.HTTP2), nil
}

// OpenUnix listens on a socket file. It takes over one that a former process left behind, but no other file.
func OpenUnix(path string, mode UnixMode) (net.Listener, error) {
	if st, err := os.Lstat(path); err == nil {
		if st.Mode()&fs.ModeSocket == 0 {
			return nil, fmt.Errorf("%s exists and is not a socket", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := mode.apply(path); err != nil {
		_ = ln.Close()
		return nil, err
	}
	return ln, nil
}

func (m UnixMode) apply(path string) error {
	uid, gid := -1, -1
	if m.User != "" {
		name := m.User
		if u, err := user.Lookup(name); err == nil {
			name = u.Uid
		}
		n, err := strconv.Atoi(name)
		if err != nil {
			return fmt.Errorf("unix_sockets.user %q is unknown", m.User)
		}
		uid = n
	}
	if m.Group != "" {
		name := m.Group
		if g, err := user.LookupGroup(name); err == nil {
			name = g.Gid
		}
		n, err := strconv.Atoi(name)
		if err != nil {
			return fmt.Errorf("unix_sockets.group %q is unknown", m.Group)
		}
		gid = n
	}
	if uid >= 0 || gid >= 0 {
		if err := os.Chown(path, uid, gid); err != nil {
			return err
		}
	}
	if m.Mode == "" {
		return nil
	}
	mode, err := strconv.ParseUint(m.Mode, 8, 32)
	if err != nil {
		return fmt.Errorf("unix_sockets.mode %q is not an octal mode", m.Mode)
	}
	return os.Chmod(path, fs.FileMode(mode))
}

// Run serves until ctx ends, then drains: no new connections, requests in
// flight end, parked requests answer, and whatever is left after DrainTimeout is
// cut. It returns after its last goroutine has ended. A Server runs once.
func (s *Server) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return errors.New("httpx: a Server runs once")
	}
	if err := s.Bind(); err != nil {
		return err
	}
	s.mu.Lock()
	listeners := s.listeners
	s.mu.Unlock()
	refused := s.limit.refused
	var wg sync.WaitGroup
	failed := make(chan error, 2*len(listeners)+1) // one for each goroutine below
	serve := func(h *http.Server, l net.Listener) {
		if err := h.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}
	hotCtx, endHot := context.WithCancel(context.Background())
	defer endHot()
	var hots []*hothttp.Server
	slow := s.limit.slow
	wg.Go(func() { slow.run(hotCtx) })
	wg.Go(func() { s.seen.run(hotCtx) })
	for i, l := range listeners {
		if s.cfg.Hot != nil && s.cfg.Listen[i].TLS == nil {
			hot, err := hothttp.New(l, hothttp.Config{Handler: s.cfg.Hot, Log: s.log, FirstByteTimeout: s.cfg.ReadHeaderTimeout,
				IdleTimeout:  s.cfg.IdleTimeout,
				WriteTimeout: s.cfg.WriteTimeout, Waits: slow.begin,
				AcceptFailed: func() { s.cfg.Metrics.Counter("net.accept_errors").Add(1) }})
			if err != nil {
				return err
			}
			l = hot.Fallback()
			hots = append(hots, hot)
			wg.Go(func() {
				if err := hot.Run(hotCtx); err != nil {
					failed <- err
				}
			})
		}
		wg.Go(func() { serve(s.http, l) })
	}
	wg.Go(func() { serve(s.refuse, refused) })
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.drain(listeners, hots, endHot)
	wg.Wait()
	return err
}

// firstRequestGrace is for how long a drain waits for the first request of a connection that it let in: a client on a
// machine that hardly runs takes a second for it.
const firstRequestGrace = 2 * time.Second

// drain stops accepting at once; who was let in is heard. Requests in flight on the hot path end;
// parked ones have been answered by then, or are cut with their connection.
func (s *Server) drain(listeners []net.Listener, hots []*hothttp.Server, endHot func()) {
	if s.cfg.Hot != nil {
		for _, l := range listeners {
			_ = l.Close()
		}
		soon, cancel := context.WithTimeout(context.Background(), firstRequestGrace)
		for _, hot := range hots {
			hot.Settle(soon)
		}
		cancel()
	}
	grace := time.AfterFunc(s.cfg.DrainGrace, func() { s.endBase(); endHot() })
	defer grace.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.DrainTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.log.Warn("requests were cut at the end of the drain", "server", s.cfg.Name, "after", s.cfg.DrainTimeout)
		_ = s.http.Close()
	}
	s.endBase()
	endHot()
	_ = s.refuse.Close()
}
