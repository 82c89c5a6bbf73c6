package local

import (
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
)

// remoteAliasInterval is how often an alias of another node looks at the catalog.
const remoteAliasInterval = 10 * time.Second

// result takes what a run of a check gave; true when the catalog is to be told now.
func (st *state) result(id string, run, seq uint64, r check.Result) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.checks[id]
	if e == nil || e.run != run || seq <= e.seq {
		return false // of a run that has been replaced, or overtaken by a newer result
	}
	e.seq = seq
	if ttl := e.cur.Definition.TTL; ttl > 0 && e.cur.Definition.Kind() == check.KindTTL {
		st.ttl.seen[id], st.ttl.beaten = st.cfg.Clock.Now().Add(ttl), true
	}
	return st.setLocked(id, e, r.Status, r.Output)
}

// setLocked stores a status and an output. A new status is told at once, a new
// output at most once per CheckUpdateInterval.
func (st *state) setLocked(id string, e *checkEntry, status catalog.Health, output string) bool {
	if st.discardOutput {
		output = ""
	}
	old := e.cur.Check
	if old.Status == status && old.Output == output {
		return false
	}
	gen := st.touchLocked()
	c := *old
	c.Status, c.Output = status, output
	_, dirty := st.pending.checks[id]
	st.replaceCheckLocked(e, &c, gen)
	if old.Status != status {
		st.ttl.changed = st.ttl.changed || e.cur.Definition.Kind() == check.KindTTL
		e.outputAt = time.Time{}
		delete(st.pending.heldBack, id)
		st.refreshAliasesLocked(c.ServiceID, 0)
		return true
	}
	if st.cfg.CheckUpdateInterval <= 0 {
		return true
	}
	if !dirty {
		delete(st.pending.checks, id)
		if e.outputAt.IsZero() {
			half := st.cfg.CheckUpdateInterval / 2
			e.outputAt = st.cfg.Clock.Now().Add(half + time.Duration(st.cfg.Rand(int64(2*half)+1)))
			st.pending.heldBack[id] = e
		}
	}
	return false
}

// releaseOutputs marks the outputs whose time has come; true when there are any.
func (st *state) releaseOutputs(now time.Time) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	found := false
	for id, e := range st.pending.heldBack {
		if !e.outputAt.After(now) {
			e.outputAt = time.Time{}
			delete(st.pending.heldBack, id)
			st.pending.checks[id] = struct{}{}
			found = true
		}
	}
	return found
}

// maxAliasDepth ends circles of services that alias each other.
const maxAliasDepth = 8

// refreshAliasesLocked recomputes the local aliases of a service after one of
// its checks changed; a change of a node check concerns all aliases of the node.
func (st *state) refreshAliasesLocked(serviceID string, depth int) {
	if depth > maxAliasDepth {
		return
	}
	for id, e := range st.aliases.byTarget[serviceID] {
		if st.refreshAliasOnceLocked(id, e) && e.cur.Check.ServiceID != serviceID {
			st.refreshAliasesLocked(e.cur.Check.ServiceID, depth+1)
		}
	}
}

func (st *state) refreshAliasLocked(e *checkEntry) {
	if st.localAlias(e.cur.Definition) {
		st.refreshAliasOnceLocked(e.cur.Check.ID, e)
	}
}

// refreshAliasOnceLocked reports whether the status changed.
func (st *state) refreshAliasOnceLocked(id string, e *checkEntry) bool {
	target := e.cur.Definition.AliasService
	r := check.Result{Status: catalog.Critical, Output: "Service " + target + " could not be found"}
	switch {
	case !st.seesLocked(e.cur.Definition):
		r.Output = "The check's token may not read what it is an alias of"
	case target == "" || st.services[target] != nil:
		var checks []*catalog.Check
		for otherID, other := range st.checksOf[target] {
			if otherID != id {
				checks = append(checks, other.cur.Check)
			}
		}
		r = aliasResult(checks)
	}
	old := e.cur.Check.Status
	if r.Status == old && r.Output == e.cur.Check.Output {
		return false
	}
	c := *e.cur.Check
	c.Status, c.Output = r.Status, r.Output
	if st.discardOutput {
		c.Output = ""
	}
	st.replaceCheckLocked(e, &c, st.touchLocked())
	return r.Status != old
}

// aliasResult copies the worst state of the target's checks.
func aliasResult(checks []*catalog.Check) check.Result {
	if len(checks) == 0 {
		return check.Result{Status: catalog.Passing, Output: "No checks found."}
	}
	worst := checks[0]
	for _, c := range checks[1:] {
		if c.Status > worst.Status || c.Status == worst.Status && c.ID < worst.ID {
			worst = c
		}
	}
	if worst.Status == catalog.Passing {
		return check.Result{Status: catalog.Passing, Output: "All checks passing."}
	}
	return check.Result{Status: worst.Status, Output: "Aliased check \"" + worst.Name + "\" failing: " + worst.Output}
}
