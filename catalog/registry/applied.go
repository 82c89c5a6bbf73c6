package registry

import (
	"sort"
	"sync"
	"time"
)

// appliedMarks is how many batches the registry remembers the time of: seconds, at the
// rates at which a log commits.
const appliedMarks = 4096

// appliedTimes remembers when the newest batches were committed, in a ring of fixed size,
// so that whoever was woken by one can tell how long that took. Safe for concurrent use.
type appliedTimes struct {
	mu    sync.Mutex // guards all below; held for a few steps only
	marks []appliedMark
	head  int // of the oldest mark
	n     int
	floor uint64 // index of the State before the oldest mark
	gone  bool   // marks were overwritten
}

type appliedMark struct {
	index uint64 // of the State after the batch
	at    time.Time
}

// note adds a batch that led from one index to another.
func (a *appliedTimes) note(from, to uint64, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.marks == nil {
		a.marks = make([]appliedMark, appliedMarks)
	}
	switch a.n {
	case 0:
		a.floor = from
	case len(a.marks):
		a.floor, a.gone = a.marks[a.head].index, true
		a.head = (a.head + 1) % len(a.marks)
		a.n--
	}
	a.marks[(a.head+a.n)%len(a.marks)] = appliedMark{to, at}
	a.n++
}

// forget begins anew: indexes belong to another history now.
func (a *appliedTimes) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.head, a.n, a.gone = 0, 0, false
}

// when is the commit time of the change that took an index. For one that is no longer
// remembered it is the oldest time that is.
func (a *appliedTimes) when(index uint64) (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n == 0 || index <= a.floor && !a.gone {
		return time.Time{}, false
	}
	i := sort.Search(a.n, func(i int) bool { return a.marks[(a.head+i)%len(a.marks)].index >= index })
	if i == a.n {
		return time.Time{}, false
	}
	return a.marks[(a.head+i)%len(a.marks)].at, true
}

// AppliedAt tells when the log handed over, on this server, the change that took an index.
// It is false for an index from before this process began or from before a restore. Of a
// change that lies back by more batches than are remembered it gives a time that is too late.
func (r *Registry) AppliedAt(index uint64) (time.Time, bool) { return r.applied.when(index) }
