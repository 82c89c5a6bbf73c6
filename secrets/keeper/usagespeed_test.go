package keeper

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
	"corbel.dev/corbel/secrets/token"
)

var usageLeases = flag.Int("usageleases", 20_000, "leases that BenchmarkUsageCount counts, half of them tokens'")

// stock stores leases, every second one of a token, in few commits.
func stock(h *house, many int) {
	h.t.Helper()
	st := h.gate.Load()
	accessor := st.Mounts.Get("secret/").Accessor
	var ops []storage.Op
	for i := range many {
		ends := h.now.Add(time.Duration(i%200) * time.Hour)
		if i%2 == 0 {
			tok := &token.Token{Origin: token.Origin{Path: "auth/token/create"}, DisplayName: "token",
				Policies: []string{"default", fmt.Sprint("app-", i%50)}}
			tok.Begin(h.now, ends.Sub(h.now)+time.Minute, token.Limits{Default: 1000 * time.Hour, Max: 1000 * time.Hour})
			ops = append(ops, st.Book.Make(token.NewID(), tok)...)
		} else {
			op, err := storage.PutJSON(fmt.Sprintf("%ssecret/a/%012d", token.LeasePrefix, i),
				map[string]any{"mount": accessor, "issue_time": h.now,
					"expire_time": ends, "due": ends, "ttl": time.Hour})
			if err != nil {
				h.t.Fatal(err)
			}
			ops = append(ops, op)
		}
		if len(ops) > 2000 || i == many-1 {
			if err := h.records.Commit(h.t.Context(), ops); err != nil {
				h.t.Fatal(err)
			}
			ops = nil
		}
	}
}

// BenchmarkUsageCount is one count of all gauges, alone and beside somebody who reads as fast as answers come: how
// long it takes for each lease, and how long the slowest in a hundred and in ten thousand of the reads waited.
func BenchmarkUsageCount(b *testing.B) {
	h, reader := readers(b)
	stock(h, *usageLeases)
	for _, name := range []string{"alone", "beside reads"} {
		b.Run(name, func(b *testing.B) {
			var waits []time.Duration
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			if name != "alone" {
				wg.Go(func() {
					for ctx.Err() == nil {
						begin := time.Now()
						if _, err := h.as(reader, secrets.Read, "secret/a", ""); err != nil {
							b.Error(err)
							return
						}
						waits = append(waits, time.Since(begin))
					}
				})
			}
			for b.Loop() {
				c, err := h.owners.census.Count(b.Context(), h.now)
				if err != nil || c.By["expire.num_leases"][""] < *usageLeases*9/10 {
					b.Fatal(c, err)
				}
			}
			took := b.Elapsed()
			cancel()
			wg.Wait()
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N)/float64(*usageLeases), "ns/lease")
			if slices.Sort(waits); len(waits) > 0 {
				b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds()), "p99-read-µs")
				b.ReportMetric(float64(waits[len(waits)*9999/10000].Microseconds()), "p99.99-read-µs")
			}
		})
	}
}

// sliced is a storage that tells of each scan before it is done.
type sliced struct {
	storage.Backend
	before func(from string, limit int)
}

func (s *sliced) Scan(ctx context.Context, from, to string, limit int) ([]storage.Record, error) {
	if s.before != nil {
		s.before(from, limit)
	}
	return s.Backend.Scan(ctx, from, to, limit)
}

// A count works in slices, smaller ones while requests come; these are answered in the midst of it.
func TestUsageGivesWay(t *testing.T) {
	s := &sliced{}
	h := newHouseOver(t, func(m *memstore.Store) storage.Backend { s.Backend = m; return s })
	h.ok(secrets.Update, "secret/a", `{"x":"1"}`)
	stock(h, 4000)
	var limits []int
	s.before = func(_ string, limit int) { limits = append(limits, limit) }
	if _, err := h.owners.census.Count(t.Context(), h.now); err != nil {
		t.Fatal(err)
	}
	if most := slices.Max(limits); most > flight.EndAtOnce || slices.Min(limits) < 1 ||
		len(limits) < 4000/flight.EndAtOnce {
		t.Errorf("%d slices of %d at most", len(limits), most)
	}
	limits = nil
	s.before = func(_ string, limit int) {
		limits = append(limits, limit)
		h.ok(secrets.Read, "secret/a", "")
	}
	if _, err := h.owners.census.Count(t.Context(), h.now); err != nil {
		t.Fatal(err)
	}
	if most := slices.Max(limits); most > flight.EndBeside || len(limits) < 4000/flight.EndBeside {
		t.Errorf("beside requests %d slices of %d at most", len(limits), most)
	}
}
