package statestore

import (
	"fmt"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/kvstore"
)

// txn applies all operations under one index, or none: it works on the draft
// and puts the former draft back when any operation failed. All operations are
// tried, so that every reason is told.
func (d *draft) txn(c *catalog.Txn, r *catalog.Result) {
	saved := *d
	d.fork()
	t := transaction{d, r}
	for i := range c.Ops {
		before := len(r.Txn)
		if err := t.op(&c.Ops[i]); err != nil {
			r.TxnErrors = append(r.TxnErrors, catalog.TxnError{OpIndex: i, What: err.Error()})
			r.Txn = r.Txn[:before]
		}
	}
	if len(r.TxnErrors) > 0 {
		*d = saved
		r.Txn = nil
		return
	}
	r.OK = true
}

// transaction is a Txn that is being applied.
type transaction struct {
	d *draft
	r *catalog.Result
}

// Query runs a Txn that only reads (see ReadOnly) against s.
func (s *State) Query(c *catalog.Txn) catalog.Result {
	r := catalog.Result{Index: s.index}
	// The draft is never turned into a State, and reading leaves no trace in s.
	s.draft().txn(c, &r)
	r.Index = s.index
	return r
}

func (t *transaction) op(op *catalog.TxnOp) error {
	switch {
	case op.KV != nil:
		return t.kv(op.KV)
	case op.Node != nil:
		return t.node(op.Verb, op.Node)
	case op.Service != nil:
		return t.service(op.Verb, op.Service)
	case op.Check != nil:
		return t.check(op.Verb, op.Check)
	}
	return refuse("operation has no KV, Node, Service or Check")
}

func (t *transaction) kv(c *catalog.KV) error {
	key := c.Pair.Key
	if c.Verb >= catalog.KVGet {
		out, err := t.d.t.kv.Read(t.r.Txn, c)
		t.r.Txn = out
		return err
	}
	ok, err := t.d.kv(c)
	if err != nil {
		return err
	}
	if !ok {
		return kvstore.Refused(c.Verb, key)
	}
	if p := t.d.t.kv.Pair(key); p != nil && c.Verb <= catalog.KVUnlock {
		t.r.Txn = append(t.r.Txn, catalog.TxnResult{KV: kvstore.WithoutValue(p)})
	}
	return nil
}

// findNode finds a node by ID when one is given, else by name.
func (d *draft) findNode(n *catalog.Node) *nodeEntry {
	if n.ID != "" {
		return findNodeID(d.t.nodes.byID.Table, lower(n.ID))
	}
	return d.t.nodes.get(lower(n.Name))
}

// stale tells whether a check-and-set loses: index 0 asks for an object that is
// not there, any other for that very version.
func stale(exists bool, current, index uint64) bool {
	if !exists {
		return index != 0
	}
	return current != index
}

// lazy is an object's description, which only a refusal needs.
type lazy struct{ kind, id, node string }

// String implements fmt.Stringer.
func (l lazy) String() string {
	if l.kind == "node" {
		return fmt.Sprintf("node %q", l.id)
	}
	return fmt.Sprintf("%s %q on node %q", l.kind, l.id, l.node)
}

func (t *transaction) node(verb catalog.TxnVerb, n *catalog.Node) error {
	e := t.d.findNode(n)
	what := lazy{"node", n.Name, ""}
	var current uint64
	if e != nil {
		current = e.node.ModifyIndex
	}
	switch verb {
	case catalog.TxnGet:
		if e == nil {
			return refuse("%s doesn't exist", what)
		}
		t.r.Txn = append(t.r.Txn, catalog.TxnResult{Node: e.node})
	case catalog.TxnCAS, catalog.TxnSet:
		if verb == catalog.TxnCAS && stale(e != nil, current, n.ModifyIndex) {
			return refuse("failed to set %s, index is stale", what)
		}
		if err := t.d.register(&catalog.Register{Node: *n}); err != nil {
			return err
		}
		t.r.Txn = append(t.r.Txn, catalog.TxnResult{Node: t.d.t.nodes.get(lower(n.Name)).node})
	case catalog.TxnDelete, catalog.TxnDeleteCAS:
		if verb == catalog.TxnDeleteCAS && (e == nil || current != n.ModifyIndex) {
			return refuse("failed to delete %s, index is stale", what)
		}
		if e != nil {
			t.d.removeNode(e.key)
		}
	default:
		return refuse("unknown node operation %d", verb)
	}
	return nil
}

func (t *transaction) service(verb catalog.TxnVerb, s *catalog.Service) error {
	node := lower(s.Node)
	what := lazy{"service", s.ID, s.Node}
	old := findService(t.d.t.services.byNode.Table, node, s.ID)
	exists, current := old != nil, uint64(0)
	if exists {
		current = old.ModifyIndex
	}
	switch verb {
	case catalog.TxnGet:
		if !exists {
			return refuse("%s doesn't exist", what)
		}
		t.r.Txn = append(t.r.Txn, catalog.TxnResult{Service: &old.Service})
	case catalog.TxnCAS, catalog.TxnSet:
		if t.d.t.nodes.get(node) == nil {
			return refuse("Missing node registration")
		}
		if verb == catalog.TxnCAS && stale(exists, current, s.ModifyIndex) {
			return refuse("failed to set %s, index is stale", what)
		}
		t.d.setService(node, s)
		t.r.Txn = append(t.r.Txn, catalog.TxnResult{Service: &findService(t.d.t.services.byNode.Table, node, s.ID).Service})
	case catalog.TxnDelete, catalog.TxnDeleteCAS:
		if verb == catalog.TxnDeleteCAS && (!exists || current != s.ModifyIndex) {
			return refuse("failed to delete %s, index is stale", what)
		}
		if exists {
			t.d.removeService(old)
		}
	default:
		return refuse("unknown service operation %d", verb)
	}
	return nil
}

func (t *transaction) check(verb catalog.TxnVerb, c *catalog.Check) error {
	node := lower(c.Node)
	what := lazy{"check", c.ID, c.Node}
	old := findCheck(t.d.t.checks.byNode.Table, node, c.ID)
	exists, current := old != nil, uint64(0)
	if exists {
		current = old.ModifyIndex
	}
	switch verb {
	case catalog.TxnGet:
		if !exists {
			return refuse("%s doesn't exist", what)
		}
		t.r.Txn = append(t.r.Txn, catalog.TxnResult{Check: &old.Check})
	case catalog.TxnCAS, catalog.TxnSet:
		if t.d.t.nodes.get(node) == nil {
			return refuse("Missing node registration")
		}
		if c.ServiceID != "" && findService(t.d.t.services.byNode.Table, node, c.ServiceID) == nil {
			return refuse("Missing service registration")
		}
		if verb == catalog.TxnCAS && stale(exists, current, c.ModifyIndex) {
			return refuse("failed to set %s, index is stale", what)
		}
		t.d.setCheck(node, c)
		t.r.Txn = append(t.r.Txn, catalog.TxnResult{Check: &findCheck(t.d.t.checks.byNode.Table, node, c.ID).Check})
	case catalog.TxnDelete, catalog.TxnDeleteCAS:
		if verb == catalog.TxnDeleteCAS && (!exists || current != c.ModifyIndex) {
			return refuse("failed to delete %s, index is stale", what)
		}
		if exists {
			t.d.removeCheck(old)
		}
	default:
		return refuse("unknown check operation %d", verb)
	}
	return nil
}
