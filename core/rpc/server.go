// Package rpc carries calls and streams between the processes of a cluster.
//
// A call is one request and one answer, a stream is one request and many frames.
// Payloads are raw bytes (kit/pack records by convention) that pass through gRPC
// without being encoded again; it is the only package that imports grpc for this.
//
// What always holds:
//   - A method is handled for the roles that its registration names, and for nobody else: who calls is known by the
//     connection (wire.Peer), before the handler runs. Others get an error of kind Denied.
//   - An error that a handler returns arrives with its kind, its operation and its
//     text. Errors of the transport itself are of kind Unavailable when the request
//     certainly did not reach a handler, and Unknown when it may have.
//   - Every call has a deadline: the context's, or Config.Timeout.
//   - A stream that is idle carries a heartbeat frame each Heartbeat; a client that
//     sees nothing for Lag ends the stream as Unavailable. A consumer that takes
//     nothing for SendTimeout is cut.
//   - Requests handed to a handler belong to it. An answer, or a sent frame, must not
//     be changed afterwards: its bytes are written out without a copy, so the same
//     slice may be sent to any number of peers.
//
// Calls of one connection are bounded by MaxStreams (the client's calls beyond it
// wait for their own deadline), message sizes by MaxMessageBytes (kind TooLarge).
// Server and Client are safe for concurrent use; Handle is for before Run.
package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/telemetry"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Handler answers a call. It owns req; ctx ends with the caller's deadline, when
// the caller goes away, and when the server stops.
type Handler func(ctx context.Context, req []byte) ([]byte, error)

// StreamHandler serves a stream until it returns: nil ends it in order, an error
// reaches the client's Recv. send may be called from one goroutine at a time.
type StreamHandler func(ctx context.Context, req []byte, send func([]byte) error) error

// ServerConfig bounds a Server. The zero value of each field means its default.
type ServerConfig struct {
	// MaxMessageBytes bounds one request; 64 MiB.
	MaxMessageBytes int
	// MaxStreams bounds the calls and streams in flight of one connection; 10,000.
	MaxStreams uint32
	// Heartbeat is how long a stream may be idle before a heartbeat is sent; 10 s.
	Heartbeat time.Duration
	// SendTimeout cuts a stream whose consumer takes nothing for so long; 30 s.
	SendTimeout time.Duration
	// Bytes is where requests above limit.FreeBytes take room before they are kept; nil is no bound.
	Bytes *limit.Bytes
	// Drain is how long calls in flight may take to end when the server stops; 5 s.
	Drain time.Duration
	// KeepAlive is the idle time of a connection before it is probed; 20 s.
	KeepAlive time.Duration
	Log       *slog.Logger
	Metrics   *telemetry.Registry
}

func (c *ServerConfig) complete() {
	setDefault(&c.MaxMessageBytes, 64<<20)
	setDefault(&c.MaxStreams, 10_000)
	setDefault(&c.Heartbeat, 10*time.Second)
	setDefault(&c.SendTimeout, 30*time.Second)
	setDefault(&c.Drain, 5*time.Second)
	setDefault(&c.KeepAlive, 20*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// maxHeaderBytes bounds the headers of a call, which are a path and a deadline; the library takes 16 MiB.
const maxHeaderBytes = 64 << 10

// keepAliveTimeout is how long a probe may stay unanswered.
const keepAliveTimeout = 10 * time.Second

// Server answers calls.
type Server struct {
	cfg     ServerConfig
	calls   map[string]*method // fixed once Run began
	streams map[string]*streamMethod
	// Totals, and the streams that are open now.
	requests, failures, denied *telemetry.Counter
	open                       *telemetry.Gauge
	// stopping ends when Run's context does: streams end with it, calls get Drain.
	stopping  context.Context
	beginStop context.CancelFunc
	handlers  sync.WaitGroup // what streams started
	workers   workers
}

// method is a handler, whom it is for, and how long it takes.
type method struct {
	door
	handle Handler
	took   *telemetry.Timing
}

type streamMethod struct {
	door
	handle StreamHandler
}

// NewServer returns a Server without handlers.
func NewServer(cfg ServerConfig) *Server {
	cfg.complete()
	s := &Server{
		cfg: cfg, calls: map[string]*method{}, streams: map[string]*streamMethod{},
		requests: cfg.Metrics.Counter("rpc.request"), failures: cfg.Metrics.Counter("rpc.request_error"),
		denied: cfg.Metrics.Counter("rpc.denied"), open: cfg.Metrics.Gauge("rpc.streams"),
	}
	s.stopping, s.beginStop = context.WithCancel(context.Background())
	s.workers = workers{jobs: make(chan func()), stop: s.stopping.Done()}
	return s
}

// Handle sets the handler of a method, and for whom it is. Before Run; a second one for the same method panics.
func (s *Server) Handle(roles wire.Roles, name string, h Handler) {
	s.checkMethod(roles, name)
	s.calls[name] = &method{door{name: name, roles: roles}, h, s.cfg.Metrics.Timing("rpc.server.call", "method", name)}
}

// HandleStream sets the handler of a streaming method, and for whom it is. Before Run; a second one panics.
func (s *Server) HandleStream(roles wire.Roles, name string, h StreamHandler) {
	s.checkMethod(roles, name)
	s.streams[name] = &streamMethod{door{name: name, roles: roles}, h}
}

func (s *Server) checkMethod(roles wire.Roles, method string) {
	if roles == 0 {
		panic("rpc: a method says whom it is for: " + method)
	}
	if method == "" || len(method) > math.MaxUint8 {
		panic("rpc: a method's name has 1 to 255 bytes")
	}
	if s.calls[method] != nil || s.streams[method] != nil {
		panic("rpc: method handled twice: " + method)
	}
}

var serviceDesc = grpc.ServiceDesc{
	ServiceName: "corbel",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "call", Handler: func(srv any, ctx context.Context, decode func(any) error,
		_ grpc.UnaryServerInterceptor) (any, error) {
		return srv.(*Server).call(ctx, decode)
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "frames", ServerStreams: true, ClientStreams: true,
		Handler: func(srv any, stream grpc.ServerStream) error {
			return srv.(*Server).mux(stream)
		}}, {StreamName: "stream", ServerStreams: true, ClientStreams: true, Handler: streamed((*Server).stream)},
		{StreamName: "large", ClientStreams: true, Handler: streamed((*Server).large)}},
}

func streamed(serve func(*Server, grpc.ServerStream) error) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error { return serve(srv.(*Server), stream) }
}

const (
	pathCall   = "/corbel/call"
	pathStream = "/corbel/stream"
	pathMux    = "/corbel/frames"
	pathLarge  = "/corbel/large"
)

// Run serves the connections of l until ctx ends. Then streams are ended, calls
// may finish within Drain, and the rest is cut. It returns after the last handler.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	defer s.handlers.Wait()
	defer s.beginStop()
	server := grpc.NewServer(
		grpc.Creds(identified{insecure.NewCredentials()}), // the wire below is secured, and knows its peers
		grpc.ForceServerCodecV2(codec{}),
		grpc.MaxRecvMsgSize(min(s.cfg.MaxMessageBytes, mostAtOnce)+frameOverheadBytes),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(s.cfg.MaxStreams),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: s.cfg.KeepAlive, Timeout: keepAliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: s.cfg.KeepAlive / 4, PermitWithoutStream: true}),
		// Fixed windows: the estimator that would grow them costs a ping per burst.
		grpc.InitialWindowSize(windowBytes),
		grpc.InitialConnWindowSize(connWindowBytes),
		grpc.ConnectionTimeout(5*time.Second),
		grpc.WaitForHandlers(true),
		// Kept goroutines have grown stacks; when all are busy (blocking queries), calls get new ones.
		grpc.NumStreamWorkers(streamWorkers),
	)
	server.RegisterService(&serviceDesc, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	var err error
	select {
	case err = <-served:
		server.Stop()
		if errors.Is(err, net.ErrClosed) && ctx.Err() != nil {
			err = nil
		}
		return errkind.E(errkind.Unavailable, "rpc: serve", err)
	case <-ctx.Done():
	}
	s.beginStop()
	drained := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(drained)
	}()
	late := time.NewTimer(s.cfg.Drain)
	defer late.Stop()
	select {
	case <-drained:
	case <-late.C:
		s.cfg.Log.Warn("calls did not finish in time; cutting them", "after", s.cfg.Drain)
		server.Stop()
		<-drained
	}
	<-served
	return nil
}

const (
	windowBytes     = 1 << 20
	connWindowBytes = 4 << 20
	streamWorkers   = 64
)

func (s *Server) call(ctx context.Context, decode func(any) error) (any, error) {
	var req request
	if err := decode(&req); err != nil {
		return nil, err
	}
	return s.answer(ctx, Caller(ctx), s.calls[req.method], []byte(req.method), req.payload), nil
}

// answer runs the handler of a method for a caller; a nil method is none of that name.
func (s *Server) answer(ctx context.Context, caller *wire.Peer, m *method, name, req []byte) *reply {
	if len(name) == 0 {
		return &reply{} // a sign of life is asked for: see pulse.go
	}
	s.requests.Add(1)
	if m == nil {
		s.failures.Add(1)
		return &reply{err: errkind.New(errkind.NotFound, "rpc: unknown method "+string(name))}
	}
	if !caller.May(m.roles) {
		s.failures.Add(1)
		return &reply{err: s.refuse(&m.door, caller)}
	}
	began := time.Now()
	payload, err := s.guard(m.name, func() ([]byte, error) { return m.handle(ctx, req) })
	m.took.Observe(time.Since(began))
	if err != nil {
		s.failures.Add(1)
	}
	return &reply{payload: payload, err: err}
}

// guard turns a handler's panic into an error: one bad request must not take the
// process, and with it every other plane, down.
func (s *Server) guard(method string, f func() ([]byte, error)) (payload []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			s.cfg.Log.Error("rpc handler panicked", "method", method, "panic", r, "stack", string(debug.Stack()))
			payload, err = nil, errkind.New(errkind.Internal, fmt.Sprintf("rpc: %s: panic: %v", method, r))
		}
	}()
	return f()
}
