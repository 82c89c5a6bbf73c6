package local

import (
	"cmp"
	"slices"

	"corbel.dev/corbel/catalog"
)

// work is what one sync pass has to tell the catalog.
type work struct {
	version   uint64 // the board's version that it covers
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
func (b *board) collect() work {
	tokens := b.cfg.tokens()
	b.mu.Lock()
	defer b.mu.Unlock()
	w := work{version: b.version}
	for _, id := range sortedKeys(b.goneServices) {
		g := b.goneServices[id]
		w.removals = append(w.removals, removal{service: id, gen: g.gen, token: g.tokenFor(tokens)})
	}
	for _, id := range sortedKeys(b.goneChecks) {
		g := b.goneChecks[id]
		w.removals = append(w.removals, removal{check: id, gen: g.gen, token: g.tokenFor(tokens)})
	}
	type place struct{ service, token string }
	by := map[place]*registration{}
	of := func(service, token string) *registration {
		at := place{service, token}
		if by[at] == nil {
			node := b.nodeDirty && token == tokens.own() // nobody else may speak for the node
			by[at] = &registration{service: service, token: token, node: node,
				reg: &catalog.Register{Node: b.cfg.Node, SkipNodeUpdate: !node}}
		}
		return by[at]
	}
	if b.nodeDirty {
		of("", tokens.own()) // the node, with its own checks
	}
	for id := range b.dirtyServices {
		e := b.services[id]
		r := of(id, e.token(tokens))
		r.reg.Service, r.serviceGen = e.cur.Service, e.gen
	}
	for id := range b.dirtyChecks {
		e := b.checks[id]
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
func (b *board) settle(batch []registration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range batch {
		if r.node {
			b.nodeDirty = false
		}
		if e := b.services[r.service]; e != nil && r.serviceGen != 0 && e.gen == r.serviceGen {
			delete(b.dirtyServices, r.service)
		}
		for _, m := range r.checks {
			if e := b.checks[m.id]; e != nil && e.gen == m.gen {
				delete(b.dirtyChecks, m.id)
			}
		}
	}
}

// removed forgets a removal that was told, unless there is a newer one.
func (b *board) removed(r removal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.service != "" && b.goneServices[r.service].gen == r.gen {
		delete(b.goneServices, r.service)
	}
	if r.check != "" && b.goneChecks[r.check].gen == r.gen {
		delete(b.goneChecks, r.check)
	}
}

// tried wakes those who wait for an attempt that saw version.
func (b *board) tried(version uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.attempted = max(b.attempted, version)
	close(b.attempt)
	b.attempt = make(chan struct{})
}

// own is what Diff compares.
func (b *board) own() (Own, uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	node := b.cfg.Node
	o := Own{Node: &node, Services: make(map[string]*catalog.Service, len(b.services)),
		Checks: make(map[string]*catalog.Check, len(b.checks)), HeldBack: make(map[string]bool, len(b.heldBack))}
	for id, e := range b.services {
		o.Services[id] = e.cur.Service
	}
	for id, e := range b.checks {
		o.Checks[id] = e.cur.Check
	}
	for id := range b.heldBack {
		o.HeldBack[id] = true
	}
	return o, b.version
}

// plan marks what a Diff found. Entries that changed after version keep the
// marks that their change made.
func (b *board) plan(p Plan, version uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodeDirty = p.Node
	for id, tags := range p.Tags {
		b.adoptTagsLocked(id, tags, version)
	}
	for _, id := range p.Services {
		if b.services[id] != nil {
			b.dirtyServices[id] = struct{}{}
		}
	}
	for _, id := range p.ServicesInSync {
		if e := b.services[id]; e != nil && e.gen <= version {
			delete(b.dirtyServices, id)
			delete(b.goneServices, id)
		}
	}
	for _, id := range p.Checks {
		if b.checks[id] != nil {
			b.dirtyChecks[id] = struct{}{}
		}
	}
	for _, id := range p.ChecksInSync {
		if e := b.checks[id]; e != nil && e.gen <= version {
			delete(b.dirtyChecks, id)
			delete(b.goneChecks, id)
		}
	}
	for _, id := range p.RemoveServices {
		if _, marked := b.goneServices[id]; b.services[id] == nil && !marked {
			b.goneServices[id] = gone{gen: b.version}
		}
	}
	for _, id := range p.RemoveChecks {
		if _, marked := b.goneChecks[id]; b.checks[id] == nil && !marked {
			b.goneChecks[id] = gone{gen: b.version}
		}
	}
}

// adoptTagsLocked takes over the tags that somebody set in the catalog.
func (b *board) adoptTagsLocked(id string, tags []string, version uint64) {
	e := b.services[id]
	if e == nil || e.gen > version {
		return
	}
	svc := *e.cur.Service
	svc.Tags = tags
	b.touchLocked()
	close(e.replaced)
	e.cur = &Service{Service: &svc, Definition: e.cur.Definition, Hash: contentHash(&svc)}
	e.replaced = make(chan struct{})
	// The generation stays: the service itself is as it was registered.
	for _, ce := range b.checksOf[id] {
		c := *ce.cur.Check
		c.ServiceTags = tags
		ce.cur = &Check{Check: &c, Definition: ce.cur.Definition, CriticalSince: ce.cur.CriticalSince}
	}
}
