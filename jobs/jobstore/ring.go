package jobstore

import (
	"context"
	"sync"

	"corbel.dev/corbel/kit/errkind"
)

// Ring has the newest changes, for the stream of events. It is bounded by the number of objects that changed: the
// oldest go first, and a reader that stands before them is told (NotFound). A reader that stands before a snapshot that
// replaced everything is told that (Conflict): no list of changes leads from what it knows to what is now.
type Ring struct {
	mu       sync.Mutex // guards all
	most     int
	list     []Changed // ascending by index
	count    int       // of objects in list
	before   uint64    // the index up to which changes are gone
	replaced uint64    // the index of the newest snapshot that replaced everything; 0 when none did
	resets   int       // how many did
	grown    chan struct{}
}

func newRing(most int) *Ring { return &Ring{most: most, grown: make(chan struct{})} }

func (c *Changed) size() int { return 1 + len(c.Core) + len(c.Docs) }

func (r *Ring) add(changes []Changed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range changes {
		r.list = append(r.list, changes[i])
		r.count += changes[i].size()
	}
	cut := 0
	for r.count > r.most && cut < len(r.list)-1 {
		r.count -= r.list[cut].size()
		r.before = r.list[cut].Index
		r.list[cut] = Changed{}
		cut++
	}
	r.list = r.list[cut:]
	close(r.grown)
	r.grown = make(chan struct{})
}

// reset forgets all: the View has become another one.
func (r *Ring) reset(index uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list, r.count, r.before, r.replaced = nil, 0, index, index
	r.resets++
	close(r.grown)
	r.grown = make(chan struct{})
}

// Grown is closed by the next change.
func (r *Ring) Grown() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.grown
}

// Oldest is the index before that of the oldest change that is kept.
func (r *Ring) Oldest() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.before
}

// atMost bounds what one call of After returns.
const atMost = 256

// After are changes after index, in their order: it waits until there is one or ctx ends.
func (r *Ring) After(ctx context.Context, index uint64) ([]Changed, error) {
	r.mu.Lock()
	resets := r.resets
	r.mu.Unlock()
	for {
		r.mu.Lock()
		var err error
		switch {
		case index < r.replaced, resets != r.resets: // the latter while it waits, also for a state that is older
			err = errkind.New(errkind.Conflict, "a snapshot replaced the state; read it anew")
		case index < r.before:
			err = errkind.New(errkind.NotFound, "events before this are gone; read the state anew")
		}
		if err != nil {
			r.mu.Unlock()
			return nil, err
		}
		lo, hi := 0, len(r.list)
		for lo < hi {
			if middle := (lo + hi) / 2; r.list[middle].Index > index {
				hi = middle
			} else {
				lo = middle + 1
			}
		}
		list, grown := r.list[lo:min(len(r.list), lo+atMost)], r.grown
		out := append([]Changed(nil), list...)
		r.mu.Unlock()
		if len(out) > 0 {
			return out, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-grown:
		}
	}
}
