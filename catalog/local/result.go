package local

import (
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
)

// remoteAliasInterval is how often an alias of another node looks at the catalog.
const remoteAliasInterval = 10 * time.Second

// result takes what a run of a check gave; true when the catalog is to be told now.
func (b *board) result(id string, run, seq uint64, r check.Result) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.checks[id]
	if e == nil || e.run != run || seq <= e.seq {
		return false // of a run that has been replaced, or overtaken by a newer result
	}
	e.seq = seq
	if ttl := e.cur.Definition.TTL; ttl > 0 && e.cur.Definition.Kind() == check.KindTTL {
		b.ttlSeen[id], b.ttlBeaten = b.cfg.Clock.Now().Add(ttl), true
	}
	return b.setLocked(id, e, r.Status, r.Output)
}

// setLocked stores a status and an output. A new status is told at once, a new
// output at most once per CheckUpdateInterval.
func (b *board) setLocked(id string, e *checkEntry, status catalog.Health, output string) bool {
	if b.cfg.DiscardCheckOutput {
		output = ""
	}
	old := e.cur.Check
	if old.Status == status && old.Output == output {
		return false
	}
	gen := b.touchLocked()
	c := *old
	c.Status, c.Output = status, output
	_, dirty := b.dirtyChecks[id]
	b.replaceCheckLocked(e, &c, gen)
	if old.Status != status {
		b.ttlChanged = b.ttlChanged || e.cur.Definition.Kind() == check.KindTTL
		e.outputAt = time.Time{}
		delete(b.heldBack, id)
		b.refreshAliasesLocked(c.ServiceID, 0)
		return true
	}
	if b.cfg.CheckUpdateInterval <= 0 {
		return true
	}
	if !dirty {
		delete(b.dirtyChecks, id)
		if e.outputAt.IsZero() {
			half := b.cfg.CheckUpdateInterval / 2
			e.outputAt = b.cfg.Clock.Now().Add(half + time.Duration(b.cfg.Rand(int64(2*half)+1)))
			b.heldBack[id] = e
		}
	}
	return false
}

// releaseOutputs marks the outputs whose time has come; true when there are any.
func (b *board) releaseOutputs(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := false
	for id, e := range b.heldBack {
		if !e.outputAt.After(now) {
			e.outputAt = time.Time{}
			delete(b.heldBack, id)
			b.dirtyChecks[id] = struct{}{}
			found = true
		}
	}
	return found
}

// maxAliasDepth ends circles of services that alias each other.
const maxAliasDepth = 8

// refreshAliasesLocked recomputes the local aliases of a service after one of
// its checks changed; a change of a node check concerns all aliases of the node.
func (b *board) refreshAliasesLocked(serviceID string, depth int) {
	if depth > maxAliasDepth {
		return
	}
	for id, e := range b.aliases[serviceID] {
		if b.refreshAliasOnceLocked(id, e) && e.cur.Check.ServiceID != serviceID {
			b.refreshAliasesLocked(e.cur.Check.ServiceID, depth+1)
		}
	}
}

func (b *board) refreshAliasLocked(e *checkEntry) {
	if b.localAlias(e.cur.Definition) {
		b.refreshAliasOnceLocked(e.cur.Check.ID, e)
	}
}

// refreshAliasOnceLocked reports whether the status changed.
func (b *board) refreshAliasOnceLocked(id string, e *checkEntry) bool {
	target := e.cur.Definition.AliasService
	r := check.Result{Status: catalog.Critical, Output: "Service " + target + " could not be found"}
	switch {
	case !b.seesLocked(e.cur.Definition):
		r.Output = "The check's token may not read what it is an alias of"
	case target == "" || b.services[target] != nil:
		var checks []*catalog.Check
		for otherID, other := range b.checksOf[target] {
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
	if b.cfg.DiscardCheckOutput {
		c.Output = ""
	}
	b.replaceCheckLocked(e, &c, b.touchLocked())
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
