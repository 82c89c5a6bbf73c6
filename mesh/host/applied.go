package host

import (
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/mesh"
)

// Report is a proxy's answer to one response.
type Report struct {
	Type mesh.Type
	// Resources are those of the response. The slice is valid during the call; the resources may be kept.
	Resources []*mesh.Resource
	// Removed counts the resources that the response removed.
	Removed int
	// Refused is why the proxy did not take them, in its own words; "" if it did.
	Refused string
	// Sent is when the response was written, zero for what the proxy brought along; Answered when its answer was read.
	Sent, Answered time.Time
}

// applied is what a proxy has taken. It is written for each answer of each proxy: small, and never behind Host.mu.
type applied struct {
	mu       sync.Mutex
	list     []taken // sorted by type and name; what is in no set any more goes when it grows
	last     int     // the place that was written last: what changes changes again
	limit    int     // size at which it is looked for what may go
	answered time.Time
	version  string
	since    time.Time // when the first stream of now was opened, or the last one ended
	open     bool
	refused  uint64
	refusal  *Refusal
}

type taken struct {
	resource *mesh.Resource
	at       int64 // in nanoseconds
}

// Refusal is a response that a proxy did not take.
type Refusal struct {
	Type      mesh.Type
	Resources []string // names, not more than refusalNames
	Words     string   // Envoy's own
	At        time.Time
}

// refusalNames bounds the names of a refusal that are kept.
const refusalNames = 16

func (a *applied) begin(version string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.open {
		a.open, a.since = true, now
	}
	a.version = version
}

func (a *applied) end(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open, a.since = false, now
}

func compareTaken(t taken, r *mesh.Resource) int {
	if t.resource.Type != r.Type {
		return int(t.resource.Type) - int(r.Type)
	}
	return strings.Compare(t.resource.Name, r.Name)
}

// Applied notes what the proxy acknowledged or refused.
func (s *Stream) Applied(r Report) {
	s.h.meters.answer(&r)
	a := &s.m.applied
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answered = r.Answered
	if r.Refused != "" {
		a.refused++
		a.refusal = &Refusal{Type: r.Type, Words: r.Refused, At: r.Answered}
		for _, res := range r.Resources[:min(len(r.Resources), refusalNames)] {
			a.refusal.Resources = append(a.refusal.Resources, res.Name)
		}
		s.h.cfg.Logger.Warn("a proxy refused its configuration", "proxy", s.m.key.id, "node", s.m.key.node, "type",
			r.Type.String(), "resources", a.refusal.Resources, "words", r.Refused)
		return
	}
	for _, res := range r.Resources {
		a.takeLocked(taken{res, r.Answered.UnixNano()})
	}
	if len(a.list) > a.limit {
		a.pruneLocked(s.m.sets.Load())
	}
}

// takeLocked puts t in its place. A search would read a resource that is in no cache at each step, so that of the
// last time is tried first.
func (a *applied) takeLocked(t taken) {
	if a.last < len(a.list) && compareTaken(a.list[a.last], t.resource) == 0 {
		a.list[a.last] = t
		return
	}
	at, found := slices.BinarySearchFunc(a.list, t.resource, compareTaken)
	if found {
		a.list[at] = t
	} else {
		a.list = slices.Insert(a.list, at, t)
	}
	a.last = at
}

// pruneLocked forgets what is in no set any more.
func (a *applied) pruneLocked(sets *mesh.Sets) {
	if sets != nil {
		a.list = slices.DeleteFunc(a.list, func(t taken) bool { return sets[t.resource.Type].Get(t.resource.Name) == nil })
	}
	a.limit = max(8, 2*len(a.list))
}
