package aggregate

import (
	"fmt"
	"testing"
	"time"

	"corbel.dev/corbel/usage"
)

// BenchmarkApply counts events of 1,000 tenants, 100 identities each, and prints the memory of an identity and hour,
// or of a series and hour.
func BenchmarkApply(b *testing.B) {
	start := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for _, p := range []*usage.Product{{Name: "hosts", Kind: usage.Unique, Identity: []string{"host"}},
		{Name: "bytes", Kind: usage.Sum}} {
		b.Run(p.Kind.String(), func(b *testing.B) {
			if err := p.Complete(); err != nil {
				b.Fatal(err)
			}
			list := make([]usage.Observation, 100_000)
			for i := range list {
				e := usage.Event{Tenant: fmt.Sprint("t", i%1000), Product: p.Name, Time: start.UnixNano(), HasValue: true,
					Identity: []usage.Field{{Name: "host", Value: fmt.Sprint(i)}}, Value: usage.Int(int64(i))}
				o, _, err := p.Observe(usage.Key{}, &e, start, nil)
				if err != nil {
					b.Fatal(err)
				}
				list[i] = o
			}
			c := New(Config{})
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				c.Apply(&list[n%len(list)], uint64(n))
				n++
			}
			keys := min(n, len(list))
			if p.Kind != usage.Unique {
				keys = min(n, 1000)
			}
			b.ReportMetric(float64(c.Bytes())/float64(keys), "B/key")
		})
	}
}
