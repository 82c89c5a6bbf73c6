package aggregator

import (
	"context"
	"testing"
	"time"

	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/window"
)

// one replicates to one machine.
type one struct{ *definitions.Definitions }

func (o one) Propose(_ context.Context, cmd []byte) (any, error) {
	return o.ApplyBatch([][]byte{cmd})[0], nil
}

// newAggregator has one product, and one part that another server leads, which answers with reply.
func newAggregator(t testing.TB, reply *[]byte) *Aggregator {
	t.Helper()
	defs := definitions.New()
	defs.Use(one{defs})
	product := &usage.Product{Name: "hosts", Kind: usage.Unique, Identity: []string{"host"}, Tags: []string{"env"}}
	if err := product.Complete(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []definitions.Command{{Begin: &definitions.Begin{Key: make([]byte, 16)}},
		{Owners: []string{"s1"}}, {Put: product}} {
		if _, err := defs.Do(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	return New(Config{Parts: func() []string { return []string{"s1"} }, Definitions: defs,
		Local:     func(string) *counter.Counter { return nil },
		Aggregate: aggregate.Config{Zone: func(string) window.Zone { return window.Zone{} }},
		Call:      func(context.Context, string, string, []byte) ([]byte, error) { return *reply, nil }})
}

// FuzzServe: nothing that another server asks for harms a counter.
func FuzzServe(f *testing.F) {
	var reply []byte
	a := newAggregator(f, &reply)
	now := time.Now().UnixNano()
	f.Add(pack.Int(pack.Int(pack.Uint(pack.String(pack.String(nil, "t"), "hosts"), 1), 0), now))
	f.Add(pack.Int(pack.Int(pack.Uint(pack.String(pack.String(nil, ""), ""), 1<<63), now), -1<<63))
	f.Add([]byte(`{"kind":"void","tenant":"t","product":"hosts","ids":["1"]}`))
	f.Add([]byte(`{"kind":7}`))
	closed := counter.New(counter.Config{})
	f.Fuzz(func(t *testing.T, req []byte) {
		_, _ = a.ServeExtract(t.Context(), closed, req)
		_, _ = a.ServeSeries(t.Context(), closed, req)
		_, _ = a.ServeFind(t.Context(), closed, req)
		_, _ = a.ServeLate(t.Context(), closed, req)
		_, _ = a.ServeVersion(t.Context(), closed, req)
		_, _ = a.ServeIdentities(t.Context(), closed, req)
		_, _ = ServeRecent(t.Context(), closed, req)
	})
}

// FuzzReplies: whatever another server answers, a question is answered, with an error or as a lower bound.
func FuzzReplies(f *testing.F) {
	var reply []byte
	a := newAggregator(f, &reply)
	closed := counter.New(counter.Config{})
	series := aggregate.Series{Tenant: "t", Product: "hosts", Generation: 1}
	f.Add(closed.Extract(series, window.Range{From: time.Unix(0, 0), To: time.Now()}))
	f.Add(pack.Uint(pack.String(pack.String(pack.Uint(nil, 1), "t"), "hosts"), 1))
	f.Add(pack.Int(pack.Int(pack.Bool(nil, true), 0), 60e9))
	f.Add(pack.Uint(nil, 1<<63))
	f.Add(pack.Bytes(nil, make([]byte, 2*hashBytes)))
	f.Fuzz(func(t *testing.T, data []byte) {
		reply = data
		e, err := a.Estimate(t.Context(), Question{Tenant: "t", Product: "hosts", Window: "1h", By: "env", Step: "5m"})
		if err != nil {
			t.Fatal(err)
		}
		if e.Completeness.Ratio < 0 || e.Completeness.Ratio > 1 {
			t.Fatalf("a completeness of %v", e.Completeness)
		}
		_, _ = a.Series(t.Context())
		_, _ = a.find(t.Context(), &usage.Correction{IDs: []string{"1"}})
		_, _ = a.Recent(t.Context(), counter.RecentQuery{Most: 10})
		_, _ = a.identitiesOf(t.Context(), "s1", sampled{series: []aggregate.Series{series}})
	})
}
