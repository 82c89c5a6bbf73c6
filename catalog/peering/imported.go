package peering

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
)

// Imported is an imported service as a catalog of its own: a State with its instances, their nodes and their checks,
// and nothing else. So whatever reads a service of this cluster reads one of a peer. It is empty, never nil, where the
// peer exports no such service, or is none.
func Imported(st *statestore.State, peer, service string) *statestore.State {
	r := st.Record(catalog.RecordImported, importKey(peer, service))
	if r == nil {
		return nothing
	}
	return views.of(r, peer)
}

// Exported tells whether a peer exports a service, and which protocol its proxies speak.
func Exported(st *statestore.State, peer, service string) (protocol string, ok bool) {
	r := st.Record(catalog.RecordImported, importKey(peer, service))
	if r == nil {
		return "", false
	}
	s, err := ReadService(r.Value)
	if err != nil {
		return "", false // it was valid when it was stored
	}
	return cmp.Or(s.Protocol, "tcp"), true
}

var nothing = statestore.Empty()

// Index covers an imported service; of one that is not there it is that of the last change to any.
func Index(st *statestore.State, peer, service string) uint64 {
	return st.RecordIndex(catalog.RecordImported, importKey(peer, service))
}

// Key is the key of an imported service's record, which is what a watcher of it waits for.
func Key(peer, service string) string { return importKey(peer, service) }

// Names lists the services that were imported from a peer, in lower case, by name.
func Names(st *statestore.State, peer string) []string {
	list, prefix := []string{}, importKey(peer, "")
	for r := range st.Records(catalog.RecordImported, prefix) {
		list = append(list, strings.TrimPrefix(r.Key, prefix))
	}
	return list
}

// Nodes lists the nodes on which instances of a peer's services run, by name, each once.
func Nodes(st *statestore.State, peer string) (list []*catalog.Node) {
	known := map[string]bool{}
	for _, name := range Names(st, peer) {
		for n := range Imported(st, peer, name).Nodes() {
			if key := strings.ToLower(n.Name); !known[key] {
				known[key] = true
				list = append(list, n)
			}
		}
	}
	slices.SortFunc(list, func(a, b *catalog.Node) int {
		return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
	})
	return list
}

// NodeIndex finds the nodes of peers by their names. The zero value is ready; each belongs to one catalog.
type NodeIndex struct {
	mu    sync.Mutex
	peers map[string]*peerNodes
}

// peerNodes are the nodes of one peer at an index of the imports.
type peerNodes struct {
	index  uint64
	of     map[*catalog.Record][]*catalog.Node // a record never changes: only what is new is decoded
	byName map[string]*catalog.Node            // by the name in lower case
}

// NodesIndex covers what a NodeIndex finds.
func NodesIndex(st *statestore.State) uint64 { return st.RecordsIndex(catalog.RecordImported) }

// Find returns a node of a peer on which an imported service runs, nil when there is none.
func (x *NodeIndex) Find(st *statestore.State, peer, name string) *catalog.Node {
	index := NodesIndex(st)
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.peers[peer]
	if p == nil || p.index != index {
		if p = p.at(st, peer, index); len(p.of) == 0 {
			delete(x.peers, peer)
			return nil
		}
		if x.peers == nil {
			x.peers = map[string]*peerNodes{}
		}
		x.peers[peer] = p
	}
	return p.byName[strings.ToLower(name)]
}

// at are the nodes at another index. What is known of records that are the same is taken over.
func (p *peerNodes) at(st *statestore.State, peer string, index uint64) *peerNodes {
	next := &peerNodes{index: index, of: map[*catalog.Record][]*catalog.Node{}, byName: map[string]*catalog.Node{}}
	for r := range st.Records(catalog.RecordImported, importKey(peer, "")) {
		var nodes []*catalog.Node
		known := false
		if p != nil {
			nodes, known = p.of[r]
		}
		if !known {
			nodes = slices.Collect(views.of(r, peer).Nodes())
		}
		next.of[r] = nodes
		for _, n := range nodes {
			if key := strings.ToLower(n.Name); next.byName[key] == nil {
				next.byName[key] = n
			}
		}
	}
	return next
}

// maxViewBytes bounds what is kept of decoded services, by the bytes of their records.
const maxViewBytes = 32 << 20

// kept are services that were decoded lately. A record never changes.
type kept struct {
	mu    sync.Mutex
	bytes int
	all   map[*catalog.Record]*statestore.State
}

var views = kept{all: map[*catalog.Record]*statestore.State{}}

func (k *kept) of(r *catalog.Record, peer string) *statestore.State {
	k.mu.Lock()
	st := k.all[r]
	k.mu.Unlock()
	if st != nil {
		return st
	}
	st = decoded(r, peer)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bytes += len(r.Value); k.bytes > maxViewBytes { // those of replaced records go too
		clear(k.all)
		k.bytes = len(r.Value)
	}
	k.all[r] = st
	return st
}

// decoded makes the catalog of a record. What a peer sent that no catalog takes, two nodes with one ID, is left out.
func decoded(r *catalog.Record, peer string) *statestore.State {
	s, err := ReadService(r.Value)
	if err != nil {
		return nothing // it was valid when it was stored
	}
	batch := &catalog.RegisterBatch{Registrations: s.registrations(peer)}
	st, _, _ := statestore.Empty().Apply([]catalog.Command{&catalog.Horizon{Index: r.ModifyIndex}, batch})
	return st
}
