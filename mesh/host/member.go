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

// member is one proxy that is kept. What is not said otherwise is guarded by Host.mu.
type member struct {
	// First what each change looks at: with 100,000 members it is the memory that takes time.
	sets  atomic.Pointer[mesh.Sets] // nil until it is ready
	waker mesh.Waker                // of the only stream that is bound; nil for none or several
	ended bool
	proxy proxy.Proxy

	applied applied // has a lock of its own

	key      key
	service  *catalog.Service // as it was registered when it was last looked at
	grant    *acl.Grant
	subjects []*subject // that it follows
	streams  []*Stream  // that are bound
	opening  int        // Opens that wait for it
	used     time.Time  // when the last stream left, or the last Open ended
	ready    chan struct{}
	failed   error         // why it cannot become ready, as long as it is not
	done     chan struct{} // closed when it has ended
}

// boundLocked notes which streams there are.
func (m *member) boundLocked(streams []*Stream) {
	m.streams, m.waker = streams, nil
	if len(streams) == 1 {
		m.waker = streams[0].waker
	}
}

// wakeLocked has the streams woken.
func (m *member) wakeLocked(types mesh.Types, w *work) {
	if m.waker != nil {
		w.wakes = append(w.wakes, wake{m.waker, types})
		return
	}
	for _, s := range m.streams {
		w.wakes = append(w.wakes, wake{s.waker, types})
	}
}

// work is what is to be done when the lock is free.
type work struct {
	wakes  []wake
	follow []*subject
	stops  []func()
	checks []*member // whether checks go through them is another matter now
}

type wake struct {
	who   mesh.Waker
	types mesh.Types
}

// do does it: streams first, since they are what somebody waits for.
func (h *Host) do(w *work) {
	for _, wk := range w.wakes {
		wk.who.Wake(wk.types)
	}
	for _, stop := range w.stops {
		stop()
	}
	for _, s := range w.follow {
		h.follow(s)
	}
	for _, m := range w.checks {
		h.tellChecks(m)
	}
}

// tellChecks tells the agent what is wanted of a member's checks now.
func (h *Host) tellChecks(m *member) {
	h.telling.Lock() // who comes last tells the newest
	defer h.telling.Unlock()
	h.mu.Lock()
	on, ended := h.exposing[m], m.ended
	h.mu.Unlock()
	if !ended { // else its checks go as they went, until its registration is gone
		h.cfg.ExposeChecks(m.key.id, on)
	}
}

// deltaLocked does what a step asks for: subjects whose values are known are stepped at once.
func (h *Host) deltaLocked(m *member, d proxy.Delta, w *work) {
	touched, last := d.Touched, d
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
			if touched |= next.Touched; next.Settled {
				last = next
			}
			more.Follow, more.Drop = append(more.Follow, next.Follow...), append(more.Drop, next.Drop...)
		}
		d = more
	}
	if last.Settled && h.cfg.ExposeChecks != nil && m.key.node == h.cfg.Node {
		// The first time it is told whatever it is: the entries may be others than when its Envoy was here before.
		if told, known := h.exposing[m]; !known || told != last.Checks {
			h.exposing[m] = last.Checks
			w.checks = append(w.checks, m)
		}
	}
	if touched == 0 || !m.proxy.Ready() {
		return
	}
	if m.sets.Swap(m.proxy.Sets()) == nil {
		close(m.ready)
	}
	m.wakeLocked(touched, w)
}

// endLocked forgets a member.
func (h *Host) endLocked(m *member, w *work) {
	if m.ended {
		return
	}
	m.ended = true
	delete(h.proxies, m.key)
	delete(h.exposing, m)
	close(m.done)
	m.wakeLocked(0, w)
	for _, s := range slices.Clone(m.subjects) {
		h.leaveLocked(m, s.key.text, w)
	}
}
