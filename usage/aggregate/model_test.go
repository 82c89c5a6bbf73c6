package aggregate

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/window"
	"pgregory.net/rapid"
)

var key = usage.NewKey([16]byte{1, 2, 3})

func complete(t interface{ Fatal(...any) }, p usage.Product) *usage.Product {
	if err := p.Complete(); err != nil {
		t.Fatal(err)
	}
	p.Generation = 1
	return &p
}

// joint is a tag that has the values of three fields: 6 teams, 3 stages and 2 zones.
const joint = "team,stage,zone"

func products(t interface{ Fatal(...any) }) []*usage.Product {
	return []*usage.Product{
		complete(t, usage.Product{Name: "hosts", Kind: usage.Unique, Identity: []string{"host"}, Tags: []string{"team"},
			TopK: 50}),
		complete(t, usage.Product{Name: "small", Kind: usage.Unique, Identity: []string{"host"}, ExactBelow: 20,
			Precision: 12}),
		complete(t, usage.Product{Name: "bytes", Kind: usage.Sum, Tags: []string{"team"}, TopK: 3}),
		complete(t, usage.Product{Name: "seats", Kind: usage.Unique, Identity: []string{"host"}, TopK: 50,
			Tags: []string{"team", joint}, ExactBelow: 20, Precision: 12}),
		complete(t, usage.Product{Name: "fewseats", Kind: usage.Unique, Identity: []string{"host"}, TopK: 5,
			Tags: []string{"team", joint}}),
		complete(t, usage.Product{Name: "peak", Kind: usage.Max}),
		complete(t, usage.Product{Name: "level", Kind: usage.Last}),
		complete(t, usage.Product{Name: "floor", Kind: usage.Min}),
	}
}

var zoneOf = map[string]string{"berlin": "Europe/Berlin", "kolkata": "Asia/Kolkata", "utc": "UTC"}

func zones(tenant string) window.Zone {
	location, err := time.LoadLocation(zoneOf[tenant])
	if err != nil {
		panic(err)
	}
	return window.In(location)
}

// observed is an event with what the model must know of it.
type observed struct {
	usage.Observation
	host, team string
	joint      [3]string // the team among them
	order      uint64
}

func someObservation(t interface{ Fatal(...any) }, r *rand.Rand, list []*usage.Product, at time.Time) observed {
	p := list[r.IntN(len(list))]
	o := observed{host: fmt.Sprint("h", r.IntN(60)), team: fmt.Sprint("team", r.IntN(6))}
	e := usage.Event{Tenant: []string{"berlin", "kolkata", "utc"}[r.IntN(3)], Product: p.Name, Time: at.UnixNano(),
		Identity: []usage.Field{{Name: "host", Value: o.host}}, HasValue: true,
		Value: usage.Quantity{Hi: 1 << 10, Lo: r.Uint64()}, Tags: []usage.Field{{Name: "team", Value: o.team}}}
	o.joint = [3]string{o.team, fmt.Sprint("stage", r.IntN(3)), fmt.Sprint("zone", r.IntN(2))}
	e.Tags = append(e.Tags, usage.Field{Name: joint, Value: strings.Join(o.joint[:], ",")})
	var err error
	if o.Observation, _, err = p.Observe(key, &e, at.Add(time.Hour), nil); err != nil {
		t.Fatal(err)
	}
	return o
}

// expected is the exact model: it keeps all events, and counts them one by one.
func expected(events []observed, s Series, r window.Range, team string) (v usage.Quantity, n uint64) {
	return expectedOf(events, s, r, func(o *observed) bool { return team == "" || o.team == team })
}

func expectedOf(events []observed, s Series, r window.Range, in func(*observed) bool) (v usage.Quantity, n uint64) {
	hosts := map[string]bool{}
	var last observed
	for _, o := range events {
		if o.Tenant != s.Tenant || o.Product.Name != s.Product || !r.Contains(time.Unix(0, o.Time)) || !in(&o) {
			continue
		}
		n++
		switch o.Product.Kind {
		case usage.Unique:
			hosts[o.host] = true
			v = usage.Uint(uint64(len(hosts)))
		case usage.Sum:
			v, _ = v.Add(o.Value)
		case usage.Max:
			if n == 1 || o.Value.Compare(v) > 0 {
				v = o.Value
			}
		case usage.Min:
			if n == 1 || o.Value.Compare(v) < 0 {
				v = o.Value
			}
		case usage.Last:
			if n == 1 || cmp.Or(cmp.Compare(o.Time, last.Time), cmp.Compare(o.order, last.order)) > 0 {
				last, v = o, o.Value
			}
		}
	}
	return v, n
}

func judge(t *rapid.T, p *usage.Product, got Value, want usage.Quantity, n uint64) {
	switch {
	case got.Present != (n > 0):
		t.Fatalf("%s: present is %t with %d events", p.Name, got.Present, n)
	case got.Exact && got.Quantity != want, !got.Exact && (got.Low.Compare(want) > 0 || want.Compare(got.High) > 0):
		t.Fatalf("%s: %s (%s to %s, exact %t), want %s", p.Name, got, got.Low, got.High, got.Exact, want)
	case p.Kind == usage.Sum && got.Count != n:
		t.Fatalf("%s: %d events, want %d", p.Name, got.Count, n)
	case p.ExactBelow > 20 && !got.Exact:
		t.Fatalf("%s became a sketch", p.Name)
	}
}

// TestCounterEqualsModel goes through weeks of three tenants' calendars, across the night in which Berlin's clocks go
// back: chunks roll, states are written and read, shards move between two counters, and each query of whole slots
// equals the model. Rows of the contract: 1 (windows), 2 (kinds), 5 (counter, by tag), 7 (late events, hand-over).
func TestCounterEqualsModel(t *testing.T) {
	list := products(t)
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		cfg := Config{Zone: zones, Keep: Keep{Minutes: 25 * time.Hour, Hours: 50 * time.Hour}}
		counters := []*Counter{New(cfg), New(cfg)}
		owner := func(shard int) int { return shard >> 3 & 1 }
		now := time.Date(2026, 10, 22, 0, 0, 0, 0, time.UTC)
		var events []observed
		for range 300 {
			now = now.Add(time.Duration(r.IntN(50)) * time.Minute)
			at := now.Add(-time.Duration(r.IntN(int(24 * time.Hour))))
			if r.IntN(3) > 0 {
				at = now.Add(-time.Duration(r.IntN(int(time.Hour))))
			}
			o := someObservation(t, r, list, at)
			o.order = uint64(len(events))
			events = append(events, o)
			to := counters[owner(o.Identity.Shard())]
			if got := to.Apply(&o.Observation, o.order); got != Counted {
				t.Fatalf("an event of %s ago is %d", now.Sub(at), got)
			}
			for _, c := range counters {
				c.Advance(now)
			}
			switch r.IntN(60) {
			case 0: // a counter is killed, and reads its snapshot
				i := r.IntN(2)
				counters[i] = restored(t, counters[i], list)
			case 1: // some shards move
				bit := 3 + r.IntN(6)
				former := owner
				owner = func(shard int) int { return shard >> bit & 1 }
				for i, c := range counters {
					moves := func(shard int) bool { return former(shard) == i && owner(shard) != i }
					part := restored(t, c.Copy(moves), list)
					c.Drop(moves)
					counters[1-i].Merge(part)
				}
			}
		}
		for range 30 {
			judgeQuery(t, r, counters, list, events, now)
		}
	})
}

func judgeQuery(t *rapid.T, r *rand.Rand, counters []*Counter, list []*usage.Product, events []observed,
	now time.Time,
) {
	p := list[r.IntN(len(list))]
	s := Series{[]string{"berlin", "kolkata", "utc"}[r.IntN(3)], p.Name, 1}
	zone := zones(s.Tenant)
	at := now.Add(-time.Duration(r.IntN(20*24)) * time.Hour)
	span := zone.Day(at)
	switch r.IntN(5) {
	case 0:
		span = zone.Month(at)
	case 1:
		span = window.Range{From: zone.Day(at).From, To: now.Truncate(time.Minute).Add(time.Minute)}
	case 2: // hours are there for 50 hours, those of half an hour beside UTC too
		span = zone.Hour(now.Add(-time.Duration(r.IntN(48)) * time.Hour))
	case 3: // minutes are there for 25 hours
		from := now.Truncate(time.Minute).Add(-time.Duration(r.IntN(24*60)) * time.Minute)
		span = window.Range{From: from, To: from.Add(time.Duration(1+r.IntN(90)) * time.Minute)}
	}
	tag := min(len(p.Tags), 2) - 1 // the last one: joint where there is that
	answer := counters[0].Query(s, p, []window.Range{span}, tag)
	answer.Merge(counters[1].Query(s, p, []window.Range{span}, tag))
	slice := &answer.Slices[0]
	if slice.Rounded {
		t.Fatalf("%s of %s is rounded", span, s.Tenant)
	}
	want, n := expected(events, s, span, "")
	judge(t, p, slice.Total(p.Kind), want, n)
	if tag < 0 {
		return
	}
	if tag == 1 {
		judgeGroups(t, r, p, slice, events, s)
		return
	}
	rows, other := slice.By(p, 100)
	sum := other.Quantity
	for _, row := range rows {
		want, n := expected(events, s, span, row.Tag)
		if p.Kind == usage.Unique { // 50 values are kept, there are 6: all of them are exact
			judge(t, p, row.Value, want, n)
		} else if row.Compare(want) > 0 { // three are kept: what was counted elsewhere meanwhile is in other
			t.Fatalf("team %s has %s, at most %s", row.Tag, row.Quantity, want)
		}
		sum, _ = sum.Add(row.Quantity)
	}
	if p.Kind == usage.Sum && sum != slice.Total(p.Kind).Quantity {
		t.Fatalf("the rows and the rest are %s, the total is %s", sum, slice.Total(p.Kind))
	}
}

// judgeGroups asks for the uniques of some fields of three, some of whose values are filtered: what is kept is the
// model's, and what is not kept is between a row and the rest.
func judgeGroups(t *rapid.T, r *rand.Rand, p *usage.Product, slice *Slice, events []observed, s Series) {
	by, stage := 1+r.IntN(7), r.IntN(3) // a set of fields; two stages of the three
	into := func(values [3]string) (string, bool) {
		if values[1] == fmt.Sprint("stage", stage) {
			return "", false
		}
		for i := range values {
			if by&(1<<i) == 0 {
				values[i] = "*"
			}
		}
		return strings.Join(values[:], ","), true
	}
	rows, other := slice.Grouped(p, 100, func(tag string) (string, bool) {
		return into([3]string(strings.Split(tag, ",")))
	})
	told := map[string]bool{}
	for _, row := range rows {
		told[row.Tag] = true
		want, n := expectedOf(events, s, slice.Range, func(o *observed) bool {
			name, in := into(o.joint)
			return in && name == row.Tag
		})
		if p.TopK == 50 { // of 36 combinations all are kept
			judge(t, p, row.Value, want, n)
			continue
		}
		high, _ := row.High.Add(other.High)
		if row.Low.Compare(want) > 0 || want.Compare(high) > 0 {
			t.Fatalf("%s: %s has %s, from %s to %s", p.Name, row.Tag, want, row.Low, high)
		}
	}
	for i := range events {
		o := &events[i]
		if name, in := into(o.joint); in && o.Tenant == s.Tenant && o.Product.Name == s.Product &&
			slice.Range.Contains(time.Unix(0, o.Time)) && !told[name] && !other.Present {
			t.Fatalf("%s: %s has no row, and there is no rest", p.Name, name)
		}
	}
}

func restored(t interface{ Fatal(...any) }, c *Counter, list []*usage.Product) *Counter {
	b := c.Append(nil)
	r := pack.Read(b)
	next, err := Read(r, c.cfg, finder(list))
	if err != nil || r.Err() != nil || r.Len() != 0 {
		t.Fatal("what was written is not read: ", err)
	}
	if !bytes.Equal(next.Append(nil), b) {
		t.Fatal("what was read is not written the same way")
	}
	return next
}

func finder(list []*usage.Product) func(Series) (*usage.Product, bool) {
	return func(s Series) (*usage.Product, bool) {
		i := slices.IndexFunc(list, func(p *usage.Product) bool { return p.Name == s.Product })
		if i < 0 {
			return nil, false
		}
		return list[i], true
	}
}

// TestMergeLaws: the order in which partial answers meet makes no difference, and uniques, maxima and lasts may meet
// twice.
func TestMergeLaws(t *testing.T) {
	list := products(t)
	start := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	span := []window.Range{{From: start, To: start.Add(48 * time.Hour)}}
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		var counters [3]*Counter
		for i := range counters {
			counters[i] = New(Config{})
			for n := range 40 {
				o := someObservation(t, r, list, start.Add(time.Duration(r.IntN(3000))*time.Second))
				counters[i].Apply(&o.Observation, uint64(100*i+n))
			}
		}
		for _, p := range list {
			for _, tenant := range slices.Sorted(maps.Keys(zoneOf)) {
				s := Series{tenant, p.Name, 1}
				show := func(order ...int) string {
					a := counters[order[0]].Query(s, p, span, 0)
					for _, i := range order[1:] {
						a.Merge(counters[i].Query(s, p, span, 0))
					}
					rows, other := a.Slices[0].By(p, 2)
					return fmt.Sprint(a.Slices[0].Total(p.Kind), rows, other)
				}
				want := show(0, 1, 2)
				if got := show(2, 0, 1); got != want {
					t.Fatalf("%s: %s, want %s", p.Name, got, want)
				}
				if got := show(1, 0, 1, 2, 2); p.Kind != usage.Sum && got != want {
					t.Fatalf("%s twice: %s, want %s", p.Name, got, want)
				}
			}
		}
	})
}

// TestCorrection is section 7's and section 4's corrections: what is voided is cleared and recounted without it, at
// whatever level it has become, and the rest stays.
func TestCorrection(t *testing.T) {
	list := products(t)
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))
		c := New(Config{Zone: zones, Keep: Keep{Minutes: 25 * time.Hour, Hours: 50 * time.Hour}})
		now := time.Date(2026, 10, 22, 0, 0, 0, 0, time.UTC)
		var events []observed
		for range 300 {
			now = now.Add(time.Duration(r.IntN(60)) * time.Minute)
			o := someObservation(t, r, list, now)
			o.order = uint64(len(events))
			events = append(events, o)
			c.Apply(&o.Observation, o.order)
			c.Advance(now)
		}
		victim := events[r.IntN(len(events))]
		s := seriesOf(&victim.Observation)
		at := time.Unix(0, victim.Time).UTC()
		span := c.Clear(s, window.Range{From: at.Truncate(time.Minute), To: at.Truncate(time.Minute).Add(time.Minute)})
		events = slices.DeleteFunc(events, func(o observed) bool { return o.order == victim.order })
		for _, o := range events {
			if seriesOf(&o.Observation) == s && span.Contains(time.Unix(0, o.Time)) {
				c.Recount(&o.Observation, o.order)
			}
		}
		for range 30 {
			judgeQuery(t, r, []*Counter{c, New(c.cfg)}, list, events, now)
		}
		month := zones(s.Tenant).Month(at)
		answer := c.Query(s, victim.Product, []window.Range{month}, -1)
		want, n := expected(events, s, month, "")
		judge(t, victim.Product, answer.Slices[0].Total(victim.Product.Kind), want, n)
	})
}
