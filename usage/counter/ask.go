package counter

import (
	"context"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/fate"
	"corbel.dev/corbel/usage/logrecord"
	"corbel.dev/corbel/usage/window"
)

// Part is what a counter knows of a question, with what must be known of the counter.
type Part struct {
	*aggregate.Partial
	AsOf time.Time
	Warm bool
}

// asOfLocked is up to when everything that was taken has been counted.
func (c *Counter) asOfLocked() time.Time {
	if c.warm.Load() && c.pending.Load() == 0 {
		return c.cfg.Clock.Now()
	}
	return c.state.counts.Watermark()
}

// Query asks for a series in some ranges, broken down by a tag of a number; -1 is none.
func (c *Counter) Query(s aggregate.Series, p *usage.Product, ranges []window.Range, tag int) Part {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Part{c.state.counts.Query(s, p, ranges, tag), c.asOfLocked(), c.warm.Load()}
}

// Extract encodes what there is of a series in a range, for the Query of another server.
func (c *Counter) Extract(s aggregate.Series, r window.Range) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := pack.Int(nil, c.asOfLocked().UnixNano())
	b = pack.Bool(b, c.warm.Load())
	return c.state.counts.Only(s, r).Append(b)
}

// Key is what Extract writes, of a counter that has counted all that it has; nil of another one. It does not say so of
// itself: who asks cannot know whether the lead has more.
func (c Share) Key(s aggregate.Series, r window.Range) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.warm.Load() {
		return nil
	}
	b := pack.Bool(pack.Int(nil, c.state.counts.Watermark().UnixNano()), false)
	return c.state.counts.Only(s, r).Append(b)
}

// ReadPart answers a query out of what another server's Extract wrote.
func ReadPart(data []byte, cfg aggregate.Config, s aggregate.Series, p *usage.Product, ranges []window.Range,
	tag int,
) (Part, error) {
	r := pack.Read(data)
	out := Part{AsOf: time.Unix(0, r.Int()), Warm: r.Bool()}
	counts, err := aggregate.Read(r, cfg, func(found aggregate.Series) (*usage.Product, bool) { return p, found == s })
	if err != nil {
		return out, errkind.E(errkind.Internal, "usage: the answer of another server", err)
	}
	out.Partial = counts.Query(s, p, ranges, tag)
	return out, nil
}

// Series lists what has been counted.
func (c *Counter) Series() []aggregate.Series {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.counts.Series()
}

// errFound ends a scan.
var errFound = errkind.New(errkind.Internal, "found")

// Explain finds an event and tells what became of it. known has what the counter does not know: zone and table.
func (c *Counter) Explain(ctx context.Context, tenant, source, id string, known fate.Known) (fate.Answer, error) {
	key, err := c.cfg.Key(ctx)
	if err != nil {
		return fate.Answer{}, err
	}
	c.mu.Lock()
	log, next, watermark := c.log, c.state.next, c.asOfLocked()
	corrections := c.state.corrections
	var late []time.Time // when those came that are listed as late
	for _, e := range c.state.late {
		if e.Tenant == tenant && e.Source == source && e.ID == id {
			late = append(late, e.Came)
		}
	}
	c.mu.Unlock()
	if log == nil {
		return fate.Answer{}, errStarting
	}
	bounds, err := log.Bounds(ctx)
	if err != nil {
		return fate.Answer{}, err
	}
	var stored fate.Stored
	err = scan(ctx, log, bounds[0].First, next, nil, func(rec *logrecord.Record, offset uint64) error {
		for i := range rec.Events {
			e := &rec.Events[i]
			if e.ID != id || e.Source != source || tenantOf(e) != tenant ||
				stored.Verdict == dedup.Late && rec.Correction == nil {
				continue
			}
			stored = fate.Stored{Offset: offset, At: rec.At, Event: *e, Verdict: dedup.New}
			known.Product = rec.Product(e.Product)
			known.Observation, _, known.Rejected = known.Product.Observe(key, e, rec.At, nil)
			at := time.Unix(0, known.Observation.Time)
			if rec.Correction == nil && (dedup.TooLate(at, rec.At, known.Product.Late) ||
				slices.ContainsFunc(late, rec.At.Equal)) {
				stored.Verdict = dedup.Late
			}
			var voids usage.Voids
			for _, p := range corrections {
				voids.Add(key, &p.Correction, p.Order)
			}
			known.Voided = voids.Voided(&known.Observation, source, order(offset, i))
			if stored.Verdict != dedup.Late { // else a correction may have counted it
				return errFound
			}
		}
		return nil
	})
	if err == nil && stored.Verdict == 0 {
		return fate.Answer{}, errkind.Errorf(errkind.NotFound, "no event of tenant %q, source %q and id %q is in the log",
			tenant, source, id)
	}
	if err != nil && err != errFound { //nolint:errorlint // it is this very value
		return fate.Answer{}, err
	}
	known.Watermark = watermark
	return fate.Explain(stored, known), nil
}

// Identities reads the log once more for the uniques of some series in a range, by all bits of their hashes: a set for
// each series. More than most in all of them are an error of kind TooLarge.
func (c *Counter) Identities(ctx context.Context, wanted []aggregate.Series, span window.Range, most int,
) ([]map[usage.Hash]struct{}, error) {
	c.mu.Lock()
	log, next, corrections := c.log, c.state.next, c.state.corrections
	c.mu.Unlock()
	if log == nil {
		return nil, errStarting
	}
	key, err := c.cfg.Key(ctx)
	if err != nil {
		return nil, err
	}
	from, err := c.reaches(ctx, log, span.From)
	if err != nil {
		return nil, err
	}
	var voids usage.Voids
	for _, p := range corrections {
		voids.Add(key, &p.Correction, p.Order)
	}
	places := map[aggregate.Series]int{}
	for i, s := range wanted {
		places[s] = i
	}
	seen, total := make([]map[usage.Hash]struct{}, len(wanted)), 0
	err = scan(ctx, log, from, next, nil, func(rec *logrecord.Record, offset uint64) error {
		observed, err := rec.Observe(key)
		if err != nil {
			return err
		}
		for i := range observed {
			o := &observed[i]
			at, is := places[aggregate.Series{Tenant: o.Tenant, Product: o.Product.Name, Generation: o.Product.Generation}]
			when := time.Unix(0, o.Time)
			if !is || !span.Contains(when) || voids.Voided(o, rec.Events[i].Source, order(offset, i)) ||
				rec.Correction == nil && dedup.TooLate(when, rec.At, o.Product.Late) {
				continue
			}
			if seen[at] == nil {
				seen[at] = map[usage.Hash]struct{}{}
			}
			before := len(seen[at])
			seen[at][o.Identity] = struct{}{}
			if total += len(seen[at]) - before; total > most {
				return errkind.Errorf(errkind.TooLarge, "the sample has more than %d identities: ask for one product, or a "+
					"smaller sample", most)
			}
		}
		return nil
	})
	return seen, err
}
