package statestore

import (
	"iter"
	"slices"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/core/table"
)

func (d *draft) createSession(s *catalog.Session) error {
	if s.ID == "" {
		return refuse("Must provide ID")
	}
	if d.t.sessions.get(s.ID) != nil {
		return refuse("session %q already exists", s.ID)
	}
	node := d.t.nodes.get(lower(s.Node))
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
	d.t.sessions.put(node.key, &next)
	d.t.sessions.index = d.at
	d.changes.Sessions = append(d.changes.Sessions, catalog.Change[catalog.Session]{Before: nil, After: &next,
		Index: d.at})
	return nil
}

func (d *draft) checkForSession(node, id string) error {
	check := findCheck(d.t.checks.byNode.Table, node, id)
	switch {
	case check == nil:
		return refuse("Missing check '%s' registration", id)
	case check.Status == catalog.Critical:
		return refuse("Check '%s' is in critical state", id)
	}
	return nil
}

// endSession removes a session and gives up its locks as its Behavior says.
func (d *draft) endSession(s *catalog.Session) {
	d.touch()
	for _, key := range d.t.kv.Release(s.ID, s.Behavior == catalog.BehaviorDelete) {
		if s.LockDelay > 0 {
			d.changes.LockDelays = append(d.changes.LockDelays, catalog.LockDelay{Key: key, Delay: s.LockDelay})
		}
	}
	d.dropTied("s" + s.ID)
	d.t.sessions.drop(s)
	d.t.sessions.index = d.at
	d.changes.Sessions = append(d.changes.Sessions, catalog.Change[catalog.Session]{Before: s, After: nil, Index: d.at})
}

// endSessionsOf ends the node's sessions that doomed picks.
func (d *draft) endSessionsOf(node string, doomed func(*catalog.Session) bool) {
	var list []*catalog.Session
	for s := range under(d.t.sessions.byNode.Table, node) {
		if doomed(s) {
			list = append(list, s)
		}
	}
	for _, s := range list {
		d.endSession(s)
	}
}

// dependsOn tells whether the session ends when the check turns critical or goes.
func dependsOn(s *catalog.Session, check string) bool {
	return slices.Contains(s.NodeChecks, check) ||
		slices.ContainsFunc(s.ServiceChecks, func(ref catalog.ServiceCheckRef) bool { return ref.ID == check })
}

// sessions are the sessions of a State.
type sessions struct {
	index  uint64 // last change
	byID   table.Table[keyed[*catalog.Session]]
	byNode table.Table[pair[*catalog.Session]] // by node, id
}

type sessionEdits struct {
	index  uint64
	byID   table.Edit[keyed[*catalog.Session]]
	byNode table.Edit[pair[*catalog.Session]]
}

func emptySessions() sessions {
	return sessions{byID: table.New(compareKeyed[*catalog.Session]), byNode: table.New(comparePair[*catalog.Session])}
}

func (s *sessions) edit() sessionEdits { return sessionEdits{s.index, s.byID.Edit(), s.byNode.Edit()} }

func (t *sessionEdits) done() sessions { return sessions{t.index, t.byID.Done(), t.byNode.Done()} }

func (t *sessionEdits) fork() {
	t.byID.Fork()
	t.byNode.Fork()
}

// get returns one session, or nil.
func (t *sessionEdits) get(id string) *catalog.Session {
	item, _ := t.byID.Get(keyed[*catalog.Session]{key: id})
	return item.v
}

func (t *sessionEdits) put(node string, s *catalog.Session) {
	t.byID.Set(keyed[*catalog.Session]{s.ID, s})
	t.byNode.Set(pair[*catalog.Session]{node, s.ID, s})
}

func (t *sessionEdits) drop(s *catalog.Session) {
	t.byID.Delete(keyed[*catalog.Session]{key: s.ID})
	t.byNode.Delete(pair[*catalog.Session]{a: lower(s.Node), b: s.ID})
}

// Session returns one session, or nil.
func (s *sessions) Session(id string) *catalog.Session {
	item, _ := s.byID.Get(keyed[*catalog.Session]{key: id})
	return item.v
}

// Sessions yields every session by ID.
func (s *sessions) Sessions() iter.Seq[*catalog.Session] {
	return func(yield func(*catalog.Session) bool) {
		for item := range s.byID.All() {
			if !yield(item.v) {
				return
			}
		}
	}
}

// SessionsOfNode yields a node's sessions by ID.
func (s *sessions) SessionsOfNode(node string) iter.Seq[*catalog.Session] {
	return under(s.byNode, lower(node))
}

// SessionsIndex changes with every session.
func (s *sessions) SessionsIndex() uint64 { return floor(s.index) }
