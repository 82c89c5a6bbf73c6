package registry

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

func session(ttl string) catalog.Session {
	return catalog.Session{Node: "n1", TTL: ttl, Behavior: catalog.BehaviorRelease, LockDelay: 15 * time.Second}
}

// at waits until the bubble's clock shows begin+d and everybody rests.
func at(begin time.Time, d time.Duration) {
	<-time.After(time.Until(begin.Add(d))) // a bubble's clock: no real time passes
	synctest.Wait()
}

func create(t *testing.T, r *Registry, ttl string) string {
	t.Helper()
	id, err := r.CreateSession(t.Context(), session(ttl))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func lives(r *Registry, id string) bool { return r.State().Session(id) != nil }

func TestSessionEndsTwiceItsTTLAfterTheLastRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := newRegistry(t, Config{}, true)
		defer start(r)()
		synctest.Wait()
		begin := time.Now()
		apply(t, r, register("n1"))
		renewed, left, eternal := create(t, r, "10s"), create(t, r, "10s"), create(t, r, "")
		if got := r.ttl.active(); got != 2 {
			t.Errorf("%d timers, want 2", got)
		}
		at(begin, 15*time.Second)
		index := r.State().Index()
		if s, err := r.RenewSession(t.Context(), renewed); err != nil || s.ID != renewed {
			t.Fatalf("renew: %v %v", s, err)
		}
		if r.State().Index() != index {
			t.Error("a renewal wrote to the log")
		}
		at(begin, 20*time.Second-time.Millisecond)
		if !lives(r, left) {
			t.Error("ended before twice its TTL")
		}
		at(begin, 20*time.Second+time.Millisecond)
		if lives(r, left) || !lives(r, renewed) {
			t.Errorf("after 20 s: left lives %v, renewed lives %v", lives(r, left), lives(r, renewed))
		}
		at(begin, 35*time.Second-time.Millisecond)
		if !lives(r, renewed) {
			t.Error("the renewal did not count in full")
		}
		at(begin, 35*time.Second+time.Millisecond)
		if lives(r, renewed) || !lives(r, eternal) {
			t.Error("after 35 s: the renewed session must be over, the one without TTL not")
		}
		if n := log.count(catalog.OpSessionDestroy); n != 2 {
			t.Errorf("%d proposals to end 2 sessions", n)
		}
		_, err := r.RenewSession(t.Context(), left)
		if !errkind.Is(err, errkind.NotFound) || errkind.Text(err) != "Session id '"+left+"' not found" {
			t.Errorf("renewing an ended session: %v", err)
		}
	})
}

func TestNewTermRestartsAllTTLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := newRegistry(t, Config{}, true)
		defer start(r)()
		synctest.Wait()
		begin := time.Now()
		apply(t, r, register("n1"))
		id := create(t, r, "10s")
		at(begin, 19*time.Second)
		log.elect(false)
		at(begin, 60*time.Second)
		if r.ttl.active() != 0 {
			t.Error("a follower keeps timers")
		}
		if _, err := r.RenewSession(t.Context(), id); err == nil {
			t.Error("a follower renewed")
		}
		log.elect(true)
		at(begin, 80*time.Second-time.Millisecond)
		if !lives(r, id) {
			t.Error("the new leader did not give the full time")
		}
		at(begin, 80*time.Second+time.Millisecond)
		if lives(r, id) {
			t.Error("the new leader does not end sessions")
		}
	})
}

func TestSessionEndIsProposedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := newRegistry(t, Config{}, true)
		defer start(r)()
		synctest.Wait()
		begin := time.Now()
		apply(t, r, register("n1"))
		ids := make([]string, 3*expireWorkers)
		for i := range ids {
			ids[i] = create(t, r, "10s")
		}
		log.refuseBy(func(c catalog.Command) error {
			if c.Op() == catalog.OpSessionDestroy {
				return errkind.New(errkind.Overloaded, "try again later")
			}
			return nil
		})
		at(begin, 22*time.Second)
		for _, id := range ids {
			if !lives(r, id) {
				t.Fatal("ended although the log took nothing")
			}
		}
		log.refuseBy(nil)
		at(begin, 24*time.Second)
		for _, id := range ids {
			if lives(r, id) {
				t.Fatal("not proposed again")
			}
		}
		if n := r.ttl.active(); n != 0 {
			t.Errorf("%d timers left", n)
		}
	})
}

// A renewal that is answered with success must keep the session, also when it
// comes between running out and the proposal of the end.
func TestRenewalBeforeTheEndIsProposedKeepsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timers := newTTLTimers(clock.Real{})
		s := &catalog.Session{ID: "s", TTL: "10s"}
		st, _, _ := statestore.Empty().Apply([]catalog.Command{register("n1"),
			&catalog.SessionCreate{Session: catalog.Session{ID: "s", Node: "n1", TTL: "10s"}}})
		timers.lead(func() *statestore.State { return st })
		<-time.After(20 * time.Second)
		if ids, _ := timers.expired(); fmt.Sprint(ids) != "[s]" {
			t.Fatalf("expired: %v", ids)
		}
		if !timers.renew(s) || timers.claim("s") {
			t.Error("a renewal in between must win")
		}
		<-time.After(20 * time.Second)
		if ids, _ := timers.expired(); fmt.Sprint(ids) != "[s]" {
			t.Fatalf("expired again: %v", ids)
		}
		if !timers.claim("s") || timers.renew(s) {
			t.Error("a session whose end is proposed was renewed")
		}
		timers.ended("s")
	})
}

func TestLockDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRegistry(t, Config{}, true)
		defer start(r)()
		synctest.Wait()
		apply(t, r, register("n1"))
		holder, next := create(t, r, ""), create(t, r, "")
		lock := func(key, id string) catalog.Command {
			return &catalog.KV{Verb: catalog.KVLock, Pair: catalog.KVPair{Key: key, Session: id}}
		}
		for _, key := range []string{"held", "given"} {
			if !apply(t, r, lock(key, holder)).OK {
				t.Fatal("cannot lock", key)
			}
		}
		apply(t, r, &catalog.KV{Verb: catalog.KVUnlock, Pair: catalog.KVPair{Key: "given", Session: holder}})
		begin := time.Now()
		if err := r.DestroySession(t.Context(), holder); err != nil {
			t.Fatal(err)
		}
		if !apply(t, r, lock("given", next)).OK {
			t.Error("a key that was released by its holder is held back")
		}
		txn := &catalog.Txn{Ops: []catalog.TxnOp{{KV: set("other", "1")}, {KV: lock("held", next).(*catalog.KV)}}}
		at(begin, 15*time.Second-time.Millisecond)
		if apply(t, r, lock("held", next)).OK {
			t.Error("acquired within the lock delay")
		}
		if got := apply(t, r, txn); len(got.TxnErrors) != 1 || got.TxnErrors[0].OpIndex != 1 ||
			got.TxnErrors[0].What != `failed to lock key "held" due to lock delay` || r.State().KV("other") != nil {
			t.Errorf("transaction within the lock delay: %+v", got)
		}
		at(begin, 15*time.Second)
		if got := apply(t, r, txn); !got.OK {
			t.Errorf("transaction after the lock delay: %+v", got)
		}
		at(begin, 60*time.Second)
		if n := r.delays.count.Load(); n != 0 {
			t.Errorf("%d delays are kept after their end", n)
		}
	})
}

func TestRestoreStartsTheTimersOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := newRegistry(t, Config{}, true)
		defer start(r)()
		synctest.Wait()
		apply(t, r, register("n1"))
		kept := create(t, r, "10s")
		saved := snapshotOf(t, r)
		dropped := create(t, r, "10s")
		begin := time.Now()
		at(begin, 15*time.Second)
		log.mu.Lock() // the apply goroutine restores, nobody applies meanwhile
		err := r.Restore(saved)
		log.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.RenewSession(t.Context(), dropped); !errkind.Is(err, errkind.NotFound) {
			t.Errorf("a session that the snapshot does not hold: %v", err)
		}
		at(begin, 35*time.Second-time.Millisecond)
		if !lives(r, kept) || r.ttl.active() != 1 {
			t.Error("the restored session did not get its full time")
		}
		at(begin, 35*time.Second+time.Millisecond)
		if lives(r, kept) {
			t.Error("the restored session does not end")
		}
	})
}

func TestRefusedSession(t *testing.T) {
	r, _ := newRegistry(t, Config{}, true)
	if _, err := r.CreateSession(t.Context(), session("")); err == nil {
		t.Error("a session on an unknown node was created")
	}
	if r.State().Index() != statestore.Empty().Index() {
		t.Error("a refused session left a trace")
	}
}
