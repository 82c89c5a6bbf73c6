package host

import (
	"slices"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/proxy"
)

const typeCount = int(mesh.TypeRoute) + 1

// member is one proxy that is kept. What is not said otherwise is guarded by Host.mu.
type member struct {
	key      key
	service  *catalog.Service // as it was registered when it was last looked at
	proxy    *proxy.Proxy
	grant    *acl.Grant
	subjects []*subject // that it follows
	streams  []*Stream  // that are bound
	opening  int        // Opens that wait for it
	used     time.Time  // when the last stream left, or the last Open ended
	ready    chan struct{}
	failed   error         // why it cannot become ready, as long as it is not
	done     chan struct{} // closed when it has ended
	ended    bool

	sets    atomic.Pointer[[typeCount]mesh.Set] // nil until it is ready
	applied applied                             // has a lock of its own
}

// work is what is to be done when the lock is free.
type work struct {
	wakes  []wake
	follow []*subject
	stops  []func()
}

type wake struct {
	f     func(mesh.Types)
	types mesh.Types
}

// do does it: streams first, since they are what somebody waits for.
func (h *Host) do(w *work) {
	for _, wk := range w.wakes {
		wk.f(wk.types)
	}
	for _, stop := range w.stops {
		stop()
	}
	for _, s := range w.follow {
		h.follow(s)
	}
}

// deltaLocked does what a step asks for: subjects whose values are known are stepped at once.
func (h *Host) deltaLocked(m *member, d proxy.Delta, w *work) {
	touched := d.Touched
	for len(d.Follow) > 0 || len(d.Drop) > 0 {
		for _, text := range d.Drop {
			h.leaveLocked(m, text, w)
		}
		var more proxy.Delta
		for _, text := range d.Follow {
			s := h.joinLocked(m, text, w)
			if !s.known {
				continue
			}
			if h.refusedLocked(m, s, w) {
				return
			}
			next := m.proxy.Step(proxy.Change{Subject: text, Value: s.value})
			touched |= next.Touched
			more.Follow, more.Drop = append(more.Follow, next.Follow...), append(more.Drop, next.Drop...)
		}
		d = more
	}
	if touched == 0 || !m.proxy.Ready() {
		return
	}
	sets := new([typeCount]mesh.Set)
	for _, t := range mesh.Every {
		sets[t] = m.proxy.Set(t)
	}
	if m.sets.Swap(sets) == nil {
		close(m.ready)
	}
	for _, s := range m.streams {
		w.wakes = append(w.wakes, wake{s.wake, touched})
	}
}

// endLocked forgets a member.
func (h *Host) endLocked(m *member, w *work) {
	if m.ended {
		return
	}
	m.ended = true
	delete(h.proxies, m.key)
	close(m.done)
	for _, s := range m.streams {
		w.wakes = append(w.wakes, wake{s.wake, 0})
	}
	for _, s := range slices.Clone(m.subjects) {
		h.leaveLocked(m, s.key.text, w)
	}
}
