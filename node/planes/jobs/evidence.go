package jobsplane

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// maxLacks bounds what blocked jobs are told to lack at once, maxLackNames what is named in a process' life.
	maxLacks, maxLackNames = 10, 100
	// maxLackName bounds a name: constraints may be long.
	maxLackName = 80
)

// reporter tells the doctor what the leader's queue knows. One goroutine uses it.
type reporter struct {
	p     *Plane
	named map[string]bool // ever
}

// tell tells what blocked jobs lack, and for how long.
func (r *reporter) tell() {
	oldest, lacks := r.p.sched.Blocked()
	age := 0.0
	if oldest > 0 {
		age = float64(r.p.now()-oldest) / float64(time.Millisecond)
	}
	r.p.metrics.Gauge("blocked_evals.oldest_ms").Set(max(age, 0))
	for _, name := range r.choose(lacks) {
		r.named[name] = true
	}
	for name := range r.named {
		r.p.metrics.Gauge("blocked_evals.lacks", "what", name).Set(float64(lacks[name]))
	}
}

// choose cuts what is told to what most jobs lack.
func (r *reporter) choose(lacks map[string]int) (names []string) {
	for name, n := range lacks {
		if len(name) > maxLackName {
			delete(lacks, name)
			lacks[name[:maxLackName]] += n
		}
	}
	names = slices.SortedFunc(maps.Keys(lacks), func(a, b string) int {
		return cmp.Or(cmp.Compare(lacks[b], lacks[a]), cmp.Compare(a, b))
	})
	names = names[:min(len(names), maxLacks)]
	return names[:min(len(names), max(0, maxLackNames-len(r.named)))]
}
