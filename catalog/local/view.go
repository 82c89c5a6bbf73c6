package local

import (
	"context"
	"strings"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

// View is everything registered now. It is built at most once per change.
func (l *Local) View() *View { return l.state.snapshot() }

// Service is one registered service, or nil.
func (l *Local) Service(id string) *Service {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	if e := l.state.services[id]; e != nil {
		return e.cur
	}
	return nil
}

// Check is one registered check, or nil.
func (l *Local) Check(id string) *Check {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	if e := l.state.checks[id]; e != nil {
		return e.cur
	}
	return nil
}

// AwaitService returns a service once its Hash differs from hash, or as it is
// after wait or when ctx ends. Kind NotFound with the contract's text, also when
// it is removed meanwhile.
func (l *Local) AwaitService(ctx context.Context, id, hash string, wait time.Duration) (*Service, error) {
	timer := l.cfg.Clock.NewTimer(wait)
	defer timer.Stop()
	for {
		l.state.mu.Lock()
		e := l.state.services[id]
		if e == nil {
			l.state.mu.Unlock()
			return nil, errkind.Errorf(errkind.NotFound, "unknown service ID: %s", id)
		}
		cur, replaced := e.cur, e.replaced
		l.state.mu.Unlock()
		if cur.Hash != hash {
			return cur, nil
		}
		select {
		case <-replaced:
		case <-timer.C:
			return cur, nil
		case <-ctx.Done():
			return cur, nil
		}
	}
}

// Await returns the View once its Version passes since, or as it is when ctx ends.
func (l *Local) Await(ctx context.Context, since uint64) *View {
	for {
		l.state.mu.Lock()
		version, changed := l.state.version, l.state.changed
		l.state.awaited = true
		l.state.mu.Unlock()
		if version > since {
			return l.state.snapshot()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return l.state.snapshot()
		}
	}
}

// ServiceHealth is what the agent's health endpoints show of one service: its
// checks and those of the node, sorted by id. Nil service: unknown.
func (l *Local) ServiceHealth(id string) (status string, s *Service, checks []*Check) {
	l.state.mu.Lock()
	if e := l.state.services[id]; e != nil {
		s, checks = e.cur, l.state.checksLocked(id)
	}
	l.state.mu.Unlock()
	return AggregatedStatus(checks), s, checks
}

// ServicesNamed are the ids of the services with a name, sorted.
func (v *View) ServicesNamed(name string) []string {
	var ids []string
	for _, id := range sorted(v.Services) {
		if v.Services[id].Service.Name == name {
			ids = append(ids, id)
		}
	}
	return ids
}

// StatusMaintenance is the aggregate of checks of which one is maintenance mode.
const StatusMaintenance = "maintenance"

// AggregatedStatus is the worst of the checks as clients see it: maintenance, critical, warning, passing.
func AggregatedStatus(checks []*Check) string {
	worst := catalog.Passing
	for _, c := range checks {
		if id := c.Check.ID; id == catalog.NodeMaintenanceID || strings.HasPrefix(id, catalog.ServiceMaintenancePrefix) {
			return StatusMaintenance
		}
		worst = max(worst, c.Check.Status)
	}
	return worst.String()
}
