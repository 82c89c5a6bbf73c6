package window

import (
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"
)

func zone(t testing.TB, name string) Zone {
	t.Helper()
	l, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return In(l)
}

func at(t testing.TB, s string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestCalendar is the trap "month windows in other zones and over DST", and section 1's "calendar in the tenant's
// time zone".
func TestCalendar(t *testing.T) {
	for _, test := range []struct{ zone, window, now, from, to string }{
		// Berlin's clocks go on at 01:00 UTC on 29 March 2026, and back at 01:00 UTC on 25 October.
		{"Europe/Berlin", Day, "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"Europe/Berlin", Day, "2026-10-25T00:30:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"Europe/Berlin", Day, "2026-10-24T22:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"Europe/Berlin", Day, "2026-10-24T21:59:59Z", "2026-10-23T22:00:00Z", "2026-10-24T22:00:00Z"},
		{"Europe/Berlin", Month, "2026-03-01T00:00:00Z", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"},
		{"Europe/Berlin", Month, "2026-10-31T23:00:00Z", "2026-10-31T23:00:00Z", "2026-11-30T23:00:00Z"},
		{"Europe/Berlin", Month, "2026-12-31T22:59:59Z", "2026-11-30T23:00:00Z", "2026-12-31T23:00:00Z"},
		{"Europe/Berlin", Hour, "2026-03-29T00:59:59Z", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"},
		{"Europe/Berlin", Hour, "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"},
		{"Europe/Berlin", Hour, "2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"},
		{"UTC", Month, "2024-02-29T23:59:59Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"UTC", Sliding5m, "2026-01-01T00:02:30Z", "2025-12-31T23:58:00Z", "2026-01-01T00:03:00Z"},
		{"Europe/Berlin", Sliding24h, "2026-10-25T12:00:00Z", "2026-10-24T12:01:00Z", "2026-10-25T12:01:00Z"},
		// Half an hour beside UTC, and a change of half an hour.
		{"Asia/Kolkata", Day, "2026-05-05T18:29:59Z", "2026-05-04T18:30:00Z", "2026-05-05T18:30:00Z"},
		{"Asia/Kolkata", Hour, "2026-05-05T18:29:59Z", "2026-05-05T17:30:00Z", "2026-05-05T18:30:00Z"},
		{"Australia/Lord_Howe", Day, "2026-04-04T14:00:00Z", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"},
		// Midnight is left out in Beirut on 29 March 2026 and comes twice in Havana on 1 November.
		{"Asia/Beirut", Day, "2026-03-28T22:00:00Z", "2026-03-28T22:00:00Z", "2026-03-29T21:00:00Z"},
		{"Asia/Beirut", Day, "2026-03-28T21:59:59Z", "2026-03-27T22:00:00Z", "2026-03-28T22:00:00Z"},
		{"America/Havana", Day, "2026-11-01T04:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		{"America/Havana", Day, "2026-11-01T05:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		// Samoa had no 30 December 2011.
		{"Pacific/Apia", Day, "2011-12-30T09:00:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"Pacific/Apia", Day, "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
	} {
		r, err := zone(t, test.zone).Of(test.window, at(t, test.now))
		if err != nil || !r.From.Equal(at(t, test.from)) || !r.To.Equal(at(t, test.to)) {
			t.Errorf("%s of %s in %s: %s to %s, %v; want %s to %s", test.window, test.now, test.zone,
				r.From.Format(time.RFC3339), r.To.Format(time.RFC3339), err, test.from, test.to)
		}
	}
	if _, err := (Zone{}).Of("7m", time.Time{}); err == nil {
		t.Error("a window that does not exist has a range")
	}
}

var zones = []string{"UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "Asia/Kolkata", "Asia/Kathmandu",
	"Australia/Lord_Howe", "Asia/Beirut", "America/Havana", "Pacific/Apia", "Pacific/Chatham", "America/Sao_Paulo",
	"Africa/Casablanca", "Antarctica/Troll", "America/Asuncion", "Asia/Tehran", "Atlantic/Azores"}

// TestCalendarTiles: each instant is in its own window, and windows follow each other without a gap or an overlap.
func TestCalendarTiles(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		z := zone(t, rapid.SampledFrom(zones).Draw(rt, "zone"))
		name := rapid.SampledFrom([]string{Hour, Day, Month}).Draw(rt, "window")
		now := time.Unix(rapid.Int64Range(1_200_000_000, 2_000_000_000).Draw(rt, "now"), 0)
		r, err := z.Of(name, now)
		if err != nil || !r.Contains(now) {
			rt.Fatalf("%s is not in its %s: %s to %s, %v", now.In(z.Location()), name, r.From, r.To, err)
		}
		span, _ := Span(name)
		if d := r.To.Sub(r.From); d > span || name != Hour && d < span*6/7 {
			rt.Fatalf("a %s of %s", name, d)
		}
		next, err := z.Of(name, r.To)
		if err != nil || !next.From.Equal(r.To) {
			rt.Fatalf("%s of %s ends at %s, the next one begins at %s", name, now.In(z.Location()), r.To, next.From)
		}
		for _, inside := range []time.Time{r.From, r.To.Add(-1), r.From.Add(r.To.Sub(r.From) / 2)} {
			if same, err := z.Of(name, inside); err != nil || same != r {
				rt.Fatalf("%s is in %v, not in %v", inside, same, r)
			}
		}
		if name != Hour {
			local := r.From.In(z.Location())
			if before := r.From.Add(-time.Second).In(z.Location()); before.Day() == local.Day() {
				rt.Fatalf("%s is not the first second of its date", local)
			}
		}
	})
}

// TestSteps is section 10's "`step=1d` and `month` are calendar steps of `tz`".
func TestSteps(t *testing.T) {
	z := zone(t, "Europe/Berlin")
	r := Range{at(t, "2026-10-24T10:00:00Z"), at(t, "2026-10-26T10:00:00Z")}
	parts, err := z.Steps(r, "1d", 10)
	if err != nil || len(parts) != 3 || parts[1].To.Sub(parts[1].From) != 25*time.Hour || parts[2].To != r.To {
		t.Errorf("%v, %v", parts, err)
	}
	if parts, err = z.Steps(r, "5m", 576); err != nil || len(parts) != 576 {
		t.Errorf("%d parts, %v", len(parts), err)
	}
	for _, step := range []string{"90s", "0m", "-5m", "", "week"} {
		if _, err := z.Steps(r, step, 10); err == nil {
			t.Errorf("step %q is taken", step)
		}
	}
	if _, err := z.Steps(r, "1m", 100); err == nil {
		t.Error("more parts than the limit")
	}
}

func TestStateOf(t *testing.T) {
	r := Range{at(t, "2026-01-01T00:00:00Z"), at(t, "2026-02-01T00:00:00Z")}
	for now, want := range map[string]State{"2026-01-31T23:59:59Z": Open, "2026-02-01T00:00:00Z": Ending,
		"2026-02-01T23:59:59Z": Ending, "2026-02-02T00:00:00Z": Closed} {
		if got := StateOf(r, at(t, now), 24*time.Hour); got != want {
			t.Errorf("%s: %d, want %d", now, got, want)
		}
	}
}

func BenchmarkMonth(b *testing.B) {
	z, now := zone(b, "Europe/Berlin"), at(b, "2026-10-25T00:30:00Z")
	b.ReportAllocs()
	for b.Loop() {
		z.Month(now)
	}
}
