package winservice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/eventlog"
	"golang.org/x/sys/windows/svc/mgr"

	"corbel.dev/corbel/kit/errkind"
)

// pendingFor is how long the manager waits for the next sign of progress. A start may replay a long log, an end drain
// its clients: while the process lives, progress is told three times as often.
const pendingFor = 30 * time.Second

// Started reports whether the service manager started this process.
func Started() bool {
	is, err := svc.IsWindowsService()
	return err == nil && is
}

// Run runs body under the manager and returns its exit code.
func Run(body func(context.Context, *Service) int) int {
	h := &handler{body: body}
	if err := svc.Run("", h); err != nil { // the name matters where several services share a process
		return 1
	}
	return h.code
}

// handler is what the manager calls.
type handler struct {
	body func(context.Context, *Service) int
	code int
}

// eventID is the one kind of event that is written.
const eventID = 1

// Execute implements svc.Handler: it returns when the process has ended.
func (h *handler) Execute(args []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (bool, uint32) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := newService(cancel)
	if len(args) > 0 {
		if log, err := eventlog.Open(args[0]); err == nil {
			defer log.Close()
			s.report = func(err error) { _ = log.Error(eventID, err.Error()) } // where else could it be said
		}
	}
	ended := make(chan int, 1)
	go func() { ended <- h.body(ctx, s) }()
	progress := time.NewTicker(pendingFor / 3)
	defer progress.Stop()
	var checkpoint uint32
	tell := func() {
		checkpoint++
		status <- statusOf(s.now(), checkpoint)
	}
	tell()
	for {
		select {
		case h.code = <-ended:
			status <- svc.Status{State: svc.StopPending}
			return h.code != 0, uint32(h.code)
		case <-s.changed:
			tell()
		case <-progress.C:
			if s.now() != Running {
				tell()
			}
		case r := <-requests:
			switch r.Cmd {
			case svc.Interrogate:
				status <- r.CurrentStatus
			case svc.Stop, svc.Shutdown, svc.PreShutdown:
				s.stop()
			case svc.ParamChange:
				s.reload()
			}
		}
	}
}

// statusOf is a phase in the manager's words.
func statusOf(p Phase, checkpoint uint32) svc.Status {
	accepts := svc.AcceptStop | svc.AcceptPreShutdown | svc.AcceptParamChange
	pending := uint32(pendingFor / time.Millisecond)
	switch p {
	case Running:
		return svc.Status{State: svc.Running, Accepts: accepts}
	case Ending:
		return svc.Status{State: svc.StopPending, CheckPoint: checkpoint, WaitHint: pending}
	}
	// A start that waits for its servers can be given up.
	return svc.Status{State: svc.StartPending, Accepts: svc.AcceptStop, CheckPoint: checkpoint, WaitHint: pending}
}

// restartAfter is how long the manager waits before it starts a service anew that has failed, and forgetAfter after how
// long without a failure it counts from one again.
const (
	restartAfter = 5 * time.Second
	forgetAfter  = 24 * time.Hour
)

// Install makes a service that starts with the host, and anew when it fails.
func Install(d Definition) error {
	m, err := connect()
	if err != nil {
		return err
	}
	defer m.Disconnect()
	s, err := m.CreateService(d.Name, d.Command, mgr.Config{StartType: mgr.StartAutomatic,
		DisplayName: d.Display, Description: d.Description}, d.Args...)
	if err != nil {
		return of(d.Name, "install", err)
	}
	defer s.Close()
	again := mgr.RecoveryAction{Type: mgr.ServiceRestart, Delay: restartAfter}
	err = s.SetRecoveryActions([]mgr.RecoveryAction{again, again, again}, uint32(forgetAfter/time.Second))
	if err == nil {
		err = s.SetRecoveryActionsOnNonCrashFailures(true)
	}
	if errors.Is(err, windows.ERROR_INVALID_LEVEL) {
		err = nil // a manager that does not know this starts it anew when it crashes, and not when it ends with a code
	}
	if err == nil {
		err = eventlog.InstallAsEventCreate(d.Name, eventlog.Error|eventlog.Warning|eventlog.Info)
	}
	if err != nil {
		return errors.Join(of(d.Name, "install", err), s.Delete())
	}
	return nil
}

// Remove removes a service that does not run.
func Remove(name string) error {
	return with(name, "remove", func(s *mgr.Service) error {
		status, err := s.Query()
		if err != nil {
			return err
		}
		if status.State != svc.Stopped {
			return errkind.New(errkind.Conflict, "it runs: stop it first (`corbel service stop`)")
		}
		if err := s.Delete(); err != nil {
			return err
		}
		_ = eventlog.Remove(name) // what an installer by hand did not make is not there
		return nil
	})
}

// Start starts a service, and returns once it runs.
func Start(ctx context.Context, name string) error {
	return with(name, "start", func(s *mgr.Service) error {
		if err := s.Start(); err != nil && !errors.Is(err, windows.ERROR_SERVICE_ALREADY_RUNNING) {
			return err
		}
		return until(ctx, s, svc.Running)
	})
}

// Stop stops a service, and returns once it has ended.
func Stop(ctx context.Context, name string) error {
	return with(name, "stop", func(s *mgr.Service) error {
		if _, err := s.Control(svc.Stop); errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE) {
			return nil
		} else if err != nil {
			return err
		}
		return until(ctx, s, svc.Stopped)
	})
}

// State tells what a service does, in a word.
func State(name string) (word string, err error) {
	err = with(name, "look at", func(s *mgr.Service) error {
		status, err := s.Query()
		word = wordOf(status.State)
		return err
	})
	return word, err
}

func wordOf(s svc.State) string {
	switch s {
	case svc.Stopped:
		return "stopped"
	case svc.StartPending:
		return "starting"
	case svc.StopPending:
		return "stopping"
	case svc.Running:
		return "running"
	}
	return "paused"
}

// pollEvery is how often the manager is asked whether a service has come to where it is to be.
const pollEvery = 200 * time.Millisecond

// until waits for a state. A service that has stopped in place of it has failed.
func until(ctx context.Context, s *mgr.Service, want svc.State) error {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for {
		status, err := s.Query()
		switch {
		case err != nil:
			return err
		case status.State == want:
			return nil
		case status.State == svc.Stopped:
			return errkind.Errorf(errkind.Unavailable,
				"it ended with code %d: see the event log, source %s, and its log_file", max(status.ServiceSpecificExitCode, status.Win32ExitCode),
				s.Name)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("it is %s still: %w", wordOf(status.State), ctx.Err())
		}
	}
}

func connect() (*mgr.Mgr, error) {
	m, err := mgr.Connect()
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		return nil, errkind.New(errkind.Denied, "the service manager refuses: run this as Administrator")
	}
	return m, errkind.E(errkind.Unavailable, "reach the service manager", err)
}

// with does something with a service.
func with(name, what string, do func(*mgr.Service) error) error {
	m, err := connect()
	if err != nil {
		return err
	}
	defer m.Disconnect()
	s, err := m.OpenService(name)
	if err != nil {
		return of(name, what, err)
	}
	defer s.Close()
	if err := do(s); err != nil {
		return of(name, what, err)
	}
	return nil
}

// of says which service it was, and what to do where that is known.
func of(name, what string, err error) error {
	kind, hint := errkind.Unavailable, ""
	switch {
	case errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST):
		kind, hint = errkind.NotFound, " (`corbel service install` makes it)"
	case errors.Is(err, windows.ERROR_SERVICE_EXISTS):
		kind, hint = errkind.Conflict, " (`corbel service remove` removes it)"
	case errors.Is(err, windows.ERROR_ACCESS_DENIED):
		kind, hint = errkind.Denied, " (run this as Administrator)"
	case errkind.Of(err) != errkind.Internal:
		kind = errkind.Of(err)
	}
	return errkind.Errorf(kind, "%s service %s: %w%s", what, name, err, hint)
}
