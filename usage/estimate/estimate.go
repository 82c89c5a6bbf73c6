// Package estimate makes answers out of partial ones: a value with its bound, how complete it is, the time that it is
// as of, and what is missing and why. An answer while shards are warming is a lower bound and says so; it is never a
// silent dip.
//
// It is pure: counters' partial answers and the table of shards come in, an Estimate goes out. Encoding is
// deterministic.
package estimate

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/sketch"
	"corbel.dev/corbel/usage/window"
)

// Method says how a value came about.
type Method string

// The methods.
const (
	Exact  Method = "exact"  // a set of hashes
	Sketch Method = "sketch" // an UltraLogLog
	Sum    Method = "sum"    // integers
)

// Error is the bound of a value. Relative is the standard error; the truth is from Low to High in 99 % of cases, and
// always where Method is not Sketch. While something is missing High is nil, and Low is all that is certain; of a min
// High is, and Low says nothing.
type Error struct {
	Relative float64         `json:"relative"`
	Low      usage.Quantity  `json:"low"`
	High     *usage.Quantity `json:"high,omitempty"`
	Method   Method          `json:"method"`
}

// Completeness says how much of what was sent is in the value.
type Completeness struct {
	// Ratio is the part of the shards that answered and are warm.
	Ratio      float64 `json:"ratio"`
	ShardsWarm int     `json:"shards_warm"`
	Shards     int     `json:"shards"`
	// OpenUntil is when the last event can come that still changes the value; absent when that is over.
	OpenUntil *time.Time `json:"open_until,omitempty"`
	// Missing says what is not in it, and why: one line each.
	Missing []string `json:"missing,omitempty"`
}

// Row is the value of one value of a tag, or of all the others.
type Row struct {
	Tag   string         `json:"tag,omitempty"`
	Value usage.Quantity `json:"value"`
	Other bool           `json:"other,omitempty"`
	// Events is how many a sum has; of the other kinds it is above zero where there is a value.
	Events uint64 `json:"-"`
	// Bound is that of a unique, nil for other kinds. What was seen while the value was not kept is in the row of the
	// others, and so between the two.
	Bound *Bound `json:"-"`
}

// Bound holds the truth in 99 % of cases. High is nil while shards are missing.
type Bound struct {
	Low  usage.Quantity
	High *usage.Quantity
}

// MarshalJSON tells the events without the tag, whose row is "tag": "", from the others.
func (r Row) MarshalJSON() (out []byte, err error) {
	if r.Other {
		out = append(out, `{"other":true`...)
	} else {
		var tag []byte
		tag, err = json.Marshal(r.Tag)
		out = fmt.Appendf(out, `{"tag":%s`, tag)
	}
	out = fmt.Appendf(out, `,"value":%s`, r.Value)
	if r.Bound != nil {
		out = fmt.Appendf(out, `,"low":%s`, r.Bound.Low)
		if r.Bound.High != nil {
			out = fmt.Appendf(out, `,"high":%s`, r.Bound.High)
		}
	}
	return append(out, '}'), err
}

// Point is one step of a series.
type Point struct {
	Time  time.Time      `json:"time"`
	Value usage.Quantity `json:"value"`
}

// Estimate is an answer.
type Estimate struct {
	// Value is nil for a max, a min or a last of nothing. Events is as that of a Row.
	Value        *usage.Quantity `json:"value"`
	Events       uint64          `json:"-"`
	Unit         string          `json:"unit,omitempty"`
	Error        Error           `json:"error"`
	Completeness Completeness    `json:"completeness"`
	AsOf         time.Time       `json:"as_of"`
	By           []Row           `json:"by,omitempty"`
	Series       []Point         `json:"series,omitempty"`
	// Former are the estimates of former generations of the product, which counted something else.
	Former []Former `json:"former,omitempty"`
}

// Former is what a former generation counted in the same range.
type Former struct {
	Generation uint32         `json:"generation"`
	Kind       string         `json:"kind"`
	Value      usage.Quantity `json:"value"`
}

// Coverage is what an aggregator knows of the shards behind a partial answer.
type Coverage struct {
	// Shards is how many the series has: all for a unique, one for other kinds. Warm is how many of them answered and
	// have all of the range.
	Shards, Warm int
	// Silent names the counters that did not answer, with the reason.
	Silent []string
	// Left names parts that are asked no more and have counted in the range, with the reason.
	Left []string
	// Copied names parts whose lead does not know all, and what a copy has counted stands in the answer.
	Copied []string
	// AsOf is the earliest of the counters' watermarks.
	AsOf time.Time
}

// Question is what was asked.
type Question struct {
	Range window.Range
	// Late is the product's: events so old still count.
	Late time.Duration
	// By is whether rows are wanted, at most TopK.
	By bool
	// Group, with By, names the group of a value of the tag, for a row of each group; nil has one of each value.
	Group func(tag string) (name string, in bool)
	// Step is whether the partial answer has, behind the slice of the whole range, one for each step.
	Step bool
}

// Make makes an estimate. The first slice of the answer is the whole range, the others are its steps.
func Make(p *usage.Product, q Question, answer *aggregate.Partial, c Coverage) Estimate {
	slice := &answer.Slices[0]
	total := slice.Total(p.Kind)
	e := Estimate{Unit: p.Unit, AsOf: c.AsOf.UTC(), Error: errorOf(p.Kind, total), Events: total.Count}
	if total.Present || p.Kind == usage.Unique || p.Kind == usage.Sum {
		e.Value = &total.Quantity
	}
	e.Completeness = completeness(p.Kind, q, c, slice.Rounded)
	if stated := sketch.RelativeError(p.Precision); p.Kind == usage.Unique && !total.Exact && total.Relative > stated {
		e.Completeness.Missing = append(e.Completeness.Missing, fmt.Sprintf("a part of it was counted with a lower "+
			"precision: the standard error is %.2f %%, not %.2f %%", 100*total.Relative, 100*stated))
	}
	if c.Warm < c.Shards || len(c.Left) > 0 {
		switch p.Kind {
		case usage.Last: // a newer one may be missing: nothing is certain
			e.Error.High, e.Error.Low = nil, usage.Quantity{}
		case usage.Min: // a smaller one may be missing
			e.Error.Low = usage.Quantity{}
			if !total.Present {
				e.Error.High = nil
			}
		default:
			e.Error.High = nil
		}
	}
	if q.By {
		e.By = rowsOf(p, q, slice, c.Warm < c.Shards || len(c.Left) > 0)
	}
	if q.Step {
		for i := range answer.Slices[1:] {
			s := &answer.Slices[i+1]
			if v := s.Total(p.Kind); v.Present {
				e.Series = append(e.Series, Point{s.Range.From.UTC(), v.Quantity})
			}
		}
	}
	return e
}

// rowsOf are the rows of a tag.
func rowsOf(p *usage.Product, q Question, slice *aggregate.Slice, lacks bool) (list []Row) {
	into := q.Group
	if into == nil {
		into = func(tag string) (string, bool) { return tag, true }
	}
	rows, other := slice.Grouped(p, p.TopK, into)
	add := func(row Row, v, more aggregate.Value) {
		row.Value, row.Events = v.Quantity, v.Count
		if p.Kind == usage.Unique {
			row.Bound = &Bound{Low: v.Low}
			if high, ok := v.High.Add(more.High); ok && !lacks {
				row.Bound.High = &high
			}
		}
		list = append(list, row)
	}
	for _, r := range rows {
		add(Row{Tag: r.Tag}, r.Value, other)
	}
	if other.Present {
		add(Row{Other: true}, other, aggregate.Value{})
	}
	return list
}

func errorOf(kind usage.Kind, v aggregate.Value) Error {
	e := Error{Relative: v.Relative, Low: v.Low, High: &v.High, Method: Sum}
	switch {
	case kind == usage.Unique && v.Exact:
		e.Method = Exact
	case kind == usage.Unique:
		e.Method = Sketch
		e.Relative = math.Round(v.Relative*1e6) / 1e6
	}
	return e
}

func completeness(kind usage.Kind, q Question, c Coverage, rounded bool) Completeness {
	out := Completeness{Ratio: 1, ShardsWarm: c.Warm, Shards: c.Shards}
	if c.Shards > 0 {
		out.Ratio = float64(c.Warm) / float64(c.Shards)
	}
	if until := q.Range.To.Add(q.Late).UTC(); c.AsOf.Before(until) {
		out.OpenUntil = &until
	}
	bound := "a lower"
	if kind == usage.Min {
		bound = "an upper"
	}
	if n := c.Shards - c.Warm; n > 0 {
		out.Missing = append(out.Missing, fmt.Sprintf("%d of %d shards are warming: the value is %s bound", n, c.Shards,
			bound))
	}
	for _, s := range c.Left {
		out.Missing = append(out.Missing, s+": the value is "+bound+" bound")
	}
	for _, part := range c.Copied {
		out.Missing = append(out.Missing, "part "+part+" is warming, or its server is away: what its copy has counted is "+
			"in the value")
	}
	for _, s := range c.Silent {
		out.Missing = append(out.Missing, "no answer from "+s)
	}
	if rounded {
		out.Missing = append(out.Missing, "the range cuts hours or days whose minutes are no longer kept: "+
			"those that begin in it count as a whole")
	}
	return out
}

// Period is a calendar window that has closed: what it was then, and each correction since.
type Period struct {
	Series    aggregate.Series `json:"series"`
	From      time.Time        `json:"from"`
	To        time.Time        `json:"to"`
	Closed    usage.Quantity   `json:"closed"`
	Revisions []Revision       `json:"revisions,omitempty"`
}

// Revision is what a correction made of a closed period.
type Revision struct {
	At         time.Time      `json:"at"`
	Value      usage.Quantity `json:"value"`
	Correction string         `json:"correction"`
	Reason     string         `json:"reason"`
}

// Revised returns the period with a revision more. One of the same correction replaces it: a recount that is done
// twice.
func (p Period) Revised(r Revision) Period {
	list := make([]Revision, 0, len(p.Revisions)+1)
	for _, former := range p.Revisions {
		if former.Correction != r.Correction {
			list = append(list, former)
		}
	}
	p.Revisions = append(list, r)
	return p
}

// Value is the newest number of a closed period.
func (p Period) Value() usage.Quantity {
	if n := len(p.Revisions); n > 0 {
		return p.Revisions[n-1].Value
	}
	return p.Closed
}
