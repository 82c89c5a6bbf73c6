package aggregator

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/estimate"
	"corbel.dev/corbel/usage/window"
)

// MethodIdentities is the RPC by which a server asks another one for the identities of a sample.
const MethodIdentities = "usage.identities"

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
	// Missing says which parts the sample leaves out, and why: one line each.
	Missing []string `json:"missing,omitempty"`
}

const (
	// maxSampled bounds the series of a sample.
	maxSampled = 50
	// maxExact bounds the identities of a sample, maxHanded those that another server hands over: 16 bytes each.
	maxExact  = 20_000_000
	maxHanded = 2_000_000
	// accuracyTimeout bounds how long servers may take to read an hour of their logs.
	accuracyTimeout = time.Minute
)

const hashBytes = 16

// set are the identities of a series.
type set = map[usage.Hash]struct{}

// Accuracy counts the uniques of the last hour of one in n tenants once more, exactly, from all parts of the log, and
// compares them with what the sketches say. A part whose server does not answer is left out on both sides.
func (a *Aggregator) Accuracy(ctx context.Context, n int, product string) (Accuracy, error) {
	out := Accuracy{SampleOf: n, Series: []Measured{}}
	view := a.cfg.Definitions.View()
	key, err := view.HashKey()
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, accuracyTimeout)
	defer cancel()
	now := a.cfg.Clock.Now()
	span := window.Range{From: now.Add(-time.Hour).Truncate(time.Minute), To: now.Truncate(time.Minute).Add(time.Minute)}
	list, silent := a.Series(ctx)
	for _, s := range silent {
		out.Missing = append(out.Missing, "no answer from "+s)
	}
	out.Missing = append(out.Missing, a.left(span)...)
	parts := slices.DeleteFunc(slices.Clone(a.cfg.Parts()), func(part string) bool {
		return slices.ContainsFunc(silent, func(s string) bool { return strings.HasPrefix(s, part+": ") })
	})
	sample := sampled{span: span}
	for _, s := range list {
		p, ok := view.Products.Generation(s.Product, s.Generation)
		if ok && p.Kind == usage.Unique && (product == "" || product == p.Name) && len(sample.series) < maxSampled &&
			key.Sum([]byte(s.Tenant)).Hi%uint64(n) == 0 {
			sample.series, sample.products = append(sample.series, s), append(sample.products, p)
		}
	}
	if len(sample.series) == 0 {
		return out, nil
	}
	before := a.estimates(ctx, parts, sample)
	exact, answered, failed := a.identities(ctx, parts, sample)
	for _, err := range failed {
		out.Missing = append(out.Missing, "no answer from "+err.Error())
	}
	if len(answered) == 0 && len(failed) > 0 {
		return out, failed[0]
	}
	after := a.estimates(ctx, answered, sample)
	if len(failed) > 0 {
		before = after // which the parts that failed are not in
	}
	for i := range sample.series {
		if len(exact[i]) == 0 {
			continue
		}
		if before[i] == nil || after[i] == nil {
			out.Missing = append(out.Missing, fmt.Sprintf("no estimate of %s of %s: a server does not answer",
				sample.series[i].Product, sample.series[i].Tenant))
			continue
		}
		out.add(measure(sample, i, uint64(len(exact[i])), before[i], after[i]))
	}
	return out, nil
}

func (a *Accuracy) add(m Measured) {
	if m.Within {
		a.Within++
	}
	a.Worst = max(a.Worst, m.Error)
	a.Series = append(a.Series, m)
}

// measure compares an exact number with the estimates from before and after it was counted. While events come, it is
// between what they estimate: the nearer one is told, and the bound reaches from one to the other.
func measure(sample sampled, i int, exact uint64, before, after *estimate.Estimate) Measured {
	off := func(e *estimate.Estimate) float64 { return math.Abs(e.Value.Float()-float64(exact)) / float64(exact) }
	near := after
	if off(before) < off(after) {
		near = before
	}
	m := Measured{Tenant: sample.series[i].Tenant, Product: sample.series[i].Product, From: sample.span.From.UTC(),
		To: sample.span.To.UTC(), Exact: exact, Estimate: *near.Value, Error: off(near), Bound: near.Error}
	m.Bound.Low, m.Bound.High = before.Error.Low, after.Error.High
	truth := usage.Uint(exact)
	m.Within = m.Bound.Low.Compare(truth) <= 0 && (m.Bound.High == nil || m.Bound.High.Compare(truth) >= 0)
	return m
}

// sampled is what is counted once more.
type sampled struct {
	series   []aggregate.Series
	products []*usage.Product // of them
	span     window.Range
}

// estimates are what sketches of some parts say of a sample; nil where a part does not answer.
func (a *Aggregator) estimates(ctx context.Context, parts []string, sample sampled) []*estimate.Estimate {
	out := make([]*estimate.Estimate, len(sample.series))
	for i, s := range sample.series {
		p := sample.products[i]
		partial, coverage := a.gatherFrom(ctx, parts, p, s.Tenant, []window.Range{sample.span}, -1)
		if len(coverage.Silent) > 0 {
			continue
		}
		e := estimate.Make(p, estimate.Question{Range: sample.span, Late: p.Late}, partial,
			estimate.Coverage{Shards: usage.Shards, Warm: usage.Shards, AsOf: coverage.AsOf})
		out[i] = &e
	}
	return out
}

// identities are those of a sample in all parts, and which parts answered.
func (a *Aggregator) identities(ctx context.Context, parts []string, sample sampled,
) (exact []set, answered []string, failed []error) {
	each, errs := make([][]set, len(parts)), make([]error, len(parts))
	var wg sync.WaitGroup
	for i, part := range parts {
		wg.Go(func() { each[i], errs[i] = a.identitiesOf(ctx, part, sample) })
	}
	wg.Wait()
	exact = make([]set, len(sample.series))
	for i, part := range parts {
		if errs[i] != nil {
			failed = append(failed, fmt.Errorf("%s: %w", part, errs[i]))
			continue
		}
		answered = append(answered, part)
		for at, ids := range each[i] {
			if exact[at] == nil {
				exact[at] = ids
				continue
			}
			for id := range ids {
				exact[at][id] = struct{}{}
			}
		}
	}
	return exact, answered, failed
}

func (a *Aggregator) identitiesOf(ctx context.Context, part string, sample sampled) ([]set, error) {
	if local := a.cfg.Local(part); local != nil {
		return local.Identities(ctx, sample.series, sample.span, maxExact)
	}
	reply, err := a.cfg.Call(ctx, part, MethodIdentities, sample.append(nil))
	if err != nil {
		return nil, err
	}
	r := pack.Read(reply)
	out := make([]set, len(sample.series))
	for i := range out {
		ids := r.Bytes()
		if len(ids)%hashBytes != 0 {
			return nil, errDamaged
		}
		out[i] = make(set, len(ids)/hashBytes)
		for ; len(ids) > 0; ids = ids[hashBytes:] {
			out[i][usage.Hash{Hi: binary.BigEndian.Uint64(ids), Lo: binary.BigEndian.Uint64(ids[8:])}] = struct{}{}
		}
	}
	if r.Err() != nil || r.More() {
		return nil, errDamaged
	}
	return out, nil
}

var errDamaged = errkind.New(errkind.Internal, "usage: the answer of another server is damaged")

func (s *sampled) append(b []byte) []byte {
	b = pack.Int(pack.Int(b, s.span.From.UnixNano()), s.span.To.UnixNano())
	b = pack.Uint(b, uint64(len(s.series)))
	for _, one := range s.series {
		b = pack.Uint(pack.String(pack.String(b, one.Tenant), one.Product), uint64(one.Generation))
	}
	return b
}

// ServeIdentities answers MethodIdentities, for the counter of a part: a set for each series, 16 bytes an identity.
func (a *Aggregator) ServeIdentities(ctx context.Context, c *counter.Counter, req []byte) ([]byte, error) {
	r := pack.Read(req)
	span := window.Range{From: time.Unix(0, r.Int()), To: time.Unix(0, r.Int())}
	var list []aggregate.Series
	for range r.Count() {
		list = append(list, aggregate.Series{Tenant: r.String(), Product: r.String(), Generation: uint32(r.Uint())})
	}
	if r.Err() != nil || len(list) > maxSampled {
		return nil, errkind.E(errkind.Invalid, MethodIdentities, cmp.Or(r.Err(), errSample))
	}
	found, err := c.Identities(ctx, list, span, maxHanded)
	if err != nil {
		return nil, err
	}
	var b []byte
	for _, ids := range found {
		b = pack.Uint(b, uint64(len(ids))*hashBytes)
		for id := range ids {
			b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, id.Hi), id.Lo)
		}
	}
	return b, nil
}

var errSample = fmt.Errorf("more than %d series", maxSampled)
