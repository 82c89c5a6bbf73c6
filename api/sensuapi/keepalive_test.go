package sensuapi

import (
	"context"
	"reflect"
	"testing"

	sensu "github.com/sensu/sensu-go/api/core/v2"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/frame"
	"corbel.dev/corbel/monitor/objects"
)

// catcher keeps the newest event that it was given.
type catcher struct{ event []byte }

func (c *catcher) Frame(_ context.Context, _ string, b []byte) error {
	c.event = append(c.event[:0], b...)
	return nil
}

func (c *catcher) Announce(*monitor.Event) error { return nil }

// TestAKeepaliveThatIsPassedOnIsAsADecodedOne sends keepalives to a session that remembers and to one that must
// decode each.
func TestAKeepaliveThatIsPassedOnIsAsADecodedOne(t *testing.T) {
	b := newBackend(t)
	var got, want catcher
	sessions := [2]*session{}
	for i, c := range []*catcher{&got, &want} {
		a := *b.Agents.cfgOf(c)
		sessions[i] = &session{agents: &a}
		sessions[i].Namespace, sessions[i].Agent = "default", "web-1"
	}
	event := func(c *catcher) *monitor.Event {
		e := new(monitor.Event)
		if err := tagproto.Unmarshal(c.event, e); err != nil {
			t.Fatal(err)
		}
		if len(e.ID) != 16 {
			t.Fatalf("an id of %d bytes", len(e.ID))
		}
		e.ID = nil
		return e
	}
	passed := 0
	for i, change := range []func(*sensu.Event){
		func(*sensu.Event) {}, func(*sensu.Event) {}, func(*sensu.Event) {},
		func(e *sensu.Event) { e.Entity.Subscriptions = []string{"db"} },
		func(e *sensu.Event) { e.Entity.Subscriptions = []string{"db"} },
		func(e *sensu.Event) { e.Check.Timeout = 60 }, func(e *sensu.Event) { e.Check.Timeout = 60 },
		func(e *sensu.Event) { e.Entity.KeepaliveHandlers = []string{"pager"} },
		func(e *sensu.Event) { e.Entity.KeepaliveHandlers = []string{"pager"} },
		func(e *sensu.Event) { e.Labels = map[string]string{"a": "b"} },
		func(e *sensu.Event) { e.Labels = map[string]string{"a": "b"} },
		func(e *sensu.Event) { e.Check.Output = "what agents say of it does not count" },
		func(e *sensu.Event) { e.Check.Status = 2 },
		func(e *sensu.Event) { e.Entity.LastSeen = 77 },
	} {
		e := keepalive(t, "web-1", int64(i)+2)
		e.Timestamp, e.Entity.LastSeen = 1_700_000_000+int64(i), 1_700_000_000+int64(i)
		e.Entity.Redact, e.Entity.System = []string{"password"}, sensu.System{Hostname: "web-1", OS: "linux"}
		change(e)
		body := marshal(t, e)
		if sessions[0].beats.check != nil {
			passed++
		}
		sessions[1].beats = beats{}
		for _, s := range sessions {
			if err := s.keepalive(t.Context(), body); err != nil {
				t.Fatal(i, err)
			}
		}
		if g, w := event(&got), event(&want); !reflect.DeepEqual(g, w) {
			t.Fatalf("keepalive %d:\n%+v\n%+v\n%+v\n%+v", i, g.Check, w.Check, g.Entity, w.Entity)
		}
		var g, w frame.Frame
		if g.Cut(got.event) != nil || w.Cut(want.event) != nil || string(g.Stable) != string(w.Stable) ||
			string(g.Rest) != string(w.Rest) || !sameHost(&g, &w) {
			t.Fatalf("keepalive %d is not the same bytes: each would be stored as a change", i)
		}
	}
	if passed != 13 {
		t.Fatalf("%d of 13 keepalives found something remembered", passed)
	}
	same := marshal(t, keepalive(t, "web-1", 9))
	s := sessions[0]
	for range 2 {
		if err := s.keepalive(t.Context(), same); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := s.keepalive(t.Context(), same); err != nil {
			t.Fatal(err)
		}
	}); n > raceAllocs {
		t.Errorf("%v allocations for a keepalive as the one before", n)
	}
}

// cfgOf is Agents with somebody else to take its events.
func (a *Agents) cfgOf(c Taker) *Agents {
	b := &Agents{cfg: a.cfg, loop: a.loop, opening: make(chan struct{}, openingMost), links: map[*session]struct{}{}}
	b.beats.seed = a.beats.seed
	b.cfg.Events = c
	return b
}

// An entity that was deleted is there again with its agent's next keepalive, though that says nothing new.
func TestADeletedEntityIsRegisteredAgain(t *testing.T) {
	b := newBackend(t)
	var c catcher
	s := &session{agents: b.Agents.cfgOf(&c)}
	s.Namespace, s.Agent = "default", "web-1"
	body := marshal(t, keepalive(t, "web-1", 2))
	for range 2 {
		for range 2 {
			if err := s.keepalive(t.Context(), body); err != nil {
				t.Fatal(err)
			}
		}
		if b.Agents.configOf(&s.Session) == nil {
			t.Fatal("it is not there")
		}
		if err := b.resources.Write(t.Context(), objects.Op{Verb: objects.Drop, Type: "entities", Namespace: "default",
			Name: "web-1"}); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkKeepalive takes keepalives as the ones before, up to and with their event's step.
func BenchmarkKeepalive(b *testing.B) {
	back := newBackend(b)
	s := &session{agents: back.Agents}
	s.Namespace, s.Agent = "default", "web-1"
	message := append([]byte("keepalive\n"), marshal(b, keepalive(b, "web-1", 2))...)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Message(b.Context(), message); err != nil {
			b.Fatal(err)
		}
		for len(back.published) > 0 {
			<-back.published
		}
	}
}

// Agents that are new wait for their turn when very many are, as long as their time lets them; those that are known
// do not.
func TestNewAgentsTakeTurns(t *testing.T) {
	b := newBackend(t)
	var c catcher
	agents := b.Agents.cfgOf(&c)
	known := &session{agents: agents}
	known.Namespace, known.Agent = "default", "known"
	if err := known.Message(t.Context(), append([]byte("keepalive\n"),
		marshal(t, keepalive(t, "known", 1))...)); err != nil || len(c.event) == 0 {
		t.Fatal(err)
	}
	for range openingMost {
		agents.opening <- struct{}{}
	}
	if err := known.keepalive(t.Context(), marshal(t, keepalive(t, "known", 2))); err != nil {
		t.Fatal("one that is known waits: ", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	s := &session{agents: agents}
	s.Namespace, s.Agent = "default", "web-1"
	body := marshal(t, keepalive(t, "web-1", 1))
	if err := s.keepalive(over, body); !errkind.Is(err, errkind.Overloaded) || agents.knows(&s.Session) {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.keepalive(t.Context(), body) }()
	<-agents.opening
	if err := polltest.Get(t, done, "its turn"); err != nil || !agents.knows(&s.Session) {
		t.Fatal(err)
	}
	if len(agents.opening) != openingMost-1 {
		t.Fatal("a turn is not given back")
	}
}
