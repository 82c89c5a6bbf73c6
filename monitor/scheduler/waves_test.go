package scheduler

import (
	"testing"
	"time"

	"corbel.dev/corbel/kit/ws"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/hub"
)

func TestOverTime(t *testing.T) {
	for _, c := range []struct {
		agents   int
		interval time.Duration
		want     time.Duration
	}{
		{0, 0, 0}, {19, 10 * time.Second, 0}, {20, 10 * time.Second, 20 * time.Millisecond},
		{1000, 10 * time.Second, time.Second},
		{4000, 5 * time.Second, time.Second}, {4000, time.Minute, 2 * time.Second}, {40_000, 0, 2 * time.Second},
		{4000, time.Second, 200 * time.Millisecond},
	} {
		if got := overTime(c.agents, c.interval); got != c.want {
			t.Errorf("%d agents each %s: %s, not %s", c.agents, c.interval, got, c.want)
		}
	}
}

// counting is a link that counts.
type counting struct{ got int }

func (c *counting) Send(ws.Message) error { c.got++; return nil }

// TestWaves: each agent gets a request once, evenly over the time, and a pause of the process is followed by no burst.
func TestWaves(t *testing.T) {
	links, sessions := make([]counting, 1000), make([]*hub.Session, 1000)
	for i := range links {
		sessions[i] = &hub.Session{Namespace: "default", Link: &links[i]}
	}
	m := hub.NewMessage(hub.KindCheckRequest, &monitor.CheckRequest{})
	w, total := &waves{}, 0
	if n := w.add(m, sessions, 10*time.Second, time.Hour); n != 0 || w.wait() != waveStep {
		t.Fatalf("%d were sent at once", n)
	}
	now := time.Hour
	for step, pause := range []time.Duration{100, 100, 10_000, 10, 10, 10, 10} {
		now += pause * time.Millisecond
		sent := w.run(now)
		if want := min(int(pause), 50); sent != want {
			t.Fatalf("step %d: %d after %d ms, not %d", step, sent, pause, want)
		}
		total += sent
	}
	for len(w.list) > 0 {
		now += waveStep
		total += w.run(now)
	}
	for i := range links {
		if links[i].got != 1 {
			t.Fatalf("an agent got it %d times", links[i].got)
		}
	}
	if total != len(links) || w.wait() != atMost {
		t.Errorf("%d were sent", total)
	}
	if n := w.add(m, sessions[:15], 10*time.Second, now); n != 15 || len(w.list) != 0 {
		t.Errorf("%d of a few were sent at once", n)
	}
}
