package agent

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"corbel.dev/corbel/api/sensuapi"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/kit/ws"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/hub"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/ingest/ingesttest"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/resources/resourcestest"
	"corbel.dev/corbel/monitor/users"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// backend is a real agents' port over a real intake, which can be taken away and come back at its address.
type backend struct {
	url       string
	resources *resources.Resources
	ingest    *ingest.Ingest
	hub       *hub.Hub
	published chan *monitor.Event
	users     *users.Users
	up        func()
	down      func()
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	config, _ := resourcestest.New()
	b := &backend{resources: config, published: make(chan *monitor.Event, 1000), hub: hub.NewHub()}
	ops, err := users.Seed("admin", "correct horse", "", bcrypt.MinCost, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.resources.Write(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	b.users = users.New(users.Config{Resources: b.resources, Cost: bcrypt.MinCost})
	b.ingest, err = ingest.New(ingesttest.Config(log, &ingesttest.Double{T: t, Resources: b.resources,
		Published: func(e *monitor.Event) { b.published <- e }}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.ingest.Run(ctx) }()
	b.serve(t)
	t.Cleanup(func() {
		b.down()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return b
}

// serve makes up and down, and the port.
func (b *backend) serve(t *testing.T) {
	var current atomic.Pointer[sensuapi.Agents]
	b.resources.Watch(func(ops []objects.Op) {
		if a := current.Load(); a != nil {
			a.Changed(ops)
		}
	})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := current.Load()
		if a == nil {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		a.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	b.url = "ws" + strings.TrimPrefix(s.URL, "http")
	var stop context.CancelFunc
	ended := make(chan error, 1)
	b.up = func() {
		a, err := sensuapi.NewAgents(sensuapi.AgentsConfig{Resources: b.resources, Users: b.users, Hub: b.hub,
			Events: b.ingest, Backend: "backend-1",
			Ready: func() bool { return true }, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		var ctx context.Context
		ctx, stop = context.WithCancel(context.Background())
		go func() { ended <- a.Run(ctx) }()
		current.Store(a)
	}
	b.down = func() {
		if current.Swap(nil) == nil {
			return
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	b.up()
}

// event waits for a stored event that is as wanted.
func (b *backend) event(t *testing.T, entity, check string, wanted func(*monitor.Event) bool) *monitor.Event {
	t.Helper()
	var got *monitor.Event
	polltest.Until(t, func() bool {
		e, err := b.ingest.Get("default", entity, check)
		if err != nil && !errkind.Is(err, errkind.NotFound) {
			t.Fatal(err)
		}
		got = e
		return err == nil && (wanted == nil || wanted(e))
	}, "the event of %s on %s", check, entity)
	return got
}

// request sends a check to all who subscribe.
func (b *backend) request(t *testing.T, subscription string, r *monitor.CheckRequest) {
	t.Helper()
	if r.Config.Namespace == "" {
		r.Config.Namespace = "default"
	}
	if r.Config.Interval == 0 {
		r.Config.Interval = 10
	}
	polltest.Until(t, func() bool {
		return b.hub.Send("default", []string{subscription}, hub.NewMessage(hub.KindCheckRequest, r)) > 0
	}, "an agent that subscribes to %s", subscription)
}

// start runs an agent until the test ends, or stop is called.
func start(t *testing.T, b *backend, change func(*Config)) (a *Agent, stop func()) {
	t.Helper()
	cfg := Config{Entity: Entity{Name: "web-1", Subscriptions: []string{"linux"}},
		Backends: func() []string { return []string{b.url} },
		Version:  "6.12.0",
		Timing:   Timing{RetryMin: 10 * time.Millisecond, RetryMax: 50 * time.Millisecond}, EventsRate: -1, FS: vfs.NewMem(),
		CacheDir: "/cache"}
	if change != nil {
		change(&cfg)
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := polltest.Get(t, done, "the agent to end"); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return a, stop
}

func connected(t *testing.T, a *Agent) {
	t.Helper()
	polltest.Until(t, a.Connected, "a session")
}

func TestAnAgentRegistersAndKeepsAlive(t *testing.T) {
	b := newBackend(t)
	a, _ := start(t, b, func(c *Config) {
		c.Labels = map[string]string{"tier": "web", "password": "s3cret"}
		c.Keepalive = Keepalive{Interval: 1, Warning: 30, Critical: 60, Handlers: []string{"slack"}}
	})
	e := b.event(t, "web-1", "keepalive", nil)
	if e.Check.Timeout != 30 || e.Check.TTL != 60 || e.Check.Handlers[0] != "slack" ||
		e.Entity.Labels["password"] != "s3cret" || e.Entity.System.Hostname == "" || e.Entity.System.OS == "" ||
		e.Entity.AgentVersion != "6.12.0" {
		t.Fatalf("%+v, %+v", e.Check, e.Entity)
	}
	if e := polltest.Get(t, b.published, "the registration"); e.Check.Name != "registration" {
		t.Fatalf("%+v", e.Check)
	}
	b.event(t, "web-1", "keepalive", func(e *monitor.Event) bool { return e.Sequence >= 3 })
	connected(t, a)
	// A change at the backend reaches what the agent says of itself.
	c := &monitor.EntityConfig{Meta: monitor.Meta{Name: "web-1", Namespace: "default",
		Labels: map[string]string{"tier": "db"}}, Class: "agent", Subscriptions: []string{"postgres"}}
	if err := b.resources.Write(t.Context(), objects.Op{Verb: objects.Put, Type: "entities", Namespace: "default",
		Name: "web-1", Encoded: tagproto.Append(nil, c)}); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool { return a.entity.get().Labels["tier"] == "db" }, "the new configuration")
	b.request(t, "postgres", &monitor.CheckRequest{Issued: 5,
		Config: &monitor.CheckConfig{Meta: monitor.Meta{Name: "tier"}, Command: "echo {{ .labels.tier }}",
			Subscriptions: []string{"postgres"}}})
	if e := b.event(t, "web-1", "tier", nil); e.Check.Output != "db\n" {
		t.Fatalf("%q", e.Check.Output)
	}
}

func TestAnAgentThatManagesItsEntity(t *testing.T) {
	b := newBackend(t)
	_, stop := start(t, b, func(c *Config) { c.Managed, c.Labels = true, map[string]string{"v": "1"} })
	b.event(t, "web-1", "keepalive", nil)
	stop()
	a, _ := start(t, b, func(c *Config) { c.Managed, c.Labels = true, map[string]string{"v": "2"} })
	connected(t, a)
	polltest.Until(t, func() bool {
		c := b.resources.View().Get("entities", "default", "web-1").Object().(*monitor.EntityConfig)
		return c.Labels["v"] == "2" && c.Labels[managedBy] == managedByAgent
	}, "the agent's own configuration at the backend")
	if a.entity.get().Labels["v"] != "2" {
		t.Fatal("the agent took what the backend had")
	}
}

// TestABackendThatDoesNotOfferProtobuf speaks JSON, both ways.
func TestABackendThatDoesNotOfferProtobuf(t *testing.T) {
	got := make(chan string, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// in one line: agents do not find theirs
		c, err := ws.Upgrade(w, r, http.Header{"Accept": {formProtobuf + ", " + formJSON}}, nil)
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.Send(ws.NewMessage([]byte("entity_config\n{\"metadata\":{\"name\":\"not found\"},\"entity_class\":\"agent\"}")))
		for {
			b, err := c.Read(nil)
			if err != nil {
				return
			}
			if strings.HasPrefix(string(b), "keepalive") { // now checks are taken
				_ = c.Send(ws.NewMessage([]byte(`check_request` + "\n" + `{"config":{"command":"echo {{ .labels.password }}",` +
					`"interval":5,"metadata":{"name":"j","namespace":"default"}},"issued":3,"hooks":null,"assets":null}`)))
			}
			got <- string(b)
		}
	}))
	defer s.Close()
	b := &backend{url: "ws" + strings.TrimPrefix(s.URL, "http")}
	_, stop := start(t, b, func(c *Config) { c.Labels = map[string]string{"password": "s3cret"} })
	defer stop()
	for _, want := range []string{"keepalive\n{", "event\n{"} {
		m := polltest.Get(t, got, "a message")
		if !strings.HasPrefix(m, want) || !strings.Contains(m, `"password":"s3cret"`) ||
			!strings.Contains(m, `"name":"web-1"`) {
			t.Fatal(m)
		}
		if want == "event\n{" && !strings.Contains(m, `"output":"s3cret\n"`) {
			t.Fatal(m)
		}
	}
}

func TestEventsWaitOnDiskForABackend(t *testing.T) {
	b := newBackend(t)
	fsys := vfs.NewMem()
	api := func(c *Config) { c.API, c.FS = "127.0.0.1:0", fsys }
	a, stop := start(t, b, api)
	connected(t, a)
	b.down()
	polltest.Until(t, func() bool { return !a.Connected() }, "the end of the session")
	if got, body := get(t, a, "/healthz"); got != 503 || body != "sensu backend unavailable" {
		t.Fatal(got, body)
	}
	for _, name := range []string{"one", "two", "three"} {
		post(t, a, `{"check":{"metadata":{"name":"`+name+`"},"output":"`+name+`","status":1}}`, 202)
	}
	if n := a.handed.waiting(); n != 3 {
		t.Fatalf("%d events wait", n)
	}
	stop() // what was taken outlives the process
	a, _ = start(t, b, api)
	if n := a.handed.waiting(); n != 3 {
		t.Fatalf("%d events wait after a restart", n)
	}
	b.up()
	for _, name := range []string{"one", "two", "three"} {
		if e := b.event(t, "web-1", name, nil); e.Check.Status != 1 || e.Check.Output != name ||
			e.Check.ProcessedBy != "web-1" {
			t.Fatalf("%+v", e.Check)
		}
	}
	polltest.Until(t, func() bool { return a.handed.waiting() == 0 }, "an empty spool")
	if got, body := get(t, a, "/healthz"); got != 200 || body != "ok" {
		t.Fatal(got, body)
	}
	if got, body := get(t, a, "/version"); got != 200 || !strings.Contains(body, `"version":"6.12.0"`) {
		t.Fatal(got, body)
	}
}

// TestNothingSpooledIsLostWhileBackendsComeAndGo takes the backend away again and again while events are handed in.
func TestNothingSpooledIsLostWhileBackendsComeAndGo(t *testing.T) {
	b := newBackend(t)
	a, _ := start(t, b, func(c *Config) { c.API = "127.0.0.1:0" })
	names := map[string]bool{}
	for round := range 6 {
		for i := range 20 {
			name := "c" + string(rune('a'+round)) + string(rune('a'+i))
			names[name] = true
			post(t, a, `{"check":{"metadata":{"name":"`+name+`"},"status":1}}`, 202)
			if i == 10 {
				b.down()
			}
		}
		b.up()
	}
	for name := range names {
		b.event(t, "web-1", name, nil)
	}
}

func TestASessionIsNewAfterItsTime(t *testing.T) {
	b := newBackend(t)
	a, _ := start(t, b, func(c *Config) { c.Timing.MaxSession = 200 * time.Millisecond })
	connected(t, a)
	first, changed := a.current()
	for {
		polltest.Get(t, changed, "another session")
		var l *link
		if l, changed = a.current(); l != nil && l != first {
			return
		}
	}
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	_, err := New(Config{Entity: Entity{Name: "not valid", Namespace: "a b", Subscriptions: []string{"x y"}},
		Keepalive: Keepalive{Interval: 20, Warning: 4, Critical: 10},
		Timing: Timing{RetryMin: time.Minute, RetryMax: time.Second, HeartbeatInterval: time.Minute,
			HeartbeatTimeout: time.Second}, Allow: []Allowed{{}}})
	for _, word := range []string{"name:", "namespace:", "subscriptions:", "keepalive-warning-timeout: 4",
		"keepalive-critical-timeout:", "retry-min", "backend-heartbeat-timeout", "backend-url", "allow-list: entry 0: exec"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s is not named: %v", word, err)
		}
	}
	for _, u := range []string{"", "http://x", "ws://", "::"} {
		if CheckURL(u) == nil {
			t.Errorf("%q is a URL", u)
		}
	}
}

func TestADamagedSpoolIsPutAside(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Entity: Entity{Name: "web-1"}, Backends: func() []string { return nil }, CacheDir: dir, FS: vfs.OS{}}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.handed.append([]parcel{{body: []byte("an event")}}); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = a.handed.close(), a.results.close()
	damage(t, filepath.Join(dir, "spool", "events"))
	if a, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	_, _ = a.handed.close(), a.results.close()
	if found, _ := filepath.Glob(filepath.Join(dir, "spool", "events.damaged-*")); len(found) != 1 ||
		a.handed.waiting() != 0 {
		t.Fatalf("%v, %d events", found, a.handed.waiting())
	}
}
