// Package aggregator answers questions about usage: it merges what the counters of all servers know, judges limits,
// has corrections done, and measures how far sketches are off.
//
// An answer for which a server is missing says so and is a lower bound. Nothing is stored here: definitions are in the
// plane's Raft group, and numbers with the counters.
//
// Run owns all goroutines; the other methods are for any goroutine.
package aggregator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/estimate"
	"corbel.dev/corbel/usage/limits"
	"corbel.dev/corbel/usage/misses"
	"corbel.dev/corbel/usage/window"
)

// The RPCs by which servers ask each other.
const (
	MethodExtract = "usage.extract"
	MethodSeries  = "usage.series"
	MethodLate    = "usage.late"
)

// maxLate bounds the late events that are listed.
const maxLate = 1000

// MaxSteps bounds the steps of a series.
const MaxSteps = 2000

// maxRange bounds what is asked at once.
const maxRange = 2 * 366 * 24 * time.Hour

// Config of an Aggregator.
type Config struct {
	// Parts are the names of the parts of the log. Local is the counter of one that this server leads, nil where
	// another one does, which Call asks.
	Parts func() []string
	Local func(part string) *counter.Counter
	Call  func(ctx context.Context, part, method string, req []byte) ([]byte, error)
	// Miss waits for what a copy has counted, as counter.ReadPart reads it, of a part whose lead is not warm, or does not
	// answer; nil asks nobody.
	Miss        func(ctx context.Context, part string, key misses.Key) ([]byte, error)
	Definitions *definitions.Definitions
	Aggregate   aggregate.Config // Zone is that of tenants
	// Leads says whether this server judges limits.
	Leads func() bool
	// Crossed tells others of a crossing; nil tells nobody.
	Crossed func(ctx context.Context, c limits.Crossing)
	Clock   clock.Clock
	Log     *slog.Logger
}

// Aggregator is the owner. Make one with New.
type Aggregator struct {
	cfg       Config
	elsewhere elsewhere
	mu        sync.Mutex // guards samples, blind
	samples   map[string][]limits.Sample
	blind     map[string]Unjudged
}

// New makes an Aggregator and starts nothing.
func New(cfg Config) *Aggregator {
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Aggregator{cfg: cfg, samples: map[string][]limits.Sample{}, blind: map[string]Unjudged{}}
}

// Question is what is asked.
type Question struct {
	Tenant, Product string
	// Window is a window's name; else the range [From, To).
	Window   string
	From, To time.Time
	By       string // a tag, or some with commas between where a joint one has them
	// Group names the group of a value of that tag, as estimate.Question has it.
	Group func(tag string) (name string, in bool)
	Step  string // of the series: "5m", "hour", "day", "month"
	// Zone is the calendar, by default the tenant's.
	Zone *window.Zone
	// At is the instant of a window, by default now.
	At time.Time
}

// Range is what a question is about.
func (a *Aggregator) Range(q *Question) (window.Range, error) {
	zone := a.zone(q)
	if q.Window != "" {
		at := q.At
		if at.IsZero() {
			at = a.cfg.Clock.Now()
		}
		r, err := zone.Of(q.Window, at)
		return r, errkind.E(errkind.Invalid, "window", err)
	}
	r := window.Range{From: q.From, To: q.To}
	switch {
	case r.Empty():
		return r, errkind.New(errkind.Invalid, "to: must be after from")
	case r.To.Sub(r.From) > maxRange:
		return r, errkind.Errorf(errkind.Invalid, "from: the range is longer than %s", maxRange)
	case r.From.Truncate(time.Minute) != r.From || r.To.Truncate(time.Minute) != r.To:
		return r, errkind.New(errkind.Invalid, "from, to: must be whole minutes")
	}
	return r, nil
}

func (a *Aggregator) zone(q *Question) window.Zone {
	if q.Zone != nil {
		return *q.Zone
	}
	return a.cfg.Aggregate.Zone(q.Tenant)
}

// Estimate answers a question.
func (a *Aggregator) Estimate(ctx context.Context, q Question) (estimate.Estimate, error) {
	view := a.cfg.Definitions.View()
	now := a.cfg.Clock.Now()
	q.Tenant = cmp.Or(q.Tenant, usage.DefaultTenant)
	p, ok := view.Products.Get(q.Product)
	former := view.Products.Former(q.Product, now)
	if !ok {
		if len(former) == 0 {
			return estimate.Estimate{}, errkind.Errorf(errkind.NotFound, "product: %.100q is not defined", q.Product)
		}
		p, former = former[len(former)-1], former[:len(former)-1] // deleted, and its data kept
	}
	r, err := a.Range(&q)
	if err != nil {
		return estimate.Estimate{}, err
	}
	tag := -1
	if q.By != "" {
		if tag = slices.Index(p.Tags, q.By); tag < 0 && strings.Contains(q.By, ",") {
			tag, q.Group = p.Together(q.By)
		}
		if tag < 0 {
			return estimate.Estimate{}, errkind.Errorf(errkind.Invalid, "by: %.100q is no tag of product %q", q.By, p.Name)
		}
	}
	ranges := []window.Range{r}
	if q.Step != "" {
		steps, err := a.zone(&q).Steps(r, stepName(q.Step), MaxSteps)
		if err != nil {
			return estimate.Estimate{}, errkind.E(errkind.Invalid, "step", err)
		}
		ranges = append(ranges, steps...)
	}
	answer, coverage := a.gather(ctx, p, q.Tenant, ranges, tag)
	out := estimate.Make(p, estimate.Question{Range: r, Late: p.Late, By: tag >= 0, Group: q.Group, Step: q.Step != ""},
		answer, coverage)
	for _, old := range former {
		part, _ := a.gather(ctx, old, q.Tenant, ranges[:1], -1)
		if v := part.Slices[0].Total(old.Kind); v.Present {
			out.Former = append(out.Former, estimate.Former{Generation: old.Generation, Kind: old.Kind.String(),
				Value: v.Quantity})
		}
	}
	return out, nil
}

// stepName makes 1d and the like what the calendar calls them.
func stepName(s string) string {
	switch s {
	case "1d", "24h", "day":
		return window.Day
	case "1month", "month":
		return window.Month
	}
	return s
}

// gather asks all counters.
func (a *Aggregator) gather(ctx context.Context, p *usage.Product, tenant string, ranges []window.Range, tag int,
) (*aggregate.Partial, estimate.Coverage) {
	return a.gatherFrom(ctx, a.cfg.Parts(), p, tenant, ranges, tag)
}

// gatherFrom asks the counters of some parts.
func (a *Aggregator) gatherFrom(ctx context.Context, members []string, p *usage.Product, tenant string,
	ranges []window.Range, tag int,
) (*aggregate.Partial, estimate.Coverage) {
	series := aggregate.Series{Tenant: tenant, Product: p.Name, Generation: p.Generation}
	parts := make([]counter.Part, len(members))
	failed, copied := make([]error, len(members)), make([]bool, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		local := a.cfg.Local(m)
		if local != nil {
			if parts[i] = local.Query(series, p, ranges, tag); parts[i].Warm {
				continue
			}
		}
		wg.Go(func() {
			if local == nil {
				parts[i], failed[i] = a.ask(ctx, m, series, p, ranges, tag)
			}
			if failed[i] == nil && parts[i].Warm {
				return
			}
			if got, err := missed(ctx, &a.cfg, m, series, p, ranges, tag); err == nil {
				parts[i], failed[i], copied[i] = got, nil, true
			}
		})
	}
	wg.Wait()
	var out *aggregate.Partial
	c := estimate.Coverage{Shards: 1}
	if p.Kind == usage.Unique {
		c.Shards = usage.Shards
	}
	answered := 0
	for i := range parts {
		if failed[i] != nil {
			c.Silent = append(c.Silent, fmt.Sprintf("%s: %v", members[i], failed[i]))
			continue
		}
		if c.AsOf.IsZero() || parts[i].AsOf.Before(c.AsOf) {
			c.AsOf = parts[i].AsOf
		}
		if parts[i].Warm {
			answered++
		}
		if copied[i] {
			c.Copied = append(c.Copied, members[i])
		}
		if out == nil {
			out = parts[i].Partial
		} else {
			out.Merge(parts[i].Partial)
		}
	}
	if out == nil {
		out = aggregate.New(a.cfg.Aggregate).Query(series, p, ranges, tag)
		c.AsOf = time.Unix(0, 0)
	}
	c.Warm = c.Shards * answered / max(1, len(members))
	c.Left = a.left(ranges[0])
	return out, c
}

// left are the parts that are asked no more, and counted in a range.
func (a *Aggregator) left(r window.Range) (list []string) {
	view := a.cfg.Definitions.View()
	for _, name := range slices.Sorted(maps.Keys(view.Left)) {
		if at := view.Left[name]; r.From.Before(at) {
			list = append(list, fmt.Sprintf("part %s was left out at %s, with what it had counted", name,
				at.UTC().Format(time.RFC3339)))
		}
	}
	return list
}

// missed is what a copy has counted, in place of all that the lead of a part has.
func missed(ctx context.Context, cfg *Config, part string, s aggregate.Series, p *usage.Product,
	ranges []window.Range, tag int,
) (counter.Part, error) {
	if cfg.Miss == nil {
		return counter.Part{}, errkind.New(errkind.Unavailable, "usage: no copy is asked")
	}
	data, err := cfg.Miss(ctx, part, misses.Key{Series: s, Range: ranges[0]})
	if err != nil {
		return counter.Part{}, err
	}
	return counter.ReadPart(data, cfg.Aggregate, s, p, ranges, tag)
}

// askTimeout bounds how long a server may take.
const askTimeout = 5 * time.Second

func (a *Aggregator) ask(ctx context.Context, part string, s aggregate.Series, p *usage.Product,
	ranges []window.Range, tag int,
) (counter.Part, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	b := pack.Uint(pack.String(pack.String(nil, s.Tenant), s.Product), uint64(s.Generation))
	b = pack.Int(pack.Int(b, ranges[0].From.UnixNano()), ranges[0].To.UnixNano())
	reply, err := a.cfg.Call(ctx, part, MethodExtract, b)
	if err != nil {
		return counter.Part{}, err
	}
	return counter.ReadPart(reply, a.cfg.Aggregate, s, p, ranges, tag)
}

// ServeExtract answers MethodExtract, for the counter of a part.
func (a *Aggregator) ServeExtract(_ context.Context, c *counter.Counter, req []byte) ([]byte, error) {
	r := pack.Read(req)
	s := aggregate.Series{Tenant: r.String(), Product: r.String(), Generation: uint32(r.Uint())}
	span := window.Range{From: time.Unix(0, r.Int()), To: time.Unix(0, r.Int())}
	if r.Err() != nil {
		return nil, errkind.E(errkind.Invalid, MethodExtract, r.Err())
	}
	return c.Extract(s, span), nil
}

// ServeSeries answers MethodSeries, for the counter of a part.
func (a *Aggregator) ServeSeries(_ context.Context, c *counter.Counter, _ []byte) ([]byte, error) {
	list := c.Series()
	b := pack.Uint(nil, uint64(len(list)))
	for _, s := range list {
		b = pack.Uint(pack.String(pack.String(b, s.Tenant), s.Product), uint64(s.Generation))
	}
	return b, nil
}

// Series lists what has been counted anywhere, and which parts did not answer.
func (a *Aggregator) Series(ctx context.Context) (list []aggregate.Series, silent []string) {
	list, silent = all(ctx, a, MethodSeries, nil,
		func(_ context.Context, c *counter.Counter) ([]aggregate.Series, error) { return c.Series(), nil },
		func(reply []byte) (list []aggregate.Series, err error) {
			r := pack.Read(reply)
			for range r.Count() {
				list = append(list, aggregate.Series{Tenant: r.String(), Product: r.String(), Generation: uint32(r.Uint())})
			}
			return list, r.Err()
		})
	slices.SortFunc(list, func(a, b aggregate.Series) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Product, b.Product),
			cmp.Compare(a.Generation, b.Generation))
	})
	return slices.Compact(list), silent
}

// all lists what all parts have, asked at once, so that a server that is silent holds no other one up: here asks the
// counter of a part that this server leads, read reads what another server has answered. It says which parts did not
// answer, and why.
func all[T any](ctx context.Context, a *Aggregator, method string, req []byte,
	here func(context.Context, *counter.Counter) ([]T, error), read func([]byte) ([]T, error),
) (list []T, silent []string) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	parts := a.cfg.Parts()
	each, errs := make([][]T, len(parts)), make([]error, len(parts))
	var wg sync.WaitGroup
	for i, part := range parts {
		wg.Go(func() {
			if local := a.cfg.Local(part); local != nil {
				each[i], errs[i] = here(ctx, local)
				return
			}
			reply, err := a.cfg.Call(ctx, part, method, req)
			if errs[i] = err; err == nil {
				each[i], errs[i] = read(reply)
			}
		})
	}
	wg.Wait()
	for i, part := range parts {
		if errs[i] != nil {
			silent = append(silent, fmt.Sprintf("%s: %v", part, errs[i]))
			continue
		}
		list = append(list, each[i]...)
	}
	return list, silent
}

// listed reads a list in JSON.
func listed[T any](reply []byte) (list []T, err error) {
	err = json.Unmarshal(reply, &list)
	return list, err
}

// ServeLate answers MethodLate, for the counter of a part.
func (a *Aggregator) ServeLate(_ context.Context, c *counter.Counter, _ []byte) ([]byte, error) {
	return json.Marshal(c.Late())
}

// Late lists the newest events that came too late to be counted, the newest last, and which parts did not answer.
func (a *Aggregator) Late(ctx context.Context) (list []counter.LateEvent, silent []string) {
	list, silent = all(ctx, a, MethodLate, nil,
		func(_ context.Context, c *counter.Counter) ([]counter.LateEvent, error) { return c.Late(), nil },
		listed[counter.LateEvent])
	slices.SortStableFunc(list, func(a, b counter.LateEvent) int { return a.Came.Compare(b.Came) })
	return list[max(0, len(list)-maxLate):], silent
}

// Top is a contributor.
type Top struct {
	Tenant string         `json:"tenant,omitempty"`
	Tag    string         `json:"tag,omitempty"`
	Other  bool           `json:"other,omitempty"`
	Value  usage.Quantity `json:"value"`
}

// Top lists who used most of a product: by tenant, or by a tag of one tenant, and which parts of the log are missing.
// may says which tenants are told.
func (a *Aggregator) Top(ctx context.Context, q Question, limit int, may func(tenant string) bool,
) (list []Top, missing []string, err error) {
	if q.By != "" && q.By != "tenant" {
		e, err := a.Estimate(ctx, q)
		out := make([]Top, 0, len(e.By))
		for _, row := range e.By {
			out = append(out, Top{Tenant: q.Tenant, Tag: row.Tag, Other: row.Other, Value: row.Value})
		}
		return out[:min(len(out), limit)], e.Completeness.Missing, err
	}
	tenants, missing, err := a.Tenants(ctx, q, may)
	list = make([]Top, 0, min(len(tenants), limit))
	for _, t := range tenants[:min(len(tenants), limit)] {
		list = append(list, Top{Tenant: t.Tenant, Value: *t.Value})
	}
	return list, missing, err
}

// TenantEstimate is what a tenant used. Its value is there, and is not 0.
type TenantEstimate struct {
	Tenant string
	estimate.Estimate
}

// Tenants lists who used a product, the largest value first, and what is missing: tenants of parts that did not answer
// may be in none of the others. may says which tenants are told.
func (a *Aggregator) Tenants(ctx context.Context, q Question, may func(tenant string) bool,
) (out []TenantEstimate, missing []string, err error) {
	q.By = ""
	list, silent := a.Series(ctx)
	for _, part := range silent {
		missing = append(missing, "no answer from "+part)
	}
	for i, s := range list {
		if s.Product != q.Product || !may(s.Tenant) || i > 0 && list[i-1].Tenant == s.Tenant &&
			list[i-1].Product == s.Product {
			continue
		}
		q.Tenant = s.Tenant
		e, err := a.Estimate(ctx, q)
		if err != nil {
			return nil, nil, err
		}
		if e.Value != nil && *e.Value != (usage.Quantity{}) {
			out = append(out, TenantEstimate{s.Tenant, e})
		}
		if len(missing) == 0 { // else it says the same once more
			missing = append(missing, e.Completeness.Missing...)
		}
	}
	slices.SortStableFunc(out, func(a, b TenantEstimate) int { return b.Value.Compare(*a.Value) })
	return out, missing, nil
}
