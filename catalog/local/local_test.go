package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// advance lets the bubble's time pass.
func advance(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

const web = `{"ID":"web-1","Name":"web","Port":80,"Tags":["a"],"Check":{"TTL":"30s"}}`

func TestRegisterReachesTheCatalogBeforeItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, stop := running(t, Config{Servers: f})
		defer stop()
		if err := l.RegisterService(t.Context(), mustService(t, web), RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		if s := f.service("web-1"); s == nil || s.Name != "web" || s.Node != "host" ||
			s.Weights != (catalog.Weights{Passing: 1, Warning: 1}) {
			t.Fatalf("the catalog has %+v", s)
		}
		c := f.check("service:web-1")
		if c == nil || c.Name != "Service 'web' check" || c.Status != catalog.Critical || c.ServiceName != "web" ||
			c.Type != "ttl" {
			t.Fatalf("the catalog has the check %+v", c)
		}
		if err := l.UpdateTTL("service:web-1", "passing", "up"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c := f.check("service:web-1"); c.Status != catalog.Passing || c.Output != "up" {
			t.Fatalf("after the heartbeat: %+v", c)
		}
		status, s, checks := l.ServiceHealth("web-1")
		if status != "passing" || s == nil || len(checks) != 1 {
			t.Errorf("health %s %v %v", status, s, checks)
		}
		if err := l.DeregisterService(t.Context(), "web-1"); err != nil {
			t.Fatal(err)
		}
		if f.service("web-1") != nil || f.check("service:web-1") != nil {
			t.Error("the service is still in the catalog")
		}
	})
}

func TestHeartbeatsStayInTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, stop := running(t, Config{Servers: f})
		defer stop()
		if err := l.RegisterService(t.Context(), mustService(t, web), RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		beat := func(status, output string) {
			if err := l.UpdateTTL("service:web-1", status, output); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		beat("passing", "0")
		before := f.count()
		for i := range 1000 {
			beat("passing", fmt.Sprint(i))
			advance(10 * time.Millisecond)
		}
		if n := f.count() - before; n != 0 {
			t.Errorf("1000 heartbeats made %d calls", n)
		}
		beat("warning", "slow")
		if n := f.count() - before; n != 1 || f.check("service:web-1").Status != catalog.Warning {
			t.Errorf("a new status made %d calls", n)
		}
	})
}

func TestOutputsAreHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, stop := running(t, Config{Servers: f, CheckUpdateInterval: 10 * time.Minute})
		defer stop()
		if err := l.RegisterCheck(t.Context(), mustCheck(t, `{"Name":"disk","TTL":"1h","Status":"passing"}`),
			RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		beat := func(out string) {
			if err := l.UpdateTTL("disk", "passing", out); err != nil {
				t.Fatal(err)
			}
		}
		beat("first")
		advance(4 * time.Minute) // several full syncs: they must not push it either
		if out := f.check("disk").Output; out != "" {
			t.Fatalf("an output went out early: %q", out)
		}
		if l.Check("disk").Check.Output != "first" {
			t.Error("the agent itself shows the newest output at once")
		}
		beat("second")
		advance(12 * time.Minute)
		if out := f.check("disk").Output; out != "second" {
			t.Errorf("the catalog has %q", out)
		}
	})
}

func TestManyRegistrationsBecomeFewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, stop := running(t, Config{Servers: f})
		defer stop()
		synctest.Wait()
		hold := make(chan struct{})
		f.set(func() { f.hold = hold })
		before := f.count()
		var wg sync.WaitGroup
		for i := range 2000 {
			wg.Go(func() {
				d := mustService(t, fmt.Sprintf(`{"ID":"s%d","Name":"s","Check":{"TTL":"1m"}}`, i))
				if err := l.RegisterService(t.Context(), d, RegisterOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(hold)
		wg.Wait()
		if n := f.count() - before; n > 20 {
			t.Errorf("2000 registrations made %d calls", n)
		}
		if f.service("s1999") == nil {
			t.Error("the last one is missing")
		}
	})
}

func TestServersDownStillRegistersAndCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.down = errors.New("no route")
		up := make(chan struct{}, 1)
		l, stop := running(t, Config{Servers: f, ServerUp: up})
		defer stop()
		begin := time.Now()
		if err := l.RegisterService(t.Context(), mustService(t, web), RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d > 2*time.Second {
			t.Errorf("it took %v", d)
		}
		f.set(func() { f.down = nil })
		up <- struct{}{}
		advance(3 * time.Second)
		if f.service("web-1") == nil {
			t.Error("not in the catalog 3 s after a server came up")
		}
		f.set(func() { f.down = errors.New("again") })
		if err := l.DeregisterService(t.Context(), "web-1"); err != nil {
			t.Fatal(err)
		}
		f.set(func() { f.down = nil })
		advance(31 * time.Second) // 15 s and up to 15 s of stagger
		if f.service("web-1") != nil {
			t.Error("the removal did not catch up")
		}
	})
}

// TestFirstSyncIsTriedAgainSoon: a start waits for the first full sync. One that failed though a leader had been heard
// of is tried again while no further word of a server comes, soon at first and ever less often.
func TestFirstSyncIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.down = errors.New("no leader")
		up := make(chan struct{}, 1)
		l, stop := running(t, Config{Servers: f, ServerUp: up})
		defer stop()
		up <- struct{}{}
		advance(5 * time.Second)
		f.set(func() { f.down = nil })
		advance(9 * time.Second)
		if !l.Answered() {
			t.Error("the catalog was not asked again")
		}
		never := newFake()
		never.down = errors.New("no leader")
		_, end := running(t, Config{Servers: never})
		defer end()
		advance(5 * time.Minute)
		if n := never.syncs; n < 10 || n > 30 {
			t.Errorf("%d attempts in five minutes without a server", n)
		}
	})
}

func TestOneRefusalDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.refuse["b"] = true
		l, stop := running(t, Config{Servers: f})
		defer stop()
		synctest.Wait()
		hold := make(chan struct{})
		f.set(func() { f.hold = hold })
		var wg sync.WaitGroup
		for _, id := range []string{"0", "a", "b", "c"} {
			wg.Go(func() {
				if err := l.RegisterService(t.Context(), &definition.Service{ID: id, Name: "s"}, RegisterOptions{}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(hold)
		wg.Wait()
		if f.service("a") == nil || f.service("c") == nil || f.service("b") != nil {
			t.Errorf("the catalog has %v", f.services)
		}
	})
}

func TestFullSyncMends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, stop := running(t, Config{Servers: f})
		defer stop()
		d := mustService(t, `{"ID":"t","Name":"t","Tags":["own"],"EnableTagOverride":true,"Check":{"TTL":"10m"}}`)
		for _, d := range []*definition.Service{mustService(t, web), d} {
			if err := l.RegisterService(t.Context(), d, RegisterOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		f.set(func() {
			delete(f.services, "web-1")
			f.services["ghost"] = &catalog.Service{ID: "ghost", Name: "ghost"}
			f.services["consul"] = &catalog.Service{ID: "consul", Name: "consul"}
			f.checks["ghost"] = &catalog.Check{ID: "ghost"}
			f.checks["serfHealth"] = &catalog.Check{ID: "serfHealth"}
			changed := *f.services["t"]
			changed.Tags = []string{"theirs"}
			f.services["t"] = &changed
			f.node = &catalog.Node{Name: "host", Address: "9.9.9.9"}
		})
		advance(2 * time.Minute)
		if f.service("web-1") == nil || f.service("ghost") != nil || f.check("ghost") != nil {
			t.Error("the catalog is not as the agent is")
		}
		if f.service("consul") == nil || f.check("serfHealth") == nil {
			t.Error("what others own was removed")
		}
		if f.service("t").Tags[0] != "theirs" || l.Service("t").Service.Tags[0] != "theirs" || f.node.Address != "10.0.0.1" {
			t.Error("tags or node info are wrong")
		}
	})
}

func TestRestartKeepsRegistrationsAndTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		cfg := Config{Servers: newFake(), FS: disk, DataDir: "/data"}
		l, stop := running(t, cfg)
		keep := RegisterOptions{Persist: true}
		if err := l.RegisterService(t.Context(), mustService(t, web), keep); err != nil {
			t.Fatal(err)
		}
		if err := l.RegisterService(t.Context(), mustService(t, `{"Name":"brief"}`), RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := l.RegisterCheck(t.Context(), mustCheck(t, `{"ID":"c","Name":"c","ServiceID":"web-1","TTL":"20s"}`),
			keep); err != nil {
			t.Fatal(err)
		}
		if err := l.SetServiceMaintenance(t.Context(), "web-1", true, "why", true); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"service:web-1", "c"} {
			if err := l.UpdateTTL(id, "passing", "up"); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		advance(25 * time.Second) // the check c has run out, the other has not
		l, stop = running(t, cfg)
		if l.Service("web-1") == nil || l.Service("brief") != nil {
			t.Fatal("the wrong services came back")
		}
		if c := l.Check("service:web-1"); c.Check.Status != catalog.Passing || c.Check.Output != "up" {
			t.Errorf("a TTL that lasts: %+v", c.Check)
		}
		if c := l.Check("c"); c == nil || c.Check.Status != catalog.Critical {
			t.Errorf("a TTL that ran out: %+v", c)
		}
		if c := l.Check("_service_maintenance:web-1"); c == nil || c.Check.Notes != "why" {
			t.Errorf("maintenance: %+v", c)
		}
		advance(6 * time.Second) // only what is left of the 30 s
		if c := l.Check("service:web-1"); c.Check.Status != catalog.Critical {
			t.Errorf("it should have expired: %+v", c.Check)
		}
		if err := l.DeregisterService(t.Context(), "web-1"); err != nil {
			t.Fatal(err)
		}
		stop()
		l, stop = running(t, cfg)
		defer stop()
		if len(l.View().Services) != 0 || len(l.View().Checks) != 0 {
			t.Errorf("left: %v %v", l.View().Services, l.View().Checks)
		}
	})
}

func TestReapsCriticalServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, stop := running(t, Config{Servers: f})
		defer stop()
		for _, id := range []string{"failing", "well"} {
			d := mustService(t, fmt.Sprintf(`{"Name":%q,"Check":{"TTL":"1h","DeregisterCriticalServiceAfter":"1s"}}`, id))
			if err := l.RegisterService(t.Context(), d, RegisterOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.UpdateTTL("service:well", "passing", ""); err != nil {
			t.Fatal(err)
		}
		advance(55 * time.Second)
		if f.service("failing") == nil {
			t.Error("removed before the minimum of a minute")
		}
		advance(40 * time.Second)
		if f.service("failing") != nil || f.service("well") == nil {
			t.Error("the wrong services are left")
		}
	})
}

func TestAliasFollowsItsTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, stop := running(t, Config{Servers: f})
		defer stop()
		side := mustService(t, `{"Name":"side","Check":{"AliasService":"web-1"}}`)
		if err := l.RegisterService(t.Context(), side, RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		if c := f.check("service:side"); c.Status != catalog.Critical {
			t.Errorf("an alias of nothing: %+v", c)
		}
		if err := l.RegisterService(t.Context(), mustService(t, web), RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, status := range []string{"passing", "warning", "critical", "passing"} {
			if err := l.UpdateTTL("service:web-1", status, ""); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := f.check("service:side").Status.String(); got != status {
				t.Errorf("the alias is %s, its target %s", got, status)
			}
		}
	})
}

func TestRegisterAgainKeepsTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, stop := running(t, Config{Servers: f})
		defer stop()
		register := func(body string, o RegisterOptions) {
			t.Helper()
			if err := l.RegisterService(t.Context(), mustService(t, body), o); err != nil {
				t.Fatal(err)
			}
		}
		register(web, RegisterOptions{})
		if err := l.UpdateTTL("service:web-1", "passing", "up"); err != nil {
			t.Fatal(err)
		}
		if err := l.RegisterCheck(t.Context(), mustCheck(t, `{"Name":"extra","ServiceID":"web-1","TTL":"1m"}`),
			RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		advance(20 * time.Second)
		register(`{"ID":"web-1","Name":"web2","Check":{"TTL":"30s"}}`, RegisterOptions{})
		if c := f.check("service:web-1"); c.Status != catalog.Passing || c.ServiceName != "web2" {
			t.Errorf("after the repeat: %+v", c)
		}
		if c := f.check("extra"); c == nil || c.ServiceName != "web2" {
			t.Errorf("the other check: %+v", c)
		}
		register(web, RegisterOptions{ReplaceExistingChecks: true})
		if f.check("extra") != nil || f.check("service:web-1") == nil {
			t.Error("replace-existing-checks left the wrong checks")
		}
	})
}

func TestErrorsAreTheContracts(t *testing.T) {
	l, err := New(Config{Node: catalog.Node{Name: "host"}, Servers: newFake()})
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel() // nothing syncs: do not wait
	if err := l.RegisterCheck(gone, mustCheck(t, `{"Name":"h","HTTP":"http://127.0.0.1:1","Interval":"1h"}`),
		RegisterOptions{}); err != nil {
		t.Fatal(err)
	}
	_, await := l.AwaitService(t.Context(), "x", "", time.Minute)
	tests := []struct {
		err  error
		kind errkind.Kind
		text string
	}{
		{l.DeregisterService(gone, "x"), errkind.NotFound,
			`Unknown service ID "x". Ensure that the service ID is passed, not the service name.`},
		{l.DeregisterCheck(gone, "x"), errkind.NotFound,
			`Unknown check ID "x". Ensure that the check ID is passed, not the check name.`},
		{l.UpdateTTL("x", "passing", ""), errkind.NotFound,
			`Unknown check ID "x". Ensure that the check ID is passed, not the check name.`},
		{l.UpdateTTL("h", "passing", ""), errkind.Internal, `CheckID "h" does not have associated TTL`},
		{l.UpdateTTL("h", "fine", ""), errkind.Invalid, `Invalid check status: 'fine'`},
		{l.SetServiceMaintenance(gone, "x", true, "", false), errkind.NotFound,
			`Unknown service ID "x". Ensure that the service ID is passed, not the service name.`},
		{l.RegisterCheck(gone, mustCheck(t, `{"Name":"c","ServiceID":"x","TTL":"1s"}`), RegisterOptions{}), errkind.NotFound,
			`ServiceID "x" does not exist`},
		{await, errkind.NotFound, "unknown service ID: x"},
	}
	for _, tc := range tests {
		if tc.err == nil || errkind.Of(tc.err) != tc.kind || errkind.Text(tc.err) != tc.text {
			t.Errorf("got %v %q, want %v %q", errkind.Of(tc.err), tc.err, tc.kind, tc.text)
		}
	}
	script := mustCheck(t, `{"Name":"s","Args":["true"],"Interval":"1s"}`)
	if err := l.RegisterCheck(gone, script, RegisterOptions{}); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("a script from the API: %v", err)
	}
}

func TestAwaitService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := running(t, Config{Servers: newFake()})
		defer stop()
		if err := l.RegisterService(t.Context(), mustService(t, web), RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		s, err := l.AwaitService(t.Context(), "web-1", "", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if again, _ := l.AwaitService(t.Context(), "web-1", s.Hash, time.Minute); again.Hash != s.Hash ||
			time.Since(begin) != time.Minute {
			t.Errorf("an unchanged service returned after %v", time.Since(begin))
		}
		got := make(chan *Service, 1)
		go func() {
			s, _ := l.AwaitService(t.Context(), "web-1", s.Hash, time.Hour)
			got <- s
		}()
		synctest.Wait()
		// The same content again does not wake the reader; other content does.
		for _, body := range []string{web, `{"ID":"web-1","Name":"web","Port":81}`} {
			if err := l.RegisterService(t.Context(), mustService(t, body), RegisterOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if s := <-got; s.Service.Port != 81 {
			t.Errorf("woken with port %d", s.Service.Port)
		}
	})
}

func TestFileDefinitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, stop := running(t, Config{Servers: f})
		defer stop()
		a, b := mustService(t, `{"Name":"a","Check":{"TTL":"1h"}}`), mustService(t, `{"Name":"b"}`)
		if err := l.RegisterService(t.Context(), mustService(t, web), RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := l.SetFileDefinitions([]*definition.Service{a, b}, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if f.service("a") == nil || f.service("b") == nil {
			t.Fatal("definitions did not reach the catalog")
		}
		bad := mustService(t, `{"Name":"c","Check":{"HTTP":"x"}}`)
		if err := l.SetFileDefinitions([]*definition.Service{bad, a, a}, nil); !errkind.Is(err, errkind.Invalid) {
			t.Fatalf("got %v", err)
		}
		if l.Service("b") == nil || l.Service("c") != nil {
			t.Fatal("a wrong set changed something")
		}
		node := mustCheck(t, `{"Name":"disk","ServiceID":"a","TTL":"1h"}`)
		if err := l.SetFileDefinitions([]*definition.Service{a}, []*definition.Check{node}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if f.service("b") != nil || f.check("disk") == nil || f.service("web-1") == nil {
			t.Errorf("after the reload: %v", f.services)
		}
	})
}

// TestCrashKeepsWhatWasAcknowledged: a power loss right after the calls returned.
func TestCrashKeepsWhatWasAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(20) {
			disk := vfs.NewMem()
			l, stop := running(t, Config{Servers: newFake(), FS: disk, DataDir: "/data"})
			keep := RegisterOptions{Persist: true}
			for i := range 4 {
				d := mustService(t, fmt.Sprintf(`{"ID":"s%d","Name":"s","Port":%d}`, i, seed+1))
				if err := l.RegisterService(t.Context(), d, keep); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.DeregisterService(t.Context(), "s0"); err != nil {
				t.Fatal(err)
			}
			after := disk.Crash(rand.New(rand.NewPCG(seed, 0)))
			stop()
			l, stop = running(t, Config{Servers: newFake(), FS: after, DataDir: "/data"})
			if got := sorted(l.View().Services); !slices.Equal(got, []string{"s1", "s2", "s3"}) {
				t.Errorf("seed %d: after the crash there is %v", seed, got)
			}
			stop()
		}
	})
}

// TestReloadKeepsChecksRunning: an unchanged check is not started anew by a reload.
func TestReloadKeepsChecksRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := running(t, Config{Servers: newFake()})
		defer stop()
		set := func(interval string) uint64 {
			t.Helper()
			d := mustService(t, fmt.Sprintf(`{"Name":"a","Check":{"TCP":"127.0.0.1:1","Interval":%q}}`, interval))
			if err := l.SetFileDefinitions([]*definition.Service{d}, nil); err != nil {
				t.Fatal(err)
			}
			l.state.mu.Lock()
			defer l.state.mu.Unlock()
			return l.state.checks["service:a"].run
		}
		first := set("1h")
		if again := set("1h"); again != first {
			t.Error("an unchanged check was started anew")
		}
		if changed := set("2h"); changed == first {
			t.Error("a changed check goes on as it was")
		}
	})
}

// TestAPIChecksOfFileServicesSurvive reloads and restarts.
func TestAPIChecksOfFileServicesSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Servers: newFake(), FS: vfs.NewMem(), DataDir: "/data"}
		l, stop := running(t, cfg)
		load := func(body string) {
			t.Helper()
			if err := l.SetFileDefinitions([]*definition.Service{mustService(t, body)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		load(`{"Name":"a","Checks":[{"CheckID":"one","TTL":"1h"},{"CheckID":"two","TTL":"1h"}]}`)
		if err := l.RegisterCheck(t.Context(), mustCheck(t, `{"Name":"api","ServiceID":"a","TTL":"1h"}`),
			RegisterOptions{Persist: true}); err != nil {
			t.Fatal(err)
		}
		load(`{"Name":"a","Checks":[{"CheckID":"one","TTL":"1h"}]}`)
		if got := sorted(l.View().Checks); !slices.Equal(got, []string{"api", "one"}) {
			t.Errorf("after the reload: %v", got)
		}
		stop()
		l, stop = running(t, cfg)
		defer stop()
		load(`{"Name":"a"}`)
		if got := sorted(l.View().Checks); !slices.Equal(got, []string{"api"}) {
			t.Errorf("after the restart: %v", got)
		}
	})
}
