package local

import (
	"context"
	"sync"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/local/disk"
	"corbel.dev/corbel/kit/errkind"
)

const (
	reapInterval = 30 * time.Second
	// reapMinimum is the shortest time that a service may be critical before it is removed.
	reapMinimum = time.Minute
	// ttlSaveInterval is how often heartbeats reach the disk; a crash makes a
	// check expire that much earlier at most. Status changes are saved sooner.
	ttlSaveInterval   = 5 * time.Second
	ttlChangeInterval = time.Second
)

// Run runs the checks and keeps the catalog in sync until ctx ends; it returns
// when all goroutines have ended.
func (l *Local) Run(ctx context.Context) error {
	l.state.began()
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { err = l.runs.runner.Run(ctx) })
	wg.Go(func() { l.sync.loop(ctx) })
	wg.Go(func() { l.housekeeping(ctx) })
	wg.Wait()
	return err
}

// housekeeping reaps critical services and saves the states of TTL checks.
func (l *Local) housekeeping(ctx context.Context) {
	reap := l.cfg.Clock.NewTimer(reapInterval)
	defer reap.Stop()
	saveInterval := ttlChangeInterval
	if l.store == nil {
		saveInterval = reapInterval // nothing to save: simulated hosts share a process
	}
	rights := l.cfg.Clock.NewTimer(aliasInterval)
	defer rights.Stop()
	save := l.cfg.Clock.NewTimer(saveInterval)
	defer save.Stop()
	lastSave := l.cfg.Clock.Now()
	for {
		select {
		case <-ctx.Done():
			l.saveTTL(true)
			return
		case <-reap.C:
			l.reap()
			reap.Reset(reapInterval)
		case <-rights.C:
			if l.rights.judge(ctx) {
				l.sync.notify()
			}
			rights.Reset(aliasInterval)
		case <-save.C:
			if l.saveTTL(l.cfg.Clock.Since(lastSave) >= ttlSaveInterval) {
				lastSave = l.cfg.Clock.Now()
			}
			save.Reset(saveInterval)
		}
	}
}

// reap removes services that were critical for longer than their checks allow.
func (l *Local) reap() {
	for id, reason := range l.state.overdue(l.cfg.Clock.Now()) {
		l.files.RLock()
		_, err := l.dropService(id)
		if err == nil {
			l.dropSidecar(id, 0)
		}
		l.files.RUnlock()
		if err != nil && !errkind.Is(err, errkind.NotFound) {
			l.cfg.Log.Error("cannot remove a critical service", "service", id, "error", err)
			continue
		}
		l.cfg.Log.Info("removed a service that was critical for too long", "service", id, "check", reason)
	}
}

// overdue are the services to reap, with the check that says so.
func (st *state) overdue(now time.Time) map[string]string {
	st.mu.Lock()
	defer st.mu.Unlock()
	found := map[string]string{}
	for id, e := range st.checks {
		after := e.cur.Definition.DeregisterCriticalServiceAfter
		if after > 0 && e.cur.Check.ServiceID != "" && e.cur.Check.Status == catalog.Critical &&
			now.Sub(e.cur.CriticalSince) > max(after, reapMinimum) {
			found[e.cur.Check.ServiceID] = id
		}
	}
	return found
}

// ttlStates are the TTL checks to save; nil when nothing changed that is worth
// a write now: heartbeats alone wait for beats.
func (st *state) ttlStates(beats bool) map[string]disk.TTLState {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.ttl.changed && !(beats && st.ttl.beaten) {
		return nil
	}
	st.ttl.changed, st.ttl.beaten = false, false
	states := make(map[string]disk.TTLState, len(st.ttl.seen))
	for id, expires := range st.ttl.seen {
		if e := st.checks[id]; e != nil {
			states[id] = disk.TTLState{Status: e.cur.Check.Status.String(), Output: e.cur.Check.Output, Expires: expires}
		}
	}
	return states
}

func (l *Local) saveTTL(beats bool) bool {
	if l.store == nil {
		return false
	}
	states := l.state.ttlStates(beats)
	if states == nil {
		return false
	}
	if err := l.store.SaveTTL(states); err != nil {
		l.cfg.Log.Warn("the states of TTL checks were not saved", "error", err)
	}
	return true
}
