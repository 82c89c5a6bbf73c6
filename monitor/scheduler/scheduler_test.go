package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/kit/ws"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/hub"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/resources/resourcestest"
	"corbel.dev/corbel/monitor/roundrobin"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// jumpy is a clock whose wall can be set.
type jumpy struct {
	clock.Real
	mu sync.Mutex
	by time.Duration
}

func (c *jumpy) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.by)
}

func (c *jumpy) set(by time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.by += by }

// Since is of times that Now gave: what was set since does not count.
func (c *jumpy) Since(t time.Time) time.Duration { return time.Since(t) }

// backend is one server's scheduling.
type backend struct {
	*Scheduler
	t      *testing.T
	clock  *jumpy
	config *resources.Resources
	hub    *hub.Hub
	calls  func(addr, method string, req []byte) error
	others []string
}

func start(t *testing.T) *backend { return startWith(t, func(*Config) {}) }

func startWith(t *testing.T, change func(*Config)) *backend {
	log := slog.New(slog.DiscardHandler)
	config, _ := resourcestest.New()
	b := &backend{t: t, clock: &jumpy{}, config: config, hub: hub.NewHub()}
	r := roundrobin.New(roundrobin.Config{
		Self: "s", Hub: b.hub, Log: log, Servers: func() []roundrobin.Server {
			return []roundrobin.Server{{ID: "s", Address: "s", Voter: true}}
		},
		Leads: func() bool { return true }, Leader: func() (string, string) { return "s", "s" },
		Changes: func() <-chan struct{} { return nil },
		Deliver: func(h roundrobin.Hand) []string { return b.Deliver(h) },
	})
	cfg := Config{View: b.config.View, Hub: b.hub, RoundRobin: r, Clock: b.clock, Log: log,
		Servers: func() []string { return b.others },
		Call: func(_ context.Context, addr, method string, req []byte) ([]byte, error) {
			return nil, b.calls(addr, method, req)
		}}
	change(&cfg)
	b.Scheduler = New(cfg)
	b.config.Watch(b.Changed)
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, run := range []func(context.Context) error{r.Run, b.Run} {
		all.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { stop(); all.Wait() })
	b.put("namespaces", &monitor.Namespace{Name: "default"})
	return b
}

func (b *backend) put(typ string, o monitor.Object) {
	b.t.Helper()
	resourcestest.Put(b.t, b.config, typ, o)
}

func (b *backend) remove(typ, name string) {
	b.t.Helper()
	if err := b.config.Write(b.t.Context(), objects.Op{Verb: objects.Delete, Type: typ, Namespace: "default",
		Name: name}); err != nil {
		b.t.Fatal(err)
	}
}

func meta(name string) monitor.Meta { return monitor.Meta{Name: name, Namespace: "default"} }

func cpu() *monitor.CheckConfig {
	return &monitor.CheckConfig{Meta: meta("cpu"), Command: "check-cpu", Interval: 10, Publish: true,
		Subscriptions: []string{"linux", "web"}}
}

// agent is a link that keeps what it was sent.
type agent struct {
	t    *testing.T
	json bool
	mu   sync.Mutex
	got  []*monitor.CheckRequest
	at   []time.Time
}

// Send implements hub.Link.
func (a *agent) Send(m ws.Message) error {
	kind, body, _ := bytes.Cut(m.Payload(), []byte{'\n'})
	r := new(monitor.CheckRequest)
	err := errors.New("not a check request")
	if string(kind) == hub.KindCheckRequest && a.json {
		err = json.Unmarshal(body, r)
	} else if string(kind) == hub.KindCheckRequest {
		err = tagproto.Unmarshal(body, r)
	}
	if err != nil {
		a.t.Errorf("%q: %v", kind, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got, a.at = append(a.got, r), append(a.at, time.Now())
	return nil
}

func (a *agent) times() []time.Time { a.mu.Lock(); defer a.mu.Unlock(); return a.at }

// take returns what came since, and fails unless each request of a check and entity has a later second than the one
// before.
func (a *agent) take() []*monitor.CheckRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.got
	last := map[string]int64{}
	for _, r := range out {
		key := r.Config.Name + "/" + r.Config.ProxyEntityName
		if last[key] >= r.Issued {
			a.t.Errorf("%s was issued at %d after %d: agents leave it out", key, r.Issued, last[key])
		}
		last[key] = r.Issued
	}
	a.got, a.at = nil, nil
	return out
}

func (b *backend) agent(name string, subs ...string) *agent {
	a := &agent{t: b.t, json: strings.HasPrefix(name, "json")}
	b.hub.Join(&hub.Session{Namespace: "default", Agent: name, Link: a, JSON: a.json}, subs)
	return a
}

func TestChecksReachSubscribersAtTheirPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		both, one, none := b.agent("both", "linux", "web"), b.agent("json-one", "web"), b.agent("none", "db")
		for _, name := range []string{"sensu/cpu", "sensu/cpu-extra", "sensu/disk", "ruby"} {
			b.put("assets", &monitor.Asset{Meta: meta(name), URL: "https://example.com/" + name,
				SHA512: strings.Repeat("a", 128)})
		}
		b.put("hooks", &monitor.HookConfig{Meta: meta("ps"), Command: "ps", RuntimeAssets: []string{"ruby"}})
		b.put("hooks", &monitor.HookConfig{Meta: meta("other"), Command: "x"})
		c := cpu()
		c.RuntimeAssets = []string{"sensu/cpu"}
		c.CheckHooks = []monitor.HookList{{Type: "non-zero", Hooks: []string{"ps", "missing"}}}
		b.put("checks", c)
		time.Sleep(time.Minute)
		schedule, _ := monitor.NewSchedule("cpu", 10, "")
		for i, at := range both.times() {
			if due := schedule.Next(at.Add(-time.Second)); at.Before(due) || at.Sub(due) > 100*time.Millisecond {
				t.Errorf("request %d came at %v, due at %v", i, at, due)
			}
		}
		requests := both.take()
		if len(requests) != 6 || len(one.take()) != 6 || len(none.take()) != 0 {
			t.Fatalf("%d requests in a minute", len(requests))
		}
		r := requests[0]
		if r.Config.Command != "check-cpu" || r.Config.Scheduler != "memory" || len(r.Assets) != 2 ||
			r.Assets[1].Name != "sensu/cpu-extra" || len(r.Hooks) != 1 || r.Hooks[0].Command != "ps" ||
			len(r.HookAssets) != 1 || r.HookAssets[0].Hook != "ps" || r.HookAssets[0].Assets.Assets[0].Name != "ruby" ||
			len(r.Secrets) != 0 {
			t.Errorf("%+v", r)
		}
		// What a request holds follows its parts.
		b.remove("assets", "sensu/cpu-extra")
		b.put("hooks", &monitor.HookConfig{Meta: meta("ps"), Command: "ps aux"})
		time.Sleep(10 * time.Second)
		if got := both.take(); len(got) != 1 || len(got[0].Assets) != 1 || got[0].Hooks[0].Command != "ps aux" ||
			len(got[0].HookAssets) != 0 {
			t.Errorf("after a change of its parts: %+v", got)
		}
		for name, change := range map[string]func(){
			"subdued": func() {
				c.Subdues = []*monitor.Subdue{{Begin: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339),
					End: time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}}
				b.put("checks", c)
			},
			"not published": func() { c.Subdues, c.Publish = nil, false; b.put("checks", c) },
			"deleted":       func() { b.remove("checks", "cpu") },
		} {
			change()
			time.Sleep(time.Minute)
			if got := both.take(); len(got) != 0 {
				t.Errorf("%s: %d requests", name, len(got))
			}
			c = cpu()
			c.Interval = 20
			b.put("checks", c)
			time.Sleep(time.Minute)
			if got := both.take(); len(got) != 3 {
				t.Errorf("afterwards, each 20 s: %d requests in a minute", len(got))
			}
		}
	})
}

// The load tools' command reaches agents as it is, and cron runs by its zone.
func TestCronAndTestCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		a := b.agent("a", "linux")
		c := cpu()
		// 0:30 in UTC; a bubble begins at midnight
		c.Interval, c.Cron, c.Command = 0, "CRON_TZ=Asia/Tokyo 30 9 * * *", "!sensu_test_check!"
		b.put("checks", c)
		time.Sleep(29 * time.Minute)
		if got := a.take(); len(got) != 0 {
			t.Fatalf("%d requests before its time", len(got))
		}
		time.Sleep(2 * time.Minute)
		if got := a.take(); len(got) != 1 || got[0].Config.Command != "!sensu_test_check!" {
			t.Fatalf("%+v", got)
		}
	})
}

// A clock that is set back or forth sends neither bursts nor requests that agents leave out (agent.take looks at that).
func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		a := b.agent("a", "linux")
		b.put("checks", cpu())
		for _, by := range []time.Duration{-time.Hour, time.Hour, 2 * time.Hour, -5 * time.Second, -2 * time.Hour} {
			b.clock.set(by)
			time.Sleep(time.Minute)
			a.mu.Lock()
			n := len(a.got)
			a.mu.Unlock()
			if n < 5 || n > 7 {
				t.Errorf("%d requests in the minute after the clock was set by %v", n, by)
			}
			a.mu.Lock()
			a.got = a.got[max(n-1, 0):]
			a.mu.Unlock()
		}
		a.take()
	})
}

func (b *backend) proxy(name, kind string, labels map[string]string) {
	m := meta(name)
	m.Labels = labels
	b.put("entities", &monitor.EntityConfig{Meta: m, Class: kind})
}

func TestProxyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		x, y := b.agent("x", "linux"), b.agent("y", "linux", "web")
		for i := range 4 {
			b.proxy(fmt.Sprint("site-", i), "proxy", map[string]string{"url": fmt.Sprint("https://", i), "kind": "site"})
		}
		b.proxy("no-url", "proxy", map[string]string{"kind": "site"})
		b.proxy("router", "proxy", map[string]string{"kind": "router"})
		b.proxy("host", "agent", nil)
		c := cpu()
		c.Interval, c.Command, c.EnvVars = 60, `check-http {{ .labels.url }} "{{ .labels.path | default "/" }}"`,
			[]string{"NAME={{ .name }}"}
		c.ProxyRequests = &monitor.ProxyRequests{EntityAttributes: []string{"entity.entity_class == 'proxy'",
			"entity.labels.kind == 'site'"}}
		b.put("checks", c)
		time.Sleep(time.Minute)
		got := x.take()
		if len(got) != 4 || len(y.take()) != 4 {
			t.Fatalf("%d requests, and the entity without a URL has none: %+v", len(got), b.Stats())
		}
		for i, r := range got {
			if r.Config.ProxyEntityName != fmt.Sprint("site-", i) || r.Config.Command != fmt.Sprintf(`check-http https://%d "/"`,
				i) || r.Config.EnvVars[0] != fmt.Sprint("NAME=site-", i) {
				t.Errorf("%+v", r.Config)
			}
		}
		if s := b.Stats(); s.Failed != 1 {
			t.Errorf("%+v", s)
		}
		// An entity that changes is looked at anew, one that is gone is left out; with splay they come one after the other.
		b.remove("entities", "no-url")
		b.remove("entities", "site-0")
		b.proxy("router", "proxy", map[string]string{"kind": "site", "url": "r"})
		c.ProxyRequests.Splay, c.ProxyRequests.SplayCoverage = true, 50
		b.put("checks", c)
		for n := range 3 {
			time.Sleep(time.Minute)
			at := x.times()
			if n == 0 { // the first tick may have begun in the minute before
				x.take()
				continue
			}
			if got := x.take(); len(got) != 4 {
				t.Fatalf("%d requests", len(got))
			}
			for i := range at[1:] {
				if gap := at[i+1].Sub(at[i]); gap != 7500*time.Millisecond && gap < 30*time.Second {
					t.Errorf("the gap is %v, 7.5 s makes half of the minute for four", gap)
				}
			}
		}
		// Round robin deals them out.
		c.RoundRobin, c.ProxyRequests.Splay, c.Subscriptions = true, false, []string{"linux"}
		b.put("checks", c)
		x.take()
		y.take()
		time.Sleep(4*time.Minute + 5*time.Second)
		one, two := x.take(), y.take()
		if len(one)+len(two) < 16 || len(one) != len(two) || one[0].Config.Scheduler != "corbel" {
			t.Errorf("dealt %d and %d", len(one), len(two))
		}
	})
}

// An expression that does not end, fails or is not JavaScript costs its own check only.
func TestHostileChecks(t *testing.T) {
	b := start(t)
	a := b.agent("a", "linux")
	for i := range 40 {
		b.proxy(fmt.Sprint("p", i), "proxy", nil)
	}
	bad := func(name string, expressions []string, command string) {
		c := cpu()
		c.Name, c.Interval, c.Command, c.ProxyRequests = name, 1, command,
			&monitor.ProxyRequests{EntityAttributes: expressions}
		b.put("checks", c)
	}
	bad("endless", []string{"while (true) {}"}, "x")
	bad("throws", []string{"entity.none.more"}, "x")
	bad("wrong", []string{"entity.("}, "x")
	bad("calls", []string{"true"}, `{{ define "x" }}{{ template "x" }}{{ template "x" }}{{ end }}{{ template "x" }}`)
	bad("loops", []string{"true"}, `{{ range 1000000000000 }}{{ end }}`)
	good := cpu()
	good.Interval = 1
	b.put("checks", good)
	n := 0
	polltest.Until(t, func() bool {
		for _, r := range a.take() {
			if r.Config.Name != "cpu" {
				t.Fatalf("%+v", r.Config)
			}
			n++
		}
		return n >= 5
	}, "requests of the check that is fine")
	if s := b.Stats(); s.Planned != 4 { // whose tokens cannot run without end; whose expressions fail matches nobody
		t.Errorf("%+v", s)
	}
}

func TestRoundRobinOfOneServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		agents := []*agent{b.agent("a", "linux"), b.agent("b", "linux"), b.agent("c", "linux"), b.agent("d", "web")}
		c := cpu()
		c.RoundRobin = true
		b.put("checks", c)
		time.Sleep(5 * time.Second)
		for _, a := range agents {
			a.take()
		}
		time.Sleep(10 * time.Minute)
		for i, want := range []int{20, 20, 20, 60} {
			if got := agents[i].take(); len(got) != want || got[0].Config.Scheduler != "corbel" {
				t.Errorf("agent %d got %d of 60 ticks", i, len(got))
			}
		}
	})
}

func TestExecute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, other := start(t), start(t)
		a, elsewhere := b.agent("a", "linux"), other.agent("z", "db", "linux")
		b.others = []string{"other"}
		b.calls = func(_, method string, req []byte) error {
			if method != MethodExecute {
				t.Error(method)
			}
			_, err := other.Executed(t.Context(), req)
			return err
		}
		c := cpu()
		c.Publish = false
		b.put("checks", c) // the other server does not have it yet
		first, err := b.Execute(t.Context(), "default", "cpu", nil, "admin", "to see")
		if err != nil || first != time.Now().Unix() {
			t.Fatal(first, err)
		}
		second, err := b.Execute(t.Context(), "default", "cpu", nil, "admin", "at once again")
		if err != nil || second != first+1 {
			t.Fatal(second, err)
		}
		if _, err := b.Execute(t.Context(), "default", "cpu", []string{"db", "entity:a"}, "", ""); err != nil {
			t.Fatal(err)
		}
		one, two := a.take(), elsewhere.take()
		if len(one) != 3 || len(two) != 3 || one[0].Issued != first || two[1].Issued != second ||
			!reflect.DeepEqual(two[2].Config.Subscriptions, []string{"db", "entity:a"}) {
			t.Errorf("%+v %+v", one, two)
		}
		if _, err := b.Execute(t.Context(), "default", "none", nil, "", ""); errkind.Of(err) != errkind.NotFound {
			t.Error(err)
		}
		b.calls = func(string, string, []byte) error { return errkind.New(errkind.Unavailable, "refused") }
		if _, err := b.Execute(t.Context(), "default", "cpu", nil, "", ""); errkind.Of(err) != errkind.Unavailable {
			t.Error(err)
		}
		if _, err := b.Executed(t.Context(), []byte{1, 2}); errkind.Of(err) != errkind.Invalid {
			t.Error(err)
		}
	})
}

type discard struct{}

func (discard) Send(ws.Message) error { return nil }

func agents(n int) *backend {
	log := slog.New(slog.DiscardHandler)
	b := &backend{config: resources.New(log), hub: hub.NewHub()}
	r := roundrobin.New(roundrobin.Config{Self: "s", Hub: b.hub, Log: log})
	b.Scheduler = New(Config{View: b.config.View, Hub: b.hub, RoundRobin: r, Log: log})
	for i := range n {
		b.hub.Join(&hub.Session{Namespace: "default", Agent: fmt.Sprint("agent-", i), JSON: i%2 == 0, Link: discard{}},
			[]string{"linux", "web"})
	}
	return b
}

func plannedCheck(b *backend) *check {
	c := cpu()
	made, err := newCheck(checkKey{"default", "cpu"}, objects.NewItem("default", "cpu", 0, c))
	if err != nil {
		panic(err)
	}
	b.checks[made.key] = made
	return made
}

// A tick is encoded once in each form, however many sessions get it.
func TestTickAllocations(t *testing.T) {
	few, many := agents(10), agents(2000)
	cost := func(b *backend) float64 {
		c := plannedCheck(b)
		b.send(c, c.config.Subscriptions, 0)
		return testing.AllocsPerRun(20, func() { b.send(c, c.config.Subscriptions, 0) })
	}
	if a, b := cost(few), cost(many); b > a+30 { // the list of sessions grows in steps
		t.Errorf("a tick for 10 sessions makes %v allocations, one for 2,000 %v", a, b)
	}
}

func BenchmarkTick10000Sessions(b *testing.B) {
	s := agents(10_000)
	c := plannedCheck(s)
	b.ReportAllocs()
	for b.Loop() {
		s.send(c, c.config.Subscriptions, 0)
	}
}
