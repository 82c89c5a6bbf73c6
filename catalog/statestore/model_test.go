package statestore

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"corbel.dev/corbel/catalog"
)

// model is the catalog as a newcomer would write it: maps, and a full copy for
// each transaction. It is the oracle of the property tests.
type model struct {
	index    uint64
	at       uint64
	nodes    map[string]catalog.Node
	services map[[2]string]catalog.Service
	checks   map[[2]string]catalog.Check
	kv       map[string]catalog.KVPair
	sessions map[string]catalog.Session
}

func newModel() *model {
	return &model{
		index: 1, nodes: map[string]catalog.Node{}, services: map[[2]string]catalog.Service{},
		checks: map[[2]string]catalog.Check{},
		kv:     map[string]catalog.KVPair{}, sessions: map[string]catalog.Session{},
	}
}

func (m *model) clone() *model {
	return &model{m.index, m.at, maps.Clone(m.nodes), maps.Clone(m.services), maps.Clone(m.checks), maps.Clone(m.kv),
		maps.Clone(m.sessions)}
}

// apply returns whether the command succeeded; the index grows if the content changed.
func (m *model) apply(c catalog.Command) bool {
	if batch, ok := c.(*catalog.RegisterBatch); ok {
		all, before := true, m.clone()
		for _, one := range batch.Registrations {
			all = m.apply(one) && all
		}
		if batch.Atomic && !all {
			*m = *before
		}
		return all
	}
	before := m.clone()
	m.at = m.index + 1
	ok := m.run(c)
	if !ok {
		*m = *before
		return false
	}
	if _, reap := c.(*catalog.ReapTombstones); !reap && m.text() != before.text() {
		m.index = m.at
	} else {
		*m = *before
	}
	return true
}

func (m *model) run(c catalog.Command) bool {
	switch c := c.(type) {
	case *catalog.Register:
		return m.register(c)
	case *catalog.Deregister:
		m.deregister(strings.ToLower(c.Node), c.ServiceID, c.CheckID)
	case *catalog.KV:
		return m.doKV(c)
	case *catalog.SessionCreate:
		s := c.Session
		node, ok := m.nodes[strings.ToLower(s.Node)]
		if _, dup := m.sessions[s.ID]; !ok || dup || s.ID == "" {
			return false
		}
		for _, id := range m.checksOf(s) {
			if c, ok := m.checks[[2]string{strings.ToLower(s.Node), id}]; !ok || c.Status == catalog.Critical {
				return false
			}
		}
		s.Node, s.CreateIndex, s.ModifyIndex = node.Name, m.at, m.at
		m.sessions[s.ID] = s
	case *catalog.SessionDestroy:
		m.endSession(c.ID)
	case *catalog.Txn:
		all := true
		for i := range c.Ops {
			all = m.txnOp(&c.Ops[i]) && all
		}
		return all
	}
	return true
}

func (m *model) checksOf(s catalog.Session) []string {
	ids := slices.Clone(s.NodeChecks)
	for _, ref := range s.ServiceChecks {
		ids = append(ids, ref.ID)
	}
	return ids
}

func (m *model) endSession(id string) {
	s, ok := m.sessions[id]
	if !ok {
		return
	}
	delete(m.sessions, id)
	for key, p := range m.kv {
		if p.Session != id {
			continue
		}
		if s.Behavior == catalog.BehaviorDelete {
			delete(m.kv, key)
		} else {
			p.Session, p.ModifyIndex = "", m.at
			m.kv[key] = p
		}
	}
}

func (m *model) endSessionsOn(node, check string) {
	for id, s := range m.sessions {
		if strings.ToLower(s.Node) == node && (check == "" || slices.Contains(m.checksOf(s), check)) {
			m.endSession(id)
		}
	}
}

func (m *model) alive(node string) bool {
	c, ok := m.checks[[2]string{node, catalog.SerfHealthID}]
	return ok && c.Status != catalog.Critical
}

func (m *model) register(c *catalog.Register) bool {
	key := strings.ToLower(c.Node.Name)
	old, exists := m.nodes[key]
	var twin string // another node with the same ID
	if c.Node.ID != "" {
		for k, n := range m.nodes {
			if k != key && n.ID == c.Node.ID {
				twin = k
			}
		}
	}
	write := !exists || !c.SkipNodeUpdate
	if write && c.Node.ID != "" {
		if exists && old.ID != "" && old.ID != c.Node.ID && m.alive(key) || twin != "" && m.alive(twin) {
			return false
		}
	}
	for _, check := range c.Checks {
		_, ok := m.services[[2]string{key, check.ServiceID}]
		if check.ServiceID != "" && !ok && (c.Service == nil || c.Service.ID != check.ServiceID) {
			return false
		}
	}
	if write {
		if twin != "" {
			m.deregister(twin, "", "")
		}
		n := c.Node
		n.CreateIndex, n.ModifyIndex = m.at, m.at
		if exists {
			n.Name, n.CreateIndex, n.ModifyIndex = old.Name, old.CreateIndex, old.ModifyIndex
			if n.ID == "" {
				n.ID = old.ID
			}
			if !reflect.DeepEqual(n, old) {
				n.ModifyIndex = m.at
			}
		}
		m.nodes[key] = n
	}
	if c.Service != nil {
		m.setService(key, *c.Service)
	}
	for _, check := range c.Checks {
		m.setCheck(key, *check)
	}
	return true
}

func (m *model) setService(node string, s catalog.Service) {
	old, exists := m.services[[2]string{node, s.ID}]
	s.Node, s.CreateIndex, s.ModifyIndex = m.nodes[node].Name, m.at, m.at
	if exists {
		s.CreateIndex = old.CreateIndex
		same := s
		same.ModifyIndex = old.ModifyIndex
		if reflect.DeepEqual(same, old) {
			return
		}
	}
	m.services[[2]string{node, s.ID}] = s
	for at, c := range m.checks {
		if at[0] == node && c.ServiceID == s.ID {
			m.setCheck(node, c)
		}
	}
}

func (m *model) setCheck(node string, c catalog.Check) {
	old, exists := m.checks[[2]string{node, c.ID}]
	c.Node, c.ServiceName, c.ServiceTags = m.nodes[node].Name, "", nil
	if c.ServiceID != "" {
		s := m.services[[2]string{node, c.ServiceID}]
		c.ServiceName, c.ServiceTags = s.Name, s.Tags
	}
	c.CreateIndex, c.ModifyIndex = m.at, m.at
	if exists {
		c.CreateIndex = old.CreateIndex
		same := c
		same.ModifyIndex = old.ModifyIndex
		if reflect.DeepEqual(same, old) {
			return
		}
	}
	m.checks[[2]string{node, c.ID}] = c
	if c.Status == catalog.Critical {
		m.endSessionsOn(node, c.ID)
	}
}

func (m *model) removeCheck(node, id string) {
	if _, ok := m.checks[[2]string{node, id}]; ok {
		delete(m.checks, [2]string{node, id})
		m.endSessionsOn(node, id)
	}
}

func (m *model) deregister(node, service, check string) {
	if _, ok := m.nodes[node]; !ok {
		return
	}
	switch {
	case service != "":
		if _, ok := m.services[[2]string{node, service}]; !ok {
			return
		}
		delete(m.services, [2]string{node, service})
		for at, c := range m.checks {
			if at[0] == node && c.ServiceID == service {
				m.removeCheck(node, c.ID)
			}
		}
	case check != "":
		m.removeCheck(node, check)
	default:
		m.endSessionsOn(node, "")
		maps.DeleteFunc(m.services, func(at [2]string, _ catalog.Service) bool { return at[0] == node })
		maps.DeleteFunc(m.checks, func(at [2]string, _ catalog.Check) bool { return at[0] == node })
		delete(m.nodes, node)
	}
}

func (m *model) doKV(c *catalog.KV) bool {
	want := c.Pair
	old, exists := m.kv[want.Key]
	next := catalog.KVPair{Key: want.Key, Value: want.Value, Flags: want.Flags, Session: old.Session,
		LockIndex: old.LockIndex}
	switch c.Verb {
	case catalog.KVSet:
	case catalog.KVCAS:
		if exists != (want.ModifyIndex != 0) || exists && old.ModifyIndex != want.ModifyIndex {
			return false
		}
	case catalog.KVLock:
		_, known := m.sessions[want.Session]
		if !known || old.Session != "" && old.Session != want.Session {
			return false
		}
		if old.Session == "" {
			next.LockIndex++
		}
		next.Session = want.Session
	case catalog.KVUnlock:
		if !exists || old.Session == "" || old.Session != want.Session {
			return false
		}
		next.Session = ""
	case catalog.KVDelete:
		delete(m.kv, want.Key)
		return true
	case catalog.KVDeleteCAS:
		if exists && (want.ModifyIndex == 0 || old.ModifyIndex != want.ModifyIndex) {
			return false
		}
		delete(m.kv, want.Key)
		return true
	case catalog.KVDeleteTree:
		maps.DeleteFunc(m.kv, func(key string, _ catalog.KVPair) bool { return strings.HasPrefix(key, want.Key) })
		return true
	case catalog.KVGet:
		return exists
	case catalog.KVGetOrEmpty, catalog.KVGetTree:
		return true
	case catalog.KVCheckIndex:
		return exists && old.ModifyIndex == want.ModifyIndex
	case catalog.KVCheckSession:
		return exists && old.Session == want.Session
	case catalog.KVCheckNotExists:
		return !exists
	}
	next.CreateIndex, next.ModifyIndex = m.at, m.at
	if exists {
		next.CreateIndex = old.CreateIndex
		if bytes.Equal(old.Value, next.Value) && old.Flags == next.Flags && old.Session == next.Session &&
			old.LockIndex == next.LockIndex {
			return true
		}
	}
	m.kv[want.Key] = next
	return true
}

func (m *model) txnOp(op *catalog.TxnOp) bool {
	lost := func(exists bool, current, index uint64) bool {
		switch op.Verb {
		case catalog.TxnGet:
			return !exists
		case catalog.TxnCAS:
			return exists != (index != 0) || exists && current != index
		case catalog.TxnDeleteCAS:
			return !exists || current != index
		}
		return false
	}
	deletes := op.Verb == catalog.TxnDelete || op.Verb == catalog.TxnDeleteCAS
	switch {
	case op.KV != nil:
		return m.doKV(op.KV)
	case op.Node != nil:
		key, exists := strings.ToLower(op.Node.Name), false
		if op.Node.ID != "" {
			key = ""
			for k, n := range m.nodes {
				if n.ID == op.Node.ID {
					key = k
				}
			}
		}
		n, exists := m.nodes[key]
		if lost(exists, n.ModifyIndex, op.Node.ModifyIndex) {
			return false
		}
		if deletes {
			m.deregister(key, "", "")
		} else if op.Verb != catalog.TxnGet {
			return m.register(&catalog.Register{Node: *op.Node})
		}
	case op.Service != nil:
		node := strings.ToLower(op.Service.Node)
		_, known := m.nodes[node]
		s, exists := m.services[[2]string{node, op.Service.ID}]
		if lost(exists, s.ModifyIndex, op.Service.ModifyIndex) {
			return false
		}
		if deletes {
			m.deregister(node, op.Service.ID, "")
		} else if op.Verb != catalog.TxnGet {
			if !known {
				return false
			}
			m.setService(node, *op.Service)
		}
	case op.Check != nil:
		node := strings.ToLower(op.Check.Node)
		_, known := m.nodes[node]
		_, owned := m.services[[2]string{node, op.Check.ServiceID}]
		c, exists := m.checks[[2]string{node, op.Check.ID}]
		if lost(exists, c.ModifyIndex, op.Check.ModifyIndex) {
			return false
		}
		if deletes {
			m.deregister(node, "", op.Check.ID)
		} else if op.Verb != catalog.TxnGet {
			if !known || op.Check.ServiceID != "" && !owned {
				return false
			}
			m.setCheck(node, *op.Check)
		}
	}
	return true
}

// text renders everything in a fixed order.
func (m *model) text() string {
	var lines []string
	for _, v := range m.nodes {
		lines = append(lines, fmt.Sprintf("%+v", v))
	}
	for _, v := range m.services {
		lines = append(lines, serviceText(&v))
	}
	for _, v := range m.checks {
		lines = append(lines, checkText(&v))
	}
	for _, v := range m.kv {
		lines = append(lines, fmt.Sprintf("%+v", v))
	}
	for _, v := range m.sessions {
		lines = append(lines, sessionText(&v))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func serviceText(s *catalog.Service) string { return fmt.Sprintf("service %+v", *s) }
func checkText(c *catalog.Check) string     { return fmt.Sprintf("check %+v", *c) }
func sessionText(s *catalog.Session) string { return fmt.Sprintf("session %+v", *s) }

func stateText(s *State) string {
	var lines []string
	for v := range s.Nodes() {
		lines = append(lines, fmt.Sprintf("%+v", *v))
		for svc := range s.ServicesOfNode(v.Name) {
			lines = append(lines, serviceText(svc))
		}
	}
	for v := range s.Checks() {
		lines = append(lines, checkText(v))
	}
	for v := range s.KVPrefix("") {
		lines = append(lines, fmt.Sprintf("%+v", *v))
	}
	for v := range s.Sessions() {
		lines = append(lines, sessionText(v))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// The small worlds that commands are drawn from.
var (
	someNodes    = []string{"n1", "N1", "n2", "n3"}
	someIDs      = []string{"", "", "id-1", "id-2"}
	someServices = []string{"web", "WEB", "api", "db"}
	someChecks   = []string{"c1", "c2", catalog.SerfHealthID}
	someKeys     = []string{"a", "a/", "a/b", "a/b/c", "a/bc", "ab", "b/x", "b/x/y/z", "b0", "/"}
	someSessions = []string{"s1", "s2", "s3"}
)

type drawer struct{ t *rapid.T }

func pick[V any](d drawer, list []V, label string) V { return rapid.SampledFrom(list).Draw(d.t, label) }

func (d drawer) index(max uint64) uint64 { return rapid.Uint64Range(0, max).Draw(d.t, "index") }

func (d drawer) node(index uint64) catalog.Node {
	return catalog.Node{
		ID: pick(d, someIDs, "id"), Name: pick(d, someNodes, "node"),
		Address:     pick(d, []string{"10.0.0.1", "10.0.0.2"}, "addr"),
		ModifyIndex: index,
	}
}

func (d drawer) service(index uint64) *catalog.Service {
	s := &catalog.Service{
		Node: pick(d, someNodes, "node"), ID: pick(d, []string{"i1", "i2"}, "service id"),
		Name: pick(d, someServices, "service"),
		Tags: pick(d, [][]string{nil, {"x"}, {"y", "x"}, {"z"}}, "tags"), Port: pick(d, []int{80, 81}, "port"),
		Indexes: catalog.Indexes{ModifyIndex: index},
	}
	switch pick(d, []string{"", "", "proxy", "native"}, "mesh") {
	case "proxy":
		s.Kind, s.ProxyDestination = catalog.KindConnectProxy, pick(d, someServices, "destination")
	case "native":
		s.Native = true
	}
	return s
}

func (d drawer) check(index uint64) *catalog.Check {
	return &catalog.Check{
		Node: pick(d, someNodes, "node"), ID: pick(d, someChecks, "check"),
		ServiceID: pick(d, []string{"", "", "i1", "i2"}, "of"),
		Status:    pick(d, []catalog.Health{catalog.Passing, catalog.Passing, catalog.Warning, catalog.Critical}, "status"),
		Indexes:   catalog.Indexes{ModifyIndex: index},
	}
}

func (d drawer) kv(index uint64, last catalog.KVVerb) *catalog.KV {
	return &catalog.KV{Verb: catalog.KVVerb(rapid.IntRange(int(catalog.KVSet), int(last)).Draw(d.t, "verb")),
		Pair: catalog.KVPair{
			Key: pick(d, someKeys, "key"), Value: pick(d, [][]byte{nil, []byte("v"), []byte("w")}, "value"),
			Session: pick(d, someSessions, "session"), ModifyIndex: index,
		}}
}

// command draws any command; CAS indexes come from those that m's objects have.
func (d drawer) command(m *model) catalog.Command {
	index := d.index(m.index)
	switch rapid.IntRange(0, 12).Draw(d.t, "command") {
	case 0, 1, 2:
		return d.register()
	case 3:
		return &catalog.RegisterBatch{Registrations: []*catalog.Register{d.register(), d.register()},
			Atomic: rapid.Bool().Draw(d.t, "atomic")}
	case 4:
		return &catalog.Deregister{Node: pick(d, someNodes, "node"), ServiceID: pick(d, []string{"", "i1", "i2"}, "s"),
			CheckID: pick(d, []string{"", "c1"}, "c")}
	case 5, 6, 7:
		c := d.kv(index, catalog.KVDeleteTree)
		if p, ok := m.kv[c.Pair.Key]; ok && rapid.Bool().Draw(d.t, "right index") {
			c.Pair.ModifyIndex = p.ModifyIndex
		}
		return c
	case 8, 9:
		return &catalog.SessionCreate{Session: catalog.Session{
			ID: pick(d, someSessions, "session"), Node: pick(d, someNodes, "node"),
			Behavior:      pick(d, []string{catalog.BehaviorRelease, catalog.BehaviorDelete}, "behavior"),
			NodeChecks:    pick(d, [][]string{nil, {"c1"}, {catalog.SerfHealthID}}, "checks"),
			ServiceChecks: pick(d, [][]catalog.ServiceCheckRef{nil, {{ID: "c2"}}}, "service checks"),
		}}
	case 10:
		return &catalog.SessionDestroy{ID: pick(d, someSessions, "session")}
	}
	txn := &catalog.Txn{}
	for range rapid.IntRange(1, 4).Draw(d.t, "ops") {
		op, index := catalog.TxnOp{Verb: catalog.TxnVerb(rapid.IntRange(1, 5).Draw(d.t, "verb"))}, d.index(m.index)
		switch rapid.IntRange(0, 4).Draw(d.t, "what") {
		case 0, 1:
			op = catalog.TxnOp{KV: d.kv(index, catalog.KVCheckNotExists)}
		case 2:
			n := d.node(index)
			op.Node = &n
		case 3:
			op.Service = d.service(index)
		case 4:
			op.Check = d.check(index)
		}
		txn.Ops = append(txn.Ops, op)
	}
	return txn
}

func (d drawer) register() *catalog.Register {
	c := &catalog.Register{Node: d.node(0), SkipNodeUpdate: rapid.Bool().Draw(d.t, "skip")}
	if rapid.Bool().Draw(d.t, "with service") {
		c.Service = d.service(0)
	}
	for range rapid.IntRange(0, 2).Draw(d.t, "checks") {
		c.Checks = append(c.Checks, d.check(0))
	}
	return c
}
