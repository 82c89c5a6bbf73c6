package xds

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/xds/h2"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/telemetry"
)

// Config says what a Server serves.
type Config struct {
	Plane   Plane
	Log     *slog.Logger
	Metrics *telemetry.Registry
	// Methods are further gRPC methods of the port, by path ("/package.Service/Method").
	Methods map[string]h2.Method
	// Services are the names that the health service knows beside "" and the discovery service.
	Services []string

	// Bytes is the budget of large requests, of all ports of the process; nil has no end.
	Bytes *limit.Bytes
	// OpenWorkers bounds how many streams wait in Plane.Open at once (default 256);
	// the others wait for their turn. OpenTimeout ends one (default 30 s).
	OpenWorkers int
	OpenTimeout time.Duration
	// MaxCalls bounds how many of Methods run at once (default 1,024).
	MaxCalls int
	// Transport holds the limits and deadlines of connections; its functions, log
	// and metrics are set here.
	Transport h2.Config
}

func (c *Config) complete() {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.OpenWorkers <= 0 {
		c.OpenWorkers = 256
	}
	if c.OpenTimeout <= 0 {
		c.OpenTimeout = 30 * time.Second
	}
	if c.MaxCalls <= 0 {
		c.MaxCalls = 1024
	}
}

// Server serves Envoys. Use New.
type Server struct {
	cfg      Config
	grpc     *h2.Server
	calls    *h2.Calls
	opener   *opener
	health   health
	meters   *meters
	refusals refusals
	old      atomic.Uint64 // bit n: a warning about Envoys of 1.n was given
	ctx      context.Context
	cancel   context.CancelFunc
	runs     atomic.Int64
}

// The discovery service and its methods.
const (
	service     = "envoy.service.discovery.v3.AggregatedDiscoveryService"
	deltaMethod = "/" + service + "/DeltaAggregatedResources"
	worldMethod = "/" + service + "/StreamAggregatedResources"
)

// New makes a server. It is healthy until SetServing says otherwise.
func New(cfg Config) *Server {
	cfg.complete()
	s := &Server{cfg: cfg}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.calls = &h2.Calls{Context: s.ctx, Max: cfg.MaxCalls}
	s.opener = &opener{workers: cfg.OpenWorkers}
	s.health.init(append([]string{"", service, "grpc.health.v1.Health"}, cfg.Services...))
	transport := cfg.Transport
	transport.Bytes = cfg.Bytes
	transport.Start, transport.Log, transport.Metrics, transport.Prefix = s.start, cfg.Log, cfg.Metrics, "xds.grpc"
	s.meters = newMeters(cfg.Metrics)
	transport.Written = s.meters.wrote
	s.grpc = h2.New(transport)
	cfg.Metrics.GaugeFunc("xds.server.streams", func() float64 { return float64(s.meters.open.Load()) })
	return s
}

// SetServing changes what the health service says.
func (s *Server) SetServing(serving bool) { s.health.set(serving) }

// Run serves a listener until ctx ends: TCP or unix, plain or TLS (tls.NewListener
// with NextProtos "h2"). It may run for several listeners at once; after the last
// one ended the server is of no more use.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	s.runs.Add(1)
	err := s.grpc.Run(ctx, listener)
	if s.runs.Add(-1) == 0 {
		s.cancel()
		s.opener.all.Wait()
		s.calls.Wait()
	}
	return err
}

func (s *Server) start(stream *h2.Stream, method string, md h2.Metadata) (h2.Call, *h2.Status) {
	switch method {
	case deltaMethod, worldMethod:
		return newStream(s, stream, method == worldMethod, md), nil
	case healthCheck, healthWatch:
		return s.health.start(stream, method == healthWatch), nil
	}
	if f := s.cfg.Methods[method]; f != nil {
		return s.calls.Start(stream, f, md), nil
	}
	return nil, &h2.Status{Code: h2.Unimplemented, Message: "there is no method " + method + " here"}
}
