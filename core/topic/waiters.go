package topic

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

const shardCount = 32

// Waiters lets any number of goroutines wait for the next change of a subject.
//
// All watchers of one subject share one channel, which the next Wake closes:
// waking 10,000 of them is one close. A subject without watchers costs Wake one
// map lookup, and a Waiters without any watcher one atomic load. An entry is
// gone once its subject woke or its last watcher stopped.
//
// Usage, free of lost wake-ups: Watch, then look at the state, then wait; after
// a wake Watch again before looking. All methods are safe for concurrent use.
type Waiters[K comparable] struct {
	seed   maphash.Seed
	live   atomic.Int64 // entries, over all shards
	shards [shardCount]waiterShard[K]
}

// waiterShard is guarded by its own lock, which is held for a map operation and
// never together with another.
type waiterShard[K comparable] struct {
	mu      sync.Mutex
	entries map[K]*entry
}

type entry struct {
	woken    chan struct{}
	watchers int
}

// NewWaiters returns Waiters without watchers.
func NewWaiters[K comparable]() *Waiters[K] {
	w := &Waiters[K]{seed: maphash.MakeSeed()}
	for i := range w.shards {
		w.shards[i].entries = make(map[K]*entry)
	}
	return w
}

func (w *Waiters[K]) shard(key K) *waiterShard[K] {
	return &w.shards[maphash.Comparable(w.seed, key)%shardCount]
}

// Watch is one watcher's hold on a subject. The zero value waits for nothing.
type Watch[K comparable] struct {
	owner *Waiters[K]
	entry *entry
	key   K
}

// Watch begins to wait for the next Wake of key. Stop must be called, woken or not.
func (w *Waiters[K]) Watch(key K) Watch[K] {
	s := w.shard(key)
	s.mu.Lock()
	e := s.entries[key]
	if e == nil {
		e = &entry{woken: make(chan struct{})}
		s.entries[key] = e
		w.live.Add(1)
	}
	e.watchers++
	s.mu.Unlock()
	return Watch[K]{owner: w, entry: e, key: key}
}

// Woken is closed by the first Wake after Watch.
func (h *Watch[K]) Woken() <-chan struct{} { return h.entry.woken }

// Stop gives the hold back. It may be called more than once.
func (h *Watch[K]) Stop() {
	if h.owner == nil {
		return
	}
	s := h.owner.shard(h.key)
	s.mu.Lock()
	h.entry.watchers--
	if h.entry.watchers == 0 && s.entries[h.key] == h.entry {
		delete(s.entries, h.key)
		h.owner.live.Add(-1)
	}
	s.mu.Unlock()
	h.owner = nil
}

// Wake wakes the watchers of key and tells whether there were any. What they
// are to see must be visible before the call.
func (w *Waiters[K]) Wake(key K) bool {
	if w.live.Load() == 0 {
		return false
	}
	s := w.shard(key)
	s.mu.Lock()
	e := s.entries[key]
	if e != nil {
		delete(s.entries, key)
		w.live.Add(-1)
	}
	s.mu.Unlock()
	if e == nil {
		return false
	}
	close(e.woken) // outside the lock: waking thousands takes a while
	return true
}

// WakeAll wakes every watcher of every subject.
func (w *Waiters[K]) WakeAll() {
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		old := s.entries
		s.entries = make(map[K]*entry)
		w.live.Add(-int64(len(old)))
		s.mu.Unlock()
		for _, e := range old {
			close(e.woken)
		}
	}
}

// Len is the number of subjects that are being watched.
func (w *Waiters[K]) Len() int { return int(w.live.Load()) }
