package leaf

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/mesh/issue"
)

// While no server signs, the certificate that is there serves until its end, and no longer.
func TestServersAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		l := c.leaves(nil)
		first := c.get(l, "web", "")
		var g given
		defer l.Follow("web", "", g.set)()
		c.setDown(errkind.New(errkind.Overloaded, "Rate limit reached, try again later"))
		before := c.tries()
		for time.Until(first.ValidBefore) > time.Hour {
			time.Sleep(time.Hour)
			if got := c.get(l, "web", ""); got != first {
				t.Fatal("another certificate")
			}
		}
		time.Sleep(2 * time.Hour)
		if _, _, err := l.Get(t.Context(), Query{Subject: Service("web")}); !errkind.Is(err, errkind.Overloaded) {
			t.Errorf("after its end: %v", err)
		}
		if _, _, err := l.Get(t.Context(), Query{Subject: Service("new")}); !errkind.Is(err, errkind.Overloaded) {
			t.Errorf("a new one: %v", err)
		}
		if n := c.tries() - before; n > 2*29*3600/5 || n < 10 { // a mean pause of seven seconds over at most 29 hours
			t.Errorf("%d tries", n)
		}
		c.setDown(nil)
		next := c.get(l, "web", "")
		c.verify(next)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, _ := g.read(); len(got) != 2 || got[1] != next {
			t.Errorf("the follower has %d", len(got))
		}
	})
}

func TestAskingBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		l := c.leaves(nil)
		first := c.get(l, "web", "")
		begin := time.Now()
		got, _, err := l.Get(t.Context(), Query{Subject: Service("web"), Index: first.ModifyIndex, Wait: 10 * time.Second})
		if err != nil || got != first || time.Since(begin) != 10*time.Second {
			t.Errorf("nothing new: %v after %s", err, time.Since(begin))
		}
		for _, index := range []uint64{1, first.ModifyIndex + 100} { // older, and of another history
			begin = time.Now()
			if got, _, err := l.Get(t.Context(), Query{Subject: Service("web"), Index: index, Wait: time.Minute}); err != nil ||
				got != first || time.Since(begin) != 0 {
				t.Errorf("index %d: %v after %s", index, err, time.Since(begin))
			}
		}
		c.rotate()
		next, _, err := l.Get(t.Context(), Query{Subject: Service("web"), Index: first.ModifyIndex, Wait: time.Hour})
		if err != nil || next.ModifyIndex <= first.ModifyIndex || next.RootID == first.RootID {
			t.Errorf("rotation: %v, %d after %d", err, next.ModifyIndex, first.ModifyIndex)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := l.Get(ctx, Query{Subject: Service("web"), Index: next.ModifyIndex, Wait: time.Hour}); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("a client that left: %v", err)
		}
	})
}

// What nobody uses is forgotten, what somebody follows is not; beyond the bound the idlest makes room.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		l := c.leaves(func(cfg *Config) { cfg.MaxKinds = 3 })
		count := func() int {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.kinds)
		}
		var g given
		stop := l.Follow("followed", "", g.set)
		first := c.get(l, "a", "")
		time.Sleep(time.Second)
		c.get(l, "b", "")
		c.get(l, "c", "")
		if l.kinds[Service("a")] != nil || count() != 3 {
			t.Errorf("%d kinds, the idlest among them", count())
		}
		if again := c.get(l, "a", ""); again.ModifyIndex <= first.ModifyIndex {
			t.Errorf("index %d after %d", again.ModifyIndex, first.ModifyIndex)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if count() != 1 {
			t.Errorf("%d kinds after two hours", count())
		}
		for i := range 2 {
			defer l.Follow(fmt.Sprint("f", i), "", func(Leaf) {})()
		}
		var full given
		l.FollowSubject(Service("more"), "", full.set, full.failed)()
		if _, errs := full.read(); len(errs) != 1 || !errkind.Is(errs[0], errkind.Overloaded) {
			t.Errorf("beyond the bound: %v", errs)
		}
		if _, _, err := l.Get(t.Context(), Query{Subject: Service("more")}); !errkind.Is(err, errkind.Overloaded) {
			t.Errorf("beyond the bound: %v", err)
		}
		stop()
		time.Sleep(80 * time.Hour)
		if got, _ := g.read(); len(got) != 1 {
			t.Errorf("called %d times, after stop too", len(got))
		}
	})
}

// Follow before Run, and before there is an authority.
func TestFollowedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		hold := make(chan struct{})
		l, err := New(Config{Sign: c.sign, Datacenter: "dc1", Roots: func(ctx context.Context, index uint64) (Roots, error) {
			select {
			case <-hold:
				return c.roots(ctx, index)
			case <-ctx.Done():
				return Roots{}, ctx.Err()
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		var g given
		defer l.Follow("web", "", g.set)()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = l.Run(ctx) }()
		if _, _, err := l.Get(t.Context(), Query{Subject: Service("web")}); !errkind.Is(err, errkind.Unavailable) {
			t.Errorf("without roots: %v", err)
		}
		close(hold)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got, _ := g.read(); len(got) != 1 {
			t.Errorf("%d certificates", len(got))
		}
		cancel()
		<-done
	})
}

// A server that lags signs with the old root: the certificate is used, and renewed soon.
func TestLaggingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		old := c.State()
		lagging := issue.New(issue.Config{Now: func() (uint64, *statestore.State) { return 0, old }, Datacenter: "dc1"})
		c.rotate()
		late := true
		l := c.leaves(func(cfg *Config) {
			cfg.Sign = func(ctx context.Context, r issue.Request) (issue.Certificate, error) {
				if late {
					return lagging.Sign(ctx, "here", r)
				}
				return c.sign(ctx, r)
			}
		})
		first := c.get(l, "web", "")
		c.verify(first)
		late = false
		root, err := ca.Active(c.State())
		if err != nil {
			t.Fatal(err)
		}
		next, _, err := l.Get(t.Context(), Query{Subject: Service("web"), Index: first.ModifyIndex, Wait: time.Hour})
		if err != nil || next.RootID != root.ID || first.RootID == root.ID {
			t.Errorf("%v; roots %s, then %s", err, first.RootID, next.RootID)
		}
	})
}
