package janitor

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/ingest/ingesttest"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/resources/resourcestest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// world is an intake with its janitor, and what they told pipelines.
type world struct {
	t         *testing.T
	resources *resources.Resources
	ingest    *ingest.Ingest
	mu        sync.Mutex
	told      []*monitor.Event
}

// lifting hands on to the janitor.
type lifting struct {
	ingesttest.Double
	*Janitor
}

func (l *lifting) Lift(namespace string, names []string) { l.Janitor.Lift(namespace, names) }

func (l *lifting) Deregisters(namespace, entity string) bool {
	return l.Janitor.Deregisters(namespace, entity)
}

func (l *lifting) Deregister(namespace, entity string) { l.Janitor.Deregister(namespace, entity) }

func start(t *testing.T, handler string) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	config, _ := resourcestest.New()
	w := &world{t: t, resources: config}
	w.put("namespaces", &monitor.Namespace{Name: "default"})
	var err error
	on := &lifting{Double: ingesttest.Double{T: t, Resources: w.resources, Published: func(e *monitor.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told = append(w.told, e)
	}}}
	w.ingest, err = ingest.New(ingesttest.Config(log, on))
	if err != nil {
		t.Fatal(err)
	}
	u := New(Config{Resources: w.resources, Events: w.ingest, DeregistrationHandler: handler, Log: log, Now: time.Now})
	on.Janitor = u
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { w.ingest.Watch(ctx) })
	for _, run := range []func(context.Context) error{w.ingest.Run, u.Run} {
		all.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { stop(); all.Wait() })
	return w
}

func (w *world) put(typ string, o monitor.Object) {
	w.t.Helper()
	resourcestest.Put(w.t, w.resources, typ, o)
}

func (w *world) send(entity, check string, status, timeout uint32) {
	w.t.Helper()
	now := time.Now().Unix()
	e := &monitor.Event{Timestamp: now, Entity: &monitor.Entity{Class: "agent",
		Meta: monitor.Meta{Name: entity, Namespace: "default"}},
		Check: &monitor.Check{Meta: monitor.Meta{Name: check, Namespace: "default"}, Interval: 1, Timeout: timeout,
			Status: status, Executed: now, Issued: now, Handlers: []string{"slack"}}}
	if err := w.ingest.Frame(w.t.Context(), "default", tagproto.Append(nil, e)); err != nil {
		w.t.Fatal(err)
	}
}

// of returns what was told of a check of an entity.
func (w *world) of(entity, check string) (out []*monitor.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.told {
		if e.Entity.Name == entity && e.Check.Name == check {
			out = append(out, e)
		}
	}
	return out
}

// An entity that is to go with its agent goes with its events; each is told as passing, without its past, and the
// handler for it has an event (SK-5). One whose keepalive event was deleted is not missed (SK-6).
func TestDeregistration(t *testing.T) {
	w := start(t, "default-handler")
	for name, handler := range map[string]string{"own": "its-handler", "other": ""} {
		w.put("entities", &monitor.EntityConfig{Meta: monitor.Meta{Name: name, Namespace: "default"}, Class: "agent",
			Deregister: true, Deregistration: monitor.Deregistration{Handler: handler}})
		w.send(name, "cpu", 2, 0)
		w.send(name, "keepalive", 0, 1)
	}
	w.put("entities", &monitor.EntityConfig{Meta: monitor.Meta{Name: "stays", Namespace: "default"}, Class: "agent"})
	w.send("stays", "keepalive", 0, 1)
	w.send("forgotten", "keepalive", 0, 1)
	if !w.ingest.Delete("default", "forgotten", "keepalive") {
		t.Fatal("nothing is deleted")
	}
	for name, handler := range map[string]string{"own": "its-handler", "other": "default-handler"} {
		polltest.Until(t, func() bool { return len(w.of(name, "deregistration")) == 1 }, "the end of %s to be told", name)
		if c := w.of(name, "deregistration")[0].Check; c.Status != 1 || c.Interval != 1 ||
			!slices.Equal(c.Handlers, []string{handler}) {
			t.Errorf("%s: %+v", name, c)
		}
		cpu := w.of(name, "cpu")
		if last := cpu[len(cpu)-1].Check; len(cpu) != 2 || last.Status != 0 || len(last.History) != 1 ||
			last.History[0].Status != 0 || !slices.Equal(last.Handlers, []string{"slack"}) {
			t.Errorf("%s: told %d times, at last %+v", name, len(cpu), last)
		}
		if w.resources.View().Get("entities", "default", name) != nil || len(w.ingest.List("default", name)) != 0 {
			t.Errorf("%s is still there", name)
		}
	}
	polltest.Until(t, func() bool {
		e, err := w.ingest.Get("default", "stays", "keepalive")
		return err == nil && e.Check.Status == 1
	}, "the one that stays to be missed")
	if list := w.ingest.List("default", "forgotten"); len(list) != 0 {
		t.Error("what was deleted is missed")
	}
}

// A silence that is to end with its incident is removed (SE-10).
func TestLift(t *testing.T) {
	w := start(t, "")
	w.put("silenced", &monitor.Silenced{Meta: monitor.Meta{Name: "*:cpu", Namespace: "default"}, Check: "cpu",
		ExpireOnResolve: true})
	w.put("silenced", &monitor.Silenced{Meta: monitor.Meta{Name: "entity:e:*", Namespace: "default"},
		Subscription: "entity:e"})
	for _, status := range []uint32{2, 0} {
		w.send("e", "cpu", status, 0)
	}
	polltest.Until(t, func() bool { return w.resources.View().Get("silenced", "default", "*:cpu") == nil },
		"the silence to end")
	if w.resources.View().Get("silenced", "default", "entity:e:*") == nil {
		t.Error("another silence ended, too")
	}
}
