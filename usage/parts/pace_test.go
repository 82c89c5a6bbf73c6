package parts

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/uplink"
	"corbel.dev/corbel/usage/definitions"
)

// TestPace: however much is asked for by however many, no more goes than the rate and a burst.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 1 << 20
		p := &pace{clock: clock.Real{}, rate: rate}
		began, given := time.Now(), make(chan int, 1000)
		for range 4 {
			go func() {
				for range 50 {
					if p.take(t.Context(), rate/10) != nil {
						return
					}
					given <- rate / 10
				}
			}()
		}
		for sum := 0; sum < 200*(rate/10); {
			sum += <-given
			if most := rate + int(time.Since(began).Seconds()*rate) + rate/10; sum > most {
				t.Fatalf("%d bytes in %s", sum, time.Since(began))
			}
		}
		if took := time.Since(began); took < 18*time.Second || took > 21*time.Second {
			t.Errorf("20 MiB took %s", took) // of the test's own time
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if p.take(ended, 100*rate) == nil {
			t.Error("who does not wait any more may go")
		}
		if (&pace{}).take(t.Context(), 1<<40) != nil {
			t.Error("there is no rate, and something waits")
		}
	})
}

// TestBudget: 30 % of the link's speed, half with each look that finds packets dropped, and back when there are none.
func TestBudget(t *testing.T) {
	var b budget
	now := time.Unix(1000, 0)
	for i, step := range []struct {
		after time.Duration
		link  uplink.State
		want  float64
	}{
		{0, uplink.State{Speed: 1e9, Dropped: 500}, 3e8},
		{time.Second, uplink.State{Speed: 1e9, Dropped: 501}, 1.5e8},
		{time.Second, uplink.State{Speed: 1e9, Dropped: 502}, 7.5e7},
		{time.Second, uplink.State{Speed: 1e9, Dropped: 502}, 9.375e7},
		{time.Minute, uplink.State{Speed: 1e9, Dropped: 900}, 3e8}, // while nothing went
		{time.Second, uplink.State{Dropped: 900}, 64 << 20},
		{time.Second, uplink.State{Speed: 1e6, Dropped: 900}, 1 << 20},
	} {
		if now = now.Add(step.after); !b.due(now) {
			t.Errorf("step %d is not due", i)
		}
		if got := b.next(now, step.link); got != step.want {
			t.Errorf("step %d: %.0f, want %.0f", i, got, step.want)
		}
		if b.due(now.Add(time.Millisecond)) {
			t.Errorf("step %d is due again", i)
		}
	}
	for range 10 {
		now = now.Add(time.Second)
		b.next(now, uplink.State{Speed: 1e9, Dropped: b.dropped + 1})
	}
	if now = now.Add(time.Second); b.next(now, uplink.State{Speed: 1e9, Dropped: b.dropped + 1}) != 3e8/16 {
		t.Error("it becomes less than a sixteenth")
	}
	p := newPace(&Config{Warmup: -1, Clock: clock.Real{}, Link: func() uplink.State { return uplink.State{Speed: 1e9} }})
	if err := p.take(t.Context(), 1); err != nil || p.now() != 3e8 {
		t.Errorf("%v, at %.0f bytes a second", err, p.now())
	}
}

// TestOneAtATime: a part moves by plan when no other one is cold, and at once when its lead is gone.
func TestOneAtATime(t *testing.T) {
	now := time.Now()
	f := &fleet{now: now, began: now.Add(-time.Hour), failover: 10 * time.Second, heard: map[string]heard{}}
	for _, s := range []string{"a", "b", "c"} {
		f.heard[s] = heard{first: now.Add(-time.Hour), last: now}
	}
	voters := map[string]bool{"a": true, "b": true, "c": true}
	view := func(a, b, c definitions.Part) *definitions.View {
		return &definitions.View{Owners: []string{"a", "b", "c"},
			Parts: map[string]definitions.Part{"a": a, "b": b, "c": c}}
	}
	part := func(lead, other string) definitions.Part {
		return definitions.Part{Lead: lead, Copy: other, Epoch: 1}
	}
	for name, c := range map[string]struct {
		view  *definitions.View
		gone  string
		moves string // the part that moves; "" is none
	}{
		"a part goes home":                       {view(part("b", "a"), part("b", "c"), part("c", "b")), "", "a"},
		"another one has no copy yet":            {view(part("b", "a"), part("b", "c"), part("c", "")), "", ""},
		"another one has lost its lead":          {view(part("b", "a"), part("b", "a"), part("c", "b")), "c", "c"},
		"a lead is gone, and another is cold":    {view(part("a", "b"), part("b", ""), part("c", "b")), "c", "c"},
		"one is cold, and nothing is to be done": {view(part("a", "b"), part("b", ""), part("c", "b")), "", ""},
		"nobody has another one":                 {view(part("b", "a"), part("b", "a"), part("c", "")), "c", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.gone != "" {
				was := f.heard[c.gone]
				f.heard[c.gone] = heard{first: was.first, last: now.Add(-time.Minute)}
				defer func() { f.heard[c.gone] = was }()
			}
			moves := ""
			for _, part := range c.view.Owners {
				if _, ok := f.decide(c.view, part, voters); ok && moves == "" {
					moves = part
				}
			}
			if moves != c.moves {
				t.Errorf("%q moves, want %q", moves, c.moves)
			}
		})
	}
}
