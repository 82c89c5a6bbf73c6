package parts

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/aggregator"
	"corbel.dev/corbel/usage/estimate"
	"corbel.dev/corbel/usage/misses"
	"corbel.dev/corbel/usage/pace"
	"corbel.dev/corbel/usage/window"
)

// answers gives a server an aggregator, which asks for single keys what is not warm, and returns what runs it.
func (s *server) answers() func(context.Context) {
	m := misses.New(misses.Config{Fetch: s.parts.Keys, Metrics: s.metrics,
		Lane: pace.New(pace.Config{Rate: 8 << 20, Metrics: s.metrics}).Lane("misses")})
	s.asks = aggregator.New(aggregator.Config{Parts: s.parts.Names, Local: s.parts.Local, Miss: m.Get,
		Definitions: s.defs, Aggregate: aggregate.Config{Zone: func(string) window.Zone { return window.In(time.UTC) }},
		Leads: s.leads, Call: func(ctx context.Context, part, method string, req []byte) ([]byte, error) {
			return s.call(ctx, s.parts.Lead(part), method, pack.Bytes(pack.String(nil, part), req))
		}})
	s.methods[aggregator.MethodExtract] = func(ctx context.Context, req []byte) ([]byte, error) {
		r := pack.Read(req)
		part, rest := r.String(), r.Bytes()
		c, err := s.parts.Served(part)
		if err != nil {
			return nil, err
		}
		return s.asks.ServeExtract(ctx, c, rest)
	}
	return func(ctx context.Context) { _ = m.Run(ctx) } // it has no error
}

// ask asks a server for what a tenant used.
func (w *world) ask(id, tenant string) (value usage.Quantity, e estimate.Estimate, err error) {
	w.mu.Lock()
	s := w.servers[id]
	down := s.down
	w.mu.Unlock()
	if down {
		return value, e, errkind.New(errkind.Unavailable, "this server is down")
	}
	now := time.Now().Truncate(time.Minute)
	e, err = s.asks.Estimate(w.t.Context(), aggregator.Question{Tenant: tenant, Product: "bytes",
		From: now.Add(-time.Hour), To: now.Add(2 * time.Minute)})
	if err == nil && e.Value != nil {
		value = *e.Value
	}
	return value, e, err
}

// TestMisses: while the lead of a part is cold, the copy answers for single keys, asked for once however many want
// them, and the answer says that it is a bound. When the state has come nothing is counted twice. Where nobody has the
// key at hand, the answer says that too.
func TestMisses(t *testing.T) {
	w := newWorldOf(t, 5, time.Hour) // nobody takes over
	polltest.Within(t, time.Minute, w.whole, "copies of all parts")
	var wg sync.WaitGroup
	sum := int64(0)
	for i := range int64(40) {
		sum += i
		wg.Go(func() {
			if err := w.send(t.Context(), "a", usage.Event{ID: fmt.Sprint(i), Source: "s", Tenant: "a", Product: "bytes",
				Time: time.Now().UnixNano(), Value: usage.Int(i), HasValue: true}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	left := w.lose("a")
	gate := make(chan struct{})
	w.mu.Lock()
	w.cold["a"] = gate
	w.mu.Unlock()
	w.start("a", left)
	a := w.servers["a"]
	polltest.Until(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return a.applied == len(w.commands) && a.parts.Local("a") != nil
	}, "its table")
	for _, id := range []string{"a", "b", "c"} {
		for range 8 {
			wg.Go(func() {
				got, e, err := w.ask(id, "a")
				said := strings.Join(e.Completeness.Missing, "; ")
				if err != nil || got != usage.Int(sum) || e.Completeness.Ratio == 1 || e.Error.High != nil ||
					!strings.Contains(said, "part a is warming") {
					t.Errorf("%s says %s of %d, %q: %v", id, got, sum, said, err)
				}
			})
		}
	}
	wg.Wait()
	for _, s := range w.servers {
		fetched, asked := s.count("usage.misses.fetched"), s.count("usage.misses.asked")
		if asked != 8 || fetched == 0 || fetched+s.count("usage.misses.coalesced") != asked {
			t.Errorf("%s: %d keys were wanted, %d came", s.id, asked, fetched)
		}
	}
	copied := a.defs.View().Part("a").Copy
	other := w.lose(copied)
	if got, e, err := w.ask("a", "a"); err != nil || e.Completeness.Ratio == 1 || got.Compare(usage.Int(sum)) > 0 ||
		strings.Contains(strings.Join(e.Completeness.Missing, " "), "part a is warming") {
		t.Errorf("nobody has it at hand: %s, %+v, %v", got, e.Completeness, err)
	}
	w.start(copied, other)
	close(gate)
	polltest.Within(t, time.Minute, w.whole, "all parts to be whole")
	for _, id := range []string{"a", "b", "c"} {
		if got, e, err := w.ask(id, "a"); err != nil || got != usage.Int(sum) || e.Completeness.Ratio != 1 ||
			len(e.Completeness.Missing) > 0 {
			t.Errorf("%s: %s of %d when all is warm, %+v, %v", id, got, sum, e.Completeness, err)
		}
	}
}

func (s *server) count(name string) uint64 { return s.metrics.Counter(name).Value() }

// curious asks whoever is up, all the time: nothing may be more than what was ever sent, whether it came of a state, of
// a copy's answer for a single key, or of both.
func (w *world) curious(stop <-chan struct{}, sent func(part string) int64) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
		id, part := []string{"a", "b", "c"}[n%3], []string{"a", "b", "c"}[n/3%3]
		got, e, err := w.ask(id, part)
		if most := usage.Int(sent(part)); err == nil && got.Compare(most) > 0 {
			w.t.Errorf("seed %d: %s says that %s has %s, of %s that were sent: %+v", w.seed, id, part, got, most,
				e.Completeness)
			return
		}
	}
}
