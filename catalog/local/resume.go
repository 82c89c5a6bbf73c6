package local

import (
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
	"corbel.dev/corbel/kit/errkind"
)

// began notes what was loaded from disk and files: until the catalog was read, nothing of it is told.
func (st *state) began() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.checks) > 0 {
		st.loaded = st.version
	}
}

func (st *state) resuming() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.loaded > 0
}

// resume gives checks that were loaded and have not run yet the status that the catalog has. Without it each restart
// of an agent would take its services out of use until every check has run once.
func (st *state) resume(stored []*catalog.Check) change {
	st.mu.Lock()
	defer st.mu.Unlock()
	var c change
	for _, s := range stored {
		e := st.checks[s.ID]
		if e == nil || e.run > st.loaded || e.seq > 0 {
			continue // registered or run since the start
		}
		own, d := e.cur.Check, e.cur.Definition
		kind := d.Kind()
		if kind == check.KindTTL || kind == check.KindAlias || d.Maintenance || own.ServiceID != s.ServiceID ||
			own.Name != s.Name || own.Type != s.Type || own.Status == s.Status {
			continue
		}
		next := *own
		next.Status, next.Output = s.Status, s.Output
		gen := st.touchLocked()
		st.replaceCheckLocked(e, &next, gen)
		e.run = gen
		c.version, c.stop = gen, append(c.stop, s.ID)
		c.start = append(c.start, started{d, gen, check.Start{Status: next.Status, Output: next.Output}, e.way})
		st.refreshAliasesLocked(next.ServiceID, 0)
	}
	st.loaded = 0
	return c
}

// resumeFailed goes on without the catalog's states when it cannot be read for want of a right.
func (st *state) resumeFailed(err error) {
	if errkind.Is(err, errkind.Unavailable) || errkind.Is(err, errkind.NotLeader) || errkind.Is(err, errkind.Unknown) {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.loaded = 0
}
