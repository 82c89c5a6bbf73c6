package parts

import (
	"testing"
	"time"

	"corbel.dev/corbel/usage/definitions"
)

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
