package telemetry

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
)

const (
	// tenantEvery is of how many requests one is looked at, by chance: what comes in a rhythm would fool a count.
	tenantEvery = 16
	// tenantsCounted bounds the askers that are told apart between two reads; tenantsTold how many a read names.
	tenantsCounted = 512
	tenantsTold    = 8
)

// Tenants finds out who asks most of a plane. Names are accessors and addresses, never tokens.
type Tenants struct {
	plane string

	mu     sync.Mutex // guards what follows; held for a map operation
	counts map[string]uint64
	others uint64
}

// Tenant is who asked, and how often.
type Tenant struct {
	Plane, Who string
	Requests   uint64
}

// Tenants makes the account of a plane's askers. The registry keeps it, for Busiest. It is nil where the doctor
// is off.
func (r *Registry) Tenants(plane string) *Tenants {
	if r == nil || r.Settings().DisableDoctor {
		return nil
	}
	t := &Tenants{plane: plane, counts: map[string]uint64{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tenants = append(r.tenants, t)
	return t
}

// Turn counts a request and reports whether it is one of those whose asker is to be told with Add.
func (t *Tenants) Turn() bool { return t != nil && rand.Uint32()%tenantEvery == 0 }

// Add tells who asked, after Turn was true.
func (t *Tenants) Add(who string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.counts[who]; !known && len(t.counts) >= tenantsCounted {
		t.others += tenantEvery
		return
	}
	t.counts[who] += tenantEvery
}

// take gives the busiest since the last call, and the rest as "others".
func (t *Tenants) take() []Tenant {
	t.mu.Lock()
	counts, others := t.counts, t.others
	t.counts, t.others = map[string]uint64{}, 0
	t.mu.Unlock()
	out := make([]Tenant, 0, len(counts)+1)
	for who, n := range counts {
		out = append(out, Tenant{t.plane, who, n})
	}
	slices.SortFunc(out, func(a, b Tenant) int {
		return cmp.Or(-cmp.Compare(a.Requests, b.Requests), cmp.Compare(a.Who, b.Who))
	})
	for _, rest := range out[min(len(out), tenantsTold):] {
		others += rest.Requests
	}
	out = out[:min(len(out), tenantsTold)]
	if others > 0 {
		out = append(out, Tenant{t.plane, "others", others})
	}
	return out
}

// Busiest gives, for each plane, who asked most since the last call. It has one reader.
func (r *Registry) Busiest() (out []Tenant) {
	if r == nil {
		return nil
	}
	r.mu.RLock()
	all := slices.Clone(r.tenants)
	r.mu.RUnlock()
	for _, t := range all {
		out = append(out, t.take()...)
	}
	return out
}
