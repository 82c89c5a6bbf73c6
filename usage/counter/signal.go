package counter

import (
	"sync"
	"time"
)

// Signal tells those who wait that something was counted. It is for any goroutine.
type Signal struct {
	mu      sync.Mutex // guards what follows
	version uint64
	changed chan struct{}
}

// NewSignal makes one; the versions of an earlier start are older ones.
func NewSignal(now time.Time) *Signal {
	return &Signal{version: uint64(now.UnixMicro()), changed: make(chan struct{})}
}

// Version grows with each change.
func (s *Signal) Version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Changed is closed with the next change.
func (s *Signal) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *Signal) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
}
