package aggregator

import (
	"context"
	"math"
	"time"

	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/estimate"
	"corbel.dev/corbel/usage/window"
)

// Measured is how far the estimate of one series is off.
type Measured struct {
	Tenant   string         `json:"tenant"`
	Product  string         `json:"product"`
	From     time.Time      `json:"from"`
	To       time.Time      `json:"to"`
	Exact    uint64         `json:"exact"`
	Estimate usage.Quantity `json:"estimate"`
	Error    float64        `json:"error"` // relative, as it was measured
	Bound    estimate.Error `json:"bound"`
	Within   bool           `json:"within"`
}

// Accuracy is what a sample came to.
type Accuracy struct {
	// SampleOf is N where one in N tenants was counted exactly.
	SampleOf int        `json:"sample_of"`
	Series   []Measured `json:"series"`
	// Worst is the largest error, Within how many series have the truth inside of their bound.
	Worst  float64 `json:"worst"`
	Within int     `json:"within"`
}

// maxSampled bounds the series of a sample.
const maxSampled = 50

// Accuracy counts the uniques of the last hour of one in n tenants once more, exactly, from the parts of the log that
// this server leads, and compares them with what its sketches say.
func (a *Aggregator) Accuracy(ctx context.Context, n int, product string) (Accuracy, error) {
	out := Accuracy{SampleOf: n, Series: []Measured{}}
	view := a.cfg.Definitions.View()
	key, err := view.HashKey()
	if err != nil {
		return out, err
	}
	now := a.cfg.Clock.Now()
	span := window.Range{From: now.Add(-time.Hour).Truncate(time.Minute), To: now.Truncate(time.Minute).Add(time.Minute)}
	for _, part := range a.cfg.Parts() {
		if local := a.cfg.Local(part); local != nil {
			if err := a.measure(ctx, &out, local, key, span, product); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// measure adds the sample of one part.
func (a *Aggregator) measure(ctx context.Context, out *Accuracy, local *counter.Counter, key usage.Key,
	span window.Range, product string,
) error {
	view := a.cfg.Definitions.View()
	wanted := map[aggregate.Series]bool{}
	for _, s := range local.Series() {
		p, ok := view.Products.Generation(s.Product, s.Generation)
		if ok && p.Kind == usage.Unique && (product == "" || product == p.Name) && len(wanted) < maxSampled &&
			key.Sum([]byte(s.Tenant)).Hi%uint64(out.SampleOf) == 0 {
			wanted[s] = true
		}
	}
	exact, err := local.Exact(ctx, wanted, span)
	if err != nil {
		return err
	}
	for _, s := range local.Series() {
		p, ok := view.Products.Generation(s.Product, s.Generation)
		if !ok || !wanted[s] || exact[s] == 0 {
			continue
		}
		part := local.Query(s, p, []window.Range{span}, -1)
		e := estimate.Make(p, estimate.Question{Range: span, Late: p.Late}, part.Partial,
			estimate.Coverage{Shards: usage.Shards, Warm: usage.Shards, AsOf: part.AsOf})
		m := Measured{Tenant: s.Tenant, Product: s.Product, From: span.From.UTC(), To: span.To.UTC(), Exact: exact[s],
			Estimate: *e.Value, Error: math.Abs(e.Value.Float()-float64(exact[s])) / float64(exact[s]), Bound: e.Error}
		truth := usage.Uint(exact[s])
		m.Within = e.Error.Low.Compare(truth) <= 0 && (e.Error.High == nil || e.Error.High.Compare(truth) >= 0)
		if m.Within {
			out.Within++
		}
		out.Worst = max(out.Worst, m.Error)
		out.Series = append(out.Series, m)
	}
	return nil
}
