package grants

import (
	"context"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/polltest"
)

// leadership is who leads.
type leadership struct {
	mu      sync.Mutex
	leads   bool
	changed chan struct{}
}

func (r *leadership) IsLeader() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leads
}

func (r *leadership) LeaderChanges() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

func (r *leadership) set(leads bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leads = leads
	close(r.changed)
	r.changed = make(chan struct{})
}

func TestTheLeaderMakesBuiltinsAndSweeps(t *testing.T) {
	s, c := newStore(), clock.NewFake(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	r := &leadership{changed: make(chan struct{})}
	k := NewKeeper(KeeperConfig{Store: s, Clock: c, Leader: r, InitialManagement: "root"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	defer func() {
		cancel()
		if err := polltest.Get(t, done, "the end of Run"); err != nil {
			t.Error(err)
		}
	}()
	if len(Policies(s.State())) != 0 {
		t.Fatal("a follower wrote")
	}
	r.set(true)
	polltest.Until(t, func() bool {
		st := s.State()
		return PolicyByID(st, acl.GlobalManagementID) != nil && PolicyByID(st, acl.GlobalReadOnlyID) != nil &&
			len(Tokens(st)) == 2
	}, "the built-in objects and the management token")
	tok, err := k.CreateToken(ctx, TokenRequest{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool {
		c.Advance(time.Second)
		return TokenByAccessor(s.State(), tok.AccessorID) == nil
	}, "the expired token to be removed")
	if c.Now().Before(*tok.ExpirationTime) {
		t.Error("it was removed before its time")
	}
	r.set(false)
	left, err := k.CreateToken(ctx, TokenRequest{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	c.Advance(time.Hour)
	r.set(true)
	polltest.Until(t, func() bool {
		c.Advance(time.Second)
		return TokenByAccessor(s.State(), left.AccessorID) == nil
	}, "the next term to remove what ended meanwhile")
}
