package ownserver

import (
	"cmp"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// What is behind a cell of the propagation screen: the changes that proxies of this host acknowledged in a time, and
// that took so long. Of each resource a proxy tells of the newest change alone.

const (
	mostAsked   = 100 // proxies that are asked for what they have
	mostApplied = 200 // changes that are shown
)

// Change is a change as a proxy took it.
type Change struct {
	Proxy    string  `json:"proxy"`
	Node     string  `json:"node"`
	Service  string  `json:"service"`
	Type     string  `json:"type"`
	Resource string  `json:"resource"`
	Changed  int64   `json:"changed"` // ms since 1970, by the server's clock
	Applied  int64   `json:"applied"` // the same, by this host's
	Took     float64 `json:"took"`    // ms
}

// Applied are the changes, the slowest first.
type Applied struct {
	Rows []Change `json:"rows"`
	More int      `json:"more"` // that are not shown
	// Unasked are proxies that may have more of them.
	Unasked int `json:"unasked"`
}

// span is what a cell holds: from <= when it was acknowledged < to, and low <= ms that it took < high.
type span struct {
	from, to  time.Time
	low, high float64
}

// readSpan reads a cell: from and to in ms since 1970, low and high in ms, 0 is no bound.
func readSpan(q url.Values) (s span, err error) {
	field := func(name string) float64 {
		v, bad := strconv.ParseFloat(q.Get(name), 64)
		if err == nil && (bad != nil || math.IsNaN(v) || v < 0 || v > math.MaxInt64/2) {
			err = errkind.Errorf(errkind.Invalid, "%s: want a number of milliseconds", name)
		}
		return v
	}
	s = span{time.UnixMilli(int64(field("from"))), time.UnixMilli(int64(field("to"))), field("low"), field("high")}
	if s.high == 0 {
		s.high = math.Inf(1)
	}
	return s, err
}

// detailed is a proxy with what it has.
type detailed struct {
	Node, ID, Service string
	Answered          time.Time
	Details           []struct {
		Type, Name         string
		Changed, AppliedAt time.Time
		TookMillis         *float64
	}
}

// in are the changes of a proxy that a cell holds.
func (s *span) in(p *detailed) (rows []Change) {
	for _, r := range p.Details {
		if r.TookMillis == nil || *r.TookMillis < s.low || *r.TookMillis >= s.high || r.AppliedAt.Before(s.from) ||
			!r.AppliedAt.Before(s.to) {
			continue
		}
		rows = append(rows, Change{p.ID, p.Node, p.Service, r.Type, r.Name, r.Changed.UnixMilli(),
			r.AppliedAt.UnixMilli(), *r.TookMillis})
	}
	return rows
}

// AppliedIn is what the cell of a query holds; get asks the catalog's API with the rights of the person.
func AppliedIn(q url.Values, get func(path string, into any) error) (*Applied, error) {
	s, err := readSpan(q)
	if err != nil {
		return nil, err
	}
	var all struct{ List []detailed }
	if err := get("/v1/internal/mesh/proxies?all", &all); err != nil {
		return nil, err
	}
	all.List = slices.DeleteFunc(all.List, func(d detailed) bool { return d.Answered.Before(s.from) })
	v := &Applied{Rows: []Change{}, Unasked: max(0, len(all.List)-mostAsked)}
	for _, one := range all.List[:min(len(all.List), mostAsked)] {
		var d detailed
		err := get("/v1/internal/mesh/proxy/"+url.PathEscape(one.ID)+"?node="+url.QueryEscape(one.Node), &d)
		if errkind.Is(err, errkind.NotFound) {
			continue // it has gone
		}
		if err != nil {
			return nil, err
		}
		v.Rows = append(v.Rows, s.in(&d)...)
	}
	slices.SortStableFunc(v.Rows, func(a, b Change) int { return cmp.Compare(b.Took, a.Took) })
	shown := min(len(v.Rows), mostApplied)
	v.More, v.Rows = len(v.Rows)-shown, v.Rows[:shown]
	return v, nil
}
