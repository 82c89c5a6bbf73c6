package statestore

import (
	"maps"
	"slices"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/sections"
	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/kit/pack"
)

// loader builds a State from a snapshot's sections. The primary tables come in
// key order and are filled from the left; the others are derived. What does not
// fit together is damage: a State that breaks its invariants must never be served.
//
// Services and checks come by node and id. Collected by name they are in the
// order of the other tables too, which are then filled from the left as well.
type loader struct {
	in      *sections.Reader
	d       *draft
	section uint64 // the lowest section that may come next
	last    [2]string
	node    *nodeEntry

	indexed bool // the collected ones are in their tables
	names   map[string]*bucket
	dests   map[string]*bucket
	owned   []*checkEntry   // the checks of one node
	hosts   []*catalog.Node // the same
}

// bucket collects what is found under one service name.
type bucket struct {
	entry    *nameEntry
	services []*serviceEntry
	check    *checkEntry // one of them
	tags     map[string]int
}

func (l *loader) merge(r *pack.Reader) {
	if r.Err() != nil {
		l.in.Fail()
	}
}

// inOrder tells whether the key is after the one before; if not, the input is damaged.
func (l *loader) inOrder(first bool, a, b string) bool {
	if !first && (a < l.last[0] || a == l.last[0] && b <= l.last[1]) {
		l.in.Fail()
		return false
	}
	l.last = [2]string{a, b}
	return true
}

func (l *loader) load(section, count int) {
	if section > sectionChecks {
		l.index()
	}
	for i := range count {
		r := l.in.Next()
		if l.in.Err() != nil {
			return
		}
		if section == sectionRecordKinds && i < catalog.RecordKinds {
			l.d.t.records.indexes[i] = r.Uint()
			l.merge(r)
			continue
		}
		l.one(section, i == 0, r)
		l.merge(r)
	}
}

// one loads one object. Sections of a later minor version are passed over.
func (l *loader) one(section int, first bool, r *pack.Reader) {
	t := &l.d.t
	switch section {
	case sectionNodes:
		l.loadNode(first, r)
	case sectionServices:
		l.loadService(first, r)
	case sectionChecks:
		l.loadCheck(first, r)
	case sectionNames:
		name := r.String()
		e := findName(t.services.names.Table, lower(name))
		if e == nil || !l.inOrder(first, e.key, "") {
			l.in.Fail()
			return
		}
		e.summary.Name = name
		e.index, e.checksIndex, e.listIndex = r.Uint(), r.Uint(), r.Uint()
	case sectionDests:
		e := findName(t.services.dests.Table, r.String())
		if e == nil || !l.inOrder(first, e.key, "") {
			l.in.Fail()
			return
		}
		e.index, e.checksIndex = r.Uint(), r.Uint()
	case sectionKV:
		p := catalog.ReadKVPair(r)
		if l.inOrder(first, p.Key, "") {
			t.kv.LoadPair(p)
		}
	case sectionTombstones:
		key, index := r.String(), r.Uint()
		if l.inOrder(first, key, "") {
			t.kv.LoadTombstone(key, index)
		}
	case sectionDirs:
		key := r.String()
		if l.inOrder(first, key, "") {
			t.kv.LoadFolder(key, r.Uint())
		}
	case sectionSessions:
		l.loadSession(first, catalog.ReadSession(r))
	case sectionRecords:
		l.loadRecord(first, catalog.ReadRecord(r))
	case sectionGone:
		l.loadGone(first, r)
	}
}

func (l *loader) loadNode(first bool, r *pack.Reader) {
	n := catalog.ReadNode(r)
	e := &nodeEntry{epoch: 1, key: lower(n.Name), idKey: lower(n.ID), node: n, index: r.Uint(), checksIndex: r.Uint()}
	if n.Name == "" || !l.inOrder(first, e.key, "") {
		l.in.Fail()
		return
	}
	if l.node != nil {
		shareNodeStrings(n, l.node.node)
	}
	l.node = e
	l.d.t.nodes.byName.Load(e)
	l.hosts = append(l.hosts, n)
	if n.ID != "" {
		l.d.t.nodes.byID.Set(e)
	}
}

// owner finds the node of an object; objects come in the order of their nodes.
func (l *loader) owner(name string) *nodeEntry {
	if l.node == nil || l.node.node.Name != name {
		if l.node = l.d.t.nodes.get(lower(name)); l.node == nil {
			l.in.Fail()
		}
	}
	return l.node
}

func (l *loader) loadService(first bool, r *pack.Reader) {
	s := &serviceEntry{Service: *catalog.ReadService(r)}
	e := l.owner(s.Node)
	if e == nil || !l.inOrder(first, e.key, s.ID) {
		return
	}
	s.Node, s.nodeKey = e.node.Name, e.key
	b := bucketOf(&l.names, lower(s.Name))
	if len(b.services) > 0 {
		shareServiceStrings(&s.Service, &b.services[0].Service)
	}
	s.nameKey = b.entry.key
	l.d.t.services.byNode.Load(s)
	b.services = append(b.services, s)
	if at := r.Uint(); at > 0 {
		l.d.t.services.touched.Set(&touchEntry{epoch: 1, index: at, name: s.nameKey, node: s.nodeKey, id: s.ID})
	}
	b.entry.summary.Name = s.Name
	for _, tag := range s.Tags {
		if b.tags == nil {
			b.tags = make(map[string]int)
		}
		b.tags[tag]++
	}
	if dest := s.ConnectsTo(); dest != "" {
		b := bucketOf(&l.dests, dest)
		s.destKey = b.entry.key
		b.services = append(b.services, s)
	}
}

func bucketOf(buckets *map[string]*bucket, name string) *bucket {
	b := (*buckets)[name]
	if b == nil {
		if *buckets == nil {
			*buckets = make(map[string]*bucket)
		}
		b = &bucket{entry: &nameEntry{epoch: 1, key: name}}
		(*buckets)[name] = b
	}
	b.entry.count++
	b.entry.summary.Instances = b.entry.count
	return b
}

// index fills the tables that are ordered by name, once all services and checks are there.
func (l *loader) index() {
	if l.indexed {
		return
	}
	l.indexed = true
	l.flushOwned()
	t := &l.d.t
	for _, name := range slices.Sorted(maps.Keys(l.names)) {
		b := l.names[name]
		b.entry.service, b.entry.check = b.services[0], b.check
		t.services.names.Load(b.entry)
		for _, item := range b.services {
			t.services.byName.Load(item)
		}
		t.services.unionTags(b.entry, b.tags)
	}
	for _, name := range slices.Sorted(maps.Keys(l.dests)) {
		b := l.dests[name]
		t.services.dests.Load(b.entry)
		for _, item := range b.services {
			t.services.byDest.Load(item)
		}
	}
	l.names, l.dests = nil, nil
	slices.SortFunc(l.hosts, compareNodeAge)
	for _, n := range l.hosts {
		t.nodes.byAge.Load(n)
	}
	l.hosts = nil
}

// flushOwned puts one node's checks in the order of their services.
func (l *loader) flushOwned() {
	slices.SortFunc(l.owned, compareOwned)
	for _, item := range l.owned {
		l.d.t.checks.byOwner.Load(item)
	}
	l.owned = l.owned[:0]
}

func (l *loader) loadCheck(first bool, r *pack.Reader) {
	c, d := &checkEntry{Check: *catalog.ReadCheck(r)}, l.d
	e := l.owner(c.Node)
	if e == nil || !l.inOrder(first, e.key, c.ID) {
		return
	}
	c.Node, c.nodeKey = e.node.Name, e.key
	var owner *serviceEntry
	if c.ServiceID != "" {
		owner = findService(d.t.services.byNode.Table, e.key, c.ServiceID)
		if owner == nil || owner.Name != c.ServiceName {
			l.in.Fail()
			return
		}
		c.ServiceID, c.ServiceName, c.ServiceTags = owner.ID, owner.Name, owner.Tags
	}
	d.t.checks.byNode.Load(c)
	if len(l.owned) > 0 && l.owned[0].nodeKey != e.key {
		l.flushOwned()
	}
	l.owned = append(l.owned, c)
	if owner == nil {
		shareCheckStrings(&c.Check, serfHealth)
		return
	}
	b := l.names[owner.nameKey]
	if b.check != nil {
		shareCheckStrings(&c.Check, &b.check.Check)
	}
	b.check = c
}

func (l *loader) loadSession(first bool, s *catalog.Session) {
	e := l.owner(s.Node)
	if e == nil || !l.inOrder(first, s.ID, "") {
		return
	}
	s.Node = e.node.Name
	l.d.t.sessions.byID.Load(keyed[*catalog.Session]{s.ID, s})
	l.d.t.sessions.byNode.Set(pair[*catalog.Session]{e.key, s.ID, s})
}

func (l *loader) loadRecord(first bool, r *catalog.Record) {
	d := l.d
	if r.Kind == 0 || r.Kind >= catalog.RecordKinds || r.Key == "" || !l.inOrder(first, recordKey(r.Kind), r.Key) {
		l.in.Fail()
		return
	}
	session := d.t.sessions.get(r.Session) != nil
	_, taken := d.t.records.byName.Get(pair[*catalog.Record]{a: recordKey(r.Kind), b: r.Name})
	if r.Session != "" && !session || r.Name != "" && taken || r.Node != "" && d.t.nodes.get(lower(r.Node)) == nil {
		l.in.Fail()
		return
	}
	d.t.records.put(r)
}

// complete tells whether the parts fit together: each name has its indexes, each lock its session.
func (l *loader) complete() bool {
	l.index()
	t := &l.d.t
	for _, names := range []*table.Edit[*nameEntry]{&t.services.names, &t.services.dests} {
		for e := range names.All() {
			if e.index == 0 {
				return false
			}
		}
	}
	return t.kv.LoadEnd(func(session string) bool { return t.sessions.get(session) != nil })
}
