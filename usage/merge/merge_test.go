package merge

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"corbel.dev/corbel/usage"
)

// totals is what events of all kinds add up to, by minute and all that tells them apart.
type totals map[string]string

func addUp(kinds map[string]usage.Kind, events []usage.Event) totals {
	sums, last := map[string]usage.Quantity{}, map[string]int64{}
	out := totals{}
	for i := range events {
		e := &events[i]
		key := fmt.Sprintf("%s %s %s %d %v %v", e.Tenant, e.Product, e.Source, e.Time/int64(time.Minute), e.Identity, e.Tags)
		was, seen := sums[key]
		switch kinds[e.Product] {
		case usage.Sum:
			was, _ = was.Add(e.Value)
		case usage.Max:
			if !seen || was.Compare(e.Value) < 0 {
				was = e.Value
			}
		case usage.Min:
			if !seen || was.Compare(e.Value) > 0 {
				was = e.Value
			}
		case usage.Last:
			if !seen || e.Time >= last[key] {
				was, last[key] = e.Value, e.Time
			}
		}
		sums[key] = was
		out[key] = was.String()
	}
	return out
}

// TestMergedAddsUp: whatever goes in, what comes out adds up to the same, and is fewer.
func TestMergedAddsUp(t *testing.T) {
	kinds := map[string]usage.Kind{"calls": usage.Sum, "users": usage.Unique, "peak": usage.Max, "level": usage.Last,
		"floor": usage.Min}
	names := []string{"calls", "users", "peak", "level", "floor"}
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		var events []usage.Event
		var s Set
		for range 300 {
			e := usage.Event{Tenant: fmt.Sprint("t", r.IntN(2)), Product: names[r.IntN(5)], Source: "a",
				Time: int64(time.Hour) + r.Int64N(int64(3*time.Minute)), Value: usage.Int(r.Int64N(1000) - 300), HasValue: true}
			if e.Product == "users" {
				e.Value = usage.Quantity{}
				e.Identity = []usage.Field{{Name: "user", Value: fmt.Sprint(r.IntN(5))}}
			}
			if r.IntN(2) == 0 {
				e.Tags = []usage.Field{{Name: "team", Value: fmt.Sprint(r.IntN(3))}}
			}
			events = append(events, e)
			s.Add(kinds[e.Product], &e)
		}
		want, got := addUp(kinds, events), addUp(kinds, s.Events())
		if len(s.Events()) != len(want) {
			t.Errorf("seed %d: %d events came out for %d keys", seed, len(s.Events()), len(want))
		}
		for k, v := range want {
			if got[k] != v {
				t.Errorf("seed %d: %s adds up to %s, not to %s", seed, k, got[k], v)
			}
		}
	}
}

// TestNotMerged: what overflows, and what is of an unknown product, stays apart; names and values do not run together.
func TestNotMerged(t *testing.T) {
	field := func(name, value string) []usage.Field { return []usage.Field{{Name: name, Value: value}} }
	most := usage.Quantity{Hi: math.MaxInt64, Lo: math.MaxUint64}
	for _, c := range []struct {
		name string
		kind usage.Kind
		a, b usage.Event
	}{
		{"a sum that overflows", usage.Sum, usage.Event{Product: "p", Value: most}, usage.Event{Product: "p", Value: most}},
		{"an unknown product", 0, usage.Event{Product: "p"}, usage.Event{Product: "p"}},
		{"fields", usage.Unique, usage.Event{Identity: field("a", "bc")}, usage.Event{Identity: field("ab", "c")}},
		{"a tag is no identity", usage.Unique, usage.Event{Identity: field("a", "b")}, usage.Event{Tags: field("a", "b")}},
		{"minutes", usage.Sum, usage.Event{Time: int64(time.Minute) - 1}, usage.Event{Time: int64(time.Minute)}},
		{"sources", usage.Sum, usage.Event{Source: "a"}, usage.Event{Source: "b"}},
	} {
		var s Set
		if s.Add(c.kind, &c.a) || s.Add(c.kind, &c.b) || len(s.Events()) != 2 {
			t.Errorf("%s: merged into %v", c.name, s.Events())
		}
	}
}
