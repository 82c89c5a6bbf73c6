package feed

import (
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
)

// Local is a Follower straight onto a Source: for the host that a server runs on.
type Local struct {
	Source Source
	Node   string
	// RetryDenied is about how long after a refusal a subject is asked for again; 30 s.
	RetryDenied time.Duration
	Clock       clock.Clock // nil: the machine's
}

var (
	_ Follower = (*Client)(nil)
	_ Follower = Local{}
)

// localSub is one Follow of a Local.
type localSub struct {
	l              Local
	subject, token string
	set            func(Value)
	failed         func(error)

	mu sync.Mutex // guards all below; never held while calling out
	// turn grows with each attempt: what an earlier one still says is not heard.
	turn    uint64
	end     func() // of the Source's Follow
	retry   *clock.Timer
	stopped bool
	calling int // calls of the Source's that are under way
	given   struct{ generation, index uint64 }
}

// Follow implements Follower.
func (l Local) Follow(subject, token string, set func(Value), failed func(error)) (stop func()) {
	setDefault(&l.RetryDenied, 30*time.Second)
	if l.Clock == nil {
		l.Clock = clock.Real{}
	}
	s := &localSub{l: l, subject: subject, token: token, set: set, failed: failed}
	s.begin()
	return s.stop
}

func (s *localSub) begin() {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return
	}
	s.turn++
	turn := s.turn
	s.mu.Unlock()
	end, err := s.l.Source.Follow(Identity{Node: s.l.Node, Token: s.token}, s.subject, func(v Value) {
		if s.enter(turn) {
			if s.take(v) {
				s.set(v)
			}
			s.leave()
		}
	}, func(err error) {
		if s.enter(turn) {
			s.refused(turn, err)
			s.leave()
		}
	})
	if err != nil {
		s.refused(turn, err)
		return
	}
	s.mu.Lock()
	late := s.stopped || s.turn != turn
	if !late {
		s.end = end
	}
	s.mu.Unlock()
	if late {
		end()
	}
}

// enter reports whether what an attempt says is still to be heard, and notes that it is being said.
func (s *localSub) enter(turn uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.turn != turn {
		return false
	}
	s.calling++
	return true
}

// take notes what is given, and says whether it is another value than the one before.
func (s *localSub) take(v Value) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := v.Since > 0 && s.given.generation == v.Generation && s.given.index == v.Since
	s.given.generation, s.given.index = v.Generation, v.Index
	return !same
}

func (s *localSub) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calling--
}

// refused tells of an error, and tries again after a while.
func (s *localSub) refused(turn uint64, err error) {
	s.mu.Lock()
	if s.stopped || s.turn != turn {
		s.mu.Unlock()
		return
	}
	s.turn++ // nothing more from this attempt
	s.retry = s.l.Clock.AfterFunc(s.l.RetryDenied/2+jitter(s.l.RetryDenied), s.again)
	s.mu.Unlock()
	s.failed(err)
}

func (s *localSub) again() {
	s.mu.Lock()
	end := s.end
	s.end = nil
	s.mu.Unlock()
	if end != nil {
		end()
	}
	s.begin()
}

// stop may be called by set or failed, where ending the Source's Follow could wait for that very call.
func (s *localSub) stop() {
	s.mu.Lock()
	end, retry, calling := s.end, s.retry, s.calling
	s.stopped, s.end = true, nil
	s.mu.Unlock()
	if retry != nil {
		retry.Stop()
	}
	switch {
	case end == nil:
	case calling > 0:
		go end()
	default:
		end()
	}
}
