package registry

import (
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
)

// OnApply has f called with each new State and what led to it, in order, as soon as readers
// find the State. changes is nil when a restore put the State in place of another; it may
// not be kept. f is called by the goroutine that applies the log, which waits for
// it: it may take note, not work. To be called before the log is opened.
func (r *Registry) OnApply(f func(next *statestore.State, changes *catalog.Changes)) {
	r.onApply = append(r.onApply, f)
}

func (r *Registry) tell(next *statestore.State, changes *catalog.Changes) {
	for _, f := range r.onApply {
		f(next, changes)
	}
}
