// Package sink runs the telemetry sinks that the settings name: statsd, statsite,
// dogstatsd, and OTLP for metrics and for traces.
//
// Each sink has its own goroutines, its own cursor over the registry and its own bounded
// buffer; one that blocks, fails or lies holds up neither another sink nor anything
// that is measured. A sink that cannot be reached never keeps the process from starting.
//
// Reload changes, adds and removes sinks while they run: all, or on an error none. Sinks whose
// settings stand keep running untouched.
package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/telemetry/sink/otlp"
	"corbel.dev/corbel/telemetry/sink/outlet"
	"corbel.dev/corbel/telemetry/sink/statsd"
)

// Config makes a Set.
type Config struct {
	Registry *telemetry.Registry // must not be nil
	Settings telemetry.Settings
	Host     string          // host.name that OTLP reports
	Clock    clock.Clock     // nil means the machine's
	Logger   *slog.Logger    // nil discards
	Resolver outlet.Resolver // nil means the system's
}

type runner interface{ Run(context.Context) error }

// running is one sink. cancel is nil until it was started.
type running struct {
	spec   string // what it was made from: equal means that it may keep running
	sink   runner
	cancel context.CancelFunc
	done   chan struct{}
}

// Set is the sinks of a process.
type Set struct {
	cfg      Config
	instance string // service.instance.id: of this process alone

	// reload is held through a whole Reload, so that two cannot interleave; it comes before mu.
	reload sync.Mutex
	// mu guards what follows; nothing waits for a sink under it.
	mu    sync.Mutex
	ctx   context.Context // Run's; nil before Run
	sinks map[string]*running
}

// New makes the sinks that cfg.Settings names and starts none.
func New(cfg Config) (*Set, error) {
	if cfg.Registry == nil {
		return nil, errkind.New(errkind.Invalid, "sink: a registry is needed")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Set{cfg: cfg, instance: uuid.NewString(), sinks: make(map[string]*running)}
	if err := s.Reload(cfg.Settings); err != nil {
		return nil, err
	}
	return s, nil
}

// Run runs the sinks until ctx ends and all of them have.
func (s *Set) Run(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	for _, r := range s.sinks {
		s.startLocked(r)
	}
	s.mu.Unlock()
	<-ctx.Done()
	// A Reload under way finishes first; those after it find ctx ended and start nothing.
	s.reload.Lock()
	defer s.reload.Unlock()
	s.mu.Lock()
	left := s.sinks
	s.mu.Unlock()
	for _, r := range left {
		r.wait()
	}
	return nil
}

// Reload makes the running sinks, and the registry's prefix and filter, what the
// settings say. On an error nothing is changed. It waits for removed sinks to
// end, which their deadlines bound at a few seconds.
func (s *Set) Reload(settings telemetry.Settings) error {
	s.reload.Lock()
	defer s.reload.Unlock()
	if err := settings.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	old := s.sinks
	s.mu.Unlock()
	next, err := s.build(settings, old)
	if err != nil {
		return err
	}
	if err := s.cfg.Registry.Reload(settings); err != nil {
		return err
	}
	for name, r := range old {
		if next[name] != r && r.cancel != nil {
			r.cancel()
			r.wait()
			s.cfg.Registry.Gauge("telemetry.sink.deaf", "sink", name).Set(0) // its successor says so again
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sinks = next
	for _, r := range next {
		s.startLocked(r)
	}
	return nil
}

func (s *Set) startLocked(r *running) {
	if s.ctx == nil || s.ctx.Err() != nil || r.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	r.cancel, r.done = cancel, make(chan struct{})
	go func() {
		defer close(r.done)
		defer cancel()
		if err := r.sink.Run(ctx); err != nil {
			s.cfg.Logger.Error("telemetry sink ended", "sink", r.spec, "error", err)
		}
	}()
}

func (r *running) wait() {
	if r.done != nil {
		<-r.done
	}
}

// build makes the sinks that the settings name, taking over those of old that stay
// as they are. It starts nothing, and reports every wrong address at once.
func (s *Set) build(settings telemetry.Settings, old map[string]*running) (map[string]*running, error) {
	next := make(map[string]*running)
	var wrong []error
	add := func(name, key, spec string, make func() (runner, error)) {
		if spec == "" {
			return
		}
		if r := old[name]; r != nil && r.spec == spec {
			next[name] = r
			return
		}
		sink, err := make()
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", key, err))
			return
		}
		next[name] = &running{spec: spec, sink: sink}
	}
	add("statsd", "statsd_address", settings.StatsdAddress, func() (runner, error) {
		return s.statsd("statsd", statsd.Plain, "udp", settings.StatsdAddress, nil)
	})
	add("statsite", "statsite_address", settings.StatsiteAddress, func() (runner, error) {
		return s.statsd("statsite", statsd.Statsite, "tcp", settings.StatsiteAddress, nil)
	})
	dogstatsd := settings.DogstatsdAddr
	if dogstatsd != "" && len(settings.DogstatsdTags) > 0 {
		dogstatsd += "|" + strings.Join(settings.DogstatsdTags, ",")
	}
	add("dogstatsd", "dogstatsd_addr", dogstatsd, func() (runner, error) {
		return s.statsd("dogstatsd", statsd.Dogstatsd, "udp", settings.DogstatsdAddr, settings.DogstatsdTags)
	})
	add("otlp", "otlp_endpoint", settings.OTLPEndpoint, func() (runner, error) {
		return otlp.New(otlp.Config{Endpoint: settings.OTLPEndpoint, Host: s.cfg.Host,
			Registry: s.cfg.Registry, Clock: s.cfg.Clock, Logger: s.cfg.Logger})
	})
	add("otlp_traces", "otlp_traces_endpoint", settings.OTLPTracesEndpoint, func() (runner, error) {
		return otlp.NewTraces(otlp.TracesConfig{Endpoint: settings.OTLPTracesEndpoint, Host: s.cfg.Host, Instance: s.instance,
			Registry: s.cfg.Registry, Clock: s.cfg.Clock, Logger: s.cfg.Logger})
	})
	return next, errkind.E(errkind.Invalid, "telemetry", errors.Join(wrong...))
}

func (s *Set) statsd(name string, dialect statsd.Dialect, network, address string, tags []string) (runner, error) {
	target, err := outlet.ParseTarget(network, address)
	if err != nil {
		return nil, err
	}
	return statsd.New(statsd.Config{
		Dialect: dialect, Tags: tags, Registry: s.cfg.Registry, Clock: s.cfg.Clock,
		Outlet: outlet.Config{Sink: name, Target: target, Registry: s.cfg.Registry,
			Clock: s.cfg.Clock, Logger: s.cfg.Logger, Resolver: s.cfg.Resolver},
	}), nil
}
