package member

import (
	"context"
	"maps"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
)

// updateTimeout bounds the wait until a change of this member was told; Run ends after it at the latest.
const updateTimeout = time.Second

// tell has the pool told of a change, within a limit. On a starved machine a word left memberlist's queue before it was
// sent as often as due; why is not known. The next chance would be the exchange of whole states, half a minute later.
// So what was not sent within updateTimeout is said again.
func tell(limit time.Duration, update func(time.Duration) error) error {
	for {
		step := max(min(limit, updateTimeout), time.Millisecond)
		err := update(step)
		if limit -= step; err == nil || limit <= 0 {
			return err
		}
	}
}

// self is what this member says of itself. Its lock is held for single operations and never together with the
// member list's.
type self struct {
	clock  clock.Clock
	denied chan struct{} // of one place: somebody said that this member leaves
	told   note

	mu    sync.Mutex // guards all below
	epoch uint64
	tags  map[string]string
	meta  []byte // both, encoded
	left  bool
}

func newSelf(c clock.Clock) *self {
	return &self{clock: c, denied: make(chan struct{}, 1), epoch: uint64(c.Now().UnixMilli())}
}

// describe sets the tags.
func (s *self) describe(tags map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	meta, err := encodeMeta(s.epoch, tags)
	if err == nil {
		s.meta, s.tags = meta, maps.Clone(tags)
	}
	return err
}

// renew begins a new epoch; false when this member has left.
func (s *self) renew() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		return false, nil
	}
	epoch := max(s.epoch+1, uint64(s.clock.Now().UnixMilli()))
	meta, err := encodeMeta(epoch, s.tags)
	if err == nil {
		s.epoch, s.meta = epoch, meta
	}
	return err == nil, err
}

// leave returns the epoch that ends, and whether it did so before.
func (s *self) leave() (epoch uint64, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again, s.left = s.left, true
	return s.epoch, again
}

func (s *self) hasLeft() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// deny asks for a refutation when somebody said in this member's name that it leaves. Words about a former process of
// the name are no harm.
func (s *self) deny(i intent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.act() != ActLeave || i.epoch != s.epoch {
		return
	}
	select {
	case s.denied <- struct{}{}:
	default: // one refutation answers all that was said before it
	}
}

// refute tells the pool, until ctx ends, that this member stays when somebody else said that it leaves: it goes on
// under a new epoch, for which nothing was said.
func (p *Pool) refute(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.self.denied:
		}
		if p.self.told.due(time.Now()) {
			p.cfg.Log.Warn("gossip falsely reported that this member leaves: check who has the gossip key")
		}
		renewed, err := p.self.renew()
		if renewed {
			err = p.list.UpdateNode(updateTimeout)
		}
		if err != nil && ctx.Err() == nil {
			p.cfg.Log.Warn("cannot announce that this member stays", "error", err)
		}
	}
}
