package snapcache

import (
	"bytes"
	"container/list"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/gateway"
	"corbel.dev/corbel/catalog/peered"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/kit/coalesce"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/mesh/envoy"
	"corbel.dev/corbel/telemetry"
)

// inputKind is a kind of thing that values are made of.
type inputKind uint8

const (
	inputService     inputKind = iota + 1 // instances, their checks and nodes; key: the name in lower case
	inputEntry                            // key: of the config entry's record
	inputRoots                            // the authority's records
	inputPresence                         // whether there is a config entry; key: of its record
	inputTerminating                      // all entries of terminating gateways
	inputRoutes                           // all routes of api gateways
	inputManualIPs                        // key: of the record
	inputNames                            // which services there are, and what of the mesh stands before them
	inputTrust                            // what a peer says of its mesh; key: the peer, "" for all
	inputImported                         // a service of a peer; key: of its record
	inputOwners                           // which services intentions name
)

// input is one thing that a value is made of.
type input struct {
	kind inputKind
	key  string
}

// mark is another one when the input changed between two States.
func (in input) mark(st *statestore.State) uint64 {
	if in.kind == inputTerminating {
		return gateway.TerminatingMark(st)
	}
	return in.index(st)
}

// index is that of the input's last change in a State; for terminating gateways the Cache knows it.
func (in input) index(st *statestore.State) uint64 {
	switch in.kind {
	case inputService:
		return max(st.ConnectIndex(in.key), st.ServiceIndex(in.key))
	case inputEntry:
		return st.RecordIndex(catalog.RecordConfigEntry, in.key)
	case inputRoots:
		return st.RecordsIndex(catalog.RecordCA)
	case inputPresence:
		if r := st.Record(catalog.RecordConfigEntry, in.key); r != nil {
			return r.CreateIndex
		}
		return st.RecordsIndex(catalog.RecordConfigEntry)
	case inputRoutes, inputOwners:
		return st.RecordsIndex(catalog.RecordConfigEntry)
	case inputManualIPs:
		return catalog.ManualIPsIndex(st, in.key)
	case inputNames:
		return st.ServiceListIndex()
	case inputTrust:
		return st.RecordIndex(catalog.RecordTrust, in.key)
	case inputImported:
		return st.RecordIndex(catalog.RecordImported, in.key)
	}
	return 1
}

// cell is a followed subject.
type cell struct {
	subject mesh.Subject

	// Guarded by Cache.mu.
	refs  int           // followers, and those that are about to be
	place place         // where it stands
	mark  *list.Element // the change that it has to tell next; nil for none
	edge  coalesce.Edge
	cost  time.Duration // of the last build and telling
	from  []input       // what it is registered under

	making  sync.Mutex // held while its view is made: one at a time. Taken before mu and Cache.mu
	trouble string     // what was last said of it in the log; guarded by making
	last    lastMade   // guarded by making

	mu        sync.Mutex // guards the value and the list; nothing is called under it
	value     *version
	followers []*follower
}

// version is a value that was told, in the order of turn.
type version struct {
	feed.Value
	turn  uint64
	ahead bool // it is for one follower, and the others are told of the same later
}

// lastMade is the newest value that was made for a cell: its own, or one for those who may not wait for that. It is
// what the subject says as long as what it was made of has this index.
type lastMade struct {
	v     *version
	from  []input
	index uint64
}

// first makes the value of a cell that has none. Of several who come at once one makes it.
func (sc *Cache) first(c *cell) {
	c.making.Lock()
	defer c.making.Unlock()
	if c.newest() == nil {
		sc.buildMaking(c, time.Time{})
	}
}

// newest is the cell's value, nil before it was made.
func (c *cell) newest() *version {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value
}

// build makes the cell's value anew, from a State that is not older than the change it is
// called for. It returns nil when that is the value that there was, as of the same index.
func (sc *Cache) build(c *cell, changed time.Time) *version {
	c.making.Lock()
	defer c.making.Unlock()
	return sc.buildMaking(c, changed)
}

func (sc *Cache) buildMaking(c *cell, changed time.Time) *version {
	var st *statestore.State
	var m *made
	for {
		st = sc.cfg.Catalog.State()
		if m = sc.make(st, c.subject); sc.register(c, st, m.from) {
			break
		}
	}
	sc.complain(c, m)
	c.mu.Lock()
	defer c.mu.Unlock()
	old, next := c.value, versionOf(sc, st, m)
	index := next.Index
	defer func() { c.last = lastMade{c.value, m.from, index} }()
	next.At = changed
	if old != nil {
		if m.err != nil {
			next.Body, next.Tail, next.Steady = old.Body, old.Tail, 0 // what held goes on to hold
		}
		next.turn = old.turn + 1
		if saysTheSame(&old.Value, &next.Value) {
			if m.err != nil || next.Index <= old.Index {
				return nil
			}
			// Something else may have been true between the two: whoever comes with that, from a server that saw it, is to
			// be told that it is over.
			next.At, next.Since = old.At, old.Index
			if next.Tail == old.Tail && bytes.Equal(next.Body, old.Body) {
				next.Body = old.Body
			}
			c.value = next
			return next
		}
		if old.Generation == next.Generation && next.Index <= old.Index { // a restore took the index back
			next.Index, next.Steady = old.Index+1, 0
		}
		sc.counts.published.Add(1)
		sc.meters.published.Add(1)
	}
	c.value = next
	return next
}

// versionOf is what was made of a State.
func versionOf(sc *Cache, st *statestore.State, m *made) *version {
	v := &version{Value: feed.Value{Index: indexOf(sc, st, m.from), Body: m.body, Tail: m.tail,
		Generation: generation(st)}}
	if owners := (input{inputOwners, ""}); slices.Contains(m.from, owners) {
		v.Steady = indexOf(sc, st, slices.DeleteFunc(slices.Clone(m.from), func(in input) bool { return in == owners }))
	}
	return v
}

// indexOf is that of the last change of inputs in a State.
func indexOf(sc *Cache, st *statestore.State, from []input) uint64 {
	index := uint64(1)
	for _, in := range from {
		index = max(index, in.index(st))
		if in.kind == inputTerminating {
			index = max(index, min(sc.log.terminating.Load(), st.Index())) // it may be of a State after this one
		}
	}
	return index
}

// current is the cell's value, or what it is about to be: for a follower who may have heard of the State of now by
// another subject. The others are told when its turn comes. It is made once for all who come meanwhile: agents come by
// the thousands when a server is gone.
func current(sc *Cache, c *cell, told *version) *version {
	st := sc.cfg.Catalog.State()
	sc.mu.Lock()
	pending := c.place != resting || st.Index() != sc.log.applied
	sc.mu.Unlock()
	if !pending || told.Generation != generation(st) {
		return told
	}
	c.making.Lock()
	defer c.making.Unlock()
	st, told = sc.cfg.Catalog.State(), c.newest()
	if c.last.v.Generation == generation(st) && c.last.index == indexOf(sc, st, c.last.from) {
		return c.last.v
	}
	m := sc.make(st, c.subject)
	if m.err != nil {
		return told
	}
	v := versionOf(sc, st, m)
	index := v.Index
	if v.turn, v.ahead = told.turn, true; v.Index < told.Index {
		v.Index, v.Steady = told.Index, 0
	}
	c.last = lastMade{v, m.from, index}
	return v
}

// saysTheSame compares values. Whom rules are not for says nothing new to who has them: it is told with the next ones.
func saysTheSame(a, b *feed.Value) bool {
	return a.Generation == b.Generation && (a.Body == nil) == (b.Body == nil) &&
		bytes.Equal(a.Body[:len(a.Body)-a.Tail], b.Body[:len(b.Body)-b.Tail])
}

// register keeps the cell under what it was made of. It is false when something of that has
// changed since without the cell hearing of it: then it must be made again.
func (sc *Cache) register(c *cell, st *statestore.State, from []input) bool {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if slices.Equal(c.from, from) {
		return true
	}
	was := c.from
	sc.forgetLocked(c)
	c.from = from
	for _, in := range from {
		if sc.by[in] == nil {
			sc.by[in] = map[*cell]struct{}{}
		}
		sc.by[in][c] = struct{}{}
	}
	if c.refs == 0 {
		sc.forgetLocked(c) // it was dropped meanwhile
	}
	// What is applied from now on is heard of. The State of now is at least as new as the last that was.
	now := sc.cfg.Catalog.State()
	return now == st || !slices.ContainsFunc(from, func(in input) bool {
		return !slices.Contains(was, in) && in.mark(now) != in.mark(st)
	})
}

// forgetLocked takes the cell out from under what it was made of.
func (sc *Cache) forgetLocked(c *cell) {
	for _, in := range c.from {
		if delete(sc.by[in], c); len(sc.by[in]) == 0 {
			delete(sc.by, in)
		}
	}
	c.from = nil
}

// complain tells the log of what is wrong with a value, once until it is another thing.
func (sc *Cache) complain(c *cell, m *made) {
	if m.err != nil {
		sc.meters.failed.Add(1)
		m.trouble = "it cannot be made, the one before goes on to hold: " + m.err.Error()
	}
	if m.trouble != c.trouble && m.trouble != "" {
		sc.cfg.Logger.Warn("a value of the mesh is incomplete", "subject", c.subject.String(), "problem", m.trouble)
	}
	c.trouble = m.trouble
}

// made is the body of a value and what it was made of, sorted.
type made struct {
	body    []byte
	tail    int // as in feed.Value
	from    []input
	err     error
	trouble string        // what an operator should know
	encoded time.Duration // how long encoding took
}

// make makes the body of a subject from scratch.
func (sc *Cache) make(st *statestore.State, s mesh.Subject) *made {
	sc.counts.builds.Add(1)
	sc.meters.builds.Add(1)
	out := &made{}
	domain := trustDomain(st)
	if domain == "" {
		return out // the founding leader is about to give the cluster its name: then all is made
	}
	begin := sc.cfg.Clock.Now()
	m := sc.maker(out, st, domain)
	switch s.Kind {
	case mesh.SubjectEndpoints:
		out.body, out.err = sc.endpoints(out, m, s)
	case mesh.SubjectService:
		sc.encode(out, m.Service(s.Service).Encode)
	case mesh.SubjectVirtual:
		out.add(input{inputService, strings.ToLower(s.Service)})
		out.add(input{inputManualIPs, catalog.ManualIPsKey("", s.Service)})
		sc.encode(out, m.Virtual(s).Encode)
	case mesh.SubjectInstances:
		out.add(input{inputService, strings.ToLower(s.Service)})
		sc.encode(out, m.Instances(s).Encode)
	case mesh.SubjectRules:
		v := m.Rules(s.Service)
		var owners mesh.Owners
		if s.Service == "" {
			out.add(input{inputOwners, ""})
			owners = m.Owners()
		}
		sc.encode(out, func() (body []byte, err error) {
			body, out.tail, err = rules(v, owners)
			return body, err
		})
	case mesh.SubjectUpstream:
		if s.Peer != "" {
			out.add(input{inputManualIPs, catalog.ManualIPsKey(s.Peer, s.Service)})
		}
		v := m.Upstream(s)
		out.trouble = v.Problem
		sc.encode(out, v.Encode)
	case mesh.SubjectPassages:
		sc.encode(out, m.Passages().Encode)
	case mesh.SubjectRoots:
		out.add(input{inputRoots, ""})
		out.body, out.err = roots(st, domain)
	}
	if out.err == nil {
		sc.counts.encoded.Add(1)
	}
	took := sc.cfg.Clock.Since(begin)
	sc.meters.build.Observe(took)
	var spent telemetry.Spent
	spent[telemetry.StageBuild], spent[telemetry.StageEncode] = took-out.encoded, out.encoded
	sc.meters.costs.Done(context.Background(), 0, took, &spent)
	slices.SortFunc(out.from, func(a, c input) int {
		if a.kind != c.kind {
			return int(a.kind) - int(c.kind)
		}
		return strings.Compare(a.key, c.key)
	})
	return out
}

// maker makes views of a State, and notes what they are made of.
func (sc *Cache) maker(out *made, st *statestore.State, domain string) *mesh.Maker {
	return &mesh.Maker{State: st, Datacenter: sc.cfg.Datacenter, TrustDomain: domain, DefaultAllow: sc.cfg.DefaultAllow,
		ServerName: sc.cfg.ServerName,
		Get: func(kind, name string) entry.Entry {
			out.add(input{inputEntry, entry.Key(kind, name)})
			return sc.entries.get(st, kind, name)
		},
		Has: func(kind, name string) bool {
			out.add(input{inputPresence, entry.Key(kind, name)})
			return st.Record(catalog.RecordConfigEntry, entry.Key(kind, name)) != nil
		},
		Routes: func() *gateway.Routes {
			out.add(input{inputRoutes, ""})
			return gateway.RoutesOf(st, func(kind, name string) entry.Entry { return sc.entries.get(st, kind, name) })
		},
		Names: func() { out.add(input{inputNames, ""}) },
		Looks: func(service string) { out.add(input{inputService, strings.ToLower(service)}) },
		Trust: func(peer string) *peered.Trust {
			out.add(input{inputTrust, peer})
			return peered.Of(st, peer)
		},
		Imported: func(peer, service string) (*statestore.State, string, bool) {
			out.add(input{inputImported, peered.ImportKey(peer, service)})
			if sc.cfg.Imported == nil {
				return nil, "", false
			}
			return sc.cfg.Imported(st, peer, service)
		}}
}

// encode makes the body of a view.
func (sc *Cache) encode(out *made, encode func() ([]byte, error)) {
	begin := sc.cfg.Clock.Now()
	out.body, out.err = encode()
	out.encoded = sc.cfg.Clock.Since(begin)
}

func (m *made) add(in input) {
	if !slices.Contains(m.from, in) {
		m.from = append(m.from, in)
	}
}

func (sc *Cache) endpoints(out *made, m *mesh.Maker, s mesh.Subject) ([]byte, error) {
	v := &mesh.Endpoints{Cluster: m.Cluster(s)}
	if s.Datacenter == sc.cfg.Datacenter {
		out.add(input{inputService, strings.ToLower(s.Service)})
		out.add(input{inputTerminating, ""})
		for name := range gateway.Terminating(m.State, func(kind, name string) entry.Entry {
			return sc.entries.get(m.State, kind, name)
		}, s.Service) {
			out.add(input{inputService, strings.ToLower(name)})
		}
		if v = m.Endpoints(s); v == nil {
			return nil, nil
		}
	} else {
		out.trouble = "instances of other datacenters are not known here, and their certificates could not be verified: " +
			"it holds none"
	}
	if v.LeftOut > 0 {
		out.trouble = fmt.Sprintf("%d instances are left out: register them with an IP address and a port", v.LeftOut)
	}
	begin := sc.cfg.Clock.Now()
	r, err := envoy.Endpoints(v)
	out.encoded = sc.cfg.Clock.Since(begin)
	if r == nil {
		return nil, err
	}
	if err != nil { // the others are in it
		out.trouble = err.Error()
	}
	return r.Body, nil
}

func rules(v *mesh.Rules, notFor mesh.Owners) (body []byte, tail int, err error) {
	value, err := envoy.Authorization(v)
	if err != nil {
		return nil, 0, err
	}
	value.Owners = notFor
	body, tail = value.Encode()
	return body, tail, nil
}

func roots(st *statestore.State, domain string) ([]byte, error) {
	stored, err := ca.Roots(st)
	if err != nil {
		return nil, err
	}
	v := &mesh.Roots{TrustDomain: domain}
	for _, r := range stored {
		if r.Active {
			v.ActiveID = r.ID
		}
		v.List = append(v.List, mesh.Root{ID: r.ID, PEM: r.RootCert, Active: r.Active})
	}
	if len(v.List) == 0 {
		return nil, nil // the leader is about to make the first
	}
	return v.Encode()
}

// trustDomain is "" before the cluster has a name.
func trustDomain(st *statestore.State) string {
	if r := st.Record(catalog.RecordSystem, catalog.ClusterIDKey); r != nil {
		return ca.TrustDomain(string(r.Value))
	}
	return ""
}

// generation names the history that the State's indexes belong to, the same on all servers;
// 0 before the cluster has a name.
func generation(st *statestore.State) uint64 {
	cluster := st.Record(catalog.RecordSystem, catalog.ClusterIDKey)
	if cluster == nil {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(cluster.Value)
	if r := st.Record(catalog.RecordSystem, catalog.HistoryKey); r != nil {
		var index [8]byte
		for i := range index {
			index[i] = byte(r.ModifyIndex >> (8 * i))
		}
		_, _ = h.Write(append(index[:], r.Value...))
	}
	return max(h.Sum64(), 1)
}

// maxEntries is how many config entries are kept as they were read.
const maxEntries = 4096

// entryCache keeps config entries as they were read from their records, which never
// change: one change of what all services share is read once for all of them.
type entryCache struct {
	mu   sync.Mutex
	read map[*catalog.Record]entry.Entry
}

func (e *entryCache) get(st *statestore.State, kind, name string) entry.Entry {
	r := st.Record(catalog.RecordConfigEntry, entry.Key(kind, name))
	if r == nil {
		return nil
	}
	e.mu.Lock()
	known, ok := e.read[r]
	e.mu.Unlock()
	if ok {
		return known
	}
	known = entry.Stored(st, kind, name)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.read == nil || len(e.read) >= maxEntries {
		e.read = make(map[*catalog.Record]entry.Entry)
	}
	e.read[r] = known
	return known
}
