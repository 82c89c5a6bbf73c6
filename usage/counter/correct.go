package counter

import (
	"context"
	"maps"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/logrecord"
	"corbel.dev/corbel/usage/window"
)

// keyNow is the key, which is there while the counter runs.
func (c *Counter) keyNow() usage.Key {
	key, _ := c.cfg.Key(context.Background()) // once waited for it answers at once
	return key
}

// Correct stores a correction and does it. in.Record.Correction is set; its events, where this server is to count them,
// are the record's.
func (c *Counter) Correct(ctx context.Context, in Intake) error {
	_, err := c.Take(ctx, in)
	if errkind.Is(err, errkind.NotLeader) {
		return errkind.E(errkind.Unavailable, "usage: correct", err)
	}
	return err
}

// Corrected says whether a correction stands in the log, and what it came to.
func (c *Counter) Corrected(id string) bool {
	c.settle(0)
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.state.corrections, func(p placed) bool { return p.ID == id })
}

// Late lists the newest events that came too late to be counted.
func (c *Counter) Late() []LateEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.state.late)
}

// event is one of a part of the log that is read again.
type event struct {
	usage.Observation
	source string
	order  uint64
}

// correcting is a correction under way. The log is read without the counter's lock: what is counted meanwhile is kept,
// and counted again behind what was read.
type correcting struct {
	*usage.Correction
	key      usage.Key
	observed []usage.Observation // its own
	offset   uint64
	log      eventlog.Log
	part     window.Range
	spans    map[defKey]window.Range
	done     chan struct{}

	meanwhile []event // Counter.mu guards it
}

// maxMeanwhile bounds the events that are counted while a correction is under way: then they wait for it.
const maxMeanwhile = 500_000

// saw keeps an event that was counted. It needs Counter.mu.
func (p *correcting) saw(o *usage.Observation, source string, order uint64) {
	if p != nil && o.Tenant == p.Tenant && o.Product.Name == p.Product {
		p.meanwhile = append(p.meanwhile, event{*o, source, order})
	}
}

// correct begins a correction, in the order of the log, and tells done what became of it. The log must reach back so
// far. One that fails otherwise than with kind Conflict has the log read again.
func (c *Counter) correct(ctx context.Context, key usage.Key, rec *logrecord.Record, observed []usage.Observation,
	offset uint64, done func(error),
) {
	c.settle(0)
	c.mu.Lock()
	s := c.state
	s.next = offset + 1
	known := slices.ContainsFunc(s.corrections, func(p placed) bool { return p.ID == rec.Correction.ID })
	failed := s.correcting != nil
	if known || failed {
		c.mu.Unlock()
		if failed {
			done(errStarting) // the one before it has not been done
			return
		}
		done(nil) // sent again
		return
	}
	s.counts.Advance(rec.At)
	p := &correcting{Correction: rec.Correction, key: key, observed: observed, offset: offset, log: c.log,
		done: make(chan struct{})}
	s.correcting = p
	c.mu.Unlock()
	c.jobs.Go(func() {
		defer close(p.done)
		err := p.redo(ctx, c, s)
		done(err)
		if notConflict(err) != nil {
			c.role.fail(err)
			return // with correcting set: no snapshot may have what is not done
		}
		c.mu.Lock()
		s.correcting = nil
		c.mu.Unlock()
		c.cfg.Signal.tell()
	})
}

// settle waits for the correction under way, where more than so many events have been counted meanwhile.
func (c *Counter) settle(most int) {
	c.mu.Lock()
	p := c.state.correcting
	wait := p != nil && len(p.meanwhile) >= most
	c.mu.Unlock()
	if wait {
		<-p.done
	}
}

// redo does a correction: what it is about is cleared, and counted again from the log without what was taken out.
func (p *correcting) redo(ctx context.Context, c *Counter, s *state) (err error) {
	if p.part, err = c.rangesOf(ctx, p.log, p.Correction, p.offset); err != nil {
		return err
	}
	for i := range p.observed {
		p.part = grown(p.part, time.Unix(0, p.observed[i].Time))
	}
	c.mu.Lock()
	p.spans = s.spansOf(p)
	c.mu.Unlock()
	events, err := p.counted(ctx, c)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if spans := s.spansOf(p); !maps.Equal(spans, p.spans) { // time went on, and what is cleared grew: once more
		p.spans = spans
		if events, err = p.counted(ctx, c); err != nil {
			return err
		}
	}
	s.recount(p, events)
	return nil
}

// spansOf is what a correction clears.
func (s *state) spansOf(p *correcting) map[defKey]window.Range {
	spans := map[defKey]window.Range{}
	if p.part.Empty() {
		return spans
	}
	for _, series := range s.counts.Series() {
		if series.Tenant == p.Tenant && series.Product == p.Product {
			spans[defKey{series.Product, series.Generation}] = s.counts.Span(series, p.part)
		}
	}
	return spans
}

// recount clears, and counts again, the events of the log before the correction and those behind it.
func (s *state) recount(p *correcting, events []event) {
	s.corrections = append(s.corrections, placed{*p.Correction, order(p.offset, 0)})
	if len(s.corrections) > maxPlaced {
		s.corrections = slices.Delete(s.corrections, 0, len(s.corrections)-maxPlaced)
	}
	var voids usage.Voids
	for i := range s.corrections {
		voids.Add(p.key, &s.corrections[i].Correction, s.corrections[i].Order)
	}
	for k, span := range p.spans {
		s.counts.Clear(aggregate.Series{Tenant: p.Tenant, Product: k.name, Generation: k.generation}, span)
	}
	for i := range events {
		if e := &events[i]; !voids.Voided(&e.Observation, e.source, e.order) {
			s.counts.Recount(&e.Observation, e.order)
		}
	}
	for i := range p.observed {
		s.define(p.observed[i].Product)
		s.counts.Recount(&p.observed[i], order(p.offset, i))
	}
	for i := range p.meanwhile {
		e := &p.meanwhile[i]
		span, cleared := p.spans[defKey{e.Product.Name, e.Product.Generation}]
		if cleared && span.Contains(time.Unix(0, e.Time)) {
			s.counts.Recount(&e.Observation, e.order)
		}
	}
}

func grown(r window.Range, at time.Time) window.Range {
	from := at.UTC().Truncate(time.Minute)
	if to := from.Add(time.Minute); r.Empty() {
		return window.Range{From: from, To: to}
	} else if to.After(r.To) {
		r.To = to
	}
	if from.Before(r.From) {
		r.From = from
	}
	return r
}

// Find is the time that a correction is about, as far as this log knows.
func (c *Counter) Find(ctx context.Context, corr *usage.Correction) (window.Range, error) {
	c.mu.Lock()
	log, next := c.log, c.state.next
	c.mu.Unlock()
	if log == nil {
		return window.Range{}, errStarting
	}
	return c.rangesOf(ctx, log, corr, next)
}

// rangesOf is the time that a correction is about: ids are looked for in the log.
func (c *Counter) rangesOf(ctx context.Context, log eventlog.Log, corr *usage.Correction, to uint64,
) (window.Range, error) {
	if len(corr.IDs) == 0 {
		return window.Range{From: corr.From, To: corr.To}, nil
	}
	wanted := map[string]bool{}
	for _, id := range corr.IDs {
		wanted[id] = true
	}
	var out window.Range
	bounds, err := log.Bounds(ctx)
	if err != nil {
		return out, err
	}
	err = scan(ctx, log, bounds[0].First, to, nil, func(rec *logrecord.Record, _ uint64) error {
		for i := range rec.Events {
			e := &rec.Events[i]
			if wanted[e.ID] && e.Source == corr.Source && e.Product == corr.Product && tenantOf(e) == corr.Tenant {
				at := rec.At
				if e.Time != 0 {
					at = time.Unix(0, e.Time)
				}
				out = grown(out, at)
			}
		}
		return nil
	})
	return out, err
}

func tenantOf(e *usage.Event) string {
	if e.Tenant == "" {
		return usage.DefaultTenant
	}
	return e.Tenant
}

// counted reads from the log, up to a correction, all events that count in the spans that it clears.
func (p *correcting) counted(ctx context.Context, c *Counter) (list []event, err error) {
	spans := p.spans
	if len(spans) == 0 {
		return nil, nil
	}
	first := time.Time{}
	for _, span := range spans {
		if first.IsZero() || span.From.Before(first) {
			first = span.From
		}
	}
	from, err := c.reaches(ctx, p.log, first)
	if err != nil {
		return nil, err
	}
	memory := dedup.NewState(c.cfg.Dedup)
	err = scan(ctx, p.log, from, p.offset, nil, func(rec *logrecord.Record, offset uint64) error {
		observed, err := rec.Observe(p.key)
		if err != nil {
			return err
		}
		if rec.Correction == nil {
			memory.Advance(rec.At)
		}
		whole := dedup.New
		if rec.Correction == nil && rec.Producer != "" {
			whole = memory.Batch(rec.Producer, rec.Epoch, rec.Sequence)
		}
		for i := range observed {
			o := &observed[i]
			if o.Tenant != p.Tenant || o.Product.Name != p.Product {
				continue
			}
			verdict := whole
			if rec.Correction == nil && whole == dedup.New {
				id := o.ID
				if rec.Producer != "" {
					id = usage.Hash{}
				}
				verdict = memory.Event(id, time.Unix(0, o.Time), o.Product.Late)
			}
			span, ok := spans[defKey{o.Product.Name, o.Product.Generation}]
			if verdict == dedup.New && ok && span.Contains(time.Unix(0, o.Time)) {
				list = append(list, event{*o, rec.Events[i].Source, order(offset, i)})
			}
		}
		return nil
	})
	return list, err
}

// reaches returns where in the log to begin so that all events of an instant and later are read.
func (c *Counter) reaches(ctx context.Context, log eventlog.Log, at time.Time) (uint64, error) {
	bounds, err := log.Bounds(ctx)
	if err != nil {
		return 0, err
	}
	first := bounds[0].First
	if first == 0 {
		return 0, nil
	}
	began := time.Time{} // by the record: a copy was stored later
	err = scan(ctx, log, first, first+1, nil, func(rec *logrecord.Record, _ uint64) error { began = rec.At; return nil })
	if err != nil {
		return 0, err
	}
	if need := at.Add(-usage.MaxAhead); began.After(need) {
		return 0, errkind.Errorf(errkind.Conflict, "the log begins at %s, and events since %s are needed: raise "+
			"usage.log.keep "+
			"for longer corrections", began.UTC().Format(time.RFC3339), need.UTC().Format(time.RFC3339))
	}
	offsets, err := log.Since(ctx, at.Add(-usage.MaxAhead-time.Minute))
	if err != nil {
		return 0, err
	}
	return max(first, offsets[0]), nil
}
