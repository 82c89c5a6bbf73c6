package peers

import (
	"cmp"
	"context"
	"strings"
	"time"

	"corbel.dev/corbel/catalog/peering"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/telemetry"
)

// link is what the leader knows of a peer's connection.
type link struct {
	began  time.Time // when there was something to know
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
		l = &link{told: make(chan struct{}), began: m.cfg.Clock.Now()}
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
	s.LastHeartbeat, s.LastReceive, s.LastSend = now, now, now
	if s.Refused.IsZero() {
		s.Trouble = ""
	}
}

// taken notes that all that was to be sent has arrived.
func taken(s *peering.Status, now time.Time) {
	s.LastSend = now
	if !s.Refused.IsZero() {
		s.Refused, s.Trouble = time.Time{}, ""
	}
}

// refusedAt notes that something that was sent did not arrive.
func refusedAt(s *peering.Status, now time.Time) {
	if s.Refused.IsZero() {
		s.Refused = now
	}
}

// Stands is how a peering stands at this moment. Without the leadership its stored state is all that is known.
func (m *Manager) Stands(p *peering.Peering) (peering.State, peering.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var s peering.Status
	if l := m.links[p.ID]; l != nil {
		s = l.status
	}
	if p.State == peering.Active && failing(m, m.links[p.ID]) > silent {
		return peering.Failing, s
	}
	return p.State, s
}

// failing is for how long a peer has not been heard, or what is sent has not been taken; under m.mu. Without the
// leadership it is zero.
func failing(m *Manager, l *link) time.Duration {
	if m.since.IsZero() {
		return 0
	}
	last := m.since // a new leader waits to be heard
	if l == nil {
		return m.cfg.Clock.Since(last)
	}
	for _, at := range []time.Time{l.began, l.status.LastReceive} {
		if at.After(last) {
			last = at
		}
	}
	if at := l.status.Refused; !at.IsZero() && at.Before(last) {
		last = at
	}
	return m.cfg.Clock.Since(last)
}

const (
	// lookEvery is how often the doctor is told of peerings that fail.
	lookEvery = 2 * time.Second
	// maxReason bounds what it is told.
	maxReason = 300
)

// watch tells the doctor of peerings that fail, while this server leads.
func watch(ctx context.Context, m *Manager) {
	told := m.cfg.Metrics.GaugeSet("peering.failing_ms")
	defer told.Replace(nil)
	for ctx.Err() == nil {
		told.Replace(failures(m))
		pause(ctx, m.cfg.Clock, lookEvery)
	}
}

// failures are the peerings that fail, or do not come about: since when, which side connects, and why.
func failures(m *Manager) (list []telemetry.Point) {
	st := m.cfg.Catalog.State()
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range peering.All(st) {
		if !p.Lives() {
			continue
		}
		l := m.of(p.ID)
		d := failing(m, l)
		if d <= silent {
			continue
		}
		side, reason := "accepts", cmp.Or(l.status.Trouble, "none of its servers has called")
		if p.Dials() {
			side, reason = "dials", cmp.Or(l.status.Trouble, "no server of it has answered")
		}
		if len(reason) > maxReason {
			reason = reason[:maxReason]
		}
		state := peering.Failing
		if p.State == peering.Establishing {
			state = p.State
		}
		list = append(list, telemetry.Point{Value: float64(d.Milliseconds()),
			Labels: []string{"peer", p.Name, "state", string(state), "side", side, "reason", strings.ToValidUTF8(reason, "")}})
	}
	return list
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
