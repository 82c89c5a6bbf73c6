package host

import (
	"sync"
	"time"
	"weak"

	"corbel.dev/corbel/mesh"
)

// sharedRules has the rules that some proxy of the host holds: most services have the same, and are told of them one
// by one.
type sharedRules struct {
	mu    sync.Mutex // guards all below
	known map[rulesKey]weak.Pointer[mesh.RulesValue]
	kept  int // how many were in known when it was last looked through
}

// rulesKey is what makes two values of rules the same: what they say, and the write that made them.
type rulesKey struct {
	network, http string
	at            time.Time
}

func newSharedRules() *sharedRules {
	return &sharedRules{known: map[rulesKey]weak.Pointer[mesh.RulesValue]{}}
}

// one returns v, or what was there before it and is the same.
func (s *sharedRules) one(v *mesh.RulesValue, at time.Time) *mesh.RulesValue {
	k := rulesKey{v.Network.Version, v.HTTP.Version, at}
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.known[k].Value(); held != nil {
		return held
	}
	const least = 16
	if len(s.known) >= 2*s.kept+least {
		for k, p := range s.known {
			if p.Value() == nil {
				delete(s.known, k)
			}
		}
		s.kept = len(s.known)
	}
	s.known[k] = weak.Make(v)
	return v
}
