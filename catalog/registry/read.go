package registry

import (
	"context"
	"time"

	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/topic"
	"corbel.dev/corbel/kit/errkind"
)

// errNoLeader is the contract's text. Its kind says that nothing was done here and that
// the next leader can do it: whoever can wait for one forwards.
var errNoLeader = errkind.New(errkind.NotLeader, "No cluster leader")

// Read says whether a read of State may be answered now in the given mode.
// Errors: NotLeader (forward to the leader; the text tells when none is known), Unavailable.
func (r *Registry) Read(ctx context.Context, mode Mode) (Contact, error) {
	p := r.proposer
	if mode == Stale {
		_, addr := p.Leader()
		leading := p.IsLeader()
		// A leader that was just elected may still lack what its predecessor committed: its contact is not 0 then.
		return Contact{KnownLeader: addr != "" || leading, Leader: leading, LastContact: p.LastContact()}, nil
	}
	if mode == Default && p.LeaseHeld() {
		return Contact{KnownLeader: true, Leader: true}, nil
	}
	if !p.IsLeader() {
		return Contact{}, r.notLeader()
	}
	if err := p.VerifyLeader(ctx); err != nil {
		if errkind.Is(err, errkind.NotLeader) {
			return Contact{}, r.notLeader()
		}
		return Contact{}, err
	}
	return Contact{KnownLeader: true, Leader: true}, nil
}

func (r *Registry) notLeader() error {
	if _, addr := r.proposer.Leader(); addr == "" {
		return errNoLeader
	}
	return errkind.New(errkind.NotLeader, "this server is not the leader")
}

// Await returns the newest State as soon as indexOf(State) > min, or after
// wait, or when ctx ends, the State is replaced by a snapshot, or the Registry
// stops. The subject says which changes indexOf depends on.
func (r *Registry) Await(ctx context.Context, s Subject, min uint64, wait time.Duration,
	indexOf func(*statestore.State) uint64) *statestore.State {
	restored := *r.past.restored.Load()
	state := r.State()
	if indexOf(state) > min || wait <= 0 {
		return state
	}
	s = s.normal()
	if s.Topic == TopicKVPrefix {
		r.watched.prefixes.Add(len(s.Key))
		defer r.watched.prefixes.Remove(len(s.Key))
	}
	r.meters.blocking.Add(1)
	defer r.meters.blocking.Add(-1)
	timer := r.cfg.Clock.NewTimer(wait)
	defer timer.Stop()
	for {
		hold := r.watched.waiters.Watch(s)
		if state = r.State(); indexOf(state) > min {
			hold.Stop()
			return state
		}
		again := false
		select {
		case <-hold.Woken():
			again = true
		case <-timer.C:
		case <-ctx.Done():
		case <-restored:
		case <-r.stopped:
		}
		hold.Stop()
		if !again {
			return r.State()
		}
	}
}

// Subscribe follows the events of a subject after index since: TopicService,
// TopicNodes, TopicKV or TopicKVPrefix. Decode their bytes with DecodeEvent.
//
// To begin, subscribe with the index of a State, then read that State. A
// subscription whose Next gives topic.ErrReset missed events: begin anew.
func (r *Registry) Subscribe(s Subject, since uint64) (*topic.Subscription, error) {
	s = s.normal()
	switch s.Topic {
	case TopicKVPrefix:
		r.watched.followPrefix(len(s.Key))
	case TopicService, TopicNodes, TopicKV:
	default:
		return nil, errkind.Errorf(errkind.Invalid, "topic %d has no events", s.Topic)
	}
	select {
	case <-r.stopped:
		return nil, errkind.E(errkind.Unavailable, "subscribe", topic.ErrClosed)
	default:
	}
	return r.watched.streams.Follow(s, since, func() uint64 { return r.State().Index() }), nil
}
