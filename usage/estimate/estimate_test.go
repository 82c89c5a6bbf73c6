package estimate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/window"
)

// TestAnswer is section 4's answer of /v1/usage/estimates, and section 10's series and rows, as they are on the wire.
func TestAnswer(t *testing.T) {
	p := &usage.Product{Name: "bytes", Kind: usage.Sum, Tags: []string{"team"}, TopK: 1, Unit: "bytes"}
	if err := p.Complete(); err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	c := aggregate.New(aggregate.Config{})
	for i, team := range []string{"a", "", "b", "a"} {
		e := usage.Event{Product: "bytes", Time: start.Add(time.Duration(i) * time.Minute).UnixNano(), HasValue: true,
			Value: usage.Quantity{Hi: 1, Lo: uint64(i)}, Tags: []usage.Field{{Name: "team", Value: team}}}
		o, _, err := p.Observe(usage.Key{}, &e, start.Add(time.Hour), nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Apply(&o, uint64(i))
	}
	ranges := []window.Range{{From: start, To: start.Add(time.Hour)}, {From: start, To: start.Add(2 * time.Minute)},
		{From: start.Add(2 * time.Minute), To: start.Add(4 * time.Minute)}, {From: start.Add(4 * time.Minute),
			To: start.Add(6 * time.Minute)}}
	answer := c.Query(aggregate.Series{Tenant: "default", Product: "bytes"}, p, ranges, 0)
	q := Question{Range: ranges[0], Late: p.Late, By: true, Step: true}
	e := Make(p, q, answer, Coverage{Shards: 1, Warm: 1, AsOf: start.Add(time.Hour)})
	text, err := json.Marshal(e) // one value is kept: what a had before b came is in other
	want := `{"value":73786976294838206470,"unit":"bytes","error":{"relative":0,"low":73786976294838206470,` +
		`"high":73786976294838206470,"method":"sum"},"completeness":{"ratio":1,"shards_warm":1,"shards":1,` +
		`"open_until":"2026-05-02T01:00:00Z"},"as_of":"2026-05-01T01:00:00Z","by":[{"tag":"a",` +
		`"value":18446744073709551619},{"other":true,"value":55340232221128654851}],"series":[{` +
		`"time":"2026-05-01T00:00:00Z","value":36893488147419103233},` +
		`{"time":"2026-05-01T00:02:00Z","value":36893488147419103237}]}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v\nwant %s", text, err, want)
	}
	if row, err := json.Marshal(Row{}); err != nil || string(row) != `{"tag":"","value":0}` {
		t.Errorf("%s, %v", row, err)
	}
}

// TestRows: the row of a unique has its bound; what was seen while a value was not kept may be of any row, and is in
// the upper bound of each. A group counts once what several of its values have in common.
func TestRows(t *testing.T) {
	p := &usage.Product{Name: "seats", Kind: usage.Unique, Identity: []string{"user"}, Tags: []string{"place"}, TopK: 2}
	if err := p.Complete(); err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	c := aggregate.New(aggregate.Config{})
	for i, seen := range []string{"eu/a bob", "eu/a eve", "eu/b bob", "eu/b eve", "us/a zoe"} { // who drives eu/b out
		place, user, _ := strings.Cut(seen, " ")
		e := usage.Event{Product: "seats", Time: start.UnixNano(), Tags: []usage.Field{{Name: "place", Value: place}},
			Identity: []usage.Field{{Name: "user", Value: user}}}
		o, _, err := p.Observe(usage.Key{}, &e, start, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Apply(&o, uint64(i))
	}
	r := window.Range{From: start, To: start.Add(time.Hour)}
	for want, q := range map[string]Question{
		`[{"tag":"eu/a","value":2,"low":2,"high":4},{"tag":"us/a","value":1,"low":1,"high":3},` +
			`{"other":true,"value":2,"low":2,"high":2}]`: {Range: r, By: true},
		`[{"tag":"a","value":3,"low":3,"high":5},{"other":true,"value":2,"low":2,"high":2}]`: {Range: r, By: true,
			Group: func(place string) (string, bool) { return place[3:], true }},
		`[{"tag":"us/a","value":1,"low":1,"high":3},{"other":true,"value":2,"low":2,"high":2}]`: {Range: r, By: true,
			Group: func(place string) (string, bool) { return place, place[:2] == "us" }},
	} {
		answer := c.Query(aggregate.Series{Tenant: "default", Product: "seats"}, p, []window.Range{r}, 0)
		text, err := json.Marshal(Make(p, q, answer, Coverage{Shards: 1, Warm: 1}).By)
		if err != nil || string(text) != want {
			t.Errorf("%s, %v\nwant %s", text, err, want)
		}
		for _, row := range Make(p, q, answer, Coverage{Shards: 2, Warm: 1}).By {
			if row.Bound.High != nil {
				t.Errorf("%+v has an upper bound while a shard is missing", row)
			}
		}
	}
}

// TestWarming is section 4's "an answer while shards are warming is a lower bound, never a silent dip".
func TestWarming(t *testing.T) {
	p := &usage.Product{Name: "hosts", Kind: usage.Unique, Identity: []string{"host"}}
	if err := p.Complete(); err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	c := aggregate.New(aggregate.Config{})
	r := window.Range{From: start, To: start.Add(time.Hour)}
	q := Question{Range: r, Late: p.Late}
	ask := func(cover Coverage) Estimate {
		return Make(p, q, c.Query(aggregate.Series{Tenant: "default", Product: "hosts"}, p, []window.Range{r}, -1), cover)
	}
	if e := ask(Coverage{Shards: 4096, Warm: 4096, AsOf: start}); e.Value == nil || e.Error.Method != Exact ||
		*e.Value != (usage.Quantity{}) {
		t.Errorf("nothing is %+v", e)
	}
	for i := range 10 {
		e := usage.Event{Product: "hosts", Time: start.UnixNano(),
			Identity: []usage.Field{{Name: "host", Value: fmt.Sprint(i)}}}
		o, _, err := p.Observe(usage.Key{}, &e, start, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Apply(&o, uint64(i))
	}
	e := ask(Coverage{Shards: 4096, Warm: 3072, Silent: []string{"c2: timed out"}, AsOf: start.Add(26 * time.Hour)})
	if e.Completeness.Ratio != 0.75 || len(e.Completeness.Missing) != 2 || e.Error.High != nil ||
		e.Error.Low != usage.Int(10) || e.Completeness.OpenUntil != nil {
		t.Errorf("%+v", e)
	}
}

// TestWarmingMin: what is missing could be smaller, so the value of a min is an upper bound.
func TestWarmingMin(t *testing.T) {
	p := &usage.Product{Name: "floor", Kind: usage.Min}
	if err := p.Complete(); err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	c := aggregate.New(aggregate.Config{})
	r := window.Range{From: start, To: start.Add(time.Hour)}
	ask := func() Estimate {
		answer := c.Query(aggregate.Series{Tenant: "default", Product: "floor"}, p, []window.Range{r}, -1)
		return Make(p, Question{Range: r, Late: p.Late}, answer, Coverage{Shards: 2, Warm: 1, AsOf: start})
	}
	if e := ask(); e.Value != nil || e.Error.High != nil || e.Events != 0 {
		t.Errorf("nothing is %+v", e)
	}
	for i, v := range []int64{7, 3, 9} {
		e := usage.Event{Product: "floor", Time: start.UnixNano(), Value: usage.Int(v), HasValue: true}
		o, _, err := p.Observe(usage.Key{}, &e, start, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Apply(&o, uint64(i))
	}
	e := ask()
	if e.Value == nil || *e.Value != usage.Int(3) || e.Error.High == nil || *e.Error.High != usage.Int(3) ||
		len(e.Completeness.Missing) != 1 || !strings.Contains(e.Completeness.Missing[0], "an upper bound") {
		t.Errorf("%+v", e)
	}
}

// TestPeriod is section 4's "closed periods keep both numbers and the reason".
func TestPeriod(t *testing.T) {
	p := Period{Closed: usage.Int(10)}
	if p.Value() != usage.Int(10) {
		t.Error("a period without revisions")
	}
	q := p.Revised(Revision{Value: usage.Int(9), Correction: "a", Reason: "a probe"})
	q = q.Revised(Revision{Value: usage.Int(7), Correction: "b"}).Revised(Revision{Value: usage.Int(8), Correction: "a"})
	if q.Closed != usage.Int(10) || q.Value() != usage.Int(8) || len(q.Revisions) != 2 || len(p.Revisions) != 0 {
		t.Errorf("%+v", q)
	}
}
