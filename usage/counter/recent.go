package counter

import (
	"context"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/logrecord"
)

// RecentQuery says which events are asked for. What is empty or zero asks for all.
type RecentQuery struct {
	// Tenants are those that may be told; nil are all.
	Tenants []string
	// Tenant and ID are parts of the tenant's name and of the id.
	Tenant, ID string
	// From and To bound the event's time, Stored and Until when it came, both ends included.
	From, To, Stored, Until time.Time
	// Marked are products whose events have #PRODUCT behind their id: that of the event is without it.
	Marked []string
	// Most bounds the answer.
	Most int
}

// Takes says whether an event is asked for.
func (q *RecentQuery) Takes(tenant, id string, at, stored time.Time) bool {
	within := func(t, from, to time.Time) bool {
		return (from.IsZero() || !t.Before(from)) && (to.IsZero() || !t.After(to))
	}
	return strings.Contains(tenant, q.Tenant) && strings.Contains(id, q.ID) && within(at, q.From, q.To) &&
		within(stored, q.Stored, q.Until) && (q.Tenants == nil || slices.Contains(q.Tenants, tenant))
}

// EventID is the id that an event of a product came with.
func (q *RecentQuery) EventID(id, product string) string {
	if slices.Contains(q.Marked, product) {
		return strings.TrimSuffix(id, "#"+product)
	}
	return id
}

// Recent is an event of the log. One that feeds several products stands there for each of them.
type Recent struct {
	Tenant, Source, ID string
	Time, Stored       time.Time
	As                 []RecentAs
}

// RecentAs is an event as a product counts it.
type RecentAs struct {
	Product        string
	Value          *usage.Quantity `json:",omitempty"`
	Identity, Tags []usage.Field   `json:",omitempty"`
	// Late says that it came too late to be counted.
	Late bool `json:",omitempty"`
}

const (
	// recentFirst is how many records of the log's end are read at first; each further step has twice as many, up to
	// recentMost: what a step finds is in memory.
	recentFirst = 64
	recentMost  = 1024
	// maxRecentSeen bounds how many events are looked at.
	maxRecentSeen = 300_000
)

type recentKey struct{ tenant, source, id string }

// Recent lists the newest events of the log that a query takes, the newest first. How far it looks back is bounded.
func (c *Counter) Recent(ctx context.Context, q RecentQuery) ([]Recent, error) {
	c.mu.Lock()
	log, next := c.log, c.state.next
	r := recents{q: q, late: map[recentKey]bool{}, places: map[recentKey]int{}}
	for _, e := range c.state.late {
		r.late[recentKey{e.Tenant, e.Source, e.ID}] = true
	}
	c.mu.Unlock()
	if log == nil {
		return nil, errStarting
	}
	bounds, err := log.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	first := bounds[0].First
	for end, size := next, uint64(recentFirst); end > first && !r.over(); size = min(size*2, recentMost) {
		from := max(first, end-min(end, size))
		if err := r.read(ctx, log, from, end); err != nil {
			return nil, err
		}
		end = from
	}
	return r.out, nil
}

// recents gathers events, newer ones first.
type recents struct {
	q      RecentQuery
	late   map[recentKey]bool // by the ids in the log
	out    []Recent
	places map[recentKey]int // in out, of events with ids
	seen   int
	older  bool // what has not been read came before the time that is asked for
}

func (r *recents) over() bool { return len(r.out) >= r.q.Most || r.seen >= maxRecentSeen || r.older }

// read reads some records.
func (r *recents) read(ctx context.Context, log eventlog.Log, from, to uint64) error {
	var found []Recent // oldest first, each for one product
	began := true
	err := scan(ctx, log, from, to, nil, func(rec *logrecord.Record, _ uint64) error {
		r.older = r.older || began && rec.At.Before(r.q.Stored)
		began = false
		r.seen += len(rec.Events)
		if rec.Correction == nil {
			found = r.pick(found, rec)
		}
		return nil
	})
	for i := range found {
		r.add(&found[len(found)-1-i])
	}
	return err
}

func (r *recents) pick(found []Recent, rec *logrecord.Record) []Recent {
	for i := range rec.Events {
		e := &rec.Events[i]
		at := rec.At
		if e.Time != 0 {
			at = time.Unix(0, e.Time).UTC()
		}
		tenant, id := tenantOf(e), r.q.EventID(e.ID, e.Product)
		if !r.q.Takes(tenant, id, at, rec.At) {
			continue
		}
		as := RecentAs{Product: e.Product, Identity: e.Identity, Tags: e.Tags,
			Late: r.late[recentKey{tenant, e.Source, e.ID}]}
		if e.HasValue {
			as.Value = &e.Value
		}
		found = append(found, Recent{Tenant: tenant, Source: e.Source, ID: id, Time: at, Stored: rec.At,
			As: []RecentAs{as}})
	}
	return found
}

// add adds an event that is older than all others, or to another product's view of it.
func (r *recents) add(e *Recent) {
	key := recentKey{e.Tenant, e.Source, e.ID}
	at, is := r.places[key]
	is = is && e.ID != "" // what has no id is nothing that came before
	twice := is && slices.ContainsFunc(r.out[at].As, func(a RecentAs) bool { return a.Product == e.As[0].Product })
	switch {
	case twice: // the first one was counted
		r.out[at].Stored = e.Stored
	case is:
		r.out[at].As = append(r.out[at].As, e.As[0])
	case len(r.out) < r.q.Most:
		r.places[key] = len(r.out)
		r.out = append(r.out, *e)
	}
}
