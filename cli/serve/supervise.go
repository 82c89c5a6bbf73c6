package serve

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/kit/notify"
	"corbel.dev/corbel/kit/winservice"
	"corbel.dev/corbel/node/config"
)

// probed is a process that tells whether clients may come.
type probed interface {
	Health() notify.Health
}

// supervised is this process as the service manager sees it: all its methods do nothing where there is none.
type supervised struct {
	service *notify.Service
	windows *winservice.Service
	sockets *notify.Sockets

	mu     sync.Mutex // guards health
	health func() notify.Health
	ended  chan struct{}
	stop   context.CancelFunc
}

// supervise begins to tell the service manager, from before anything is opened. The caller ends it.
func supervise(ctx context.Context, e *command.Env) (*supervised, error) {
	sockets, err := notify.Inherited(e.Getenv, os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("cannot start: %w", err)
	}
	service, err := notify.New(notify.Config{Getenv: e.Getenv, PID: os.Getpid(),
		Log: slog.New(slog.NewTextHandler(e.Err, nil))})
	if err != nil {
		return nil, fmt.Errorf("cannot start: %w", err)
	}
	s := &supervised{service: service, windows: e.Service, sockets: sockets, ended: make(chan struct{})}
	s.health = func() notify.Health { return notify.Health{Lacks: []string{"data and ports are being opened"}} }
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(s.ended)
		service.Run(ctx, s.probe)
	}()
	return s, nil
}

func (s *supervised) probe() notify.Health {
	s.mu.Lock()
	health := s.health
	s.mu.Unlock()
	return health()
}

// opened says that all ports of p are open, and by what to judge it from now on. A process that cannot be asked is
// ready with that.
func (s *supervised) opened(p any) {
	s.sockets.Rest()
	s.windows.Ready()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health = func() notify.Health { return notify.Health{} }
	if q, ok := p.(probed); ok {
		s.health = q.Health
	}
}

// failed says why the process does not start.
func (s *supervised) failed(err error) error {
	err = fmt.Errorf("cannot start: %w", named(err))
	s.service.Failed(err)
	s.windows.Failed(err)
	return err
}

// end ends what supervise began.
func (s *supervised) end() {
	s.stop()
	<-s.ended
}

// What an end takes at most beside draining the services: handing over, leaving, and stopping the parts.
const endTime = time.Minute

// stopping says that the process ends.
func (s *supervised) stopping(cfg *config.Config) {
	s.service.Stopping(cfg.Leave.DrainWait + endTime)
	s.windows.Stopping()
}
