package local

import (
	"cmp"
	"slices"

	"corbel.dev/corbel/catalog"
)

// work is what one sync pass has to tell the catalog.
type work struct {
	version   uint64 // the state's version that it covers
	removals  []removal
	registers []registration
}

type removal struct {
	service, check string // one of them
	gen            uint64
	token          string
}

// registration is a register call and the marks that it clears.
type registration struct {
	reg        *catalog.Register
	token      string // on whose behalf
	node       bool
	service    string
	serviceGen uint64 // 0: checks only
	checks     []mark
}

type mark struct {
	id  string
	gen uint64
}

// collect gathers what is marked. The marks stay until settle.
func (st *state) collect() work {
	tokens := st.cfg.tokens()
	st.mu.Lock()
	defer st.mu.Unlock()
	w := work{version: st.version}
	for _, id := range sorted(st.pending.goneServices) {
		g := st.pending.goneServices[id]
		w.removals = append(w.removals, removal{service: id, gen: g.gen, token: g.tokenFor(tokens)})
	}
	for _, id := range sorted(st.pending.goneChecks) {
		g := st.pending.goneChecks[id]
		w.removals = append(w.removals, removal{check: id, gen: g.gen, token: g.tokenFor(tokens)})
	}
	type place struct{ service, token string }
	by := map[place]*registration{}
	of := func(service, token string) *registration {
		at := place{service, token}
		if by[at] == nil {
			node := st.pending.node && token == tokens.own() // nobody else may speak for the node
			by[at] = &registration{service: service, token: token, node: node,
				reg: &catalog.Register{Node: st.cfg.Node, SkipNodeUpdate: !node}}
		}
		return by[at]
	}
	if st.pending.node {
		of("", tokens.own()) // the node, with its own checks
	}
	for id := range st.pending.services {
		e := st.services[id]
		r := of(id, e.token(tokens))
		r.reg.Service, r.serviceGen = e.cur.Service, e.gen
	}
	for id := range st.pending.checks {
		e := st.checks[id]
		of(e.cur.Check.ServiceID, e.token(tokens)).checkOf(e.cur.Check, id, e.gen)
	}
	for _, r := range by {
		w.registers = append(w.registers, *r)
	}
	slices.SortFunc(w.registers, func(a, b registration) int {
		pa, ta := a.order()
		pb, tb := b.order()
		return cmp.Or(cmp.Compare(pa, pb), cmp.Compare(ta, tb), cmp.Compare(a.service, b.service))
	})
	return w
}

// settle clears the marks of what was told, unless it changed meanwhile.
func (st *state) settle(batch []registration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, r := range batch {
		if r.node {
			st.pending.node = false
		}
		if e := st.services[r.service]; e != nil && r.serviceGen != 0 && e.gen == r.serviceGen {
			delete(st.pending.services, r.service)
		}
		for _, m := range r.checks {
			if e := st.checks[m.id]; e != nil && e.gen == m.gen {
				delete(st.pending.checks, m.id)
			}
		}
	}
}

// removed forgets a removal that was told, unless there is a newer one.
func (st *state) removed(r removal) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if r.service != "" && st.pending.goneServices[r.service].gen == r.gen {
		delete(st.pending.goneServices, r.service)
	}
	if r.check != "" && st.pending.goneChecks[r.check].gen == r.gen {
		delete(st.pending.goneChecks, r.check)
	}
}

// own is what Diff compares.
func (st *state) own() (Own, uint64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	node := st.cfg.Node
	o := Own{Node: &node, Services: make(map[string]*catalog.Service, len(st.services)),
		Checks: make(map[string]*catalog.Check, len(st.checks)), HeldBack: make(map[string]bool, len(st.pending.heldBack))}
	for id, e := range st.services {
		o.Services[id] = e.cur.Service
	}
	for id, e := range st.checks {
		o.Checks[id] = e.cur.Check
	}
	for id := range st.pending.heldBack {
		o.HeldBack[id] = true
	}
	return o, st.version
}

// plan marks what a Diff found. Entries that changed after version keep the
// marks that their change made.
func (st *state) plan(p Plan, version uint64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.pending.node = p.Node
	for id, tags := range p.Tags {
		st.adoptTagsLocked(id, tags, version)
	}
	for _, id := range p.Services {
		if st.services[id] != nil {
			st.pending.services[id] = struct{}{}
		}
	}
	for _, id := range p.ServicesInSync {
		if e := st.services[id]; e != nil && e.gen <= version {
			delete(st.pending.services, id)
			delete(st.pending.goneServices, id)
		}
	}
	for _, id := range p.Checks {
		if st.checks[id] != nil {
			st.pending.checks[id] = struct{}{}
		}
	}
	for _, id := range p.ChecksInSync {
		if e := st.checks[id]; e != nil && e.gen <= version {
			delete(st.pending.checks, id)
			delete(st.pending.goneChecks, id)
		}
	}
	for _, id := range p.RemoveServices {
		if _, marked := st.pending.goneServices[id]; st.services[id] == nil && !marked {
			st.pending.goneServices[id] = gone{gen: st.version}
		}
	}
	for _, id := range p.RemoveChecks {
		if _, marked := st.pending.goneChecks[id]; st.checks[id] == nil && !marked {
			st.pending.goneChecks[id] = gone{gen: st.version}
		}
	}
}

// adoptTagsLocked takes over the tags that somebody set in the catalog.
func (st *state) adoptTagsLocked(id string, tags []string, version uint64) {
	e := st.services[id]
	if e == nil || e.gen > version {
		return
	}
	svc := *e.cur.Service
	svc.Tags = tags
	st.touchLocked()
	close(e.replaced)
	e.cur = &Service{Service: &svc, Definition: e.cur.Definition, Hash: contentHash(&svc)}
	e.replaced = make(chan struct{})
	// The generation stays: the service itself is as it was registered.
	for _, ce := range st.checksOf[id] {
		c := *ce.cur.Check
		c.ServiceTags = tags
		ce.cur = &Check{Check: &c, Definition: ce.cur.Definition, CriticalSince: ce.cur.CriticalSince}
	}
}
