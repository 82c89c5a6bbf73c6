package catalog

import "slices"

func (d *draft) createSession(s *Session) error {
	if s.ID == "" {
		return refuse("Must provide ID")
	}
	if _, ok := d.t.sessions.Get(keyed[*Session]{key: s.ID}); ok {
		return refuse("session %q already exists", s.ID)
	}
	node := d.node(lower(s.Node))
	if node == nil {
		return refuse("Missing node registration")
	}
	for _, id := range s.NodeChecks {
		if err := d.checkForSession(node.key, id); err != nil {
			return err
		}
	}
	for _, ref := range s.ServiceChecks {
		if err := d.checkForSession(node.key, ref.ID); err != nil {
			return err
		}
	}
	d.touch()
	next := *s
	next.Node, next.CreateIndex, next.ModifyIndex = node.node.Name, d.at, d.at
	d.t.sessions.Set(keyed[*Session]{next.ID, &next})
	d.t.nodeSess.Set(pair[*Session]{node.key, next.ID, &next})
	d.ix.sessions = d.at
	d.changes.Sessions = append(d.changes.Sessions, Change[Session]{nil, &next, d.at})
	return nil
}

func (d *draft) checkForSession(node, id string) error {
	check := findCheck(d.t.checks.Table, node, id)
	switch {
	case check == nil:
		return refuse("Missing check '%s' registration", id)
	case check.Status == Critical:
		return refuse("Check '%s' is in critical state", id)
	}
	return nil
}

func (d *draft) destroySession(id string) {
	if item, ok := d.t.sessions.Get(keyed[*Session]{key: id}); ok {
		d.endSession(item.v)
	}
}

// endSession removes a session and gives up its locks as its Behavior says.
func (d *draft) endSession(s *Session) {
	d.touch()
	var held []string
	for item := range d.t.locks.From(pair[struct{}]{a: s.ID}) {
		if item.a != s.ID {
			break
		}
		held = append(held, item.b)
	}
	for _, key := range held {
		p := d.pair(key)
		if s.Behavior == BehaviorDelete {
			d.deletePair(p)
		} else {
			d.setPair(p, p, "", p.LockIndex)
		}
		if s.LockDelay > 0 {
			d.changes.LockDelays = append(d.changes.LockDelays, LockDelay{key, s.LockDelay})
		}
	}
	d.dropTied("s" + s.ID)
	d.t.sessions.Delete(keyed[*Session]{key: s.ID})
	d.t.nodeSess.Delete(pair[*Session]{a: lower(s.Node), b: s.ID})
	d.ix.sessions = d.at
	d.changes.Sessions = append(d.changes.Sessions, Change[Session]{s, nil, d.at})
}

// endSessionsOf ends the node's sessions that doomed picks.
func (d *draft) endSessionsOf(node string, doomed func(*Session) bool) {
	var list []*Session
	for s := range under(d.t.nodeSess.Table, node) {
		if doomed(s) {
			list = append(list, s)
		}
	}
	for _, s := range list {
		d.endSession(s)
	}
}

// dependsOn tells whether the session ends when the check turns critical or goes.
func dependsOn(s *Session, check string) bool {
	return slices.Contains(s.NodeChecks, check) ||
		slices.ContainsFunc(s.ServiceChecks, func(ref ServiceCheckRef) bool { return ref.ID == check })
}
