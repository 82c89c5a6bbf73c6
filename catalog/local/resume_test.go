package local

import (
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// TestRestartKeepsTheCatalogsStatus: a check that has not run since the start says what the catalog says, and what is
// registered anew begins critical.
func TestRestartKeepsTheCatalogsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := newFake()
		cfg := Config{Servers: servers, FS: vfs.NewMem(), DataDir: "/data"}
		l, stop := running(t, cfg)
		const body = `{"ID":"a","Name":"a","Check":{"CheckID":"up","Name":"up","TCP":"192.0.2.1:1","Interval":"24h",` +
			`"SuccessBeforePassing":3}}`
		if err := l.RegisterService(t.Context(), mustService(t, body), RegisterOptions{Persist: true}); err != nil {
			t.Fatal(err)
		}
		stop()
		if c := servers.check("up"); c.Status != catalog.Critical {
			t.Fatalf("a new check: %+v", c)
		}
		servers.set(func() {
			c := *servers.checks["up"]
			c.Status, c.Output = catalog.Passing, "it answers"
			servers.checks["up"] = &c
			servers.down = errkind.New(errkind.Unavailable, "no servers")
		})
		registers := servers.registers
		l, stop = running(t, cfg)
		defer stop()
		advance(time.Second)
		if l.sync.synced.Load() {
			t.Error("in sync without servers")
		}
		servers.set(func() { servers.down = nil })
		advance(time.Minute) // the next full sync
		if !l.sync.synced.Load() || servers.registers != registers {
			t.Errorf("%v, %d registrations more", l.sync.synced.Load(), servers.registers-registers)
		}
		for _, c := range []*catalog.Check{servers.check("up"), l.Check("up").Check} {
			if c.Status != catalog.Passing || c.Output != "it answers" {
				t.Errorf("after the restart: %+v", c)
			}
		}
		if !l.Check("up").CriticalSince.IsZero() {
			t.Error("critical since", l.Check("up").CriticalSince)
		}
		// A registration of now has no past.
		if err := l.DeregisterService(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if err := l.RegisterService(t.Context(), mustService(t, body), RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		if c := servers.check("up"); c.Status != catalog.Critical {
			t.Errorf("registered anew: %+v", c)
		}
	})
}

// TestResumeWithoutTheRightToRead: who may not read the catalog is told what there is to tell nevertheless.
func TestResumeWithoutTheRightToRead(t *testing.T) {
	b := newState(&Config{})
	b.loaded = 7
	b.resumeFailed(errkind.New(errkind.Unavailable, "later"))
	if !b.resuming() {
		t.Error("gave up although a server may come")
	}
	b.resumeFailed(errkind.New(errkind.Denied, "never"))
	if b.resuming() {
		t.Error("waits for ever")
	}
}

// TestDrainMarksEndWithTheProcess marks services as draining; a restart has forgotten that, and the catalog too.
func TestDrainMarksEndWithTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := newFake()
		cfg := Config{Servers: servers, FS: vfs.NewMem(), DataDir: "/data"}
		l, stop := running(t, cfg)
		for _, id := range []string{"a", "b"} {
			if err := l.RegisterService(t.Context(), mustService(t, `{"ID":"`+id+`","Name":"x"}`),
				RegisterOptions{Persist: true}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.DrainServices(t.Context(), []string{"a", "gone", "b"}, "bye"); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b"} {
			if c := servers.check(catalog.ServiceDrainPrefix + id); c == nil || c.Status != catalog.Critical ||
				c.Notes != "bye" {
				t.Errorf("%s: %+v", id, c)
			}
		}
		stop()
		_, stop = running(t, cfg)
		defer stop()
		advance(time.Second)
		if c := servers.check(catalog.ServiceDrainPrefix + "a"); c != nil {
			t.Errorf("after the restart: %+v", c)
		}
		if servers.service("a") == nil {
			t.Error("the service is gone")
		}
	})
}

// TestAnsweredWithoutAToken: a catalog that does not know this host's token has answered; one that nobody reaches has
// not.
func TestAnsweredWithoutAToken(t *testing.T) {
	for _, c := range []struct {
		down             error
		synced, answered bool
	}{{errkind.New(errkind.Unavailable, "no servers"), false, false},
		{errkind.New(errkind.Denied, "ACL not found"), false, true}, {nil, true, true}} {
		synctest.Test(t, func(t *testing.T) {
			servers := newFake()
			servers.down = c.down
			l, stop := running(t, Config{Servers: servers, FS: vfs.NewMem(), DataDir: "/data"})
			defer stop()
			advance(time.Second)
			if l.sync.synced.Load() != c.synced || l.Answered() != c.answered {
				t.Errorf("%v: in sync %v, answered %v", c.down, l.sync.synced.Load(), l.Answered())
			}
		})
	}
}
