package aggregator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/batch"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/eventlog/embedded"
	"corbel.dev/corbel/usage/logrecord"
	"corbel.dev/corbel/usage/window"
)

// newCounter is one in memory, with a log of its own.
func newCounter(t *testing.T, defs *definitions.Definitions) *counter.Counter {
	t.Helper()
	fs := vfs.NewMem()
	for _, dir := range []string{"/log", "/state"} {
		if err := fs.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	blobs, err := counterstate.NewFolder(fs, "/state")
	if err != nil {
		t.Fatal(err)
	}
	c := counter.New(counter.Config{
		Open: func() (eventlog.Log, error) {
			return embedded.Open(embedded.Config{FS: fs, Dir: "/log", Partitions: 1})
		},
		Store:     counterstate.New(counterstate.Config{Blobs: blobs}),
		Aggregate: aggregate.Config{Zone: func(string) window.Zone { return window.Zone{} }},
		Key:       func(context.Context) (usage.Key, error) { return defs.View().HashKey() }})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	polltest.Until(t, c.Warm, "the counter")
	return c
}

// take has a counter count events of one product.
func take(t *testing.T, c *counter.Counter, defs *definitions.Definitions, events ...usage.Event) {
	t.Helper()
	p, ok := defs.View().Products.Get(events[0].Product)
	key, err := defs.View().HashKey()
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	rec := &logrecord.Record{At: time.Now(), Products: []*usage.Product{p},
		Batch: batch.Batch{Events: events}}
	observed, err := rec.Observe(key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Take(t.Context(), counter.Intake{Tenant: "acme", Record: rec, Observed: observed}); err != nil {
		t.Fatal(err)
	}
}

// twoParts is an aggregator with one part of its own and one that another server leads. The other one does not answer
// the method that silent names.
func twoParts(t *testing.T, silent *string) (a *Aggregator, own, other *counter.Counter) {
	t.Helper()
	var reply []byte
	a = newAggregator(t, &reply)
	own, other = newCounter(t, a.cfg.Definitions), newCounter(t, a.cfg.Definitions)
	a.cfg.Parts = func() []string { return []string{"s1", "s2"} }
	a.cfg.Local = func(part string) *counter.Counter {
		if part == "s1" {
			return own
		}
		return nil
	}
	serve := map[string]func(context.Context, *counter.Counter, []byte) ([]byte, error){MethodSeries: a.ServeSeries,
		MethodExtract: a.ServeExtract, MethodIdentities: a.ServeIdentities}
	a.cfg.Call = func(ctx context.Context, part, method string, req []byte) ([]byte, error) {
		if part != "s2" || method == *silent || serve[method] == nil {
			return nil, errors.New("it does not answer")
		}
		return serve[method](ctx, other, req)
	}
	return a, own, other
}

// TestAccuracy: what two parts have in common counts once, a part that does not answer is left out on both sides, and
// the answer says so.
func TestAccuracy(t *testing.T) {
	silent := ""
	a, own, other := twoParts(t, &silent)
	defs := a.cfg.Definitions
	p := &usage.Product{Name: "users", Kind: usage.Unique, Identity: []string{"user"}, ExactBelow: 64,
		Late: 30 * time.Minute}
	if err := p.Complete(); err != nil {
		t.Fatal(err)
	}
	if _, err := defs.Do(t.Context(), definitions.Command{Put: p}); err != nil {
		t.Fatal(err)
	}
	users := func(from, to int) (list []usage.Event) {
		for i := from; i < to; i++ {
			list = append(list, usage.Event{ID: fmt.Sprint("e", from, "-", i), Source: "gate", Tenant: "acme",
				Product: "users", Identity: []usage.Field{{Name: "user", Value: fmt.Sprint(i)}}})
		}
		return list
	}
	take(t, own, defs, users(0, 200)...)
	take(t, other, defs, users(100, 300)...)
	late := users(900, 901)
	late[0].Time = time.Now().Add(-45 * time.Minute).UnixNano()
	take(t, own, defs, late...) // which is in the log, and is not counted
	for _, test := range []struct {
		silent, missing string
		exact           uint64
	}{{"", "", 300}, {MethodIdentities, "no answer from s2: ", 200}, {MethodSeries, "no answer from s2: ", 200},
		{MethodExtract, "no estimate of users of acme", 0}} {
		silent = test.silent
		got, err := a.Accuracy(t.Context(), 1, "users")
		if err != nil {
			t.Errorf("without %q: %v", silent, err)
			continue
		}
		if said := strings.Join(got.Missing, "\n"); !strings.HasPrefix(said, test.missing) || (said == "") != (silent == "") {
			t.Errorf("without %q it leaves out %q", silent, said)
		}
		switch {
		case test.exact == 0 && len(got.Series) == 0:
		case len(got.Series) != 1:
			t.Errorf("without %q: %d series", silent, len(got.Series))
		case got.Series[0].Exact != test.exact || !got.Series[0].Within || got.Within != 1 || got.Worst > 0.05:
			t.Errorf("without %q: %+v", silent, got.Series[0])
		}
	}
}

// TestMeasure: while events come, the truth is between two estimates.
func TestMeasure(t *testing.T) {
	silent := ""
	a, own, _ := twoParts(t, &silent)
	defs := a.cfg.Definitions
	p, _ := defs.View().Products.Get("hosts")
	now := time.Now()
	sample := sampled{series: []aggregate.Series{{Tenant: "acme", Product: "hosts", Generation: p.Generation}},
		products: []*usage.Product{p},
		span:     window.Range{From: now.Add(-time.Hour).Truncate(time.Minute), To: now.Add(time.Hour).Truncate(time.Minute)}}
	host := func(name string) usage.Event {
		return usage.Event{Tenant: "acme", Product: "hosts", Identity: []usage.Field{{Name: "host", Value: name}}}
	}
	take(t, own, defs, host("a"), host("b"))
	before := a.estimates(t.Context(), []string{"s1"}, sample)
	take(t, own, defs, host("c"), host("d"))
	after := a.estimates(t.Context(), []string{"s1"}, sample)
	for exact, within := range map[uint64]bool{1: false, 2: true, 3: true, 4: true, 5: false} {
		if m := measure(sample, 0, exact, before[0], after[0]); m.Within != within {
			t.Errorf("%d: %+v", exact, m)
		}
	}
}
