// Package winservice is this process as a service of Windows, and the means to install, start, stop and remove one.
//
// What always holds:
//   - A service that the manager starts is told to stop as a process on Unix is: who called Notify gets SIGTERM, or
//     SIGHUP where the manager asks for another reading of the parameters. Where nobody did, the context ends.
//   - The service is pending until Ready, and stopping from Stopping on; the manager is told of progress meanwhile.
//   - All methods of a nil *Service are safe and do nothing: that is a process which the manager did not start, on
//     Windows as elsewhere.
//
// Safe for concurrent use. Nothing waits for a listener: a signal that has no room in its channel is dropped, as those
// of package signal are.
package winservice

import (
	"context"
	"os"
	"slices"
	"sync"
	"syscall"
)

// Phase is what the manager knows of the service.
type Phase int

// The phases of a service, in their order.
const (
	Starting Phase = iota
	Running
	Ending
)

// Service is one process that the manager started.
type Service struct {
	cancel  context.CancelFunc
	changed chan struct{} // room for one: the phase is another

	mu        sync.Mutex // guards the rest
	listeners []chan<- os.Signal
	phase     Phase
	report    func(error) // nil: nowhere
}

// newService is a service whose context cancel ends.
func newService(cancel context.CancelFunc) *Service {
	return &Service{cancel: cancel, changed: make(chan struct{}, 1)}
}

// Notify has the manager's wishes sent to c from now on.
func (s *Service) Notify(c chan<- os.Signal) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, c)
}

// Forget undoes Notify.
func (s *Service) Forget(c chan<- os.Signal) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = slices.DeleteFunc(s.listeners, func(l chan<- os.Signal) bool { return l == c })
}

// Ready says that clients may come.
func (s *Service) Ready() { s.enter(Running) }

// Stopping says that the process ends.
func (s *Service) Stopping() { s.enter(Ending) }

// Failed writes to the event log why the process cannot go on: a service has no other place to say it before its
// configuration is read.
func (s *Service) Failed(err error) {
	if s == nil || err == nil {
		return
	}
	s.mu.Lock()
	report := s.report
	s.mu.Unlock()
	if report != nil {
		report(err)
	}
}

// enter goes on to a later phase; there is no way back.
func (s *Service) enter(p Phase) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p <= s.phase {
		return
	}
	s.phase = p
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// now is the phase.
func (s *Service) now() Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase
}

// stop asks the process to end.
func (s *Service) stop() {
	if !s.send(syscall.SIGTERM) {
		s.cancel()
	}
	s.Stopping()
}

// reload asks it to read its configuration again.
func (s *Service) reload() { s.send(syscall.SIGHUP) }

// send passes a signal on, and reports whether anybody listens.
func (s *Service) send(sig os.Signal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.listeners {
		select {
		case c <- sig:
		default:
		}
	}
	return len(s.listeners) > 0
}

// Definition is a service as it is installed.
type Definition struct {
	Name, Display, Description string
	Command                    string   // full path of the program
	Args                       []string // what it is called with
}
