package notify

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
)

// Config configures a Service. Zero fields mean what their comment says.
type Config struct {
	Getenv func(string) string
	PID    int
	Clock  clock.Clock  // nil is clock.Real{}
	Log    *slog.Logger // nil discards
	// Every is how often the process is probed [1 s, and never less often than the watchdog wants].
	Every time.Duration
}

// Service is this process as the service manager knows it.
type Service struct {
	cfg      Config
	to       *sender
	watchdog time.Duration

	mu    sync.Mutex // guards state, and the order of what is sent
	state state
	lost  bool // the last message did not arrive: said once
}

// New reads where the manager listens. It is nil, which is a Service that tells nobody, where there is none.
func New(cfg Config) (*Service, error) {
	to, err := newSender(cfg.Getenv)
	if to == nil {
		return nil, err
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{cfg: cfg, to: to, watchdog: watchdog(cfg.Getenv, cfg.PID)}
	if cfg.Every == 0 {
		s.cfg.Every = time.Second
		if s.watchdog > 0 {
			s.cfg.Every = min(time.Second, s.watchdog/3)
		}
	}
	return s, nil
}

// Run probes the process until ctx ends, and tells what it finds. A probe that hangs keeps the watchdog hungry, so that
// the manager ends the process; Run does not wait for it.
func (s *Service) Run(ctx context.Context, probe func() Health) {
	if s == nil {
		return
	}
	found := make(chan Health, 1) // one probe at a time
	ask := func() { go func() { found <- probe() }() }
	ask()
	t := s.cfg.Clock.NewTimer(s.cfg.Every)
	defer t.Stop()
	idle := false
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-found:
			s.tell(func(st *state) []string { return st.probed(s.cfg.Clock.Now(), h, s.watchdog) })
			idle = true
		case <-t.C:
			if idle {
				idle = false
				ask()
			}
			t.Reset(s.cfg.Every)
		}
	}
}

// Status says what the process does before it can be probed.
func (s *Service) Status(text string) {
	s.tell(func(st *state) []string {
		if text = oneLine(text); text == st.status {
			return nil
		}
		st.status = text
		return []string{"STATUS=" + text, extend(extension)}
	})
}

// Failed says why the process cannot start.
func (s *Service) Failed(err error) {
	s.tell(func(*state) []string { return []string{"STATUS=" + oneLine("cannot start: "+err.Error())} })
}

// Reload runs a reload between what is to be said before and after it.
func (s *Service) Reload(reload func() error) error {
	s.tell(func(st *state) []string { return st.reloads(monotonic()) })
	err := reload()
	s.tell(func(st *state) []string { return st.reloaded(err) })
	return err
}

// Stopping says that the process ends within some time; 0 where nothing is waited for.
func (s *Service) Stopping(within time.Duration) {
	s.tell(func(st *state) []string { return st.stops(within) })
}

// tell sends what decide returns.
func (s *Service) tell(decide func(*state) []string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := decide(&s.state)
	if len(lines) == 0 {
		return
	}
	err := s.to.send(lines, nil)
	if err != nil && !s.lost {
		s.cfg.Log.Warn("the service manager was not told", "error", err, "what", lines)
	}
	s.lost = err != nil
}
