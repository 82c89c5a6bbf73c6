package monitor

import (
	"testing"
	"time"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	out, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWindows(t *testing.T) {
	w := &Windows{Days: Days{All: []*Window{{Begin: "11:00 PM", End: "1:00AM"}},
		Monday: []*Window{{Begin: "9:00AM", End: "5:00PM"}}}}
	for when, want := range map[string]bool{
		// a Monday
		"2026-11-02T09:00:00Z": true, "2026-11-02T17:00:00Z": true, "2026-11-02T17:00:01Z": false,
		"2026-11-02T08:59:59Z": false,
		"2026-11-03T12:00:00Z": false, "2026-11-03T23:30:00Z": true, "2026-11-04T00:59:59Z": true,
		"2026-11-04T01:00:00Z":      false,
		"2026-11-02T10:00:00+09:00": false, // windows are UTC, where it is one in the morning
	} {
		if got := w.Holds(at(t, when)); got != want {
			t.Errorf("%s: %v", when, got)
		}
	}
	if (&Windows{Days: Days{Friday: []*Window{{Begin: "9", End: "17"}}}}).Validate() == nil {
		t.Error("a window without a time of day is accepted")
	}
}

func TestSubdue(t *testing.T) {
	for _, c := range []struct {
		repeat []string
		when   string
		want   bool
	}{
		{nil, "2026-11-02T22:00:00Z", true}, {nil, "2026-11-03T01:59:59Z", true}, {nil, "2026-11-03T02:00:00Z", false},
		{nil, "2026-11-02T21:59:59Z", false},
		{nil, "2026-11-03T22:30:00Z", false}, {[]string{"daily"}, "2026-11-03T22:30:00Z", true},
		{[]string{"daily"}, "2026-11-04T01:00:00Z", true},
		{[]string{"daily"}, "2026-11-01T22:30:00Z", false}, // before it began
		{[]string{"mondays"}, "2026-11-09T23:00:00Z", true}, {[]string{"mondays"}, "2026-11-10T01:00:00Z", true},
		{[]string{"mondays"}, "2026-11-10T23:00:00Z", false},
		{[]string{"weekends"}, "2026-11-07T23:00:00Z", true}, {[]string{"weekdays"}, "2026-11-07T23:00:00Z", false},
		{[]string{"weekly"}, "2026-11-16T23:00:00Z", true}, {[]string{"monthly"}, "2026-12-02T23:00:00Z", true},
		{[]string{"monthly"}, "2026-12-03T23:00:00Z", false},
		{[]string{"annually"}, "2027-11-02T23:00:00Z", true},
		{[]string{"annually", "tuesdays"}, "2026-11-10T23:00:00Z", true},
	} {
		s := &Subdue{Begin: "2026-11-02T22:00:00Z", End: "2026-11-03T02:00:00Z", Repeat: c.repeat}
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		if got := s.Holds(at(t, c.when)); got != c.want {
			t.Errorf("%v at %s: %v", c.repeat, c.when, got)
		}
	}
	for _, bad := range []*Subdue{{Begin: "x", End: "x"}, {Begin: "2026-11-03T02:00:00Z", End: "2026-11-02T02:00:00Z"},
		{Begin: "2026-11-02T02:00:00Z", End: "2026-11-03T02:00:00Z", Repeat: []string{"often"}}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// All servers agree on when a check is due, and it is due once an interval.
func TestScheduleOfAnInterval(t *testing.T) {
	a, err := NewSchedule("cpu", 10, "")
	if err != nil {
		t.Fatal(err)
	}
	now := at(t, "2026-11-02T22:00:03Z")
	next := a.Next(now)
	if d := next.Sub(now); d <= 0 || d > 10*time.Second {
		t.Fatalf("due in %v", d)
	}
	if again := a.Next(next.Add(-time.Nanosecond)); !again.Equal(next) {
		t.Fatalf("%v, and asked later %v", next, again)
	}
	if d := a.Next(next).Sub(next); d != 10*time.Second {
		t.Fatalf("and then after %v", d)
	}
	if b, _ := NewSchedule("disk", 10, ""); b.Next(now).Equal(next) {
		t.Error("two checks are due at once")
	}
}

func TestScheduleOfCron(t *testing.T) {
	now := at(t, "2026-11-02T22:00:03Z")
	for line, want := range map[string]string{
		"*/5 * * * *": "2026-11-02T22:05:00Z", "@hourly": "2026-11-02T23:00:00Z",
		"CRON_TZ=Asia/Tokyo 0 8 * * *": "2026-11-02T23:00:00Z",
	} {
		s, err := NewSchedule("c", 0, line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if got := s.Next(now); !got.Equal(at(t, want)) {
			t.Errorf("%s: %v, want %s", line, got, want)
		}
	}
	if s, err := NewSchedule("c", 0, "@every 90s"); err != nil || s.Next(now).Sub(now) > 90*time.Second {
		t.Error("@every:", err)
	}
	for _, bad := range []string{"* * * *", "* * * * * *", "@every", "@every 1ms", "@often", "CRON_TZ=Mars/Base 0 8 * * *",
		"61 * * * *"} {
		if _, err := NewSchedule("c", 0, bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if _, err := NewSchedule("c", 5, "@hourly"); err == nil {
		t.Error("an interval and a cron line are accepted")
	}
}
