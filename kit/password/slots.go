package password

import (
	"os"
	"runtime"
	"sync"
	"time"
)

// slots lets hashes run beside as many goroutines as there are cores: while some are made GOMAXPROCS is higher, by
// the most that were made at once. To change it stops all goroutines for some microseconds, so it stays for a while.
type slots struct {
	mu     sync.Mutex
	usual  int // GOMAXPROCS without hashes
	added  int
	taken  int
	resets *time.Timer
}

// rest is how long after the last hash the slots are given back.
const rest = 10 * time.Second

var extra slots

func (s *slots) take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resets != nil {
		s.resets.Stop()
	}
	s.taken++
	if s.taken <= s.added {
		return
	}
	if s.added == 0 {
		s.usual = runtime.GOMAXPROCS(0)
	}
	s.added++
	runtime.GOMAXPROCS(s.usual + s.added)
}

func (s *slots) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.taken > 0 {
		return
	}
	if s.resets == nil {
		s.resets = time.AfterFunc(rest, s.reset)
		return
	}
	s.resets.Reset(rest)
}

func (s *slots) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken > 0 || s.added == 0 {
		return
	}
	s.added = 0
	if os.Getenv("GOMAXPROCS") != "" {
		runtime.GOMAXPROCS(s.usual)
		return
	}
	runtime.SetDefaultGOMAXPROCS() // it follows the control group's quota again
}
