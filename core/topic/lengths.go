package topic

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Lengths is a multiset of prefix lengths. A watcher of a prefix adds its
// length; a change of a key then tries key[:n] for each n. Reading is one
// atomic load. All methods are safe for concurrent use.
type Lengths struct {
	mu     sync.Mutex // guards counts, and the making of sorted
	counts map[int]int
	sorted atomic.Pointer[[]int]
}

// Add notes a watched prefix of n bytes. It must come before the watch itself.
func (l *Lengths) Add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts = make(map[int]int)
	}
	if l.counts[n]++; l.counts[n] == 1 {
		l.renewLocked()
	}
}

// Remove takes back one Add.
func (l *Lengths) Remove(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts[n]--; l.counts[n] <= 0 {
		delete(l.counts, n)
		l.renewLocked()
	}
}

func (l *Lengths) renewLocked() {
	list := make([]int, 0, len(l.counts))
	for n := range l.counts {
		list = append(list, n)
	}
	slices.Sort(list)
	l.sorted.Store(&list)
}

// Watched returns the lengths in ascending order; the slice must not be changed.
func (l *Lengths) Watched() []int {
	if list := l.sorted.Load(); list != nil {
		return *list
	}
	return nil
}
