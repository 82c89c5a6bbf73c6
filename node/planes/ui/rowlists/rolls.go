package rowlists

import (
	"net/url"
	"slices"
	"sync"

	"corbel.dev/corbel/api/uiapi/rowfilter"
)

// maxViews bounds the filters whose rows a roll keeps apart.
const maxViews = 32

// Rolls are lists of rows in an order, one for each set of rights. Rows are made in groups, such as the instances of a
// node: after a change only the groups that it touched are made anew, whatever the number of rows.
type Rolls[R rowfilter.Row] struct {
	Order func(a, b *R) int
	mu    sync.Mutex
	kept  map[string]*roll[R]
	made  int // rows, ever; guarded by mu
}

// Maker tells the groups that are there now, each with an index that moves with it, and makes the rows of one.
type Maker[R any] struct {
	Each func(yield func(group string, index uint64) bool)
	Make func(group string) []R
}

type roll[R rowfilter.Row] struct {
	mu      sync.Mutex
	version uint64
	turn    uint64 // counts updates
	groups  map[string]*group[R]
	views   map[string]*rollView[R]
	made    int // rows, since it was seen last
}

type group[R any] struct {
	index uint64
	turn  uint64 // in which it was seen last
	lines []*Line[R]
}

// Line is a row that is in the list, or was: then it is gone.
type Line[R any] struct {
	Row  R
	gone bool
}

// rollView is what of the rows passes a filter, in order. Lines are never changed in place: who has them reads on.
type rollView[R any] struct {
	passes func(*R) bool
	lines  []*Line[R]
	turn   uint64 // in which it was asked for last
}

// see shows the rows that a set of rights sees, as of a version, while it holds them still.
func (l *Rolls[R]) see(rights string, version uint64, from Maker[R], look func(*roll[R])) {
	one := l.of(rights)
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.version != version || version == 0 {
		one.update(from, l.Order)
		one.version = version
	}
	look(one)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made += one.made
	one.made = 0
}

// Made is how many rows were made so far.
func (l *Rolls[R]) Made() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

// All are the rows that a set of rights sees.
func (l *Rolls[R]) All(rights string, version uint64, from Maker[R]) (lines []*Line[R]) {
	l.see(rights, version, from, func(o *roll[R]) { lines = o.view("", nil, l.Order) })
	return lines
}

func (l *Rolls[R]) of(rights string) *roll[R] {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.kept[rights]
	if one == nil {
		if l.kept == nil || len(l.kept) >= MaxLists {
			l.kept = map[string]*roll[R]{}
		}
		one = &roll[R]{groups: map[string]*group[R]{}, views: map[string]*rollView[R]{}}
		l.kept[rights] = one
	}
	return one
}

// update makes the groups anew that moved, and takes their rows out of the views and in.
func (o *roll[R]) update(from Maker[R], order func(a, b *R) int) {
	o.turn++
	var fresh []*Line[R]
	changed := false
	from.Each(func(name string, index uint64) bool {
		g := o.groups[name]
		if g == nil {
			g = &group[R]{}
			o.groups[name] = g
		}
		g.turn = o.turn
		if g.index == index {
			return true
		}
		changed = true
		g.index = index
		g.leave()
		rows := from.Make(name)
		o.made += len(rows)
		g.lines = make([]*Line[R], len(rows))
		for i := range rows {
			g.lines[i] = &Line[R]{Row: rows[i]}
		}
		fresh = append(fresh, g.lines...)
		return true
	})
	for name, g := range o.groups {
		if g.turn != o.turn {
			g.leave()
			delete(o.groups, name)
			changed = true
		}
	}
	if !changed {
		return
	}
	sortLines(fresh, order)
	for _, v := range o.views {
		v.merge(fresh, order)
	}
}

func (g *group[R]) leave() {
	for _, l := range g.lines {
		l.gone = true
	}
	g.lines = nil
}

func sortLines[R any](lines []*Line[R], order func(a, b *R) int) {
	slices.SortStableFunc(lines, func(a, b *Line[R]) int { return order(&a.Row, &b.Row) })
}

// view is the rows of a filter; a filter that nobody asked for goes when there are many.
func (o *roll[R]) view(key string, passes func(*R) bool, order func(a, b *R) int) []*Line[R] {
	v := o.views[key]
	if v == nil {
		if len(o.views) >= maxViews {
			oldest := ""
			for k, one := range o.views {
				if k != "" && (oldest == "" || one.turn < o.views[oldest].turn) {
					oldest = k
				}
			}
			delete(o.views, oldest)
		}
		v = &rollView[R]{passes: passes}
		if key == "" {
			v.passes = func(*R) bool { return true }
		}
		o.views[key] = v
		var all []*Line[R]
		if whole := o.views[""]; whole != nil && key != "" {
			all = whole.lines
		} else {
			for _, g := range o.groups {
				all = append(all, g.lines...)
			}
			sortLines(all, order)
		}
		v.merge(all, order)
	}
	v.turn = o.turn
	return v.lines
}

// merge takes out the lines that are gone, and puts in those of fresh that pass; fresh is in order.
func (v *rollView[R]) merge(fresh []*Line[R], order func(a, b *R) int) {
	out := make([]*Line[R], 0, len(v.lines)+len(fresh))
	at := 0
	for _, l := range fresh {
		if !v.passes(&l.Row) {
			continue
		}
		for ; at < len(v.lines) && (v.lines[at].gone || order(&v.lines[at].Row, &l.Row) <= 0); at++ {
			if !v.lines[at].gone {
				out = append(out, v.lines[at])
			}
		}
		out = append(out, l)
	}
	for ; at < len(v.lines); at++ {
		if !v.lines[at].gone {
			out = append(out, v.lines[at])
		}
	}
	v.lines = out
}

// Matching are the rows of a part of what a set of rights sees that pass a filter, in order, and how many there are
// without the filter. One that cannot be read passes all, and problem says what is wrong with it.
func (l *Rolls[R]) Matching(rights string, version uint64, from Maker[R], text string, of Scope[R],
	fields ...string) (found []*Line[R], all int, problem string) {
	f, err := rowfilter.Parse(text, fields...)
	if err != nil {
		problem, text = err.Error(), ""
	}
	l.see(rights, version, from, func(o *roll[R]) {
		found = o.view(of.Key, of.Passes, l.Order)
		all = len(found)
		if text != "" {
			found = o.view(of.Key+"\x00"+text, func(r *R) bool {
				return (of.Passes == nil || of.Passes(r)) && f.Match(*r)
			}, l.Order)
		}
	})
	return found, all, problem
}

// Page is the page that q asks for of a part of what a set of rights sees.
func (l *Rolls[R]) Page(rights string, version uint64, from Maker[R], q url.Values, of Scope[R],
	fields ...string) Page[R] {
	out := Page[R]{Rows: []R{}}
	var found []*Line[R]
	found, out.All, out.Problem = l.Matching(rights, version, from, q.Get("q"), of, fields...)
	first, many := number(q.Get("from"), 0), min(number(q.Get("rows"), RowsHere), maxRows)
	out.Matching = len(found)
	out.From = min(first, out.Matching)
	for _, one := range found[out.From:min(out.From+many, out.Matching)] {
		out.Rows = append(out.Rows, one.Row)
	}
	return out
}

// Scope is a part of a list that is looked at for itself, such as the instances of one service; "" is all of it.
type Scope[R any] struct {
	Key    string
	Passes func(*R) bool
}
