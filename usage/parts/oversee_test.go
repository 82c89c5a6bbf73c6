package parts

import (
	"testing"
	"time"

	"corbel.dev/corbel/usage/definitions"
)

// TestDecide: who leads a part, by what the leader of the plane has heard.
func TestDecide(t *testing.T) {
	now := time.Unix(1000, 0)
	const failover = 10 * time.Second
	well := heard{first: now.Add(-time.Minute), last: now}
	gone := heard{first: now.Add(-time.Hour), last: now.Add(-20 * time.Second)}
	ago := func(seconds time.Duration) time.Time { return now.Add(-seconds * time.Second) }
	back := heard{first: now.Add(-time.Second), last: now}
	for name, row := range map[string]struct {
		part  definitions.Part
		heard map[string]heard
		lost  bool // the home is no member any more
		want  definitions.Part
	}{
		"all is well": {definitions.Part{Lead: "a", Copy: "b"}, map[string]heard{"a": well, "b": well}, false,
			definitions.Part{}},
		"the lead is gone": {definitions.Part{Lead: "a", Copy: "b"}, map[string]heard{"a": gone, "b": well}, false,
			definitions.Part{Lead: "b"}},
		"both are gone": {definitions.Part{Lead: "a", Copy: "b"}, map[string]heard{"a": gone, "b": gone}, false,
			definitions.Part{}},
		"nobody has a copy": {definitions.Part{Lead: "a"}, map[string]heard{"a": gone, "b": well}, false,
			definitions.Part{}},
		"the home has just come back": {definitions.Part{Lead: "b", Copy: "a"}, map[string]heard{"a": back, "b": well}, false,
			definitions.Part{}},
		"the home stays": {definitions.Part{Lead: "b", Copy: "a"}, map[string]heard{"a": well, "b": well}, false,
			definitions.Part{Lead: "a", Copy: "b"}},
		"the home never comes back, and another server leads nothing": {definitions.Part{Lead: "b", Copy: "c"},
			map[string]heard{"b": well, "c": well}, true, definitions.Part{Lead: "c", Copy: "b"}},
	} {
		f := &fleet{now: now, began: now.Add(-time.Hour), failover: failover, heard: row.heard}
		view := &definitions.View{Owners: []string{"a", "b"}, Parts: map[string]definitions.Part{"a": row.part,
			"b": {Lead: "b", Copy: map[bool]string{true: "c", false: "a"}[row.lost]}}}
		next, ok := f.decide(view, "a", map[string]bool{"a": !row.lost, "b": true, "c": true})
		if next != row.want || ok != (row.want != definitions.Part{}) {
			t.Errorf("%s: %+v %v, not %+v", name, next, ok, row.want)
		}
	}
	for name, row := range map[string]struct {
		began  time.Duration // ago
		of     heard
		silent bool
	}{
		"never heard, and just begun":          {time.Second, heard{}, false},
		"never heard, and long listened":       {failover, heard{}, true},
		"heard by a former leader":             {3 * time.Second, gone, true},
		"the same, but not asked yet":          {time.Second, gone, false},
		"its host refuses, as in a restart":    {time.Minute, heard{gone.first, ago(3), ago(3)}, false},
		"its host refuses for a third of that": {time.Minute, heard{gone.first, ago(5), ago(4)}, true},
		"it does not answer for that long":     {time.Minute, heard{first: gone.first, last: ago(5)}, false},
	} {
		f := &fleet{now: now, began: now.Add(-row.began), failover: failover, heard: map[string]heard{"a": row.of}}
		if f.silent("a") != row.silent {
			t.Errorf("%s: silent %v", name, !row.silent)
		}
	}
}

// TestCandidate: the home comes first, then who has least to do, and nobody who could not lately.
func TestCandidate(t *testing.T) {
	view := &definitions.View{Owners: []string{"a", "b", "c"}, Parts: map[string]definitions.Part{
		"a": {Lead: "b", Copy: "c"}, "c": {Lead: "c", Copy: "b"}}}
	voters := []string{"c", "b", "a"}
	bad := ""
	for _, row := range []struct{ self, part, bad, want string }{{"b", "a", "", "a"}, {"b", "a", "a", "c"},
		{"c", "c", "", "a"}, {"a", "a", "", "c"}, {"a", "a", "c", "b"}} {
		bad = row.bad
		if got := candidate(view, row.self, row.part, voters, func(s string) bool { return s == bad }); got != row.want {
			t.Errorf("%+v: %q", row, got)
		}
	}
}
