package tables

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
	"corbel.dev/corbel/secrets/token"
)

func newGate(t *testing.T) *Gate {
	t.Helper()
	s := sealed.New(sealed.Config{Under: memstore.New(), Now: time.Now, Committed: func([]storage.Op) {}})
	g := &Gate{Store: s, TTLs: token.Limits{Default: time.Hour, Max: 2 * time.Hour}}
	if _, _, err := g.Enter(t.Context()); err != barrier.ErrSealed {
		t.Error(err)
	}
	if g.Idle() != barrier.ErrSealed {
		t.Errorf("before there are keys: %v", g.Idle())
	}
	if err := s.Barrier.Initialize(t.Context(), 0, make([]byte, barrier.KeyBytes), nil); err != nil {
		t.Fatal(err)
	}
	return g
}

// What is changed is stored before it is seen, and nothing is seen that could not be stored.
func TestChange(t *testing.T) {
	g := newGate(t)
	put := func(key string) func(Tables) (*Tables, []storage.Op, error) {
		return func(st Tables) (*Tables, []storage.Op, error) {
			st.IdentitiesPrefix = key
			return &st, []storage.Op{storage.Put(key, []byte("x"))}, nil
		}
	}
	if err := g.Change(t.Context(), put("a")); err != ErrStandby {
		t.Errorf("without tables: %v", err)
	}
	g.Set(&Tables{})
	if err := g.Change(t.Context(), put("a")); err != nil || g.Load().IdentitiesPrefix != "a" {
		t.Errorf("a change: %v, %+v", err, g.Load())
	}
	if _, ok, err := g.Store.Get(t.Context(), "a"); !ok || err != nil {
		t.Errorf("what it stored: %t, %v", ok, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Change(ended, put("b")); err == nil || g.Load().IdentitiesPrefix != "a" {
		t.Errorf("a change that could not be stored: %v, %+v", err, g.Load())
	}
}

// Whoever begins a term waits for the requests of the former one, and those may change the tables meanwhile: they
// find that there are none.
func TestShutWaitsForRequestsThatChange(t *testing.T) {
	g := newGate(t)
	var lost error
	g.Leads = func(context.Context) error { return lost }
	g.Set(&Tables{})
	_, leave, err := g.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shut := make(chan struct{})
	go func() {
		g.Set(nil)
		defer close(shut)
		defer g.Shut()()
		g.Set(&Tables{Scope: Scope{IdentitiesPrefix: "next"}})
	}()
	for g.Load() != nil {
		runtime.Gosched()
		if t.Context().Err() != nil {
			return
		}
	}
	err = g.Change(t.Context(), func(st Tables) (*Tables, []storage.Op, error) { return &st, nil, nil })
	if err != ErrStandby {
		t.Errorf("a change after the term: %v", err)
	}
	if _, _, err := g.Enter(t.Context()); err != ErrStandby {
		t.Errorf("a request between two terms: %v", err)
	}
	leave()
	<-shut
	if g.Load().IdentitiesPrefix != "next" {
		t.Error("the next term did not begin")
	}
	lost = errkind.New(errkind.NotLeader, "another one leads")
	if _, _, err := g.Enter(t.Context()); !errors.Is(err, lost) {
		t.Errorf("a server that does not lead any more: %v", err)
	}
}

func TestLimits(t *testing.T) {
	g := &Gate{TTLs: token.Limits{Default: 10, Max: 20}}
	for _, c := range []struct{ standard, most, wantStandard, wantMost time.Duration }{
		{0, 0, 10, 20}, {15, 0, 15, 20}, {0, 5, 5, 5}, {30, 0, 20, 20}, {30, 40, 30, 40}, {-1, -1, 10, 20},
	} {
		e := &mount.Entry{}
		e.Config.DefaultLeaseTTL, e.Config.MaxLeaseTTL = c.standard, c.most
		if l := g.Limits(e); l.Default != c.wantStandard || l.Max != c.wantMost {
			t.Errorf("%v, %v: %+v", c.standard, c.most, l)
		}
	}
}
