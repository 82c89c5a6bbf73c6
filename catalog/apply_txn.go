package catalog

import "fmt"

// txn applies all operations under one index, or none: it works on the draft
// and puts the former draft back when any operation failed. All operations are
// tried, so that every reason is told.
func (d *draft) txn(c *Txn, r *Result) {
	saved := *d
	d.fork()
	for i := range c.Ops {
		before := len(r.Txn)
		if err := d.txnOp(&c.Ops[i], r); err != nil {
			r.TxnErrors = append(r.TxnErrors, TxnError{OpIndex: i, What: err.Error()})
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

func (d *draft) txnOp(op *TxnOp, r *Result) error {
	switch {
	case op.KV != nil:
		return d.txnKV(op.KV, r)
	case op.Node != nil:
		return d.txnNode(op.Verb, op.Node, r)
	case op.Service != nil:
		return d.txnService(op.Verb, op.Service, r)
	case op.Check != nil:
		return d.txnCheck(op.Verb, op.Check, r)
	}
	return refuse("operation has no KV, Node, Service or Check")
}

// Query runs a Txn that only reads (see ReadOnly) against s.
func (s *State) Query(c *Txn) Result {
	r := Result{Index: s.index}
	// The draft is never turned into a State, and reading leaves no trace in s.
	s.draft().txn(c, &r)
	r.Index = s.index
	return r
}

// ReadOnly tells whether every operation of the Txn is one that reads.
func (c *Txn) ReadOnly() bool {
	for i := range c.Ops {
		switch op := &c.Ops[i]; {
		case op.KV != nil && op.KV.Verb < KVGet:
			return false
		case op.KV == nil && op.Verb != TxnGet:
			return false
		}
	}
	return true
}

func (d *draft) txnKV(c *KV, r *Result) error {
	key := c.Pair.Key
	if c.Verb >= KVGet {
		return d.txnRead(c, r)
	}
	ok, err := d.kv(c)
	if err != nil {
		return err
	}
	if !ok {
		switch c.Verb {
		case KVCAS:
			return refuse("failed to set key %q, index is stale", key)
		case KVDeleteCAS:
			return refuse("failed to delete key %q, index is stale", key)
		case KVLock:
			return refuse("failed to lock key %q, lock is already held", key)
		}
		return refuse("failed to unlock key %q, lock isn't held, or is held by another session", key)
	}
	if p := d.pair(key); p != nil && c.Verb <= KVUnlock {
		r.Txn = append(r.Txn, TxnResult{KV: withoutValue(p)})
	}
	return nil
}

func withoutValue(p *KVPair) *KVPair {
	bare := *p
	bare.Value = nil
	return &bare
}

func (d *draft) txnRead(c *KV, r *Result) error {
	key := c.Pair.Key
	if c.Verb == KVGetTree {
		for p := range (&State{tables: tables{kv: d.t.kv.Table}}).KVPrefix(key) {
			r.Txn = append(r.Txn, TxnResult{KV: p})
		}
		return nil
	}
	p := d.pair(key)
	switch {
	case c.Verb == KVCheckNotExists:
		if p != nil {
			return refuse("key %q exists", key)
		}
		return nil
	case p == nil && c.Verb == KVGetOrEmpty:
		r.Txn = append(r.Txn, TxnResult{KV: &KVPair{Key: key}})
		return nil
	case p == nil:
		return refuse("key %q doesn't exist", key)
	case c.Verb == KVCheckIndex && p.ModifyIndex != c.Pair.ModifyIndex:
		return refuse("failed index check for key %q, current modify index %d != %d", key, p.ModifyIndex, c.Pair.ModifyIndex)
	case c.Verb == KVCheckSession && p.Session != c.Pair.Session:
		return refuse("failed session check for key %q, current session %q != %q", key, p.Session, c.Pair.Session)
	case c.Verb == KVGet, c.Verb == KVGetOrEmpty:
		r.Txn = append(r.Txn, TxnResult{KV: p})
		return nil
	case c.Verb == KVCheckIndex, c.Verb == KVCheckSession:
		r.Txn = append(r.Txn, TxnResult{KV: withoutValue(p)})
		return nil
	}
	return refuse("unknown KV operation %d", c.Verb)
}

// findNode finds a node by ID when one is given, else by name.
func (d *draft) findNode(n *Node) *nodeEntry {
	if n.ID != "" {
		return findNodeID(d.t.nodeIDs.Table, lower(n.ID))
	}
	return d.node(lower(n.Name))
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

func (d *draft) txnNode(verb TxnVerb, n *Node, r *Result) error {
	e := d.findNode(n)
	what := lazy{"node", n.Name, ""}
	var current uint64
	if e != nil {
		current = e.node.ModifyIndex
	}
	switch verb {
	case TxnGet:
		if e == nil {
			return refuse("%s doesn't exist", what)
		}
		r.Txn = append(r.Txn, TxnResult{Node: e.node})
	case TxnCAS, TxnSet:
		if verb == TxnCAS && stale(e != nil, current, n.ModifyIndex) {
			return refuse("failed to set %s, index is stale", what)
		}
		if err := d.register(&Register{Node: *n}); err != nil {
			return err
		}
		r.Txn = append(r.Txn, TxnResult{Node: d.node(lower(n.Name)).node})
	case TxnDelete, TxnDeleteCAS:
		if verb == TxnDeleteCAS && (e == nil || current != n.ModifyIndex) {
			return refuse("failed to delete %s, index is stale", what)
		}
		if e != nil {
			d.removeNode(e.key)
		}
	default:
		return refuse("unknown node operation %d", verb)
	}
	return nil
}

func (d *draft) txnService(verb TxnVerb, s *Service, r *Result) error {
	node := lower(s.Node)
	what := lazy{"service", s.ID, s.Node}
	old := findService(d.t.services.Table, node, s.ID)
	exists, current := old != nil, uint64(0)
	if exists {
		current = old.ModifyIndex
	}
	switch verb {
	case TxnGet:
		if !exists {
			return refuse("%s doesn't exist", what)
		}
		r.Txn = append(r.Txn, TxnResult{Service: &old.Service})
	case TxnCAS, TxnSet:
		if d.node(node) == nil {
			return refuse("Missing node registration")
		}
		if verb == TxnCAS && stale(exists, current, s.ModifyIndex) {
			return refuse("failed to set %s, index is stale", what)
		}
		d.setService(node, s)
		r.Txn = append(r.Txn, TxnResult{Service: &findService(d.t.services.Table, node, s.ID).Service})
	case TxnDelete, TxnDeleteCAS:
		if verb == TxnDeleteCAS && (!exists || current != s.ModifyIndex) {
			return refuse("failed to delete %s, index is stale", what)
		}
		if exists {
			d.removeService(old)
		}
	default:
		return refuse("unknown service operation %d", verb)
	}
	return nil
}

func (d *draft) txnCheck(verb TxnVerb, c *Check, r *Result) error {
	node := lower(c.Node)
	what := lazy{"check", c.ID, c.Node}
	old := findCheck(d.t.checks.Table, node, c.ID)
	exists, current := old != nil, uint64(0)
	if exists {
		current = old.ModifyIndex
	}
	switch verb {
	case TxnGet:
		if !exists {
			return refuse("%s doesn't exist", what)
		}
		r.Txn = append(r.Txn, TxnResult{Check: &old.Check})
	case TxnCAS, TxnSet:
		if d.node(node) == nil {
			return refuse("Missing node registration")
		}
		if c.ServiceID != "" && findService(d.t.services.Table, node, c.ServiceID) == nil {
			return refuse("Missing service registration")
		}
		if verb == TxnCAS && stale(exists, current, c.ModifyIndex) {
			return refuse("failed to set %s, index is stale", what)
		}
		d.setCheck(node, c)
		r.Txn = append(r.Txn, TxnResult{Check: &findCheck(d.t.checks.Table, node, c.ID).Check})
	case TxnDelete, TxnDeleteCAS:
		if verb == TxnDeleteCAS && (!exists || current != c.ModifyIndex) {
			return refuse("failed to delete %s, index is stale", what)
		}
		if exists {
			d.removeCheck(old)
		}
	default:
		return refuse("unknown check operation %d", verb)
	}
	return nil
}
