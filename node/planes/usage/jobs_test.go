package usageplane

import (
	"testing"
	"time"

	"corbel.dev/corbel/usage"
)

// held is a jobs plane whose groups held the same in each span.
type held struct{}

func (held) Leads() bool { return true }
func (held) Consumption(from, to time.Time,
	tell func(namespace, job, group string, mhzSeconds, mbSeconds uint64, allocs []string),
) {
	seconds := uint64(to.Sub(from) / time.Second)
	tell("team", "web", "g", 500*seconds, 256*seconds, []string{"a1", "a2"})
	tell("team", "web/g", "", 1*seconds, 1*seconds, []string{"a3"})
}

// TestConsumedItems: the events of a minute are taken by their products; two leaders give one event one id, and events
// of other groups or minutes have others.
func TestConsumedItems(t *testing.T) {
	products := map[string]*usage.Product{}
	for _, p := range builtIn() {
		products[p.Name] = &p
	}
	minute := time.Unix(1_800_000_000, 0).Truncate(time.Minute)
	first, again, next := consumedItems(held{}, minute), consumedItems(held{}, minute),
		consumedItems(held{}, minute.Add(time.Minute))
	if len(first) != 7 || len(again) != 7 || len(next) != 7 {
		t.Fatalf("%d, %d and %d events, want 7", len(first), len(again), len(next))
	}
	key, seen, sums := usage.NewKey([16]byte{1}), map[usage.Hash]string{}, map[string]string{}
	for i := range first {
		e := &first[i].Event
		o, _, err := products[e.Product].Observe(key, e, minute.Add(90*time.Second), nil)
		if err != nil {
			t.Fatalf("%s: %v", e.ID, err)
		}
		if o.Tenant != "team" || o.Time != minute.UnixNano() {
			t.Errorf("%s: of %s at %d", e.ID, o.Tenant, o.Time)
		}
		if e.ID != again[i].ID || e.ID == next[i].ID {
			t.Errorf("%s: another leader says %s, and of the next minute %s", e.ID, again[i].ID, next[i].ID)
		}
		if other, is := seen[o.ID]; is {
			t.Errorf("%s is %s", e.ID, other)
		}
		seen[o.ID] = e.ID
		if e.HasValue {
			sums[e.Product] += e.Value.String() + " "
		}
	}
	if sums["cpu_mhz_seconds"] != "30000 60 " || sums["memory_mb_seconds"] != "15360 60 " {
		t.Errorf("amounts: %v", sums)
	}
}
