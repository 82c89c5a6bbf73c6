package aggregator

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/estimate"
	"corbel.dev/corbel/usage/limits"
	"corbel.dev/corbel/usage/logrecord"
	"corbel.dev/corbel/usage/window"
)

// MethodFind is the RPC by which a server asks for the time that a correction is about.
const MethodFind = "usage.find"

// judgeEvery is how often limits are judged; maxSamples bounds what a forecast stands on. Where another server leads,
// one in followEvery times is enough, for forecasts.
const (
	judgeEvery  = 10 * time.Second
	followEvery = 6
	maxSamples  = 240
)

// Run judges limits where this server leads, elsewhere looks at them, so that any server can tell a forecast, and does
// corrections.
func (a *Aggregator) Run(ctx context.Context) error {
	var parts life.Group
	parts.Add("limits", func(ctx context.Context) error { a.every(ctx, a.judge); return nil })
	parts.Add("corrections", a.correct)
	return parts.Run(ctx)
}

func (a *Aggregator) every(ctx context.Context, do func(context.Context)) {
	for n := 1; ; n++ {
		t := a.cfg.Clock.NewTimer(judgeEvery)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		if a.cfg.Leads() || n%followEvery == 0 {
			do(ctx)
		}
	}
}

// judge judges all limits once, where this server leads. Elsewhere it samples those that have a forecast.
func (a *Aggregator) judge(ctx context.Context) {
	view, leads := a.cfg.Definitions.View(), a.cfg.Leads()
	now := a.cfg.Clock.Now()
	a.mu.Lock()
	maps.DeleteFunc(a.blind, func(name string, _ Unjudged) bool {
		_, is := view.Limits[name]
		return !is
	})
	maps.DeleteFunc(a.samples, func(name string, _ []limits.Sample) bool {
		_, is := view.Limits[name]
		return !is
	})
	a.mu.Unlock()
	for name, l := range view.Limits {
		if !leads && !window.Calendar(l.Window) {
			continue
		}
		q := Question{Tenant: l.Tenant, Product: l.Product, Window: l.Window, At: now}
		e, err := a.Estimate(ctx, q)
		if leads {
			a.judged(name, &e, err, now)
		}
		if err != nil || e.Value == nil {
			continue // its product may be defined later
		}
		r, err := a.Range(&q)
		if err != nil {
			continue
		}
		a.sample(name, r, limits.Sample{At: now, Value: *e.Value})
		if !leads {
			continue
		}
		state, crossings := l.Step(l.State, r, *e.Value, now)
		if state == l.State && len(crossings) == 0 {
			continue
		}
		if _, err := a.cfg.Definitions.Do(ctx, definitions.Command{At: now, Crossed: &definitions.Crossed{Limit: name,
			State: state, Crossings: crossings}}); err != nil {
			a.cfg.Log.Warn("usage: a limit is judged again", "limit", name, "error", err)
			continue
		}
		for _, c := range crossings {
			a.cfg.Log.Info("usage: a limit was crossed", "limit", c.Limit, "tenant", c.Tenant, "product", c.Product,
				"threshold", c.Threshold, "value", c.Value.String())
			if a.cfg.Crossed != nil {
				a.cfg.Crossed(ctx, c)
			}
		}
	}
}

// Unjudged is a limit that cannot be judged, or only from below.
type Unjudged struct {
	Limit  string
	Since  time.Time
	Reason string // undefined, incomplete or error
}

// judged notes whether a limit could be judged.
func (a *Aggregator) judged(name string, e *estimate.Estimate, err error, now time.Time) {
	reason := ""
	switch {
	case errkind.Is(err, errkind.NotFound):
		reason = "undefined"
	case err != nil:
		reason = "error"
	case e.Completeness.ShardsWarm < e.Completeness.Shards:
		reason = "incomplete"
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if reason == "" {
		delete(a.blind, name)
		return
	}
	was := a.blind[name]
	if was.Since.IsZero() {
		was.Since = now
	}
	a.blind[name] = Unjudged{name, was.Since, reason}
}

// Unjudged lists the limits that cannot be judged now, the longest first. It is known where this server leads.
func (a *Aggregator) Unjudged() []Unjudged {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.cfg.Leads() {
		clear(a.blind)
	}
	return slices.SortedFunc(maps.Values(a.blind), func(x, y Unjudged) int {
		return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.Limit, y.Limit))
	})
}

func (a *Aggregator) sample(name string, r window.Range, s limits.Sample) {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := slices.DeleteFunc(a.samples[name], func(s limits.Sample) bool { return !r.Contains(s.At) })
	list = append(list, s)
	if len(list) > maxSamples { // each second one of the older half
		half := list[:0]
		for i, s := range list {
			if i%2 == 0 || i > maxSamples/2 {
				half = append(half, s)
			}
		}
		list = half
	}
	a.samples[name] = list
}

// Forecast says when a limit will be reached, as far as this server has seen its window grow.
func (a *Aggregator) Forecast(l *limits.Limit) (time.Time, bool) {
	if !window.Calendar(l.Window) {
		return time.Time{}, false
	}
	q := Question{Tenant: l.Tenant, Product: l.Product, Window: l.Window}
	r, err := a.Range(&q)
	if err != nil {
		return time.Time{}, false
	}
	a.mu.Lock()
	samples := slices.Clone(a.samples[l.Name])
	a.mu.Unlock()
	return l.Forecast(r, samples)
}

// Correct has all servers do a correction, and returns its id. The closed periods that it touches are noted as they
// are now.
func (a *Aggregator) Correct(ctx context.Context, c usage.Correction) (string, error) {
	c.Tenant = cmp.Or(c.Tenant, usage.DefaultTenant)
	if err := c.Check(); err != nil {
		return "", errkind.E(errkind.Invalid, "", err)
	}
	view := a.cfg.Definitions.View()
	p, ok := view.Products.Get(c.Product)
	if !ok {
		return "", errkind.Errorf(errkind.NotFound, "product: %.100q is not defined", c.Product)
	}
	if err := a.checkEvents(&c, p, view); err != nil {
		return "", err
	}
	next := definitions.Correction{Correction: c, Servers: map[string]definitions.Outcome{}}
	for _, m := range a.cfg.Parts() {
		next.Servers[m] = definitions.Outcome{}
	}
	var err error
	if next.Periods, err = a.closedPeriods(ctx, &c, p); err != nil {
		return "", err
	}
	before := a.cfg.Definitions.View().Index
	out, err := a.cfg.Definitions.Do(ctx, definitions.Command{At: a.cfg.Clock.Now(), Correct: &next})
	if err != nil {
		return "", err
	}
	if index, is := out.(uint64); is {
		return definitions.CorrectionID(index), nil
	}
	return definitions.CorrectionID(before + 1), nil
}

// checkEvents checks what a replacement puts in, by the definition of now.
func (a *Aggregator) checkEvents(c *usage.Correction, p *usage.Product, view *definitions.View) error {
	key, err := view.HashKey()
	if err != nil {
		return err
	}
	for i := range c.Events {
		e := &c.Events[i]
		e.Tenant, e.Product = cmp.Or(e.Tenant, c.Tenant), cmp.Or(e.Product, c.Product)
		if e.Tenant != c.Tenant || e.Product != c.Product {
			return errkind.Errorf(errkind.Invalid, "events[%d]: tenant and product must be those of the correction", i)
		}
		if e.Time == 0 {
			return errkind.Errorf(errkind.Invalid, "events[%d].time: is missing", i)
		}
		if _, _, err := p.Observe(key, e, a.cfg.Clock.Now(), nil); err != nil {
			return errkind.Errorf(errkind.Invalid, "events[%d].%v", i, err)
		}
	}
	return nil
}

// maxPeriods bounds the closed periods that one correction is noted in.
const maxPeriods = 62

// closedPeriods are the calendar windows of the product that are over and that a correction touches.
func (a *Aggregator) closedPeriods(ctx context.Context, c *usage.Correction, p *usage.Product,
) (list []estimate.Period, err error) {
	span, err := a.find(ctx, c)
	if err != nil || span.Empty() {
		return nil, err
	}
	now := a.cfg.Clock.Now()
	zone := a.cfg.Aggregate.Zone(c.Tenant)
	for _, name := range p.Windows {
		for at := span.From; window.Calendar(name) && at.Before(span.To) && len(list) < maxPeriods; {
			r, err := zone.Of(name, at)
			if err != nil || !r.To.Before(now) {
				break
			}
			e, err := a.Estimate(ctx, Question{Tenant: c.Tenant, Product: p.Name, From: r.From, To: r.To})
			if err != nil {
				return nil, err
			}
			if e.Value != nil {
				list = append(list, estimate.Period{Series: aggregate.Series{Tenant: c.Tenant, Product: p.Name,
					Generation: p.Generation}, From: r.From.UTC(), To: r.To.UTC(), Closed: *e.Value})
			}
			at = r.To
		}
	}
	return list, nil
}

// find asks all servers for the time of a correction.
func (a *Aggregator) find(ctx context.Context, c *usage.Correction) (out window.Range, err error) {
	if len(c.IDs) == 0 {
		return window.Range{From: c.From, To: c.To}, nil
	}
	text, err := json.Marshal(c)
	if err != nil {
		return out, err
	}
	for _, m := range a.cfg.Parts() {
		var reply []byte
		if local := a.cfg.Local(m); local != nil {
			reply, err = a.ServeFind(ctx, local, text)
		} else {
			reply, err = a.cfg.Call(ctx, m, MethodFind, text)
		}
		if err != nil {
			return out, err
		}
		r := pack.Read(reply)
		there := r.Bool()
		part := window.Range{}
		if there {
			part = window.Range{From: time.Unix(0, r.Int()), To: time.Unix(0, r.Int())}
		}
		if r.Err() != nil {
			return out, errkind.E(errkind.Internal, "usage: the answer of another server", r.Err())
		}
		if there {
			if out.Empty() || part.From.Before(out.From) {
				out.From = part.From
			}
			if part.To.After(out.To) {
				out.To = part.To
			}
		}
	}
	return out, nil
}

// ServeFind answers MethodFind, for the counter of a part.
func (a *Aggregator) ServeFind(ctx context.Context, local *counter.Counter, req []byte) ([]byte, error) {
	var c usage.Correction
	if err := json.Unmarshal(req, &c); err != nil {
		return nil, errkind.E(errkind.Invalid, MethodFind, err)
	}
	r, err := local.Find(ctx, &c)
	if err != nil || r.Empty() {
		return pack.Bool(nil, false), err
	}
	return pack.Int(pack.Int(pack.Bool(nil, true), r.From.UnixNano()), r.To.UnixNano()), nil
}

// correct does corrections as they come.
func (a *Aggregator) correct(ctx context.Context) error {
	for {
		changed := a.cfg.Definitions.Changed()
		wait := judgeEvery
		if !a.correctAll(ctx) {
			wait = time.Second
		}
		t := a.cfg.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-changed:
		case <-t.C:
		}
		t.Stop()
	}
}

// correctAll does what is to be done in the parts that this server leads; false where some cannot be asked yet.
func (a *Aggregator) correctAll(ctx context.Context) (all bool) {
	all = true
	view := a.cfg.Definitions.View()
	for i := range view.Corrections {
		c := &view.Corrections[i]
		for _, part := range names(c.Servers) {
			local := a.cfg.Local(part)
			switch {
			case local == nil || c.Servers[part].Done:
			case !local.Warm() || !local.Leads():
				all = false
			default:
				a.correctOne(ctx, view, c, part, local)
			}
		}
		if done, _ := c.Finished(); done && len(c.Periods) > 0 && !c.Revised && a.cfg.Leads() {
			a.revise(ctx, c)
		}
	}
	return all
}

// correctOne does a correction in a part that this server leads.
func (a *Aggregator) correctOne(ctx context.Context, view *definitions.View, c *definitions.Correction, part string,
	local *counter.Counter,
) {
	rec := &logrecord.Record{At: a.cfg.Clock.Now(), Correction: &c.Correction}
	in := counter.Intake{Tenant: c.Tenant, Record: rec}
	if p, ok := view.Products.Get(c.Product); ok && len(c.Events) > 0 && part == slices.Min(names(c.Servers)) {
		key, err := view.HashKey()
		if err != nil {
			return
		}
		rec.Products, rec.Events = []*usage.Product{p}, c.Events
		if in.Observed, err = rec.Observe(key); err != nil {
			a.report(ctx, c.ID, part, definitions.Outcome{Done: true, Error: err.Error()})
			return
		}
	}
	err := local.Correct(ctx, in)
	if errkind.Is(err, errkind.Overloaded) || errkind.Is(err, errkind.Unavailable) || errkind.Is(err, errkind.Unknown) {
		return // it is done later
	}
	out := definitions.Outcome{Done: true, Events: len(in.Observed)}
	if err != nil {
		out.Error = errkind.Text(err)
	}
	a.report(ctx, c.ID, part, out)
}

func names[V any](m map[string]V) (list []string) {
	for name := range m {
		list = append(list, name)
	}
	return list
}

func (a *Aggregator) report(ctx context.Context, id, part string, o definitions.Outcome) {
	if _, err := a.cfg.Definitions.Do(ctx, definitions.Command{At: a.cfg.Clock.Now(),
		Report: &definitions.Report{ID: id, Server: part, Outcome: o}}); err != nil && ctx.Err() == nil {
		a.cfg.Log.Warn("usage: a correction is reported later", "correction", id, "error", err)
	}
}

// revise notes what a correction made of closed periods.
func (a *Aggregator) revise(ctx context.Context, c *definitions.Correction) {
	r := &definitions.Revision{ID: c.ID}
	for _, p := range c.Periods {
		e, err := a.Estimate(ctx, Question{Tenant: c.Tenant, Product: c.Product, From: p.From, To: p.To})
		if err != nil || len(e.Completeness.Missing) > 0 && e.Completeness.ShardsWarm < e.Completeness.Shards {
			return // later
		}
		value := usage.Quantity{}
		if e.Value != nil {
			value = *e.Value
		}
		r.Values = append(r.Values, value)
	}
	if _, err := a.cfg.Definitions.Do(ctx, definitions.Command{At: a.cfg.Clock.Now(), Revision: r}); err != nil {
		a.cfg.Log.Warn("usage: a closed period is revised later", "correction", c.ID, "error", err)
	}
}
