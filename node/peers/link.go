package peers

import (
	"context"
	"time"

	"corbel.dev/corbel/catalog/peering"
	"corbel.dev/corbel/catalog/statestore"
)

// link is what the leader knows of a peer's connection.
type link struct {
	status peering.Status
	// kick has a pull of the peer answered at once; nil while it has none that waits.
	kick context.CancelFunc
	told chan struct{} // closed when the peer was told that our side is deleted
	pull pulling
	push pushing
}

// of returns the link of a peering, under m.mu.
func (m *Manager) of(id string) *link {
	l := m.links[id]
	if l == nil {
		l = &link{told: make(chan struct{})}
		m.links[id] = l
	}
	return l
}

// note changes what is known of a link.
func (m *Manager) note(id string, change func(s *peering.Status, now time.Time)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.of(id).status, m.cfg.Clock.Now())
}

func heard(s *peering.Status, now time.Time) {
	s.LastHeartbeat, s.LastReceive, s.LastSend, s.Trouble = now, now, now, ""
}

// Stands is how a peering stands at this moment. Without the leadership its stored state is all that is known.
func (m *Manager) Stands(p *peering.Peering) (peering.State, peering.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var s peering.Status
	if l := m.links[p.ID]; l != nil {
		s = l.status
	}
	if p.State != peering.Active || m.since.IsZero() {
		return p.State, s
	}
	last := m.since // a new leader waits to be heard
	if s.LastReceive.After(last) {
		last = s.LastReceive
	}
	if m.cfg.Clock.Since(last) > silent {
		return peering.Failing, s
	}
	return p.State, s
}

// export makes the metrics that are read when somebody asks.
func export(m *Manager) {
	if m.cfg.Metrics == nil {
		return
	}
	count := func(of func(p *peering.Peering, st *statestore.State) int) func() float64 {
		return func() float64 {
			st, n := m.cfg.Catalog.State(), 0
			if m.cfg.Leader.IsLeader() {
				for p := range peering.All(st) {
					n += of(p, st)
				}
			}
			return float64(n)
		}
	}
	m.cfg.Metrics.GaugeFunc("state.peerings", count(func(*peering.Peering, *statestore.State) int { return 1 }))
	m.cfg.Metrics.GaugeFunc("peering.exported_services", count(func(p *peering.Peering, st *statestore.State) int {
		return len(peering.ExportedTo(st, p.Name))
	}))
	m.cfg.Metrics.GaugeFunc("peering.healthy", count(func(p *peering.Peering, _ *statestore.State) int {
		if state, _ := m.Stands(p); state == peering.Active {
			return 1
		}
		return 0
	}))
}
