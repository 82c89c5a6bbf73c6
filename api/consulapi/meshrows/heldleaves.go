package meshrows

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"time"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
)

// HeldLeaf is a leaf certificate that a host keeps for an identity: no key. One that could not be had at all has no
// serial number.
type HeldLeaf struct {
	Node                    string
	Service                 string // "" for the gateways of the mesh
	SerialNumber, RootID    string
	ValidAfter, ValidBefore time.Time
	// State is one of the Leaf constants; the host leaves it to the server, which knows the roots.
	State string
	// Error says why the last try to get or renew it came to nothing.
	Error string `json:",omitempty"`
}

// The states of a leaf certificate, the best first.
const (
	LeafValid    = "valid"
	LeafEnding   = "ending"   // it ought to be renewed by now: less than a tenth of its life is left
	LeafOldRoot  = "old root" // a root signed that is no longer the active one
	LeafStranger = "stranger" // none of the roots signed: peers refuse it
	LeafEnded    = "ended"
	LeafMissing  = "missing" // there is none
)

var leafStates = []string{LeafValid, LeafEnding, LeafOldRoot, LeafStranger, LeafEnded, LeafMissing}

// judgeLeaf is the state of a leaf at a time, by the authority's roots.
func judgeLeaf(l *HeldLeaf, roots []CARoot, now time.Time) string {
	i := slices.IndexFunc(roots, func(r CARoot) bool { return r.ID == l.RootID })
	switch {
	case l.SerialNumber == "":
		return LeafMissing
	case !now.Before(l.ValidBefore):
		return LeafEnded
	case i < 0:
		return LeafStranger
	case !roots[i].Active:
		return LeafOldRoot
	case l.ValidBefore.Sub(now) < l.ValidBefore.Sub(l.ValidAfter)/10: // hosts renew at 60 to 90 % of a life
		return LeafEnding
	}
	return LeafValid
}

const heldPattern = "/v1/internal/mesh/leaves"

// meshLeaves answers for this host alone; ?service= is for one.
func (mr *Rows) meshLeaves(q *rows.Request) error {
	out := []HeldLeaf{}
	if mr.Leaves != nil {
		for _, l := range mr.Leaves.Held() {
			if q.Query.Has("service") && l.Service != q.Query.Value("service") || !mayReadProxy(q, l.Service) {
				continue
			}
			l.Node = q.Identity.NodeName
			out = append(out, l)
		}
	}
	return q.ReplyValue(out)
}

// maxLeaves bounds the certificates that are listed one by one.
const maxLeaves = 200

// leavesState is how leaf certificates are.
type leavesState struct {
	Hosts    int            // that were asked
	States   map[string]int // how many are in each state
	Services byService      // the same of each service
	List     []HeldLeaf     // the worst first, those that end first before others
	More     int            // that are counted and not listed
	Silent   []silent       // hosts that did not answer
}

// meshCertificates gathers the leaf certificates of the service of ?service=, for its readers, or for operators those
// of all: from servers and from hosts with an instance that is part of the mesh.
func (mr *Rows) meshCertificates(q *rows.Request) error {
	service, one := q.Query.Value("service"), q.Query.Has("service")
	switch {
	case one && !mayReadProxy(q, service):
		return q.Allow(acl.Service, service, acl.Read)
	case !one:
		if err := q.Allow(acl.Operator, "", acl.Read); err != nil {
			return err
		}
	}
	st, err := mr.meshServers(q)
	if err != nil {
		return err
	}
	var roots []CARoot
	if mr.CA != nil {
		if roots, err = mr.CA.Roots(st); err != nil {
			return err
		}
	}
	path := heldPattern
	if one {
		path += "?service=" + url.QueryEscape(service)
	}
	hosts := mr.leafHosts(st, service, one)
	out := leavesState{Hosts: len(hosts), States: map[string]int{}, Services: byService{}}
	now := q.Clock.Now()
	out.Silent = mr.gather(q, hosts, path, func(body []byte) error {
		var list []HeldLeaf
		if err := json.Unmarshal(body, &list); err != nil {
			return err
		}
		for i := range list {
			list[i].State = judgeLeaf(&list[i], roots, now)
			out.add(&list[i])
		}
		return nil
	})
	slices.SortFunc(out.List, compareLeaves)
	kept := min(len(out.List), maxLeaves)
	out.List, out.More = append([]HeldLeaf{}, out.List[:kept]...), len(out.List)-kept
	if out.Silent == nil {
		out.Silent = []silent{}
	}
	return q.ReplyValue(out)
}

// byService is how many of each service are in each state.
type byService map[string]map[string]int

func (b byService) count(service, state string) {
	of := b[service]
	if of == nil {
		of = map[string]int{}
		b[service] = of
	}
	of[state]++
}

func (s *leavesState) add(l *HeldLeaf) {
	s.States[l.State]++
	s.Services.count(l.Service, l.State)
	s.List = append(s.List, *l)
}

func compareLeaves(a, b HeldLeaf) int {
	return cmp.Or(cmp.Compare(slices.Index(leafStates, b.State), slices.Index(leafStates, a.State)),
		a.ValidBefore.Compare(b.ValidBefore), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Node, b.Node))
}

// leafHosts are the members that may keep leaf certificates, of one service or of any: servers are asked in any case,
// since what is not registered may use theirs.
func (mr *Rows) leafHosts(st *statestore.State, service string, one bool) []string {
	ask := map[string]bool{}
	for _, name := range mr.Proxies.Servers() {
		ask[name] = true
	}
	for _, name := range mr.Proxies.Alive() {
		if ask[name] {
			continue
		}
		for s := range st.ServicesOfNode(name) {
			if one && service == cmp.Or(s.ProxyDestination, s.Name) || !one && inMesh(s) {
				ask[name] = true
				break
			}
		}
	}
	return slices.Sorted(maps.Keys(ask))
}

// inMesh tells whether an instance proves who it is by a leaf certificate.
func inMesh(s *catalog.Service) bool { return isProxy(s) || s.Native }
