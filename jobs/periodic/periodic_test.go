package periodic

import (
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/jobs"
)

func moment(t testing.TB, text string) jobs.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return jobs.Time(at.UnixNano())
}

func text(at jobs.Time) string {
	if at == 0 {
		return "never"
	}
	return time.Unix(0, int64(at)).UTC().Format(time.RFC3339)
}

// TestNext: cron as the contract means it, in time zones, on days when clocks change.
func TestNext(t *testing.T) {
	for _, test := range []struct{ specs, zone, after, want string }{
		{"*/15 * * * *", "", "2026-11-23T10:00:00Z", "10:15 10:30 10:45"},
		{"0 3 * * *", "UTC", "2026-11-23T10:00:00Z", "2026-11-24T03:00:00Z 2026-11-25T03:00:00Z"},
		{"0 3 * * *", "Europe/Berlin", "2026-11-23T10:00:00Z", "2026-11-24T02:00:00Z"},
		{"@daily|30 12 * * *", "", "2026-11-23T10:00:00Z", "12:30 2026-11-24T00:00:00Z"},
		{"*/20 * * * * * *", "", "2026-11-23T10:00:00Z", "10:00:20 10:00:40"},
		{"0 0 29 2 *", "", "2026-11-23T10:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 0 1 1 * 2020", "", "2026-11-23T10:00:00Z", "never"},
		// 2026-03-29 Berlin: 02:00 becomes 03:00 (01:00Z). 2026-10-25: 03:00 becomes 02:00 (01:00Z).
		{"0 * * * *", "Europe/Berlin", "2026-03-28T23:30:00Z",
			"2026-03-29T00:00:00Z 2026-03-29T01:00:00Z 2026-03-29T02:00:00Z"},
		{"0 4 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T02:00:00Z"},
		{"0 4 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T03:00:00Z"},
	} {
		s, err := Parse(&jobs.Periodic{Specs: strings.Split(test.specs, "|"), TimeZone: test.zone})
		if err != nil {
			t.Fatal(err)
		}
		at := moment(t, test.after)
		for want := range strings.SplitSeq(test.want, " ") {
			at = s.Next(at)
			if got := text(at); got != want && !strings.HasPrefix(got, "2026-11-23T"+want) {
				t.Errorf("%s in %q: %s, want %s", test.specs, test.zone, got, want)
			}
		}
	}
}

// TestClockChanges: through two years of a zone whose clock changes, each start is after the one before, a daily
// job starts once a day, and one of each minute leaves no hour out.
func TestClockChanges(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago"} {
		for _, spec := range []string{"30 2 * * *", "0 0 * * *", "15 1 * * *", "0 * * * *"} {
			s, err := Parse(&jobs.Periodic{Specs: []string{spec}, TimeZone: zone})
			if err != nil {
				t.Fatal(err)
			}
			at, end, starts := moment(t, "2026-01-01T00:00:00Z"), moment(t, "2028-01-01T00:00:00Z"), 0
			for {
				next := s.Next(at)
				if next <= at || next.Sub(at) > 50*time.Hour {
					t.Fatalf("%s in %s: %s after %s", spec, zone, text(next), text(at))
				}
				if next > end {
					break
				}
				at, starts = next, starts+1
			}
			least, most := 726, 732 // a start in a skipped hour may be left out
			if spec == "0 * * * *" {
				least, most = 17_500, 17_530
			}
			if starts < least || starts > most {
				t.Errorf("%s in %s: %d starts in two years", spec, zone, starts)
			}
		}
	}
}

// TestDue: what was missed starts once, at the newest of its times, however long nobody looked.
func TestDue(t *testing.T) {
	now := moment(t, "2026-11-23T10:07:30Z")
	for _, test := range []struct{ spec, last, want string }{
		{"*/5 * * * *", "2026-11-23T10:05:00Z", "never"}, {"*/5 * * * *", "2026-11-23T10:04:59Z", "2026-11-23T10:05:00Z"},
		{"*/5 * * * *", "2016-11-23T10:00:00Z", "2026-11-23T10:05:00Z"},
		{"* * * * * * *", "2016-11-23T10:00:00Z", "2026-11-23T10:07:30Z"},
		{"0 0 29 2 *", "2016-11-23T10:00:00Z", "2024-02-29T00:00:00Z"}, {"0 0 1 1 * 2020", "2021-01-01T00:00:00Z", "never"},
	} {
		s, err := Parse(&jobs.Periodic{Specs: []string{test.spec}})
		if err != nil {
			t.Fatal(err)
		}
		if got := text(s.Due(moment(t, test.last), now)); got != test.want {
			t.Errorf("%s since %s: %s, want %s", test.spec, test.last, got, test.want)
		}
	}
}

func TestErrors(t *testing.T) {
	for spec, want := range map[string]string{"": "missing field", "* * * *": "missing field",
		"61 * * * *":                           "cron expression",
		strings.Repeat("1,", 200) + " * * * *": "at most 256", "* * * * * * * *": "8 fields", "@daily 5": "2 fields"} {
		if _, err := Parse(&jobs.Periodic{Specs: []string{spec}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", spec, err)
		}
	}
	for zone, ok := range map[string]bool{"Mars/Olympus": false, "Local": false, "../../etc/passwd": false, "UTC": true} {
		if _, err := Parse(&jobs.Periodic{Specs: []string{"@daily"}, TimeZone: zone}); (err == nil) != ok {
			t.Errorf("%q: %v", zone, err)
		}
	}
	if _, err := Parse(&jobs.Periodic{}); err == nil {
		t.Error("no spec")
	}
	if _, err := Parse(&jobs.Periodic{Specs: make([]string, 100)}); err == nil {
		t.Error("100 specs")
	}
}

func TestChild(t *testing.T) {
	parent := &jobs.Job{JobKey: jobs.JobKey{Namespace: "n", ID: "a/b"}, Name: "x", Periodic: &jobs.Periodic{Enabled: true},
		Revision: jobs.Revision{Version: 7, Stop: false, CreateIndex: 9}}
	c := Child(parent, 1_700_000_000e9, 5)
	if c.ID != "a/b/periodic-1700000000" || c.Name != c.ID || c.Namespace != "n" || c.Origin.ParentID != "a/b" ||
		c.Periodic != nil || c.Version != 0 || c.CreateIndex != 0 || c.SubmitTime != 5 || parent.ID != "a/b" {
		t.Errorf("%+v", c)
	}
	for _, test := range []struct {
		job  *jobs.Job
		want bool
	}{{nil, false}, {parent, true}, {c, false}, {&jobs.Job{Periodic: &jobs.Periodic{}}, false},
		{&jobs.Job{Periodic: parent.Periodic, Dispatch: &jobs.DispatchRules{}}, false},
		{&jobs.Job{Periodic: parent.Periodic, Revision: jobs.Revision{Stop: true}}, false}} {
		if Active(test.job) != test.want {
			t.Errorf("%+v", test.job)
		}
	}
}

// FuzzNext: no panic, no hang, and never the past.
func FuzzNext(f *testing.F) {
	f.Add("*/5 * * * *", "Europe/Berlin", int64(1_774_746_000e9))
	f.Add("0 0 29 2 *", "", int64(0))
	f.Add("@weekly", "America/New_York", int64(1_700_000_000e9))
	f.Add("0 0 L * 1#2 2099", "", int64(1_700_000_000e9))
	f.Fuzz(func(t *testing.T, spec, zone string, at int64) {
		s, err := Parse(&jobs.Periodic{Specs: []string{spec}, TimeZone: zone})
		if err != nil {
			return
		}
		if at < 0 || at > 4e18 {
			return
		}
		if next := s.Next(jobs.Time(at)); next != 0 && next <= jobs.Time(at) {
			t.Fatalf("%s after %s", text(next), text(jobs.Time(at)))
		}
		if due := s.Due(jobs.Time(at), jobs.Time(at).Add(time.Hour)); due != 0 && due <= jobs.Time(at) {
			t.Fatalf("%s is due since %s", text(due), text(jobs.Time(at)))
		}
	})
}
