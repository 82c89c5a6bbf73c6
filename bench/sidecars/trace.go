package sidecars

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// sightings are the last resources of a round's type that a sidecar got, so that what the bench does not expect
// explains itself. The sidecar's loop writes, anybody reads.
type sightings [4]struct {
	at   atomic.Int64  // 0: none
	what atomic.Uint64 // the version's hash, and in the lowest bit whether it was what the round waits for
}

// note replaces the oldest.
func (s *sightings) note(at int64, version uint32, fits bool) {
	oldest := &s[0]
	for i := range s {
		if s[i].at.Load() < oldest.at.Load() {
			oldest = &s[i]
		}
	}
	what := uint64(version) << 1
	if fits {
		what |= 1
	}
	oldest.what.Store(what)
	oldest.at.Store(at)
}

// Trace is what a sidecar got in the last two rounds, at most four resources of each round's type.
type Trace struct {
	Node  string     `json:"node"`
	Proxy string     `json:"proxy"`
	Seen  []Sighting `json:"seen"`
}

// Sighting is a resource that a sidecar got.
type Sighting struct {
	At      int64  `json:"at"`      // Monotonic
	Version uint32 `json:"version"` // a hash: the same for the same version
	// Marker is what the round waited for, "-" before it where it waited for that to be gone; Fits is whether this had it.
	Marker string `json:"marker"`
	Fits   bool   `json:"fits"`
}

// Trace tells what the sidecars at some places of the fleet got in the last two rounds that were collected, in order.
func (f *Fleet) Trace(places []int) []Trace {
	f.mu.Lock()
	past := f.past
	f.mu.Unlock()
	var out []Trace
	for _, place := range places {
		t, ok := f.named(place)
		if !ok {
			continue
		}
		for _, r := range past {
			if r == nil {
				continue
			}
			marker := r.Marker
			if r.Gone {
				marker = "-" + marker
			}
			for i := range r.seen[place] {
				if s := &r.seen[place][i]; s.at.Load() != 0 {
					what := s.what.Load()
					t.Seen = append(t.Seen, Sighting{s.at.Load(), uint32(what >> 1), marker, what&1 == 1})
				}
			}
		}
		slices.SortFunc(t.Seen, func(a, b Sighting) int { return cmp.Compare(a.At, b.At) })
		out = append(out, t)
	}
	return out
}

// named finds the names of the sidecar at a place.
func (f *Fleet) named(place int) (Trace, bool) {
	for i := range f.cfg.Hosts {
		h := &f.cfg.Hosts[i]
		if place >= 0 && place < len(h.Proxies) {
			return Trace{Node: h.Node, Proxy: h.Proxies[place]}, true
		}
		place -= len(h.Proxies)
	}
	return Trace{}, false
}
