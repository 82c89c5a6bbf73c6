package usagecacheplane

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/usage/copies"
	"corbel.dev/corbel/usage/slots"
)

// hosts are the hosts of the cache that the catalog knows, and this one's place among them.
type hosts struct {
	d        *plane.Doors
	self     string // its ID
	replicas int
	last     atomic.Pointer[copies.View]
	entry    *definition.Service // of this host; Run of the plane makes it
}

// HostsOf tells a client on a server which hosts of the cache have which keys; keys are the cache's own.
func HostsOf(d *plane.Doors, replicas int) func() *slots.Map {
	return (&hosts{d: d, replicas: replicas}).slots
}

func (h *hosts) state() *statestore.State { return h.d.Catalog.Registry.State() }

// view is who owns what now. It is worked out once for each change of the catalog.
func (h *hosts) view() *copies.View {
	st := h.state()
	index := st.ServiceIndex(Service)
	if last := h.last.Load(); last != nil && last.Index == index {
		return last
	}
	v := viewOf(st, index, h.self, h.replicas)
	h.last.Store(v)
	return v
}

// slots is the map of view.
func (h *hosts) slots() *slots.Map { return h.view().Map }

// The keys of an entry's meta data: which life of the host it is of, and the hosts that have copies of its keys, as
// HOST:SESSION with the beginning of the host's ID. A value holds few, so there may be several of them.
const (
	metaLife   = "incarnation"
	metaCopies = "copies-"
	copyID     = 10
	copiesEach = 20
	metaBase   = 36
)

// viewOf reads the hosts that are sound, or drain.
func viewOf(st *statestore.State, index uint64, self string, replicas int) *copies.View {
	v := &copies.View{Index: index, Named: map[string]map[string]uint64{}}
	failed, draining := map[string]bool{}, map[string]bool{}
	since := map[string]uint64{}
	for c := range st.ChecksOfService(Service) {
		id := c.Node + "/" + c.ServiceID
		if strings.HasPrefix(c.ID, catalog.ServiceDrainPrefix) { // who owns its keys then asks for them: see copies.Host
			draining[id] = true
			continue
		}
		since[id] = max(since[id], c.ModifyIndex)
		failed[id] = failed[id] || c.Status == catalog.Critical
	}
	var nodes []slots.Node
	var named []*catalog.Service
	ids := map[string]string{} // by their beginnings
	for s := range st.Instances(Service) {
		id := s.Node + "/" + s.ID
		n := slots.Node{ID: nodeID(s.Node, s.ID), Host: s.Address, Port: s.Port, Draining: draining[id]}
		ids[n.ID[:copyID]] = n.ID
		named = append(named, s)
		health := st.Check(s.Node, catalog.SerfHealthID)
		if n.ID == self {
			v.Incarnation, _ = strconv.ParseUint(s.Meta[metaLife], metaBase, 64) // absent or wrong: it is none of this one's
			if v.Since = since[id]; health != nil {
				v.Since = max(v.Since, health.ModifyIndex)
			}
		}
		if failed[id] || health != nil && health.Status == catalog.Critical {
			continue
		}
		if n.Host == "" {
			if node := st.Node(s.Node); node != nil {
				n.Host = node.Address
			}
		}
		nodes = append(nodes, n)
	}
	for _, s := range named {
		if list := copiesOf(s.Meta, ids); len(list) > 0 {
			v.Named[nodeID(s.Node, s.ID)] = list
		}
	}
	v.Map = slots.Assign(nodes, replicas)
	return v
}

// copiesOf reads who has copies from an entry's meta data.
func copiesOf(meta map[string]string, ids map[string]string) map[string]uint64 {
	list := map[string]uint64{}
	for i := 0; ; i++ {
		text, ok := meta[metaCopies+strconv.Itoa(i)]
		if !ok {
			return list
		}
		for _, word := range strings.Fields(text) {
			id, session, _ := strings.Cut(word, ":")
			n, err := strconv.ParseUint(session, metaBase, 64)
			if full := ids[id]; full != "" && err == nil {
				list[full] = n
			}
		}
	}
}

// metaOf writes what copiesOf reads.
func metaOf(incarnation uint64, named map[string]uint64) map[string]string {
	meta := map[string]string{"external-source": "corbel", metaLife: strconv.FormatUint(incarnation, metaBase)}
	var words []string
	for _, id := range slices.Sorted(maps.Keys(named)) {
		words = append(words, id[:copyID]+":"+strconv.FormatUint(named[id], metaBase))
	}
	for i := 0; len(words) > 0; i++ {
		n := min(len(words), copiesEach)
		meta[metaCopies+strconv.Itoa(i)] = strings.Join(words[:n], " ")
		words = words[n:]
	}
	return meta
}

// age is how old the catalog is that this server has.
func (h *hosts) age() time.Duration {
	raft := h.d.Catalog.Raft.Load()
	if raft == nil {
		return math.MaxInt64
	}
	return raft.LastContact()
}

// call asks another host, which is a server.
func (h *hosts) call(ctx context.Context, host, method string, req []byte) ([]byte, error) {
	st := h.state()
	for s := range st.Instances(Service) {
		if nodeID(s.Node, s.ID) != host {
			continue
		}
		node, raft := st.Node(s.Node), h.d.Catalog.Raft.Load()
		if node == nil || raft == nil {
			break
		}
		servers, _, err := raft.Configuration()
		if err != nil {
			return nil, err
		}
		for _, server := range servers {
			if server.ID == node.ID {
				return h.d.RPC.Call(ctx, server.Address, method, req)
			}
		}
	}
	return nil, errkind.Errorf(errkind.Unavailable, "usage cache: host %.10s is no server of this cluster now", host)
}

// name puts this host's entry into the catalog, and waits until the state of this server has it.
func (h *hosts) name(ctx context.Context, incarnation uint64, named map[string]uint64) error {
	def := *h.entry
	def.Meta = metaOf(incarnation, named)
	if h.view().Incarnation == incarnation {
		def.Checks = nil // it has them, and they say whether somebody else may have owned its keys
	}
	if err := h.d.Local.RegisterService(ctx, &def, local.RegisterOptions{}); err != nil {
		return err
	}
	for {
		v := h.view()
		if v.Incarnation == incarnation && maps.Equal(v.Named[h.self], named) {
			return nil
		}
		timer := h.d.Clock.NewTimer(nameLook)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return errkind.E(errkind.Unavailable, "usage cache: the catalog", ctx.Err())
		}
	}
}

const nameLook = 5 * time.Millisecond

// handoverMost bounds what the end of a process waits for.
const handoverMost = 30 * time.Second

// handOver waits until the others have what they need of the keys of a host that ends.
func (p *Plane) handOver(ctx context.Context) {
	if p.copies == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handoverMost)
	defer cancel()
	for !p.copies.Left() {
		select {
		case <-ctx.Done():
			p.d.Log.Warn("the cache ends before other hosts have its keys: they are made anew there")
			return
		case <-time.After(drainLook):
		}
	}
	p.d.Log.Info("the cache ends: other hosts own its keys", "copies", fmt.Sprint(p.copies.Status()))
}

// newCopies makes what keeps copies of this host's keys.
func (p *Plane) newCopies(keys *Keys) *copies.Host {
	p.hosts = &hosts{d: p.d, self: nodeID(p.d.Cfg.Node.Name, Service), replicas: keys.Cache.Replicas}
	p.watch = &watch{p: p, since: map[string]time.Time{}}
	host := copies.New(copies.Config{Self: p.hosts.self, View: p.hosts.view, Age: p.hosts.age, Call: p.hosts.call,
		Gone: p.watch.isGone, Name: p.hosts.name, Rate: cmp.Or(keys.Cache.Handover, 32<<20), Keeps: keys.Cache.Handover == 0,
		Patience: keys.Cache.Alone, Limit: 5*time.Second + keys.Cache.Alone, Clock: p.d.Clock,
		Log: p.d.Log, Metrics: p.d.Metrics})
	return host
}
