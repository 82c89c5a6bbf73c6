package local

import (
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
	"corbel.dev/corbel/kit/errkind"
)

// began notes what was loaded from disk and files: until the catalog was read, nothing of it is told.
func (b *board) began() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.checks) > 0 {
		b.loaded = b.version
	}
}

func (b *board) resuming() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.loaded > 0
}

// resume gives checks that were loaded and have not run yet the status that the catalog has. Without it each restart
// of an agent would take its services out of use until every check has run once.
func (l *Local) resume(stored []*catalog.Check) {
	l.order.Lock()
	defer l.order.Unlock()
	l.run(l.board.resume(stored))
}

func (b *board) resume(stored []*catalog.Check) change {
	b.mu.Lock()
	defer b.mu.Unlock()
	var c change
	for _, s := range stored {
		e := b.checks[s.ID]
		if e == nil || e.run > b.loaded || e.seq > 0 {
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
		gen := b.touchLocked()
		b.replaceCheckLocked(e, &next, gen)
		e.run = gen
		c.version, c.stop = gen, append(c.stop, s.ID)
		c.start = append(c.start, started{def: d, run: gen, status: next.Status, output: next.Output})
		b.refreshAliasesLocked(next.ServiceID, 0)
	}
	b.loaded = 0
	return c
}

// resumeFailed goes on without the catalog's states when it cannot be read for want of a right.
func (b *board) resumeFailed(err error) {
	if errkind.Is(err, errkind.Unavailable) || errkind.Is(err, errkind.NotLeader) || errkind.Is(err, errkind.Unknown) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.loaded = 0
}
