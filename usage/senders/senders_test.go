package senders

import (
	"fmt"
	"testing"
	"time"

	"corbel.dev/corbel/usage"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// TestClocks: a clock that is ahead, and one that is behind by the same each time; who sends what is old, is quiet, or
// sends without times has none.
func TestClocks(t *testing.T) {
	w := New(0)
	for n := range 5 {
		now := noon.Add(time.Duration(n) * time.Second)
		for source, at := range map[string]time.Duration{"good": -time.Second, "ahead": 3 * time.Minute,
			"behind": -20 * time.Minute, "backfill": -time.Duration(n+1) * time.Hour} {
			b := w.Begin(now)
			b.Saw("", &usage.Event{Source: source, Time: now.Add(at).UnixNano()})
			b.Saw("", &usage.Event{Source: source, Time: now.Add(at - time.Hour).UnixNano()})
			b.Saw("", &usage.Event{Source: source})
			b.End()
		}
		if n == 0 {
			b := w.Begin(now)
			b.Saw("once", &usage.Event{Time: now.Add(time.Hour).UnixNano()})
			b.End()
		}
	}
	clocks, _ := w.Look(noon, 10)
	if len(clocks) != 2 || clocks[0] != (Clock{"default/behind", -20 * time.Minute}) ||
		clocks[1] != (Clock{"default/ahead", 3 * time.Minute}) {
		t.Errorf("clocks are off: %v", clocks)
	}
	if clocks, _ = w.Look(noon, 10); len(clocks) != 0 {
		t.Errorf("of senders that are quiet: %v", clocks)
	}
}

// TestIdentities: the field that makes ever new identities is named; one that always had many is not.
func TestIdentities(t *testing.T) {
	w := New(1 << 30)
	p := &usage.Product{Name: "sessions", Kind: usage.Unique, Identity: []string{"user", "request"},
		Tags: []string{"team"}}
	send := func(requests int, now time.Time) []Growth {
		b := w.Begin(now)
		for i := range 20_000 {
			b.Counts(p, &usage.Event{Identity: []usage.Field{{Name: "user", Value: fmt.Sprint(i % 6000)},
				{Name: "request", Value: fmt.Sprint(i % requests)}},
				Tags: []usage.Field{{Name: "team", Value: fmt.Sprint(i % 3)}}})
		}
		b.End()
		_, growing := w.Look(now, 10)
		return growing
	}
	now := noon
	for range 4 {
		if found := send(2, now); len(found) != 0 {
			t.Fatalf("nothing grows: %v", found)
		}
		now = now.Add(period)
	}
	found := send(20_000, now)
	if len(found) != 1 || found[0].Field != (Field{"sessions", "identity.request"}) || found[0].Values < 18_000 {
		t.Errorf("what grows is %v", found)
	}
}

// TestBounds: who comes when there is no room is not watched, and has room later.
func TestBounds(t *testing.T) {
	w := New(10)
	for n := range 3 * maxSenders {
		b := w.Begin(noon)
		b.Saw(fmt.Sprint("p", n), &usage.Event{Time: noon.Add(time.Hour).UnixNano()})
		b.Counts(&usage.Product{Name: fmt.Sprint("u", n), Kind: usage.Unique, Identity: []string{"x"}}, &usage.Event{})
		b.End()
	}
	if len(w.senders) != maxSenders || len(w.fields) > 10 {
		t.Errorf("%d senders, %d fields", len(w.senders), len(w.fields))
	}
	w.Look(noon, 1)
	if len(w.senders) != 0 {
		t.Errorf("%d senders are kept", len(w.senders))
	}
}
