package meshrows

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// MeshProxy is a proxy as its host sees it. Status is written as JSON.
type MeshProxy struct {
	Node, ID, Service, State string
	Status                   any
}

// Mesh is the proxies of this process, and the way to those of others.
type Mesh interface {
	// Proxies are those registered at this host's agent, and others with a stream here.
	Proxies() []MeshProxy
	// Proxy is one of them in full; node "" is this one.
	Proxy(node, id string) (MeshProxy, bool)
	// Settled tells whether this host has heard of everything up to the index, how many of its proxies have endpoints of
	// the service, and which of those have not acknowledged them as they are.
	Settled(service string, index uint64) (known bool, proxies int, pending []string)
	// Alive are the names of the members that answer, this one included.
	Alive() []string
	// Servers are those of them that are servers.
	Servers() []string
	// Reach asks a member with GET, as a server: it gets everything, and who asked is judged here. No token travels to a
	// member.
	Reach(ctx context.Context, node, path string) (status int, body []byte, err error)
}

const (
	meshProxiesPattern = "/v1/internal/mesh/proxies"
	MeshProxyPattern   = "/v1/internal/mesh/proxy/"
)

var errNoMesh = answer.Fail(http.StatusInternalServerError, "The mesh is off: connect.enabled is false on this process")

// meshState is the state of a host's or the cluster's proxies.
type meshState struct {
	Proxies int            // counted
	States  map[string]int // how many are in each state
	// List are the proxies: all with ?all, else those that are not synced.
	List []json.RawMessage
}

func (m *meshState) add(o *meshState) {
	m.Proxies += o.Proxies
	for state, n := range o.States {
		m.States[state] += n
	}
	m.List = append(m.List, o.List...)
}

// mayReadProxy is for a proxy of the service: its readers and operators.
func mayReadProxy(q *rows.Request, service string) bool {
	return q.Open || q.Grant.Allow(acl.Operator, "", acl.Read) || q.Sees(acl.Service, service)
}

// meshProxies answers for this host alone.
func (mr *Rows) meshProxies(q *rows.Request) error {
	m := mr.Proxies
	if m == nil {
		return errNoMesh
	}
	out := meshState{States: map[string]int{}, List: []json.RawMessage{}}
	for _, p := range m.Proxies() {
		if !mayReadProxy(q, p.Service) {
			continue
		}
		out.Proxies++
		out.States[p.State]++
		if p.State == "synced" && !q.Query.Has("all") {
			continue
		}
		raw, err := json.Marshal(p.Status)
		if err != nil {
			return err
		}
		out.List = append(out.List, raw)
	}
	return q.ReplyValue(out)
}

// meshProxy is one proxy of this host in full.
func (mr *Rows) meshProxy(q *rows.Request) error {
	m := mr.Proxies
	if m == nil {
		return errNoMesh
	}
	p, ok := m.Proxy(q.Query.Value("node"), q.Rest)
	if !ok || !mayReadProxy(q, p.Service) {
		return absent(q, "no proxy %q is registered here, and none has a stream here")
	}
	return q.ReplyValue(p.Status)
}

// absent is the answer where the proxy that was asked for is not there, or is not for this caller: nothing in it tells
// the two apart. Who may not read a service of that name is refused, others get the words, in which %q is the name.
func absent(q *rows.Request, words string) error {
	if !mayReadProxy(q, q.Rest) {
		return q.Allow(acl.Service, q.Rest, acl.Read)
	}
	return errkind.Errorf(errkind.NotFound, words, q.Rest)
}

// The bounds of a gathering.
const (
	gatherTime    = 5 * time.Second
	gatherWorkers = 64
)

// silent is a member that did not answer.
type silent struct{ Node, Error string }

// gather asks the members and gives each answer to take, one at a time. What they answer is not filtered: the caller
// sees of it what q may read.
func (mr *Rows) gather(q *rows.Request, nodes []string, path string, take func(body []byte) error) []silent {
	ctx, cancel := context.WithTimeout(q.R.Context(), gatherTime)
	defer cancel()
	var mu sync.Mutex
	var lost []silent
	m := mr.Proxies
	ask := func(node string) {
		status, body, err := m.Reach(ctx, node, path)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && status == http.StatusOK {
			err = take(body)
		} else if err == nil && status != http.StatusNotFound {
			err = fmt.Errorf("status %d: %.200s", status, strings.TrimSpace(string(body)))
		}
		if err != nil {
			lost = append(lost, silent{node, errkind.Text(err)})
		}
	}
	work := make(chan string)
	var group sync.WaitGroup
	for range min(gatherWorkers, len(nodes)) {
		group.Go(func() {
			for node := range work {
				ask(node)
			}
		})
	}
	for _, node := range nodes {
		work <- node
	}
	close(work)
	group.Wait()
	slices.SortFunc(lost, func(a, b silent) int { return cmp.Compare(a.Node, b.Node) })
	return lost
}

// isProxy tells whether an instance is one that a proxy program runs for.
func isProxy(s *catalog.Service) bool { return s.Kind != catalog.KindTypical }

// proxyHosts are the nodes with proxies, of which has is true if it is set; and what is registered on nodes that are
// no living members.
func (mr *Rows) proxyHosts(q *rows.Request, st *statestore.State, has func(*catalog.Service) bool) (hosts []string,
	others []*catalog.Service) {
	alive := map[string]bool{}
	for _, name := range mr.Proxies.Alive() {
		alive[name] = true
	}
	ask := map[string]bool{}
	for _, name := range mr.Proxies.Servers() {
		ask[name] = true // proxies of nodes without an agent have their streams there
	}
	for n := range st.Nodes() {
		for s := range st.ServicesOfNode(n.Name) {
			switch {
			case !isProxy(s) || has != nil && !has(s):
			case alive[n.Name]:
				ask[n.Name] = true
			default:
				others = append(others, s)
			}
		}
	}
	return slices.Sorted(maps.Keys(ask)), others
}

func servicesIndex(st *statestore.State) uint64 { return st.ServicesIndex() }

// meshServers reads the State on a server that has a mesh.
func (mr *Rows) meshServers(q *rows.Request) (*statestore.State, error) {
	st, err := q.Read(registry.Subject{Topic: registry.TopicServices}, servicesIndex)
	if err == nil && mr.Proxies == nil {
		err = errNoMesh
	}
	return st, err
}

// meshStatus gathers from all hosts with proxies how they stand.
func (mr *Rows) meshStatus(q *rows.Request) error {
	if err := q.Allow(acl.Operator, "", acl.Read); err != nil {
		return err
	}
	st, err := mr.meshServers(q)
	if err != nil {
		return err
	}
	hosts, others := mr.proxyHosts(q, st, nil)
	out := struct {
		meshState
		Hosts  int      // that were asked
		Silent []silent // that did not answer: their proxies are not counted
		// Unattended are proxies registered on nodes that are no living members, unless they have a stream at a server.
		Unattended []string
		// Services are how many proxies of each service are in each state; with ?services.
		Services byService `json:",omitempty"`
	}{meshState{States: map[string]int{}, List: []json.RawMessage{}}, len(hosts), nil, []string{}, nil}
	if q.Query.Has("services") {
		out.Services = byService{}
	}
	path := meshProxiesPattern + "?all"
	seen := map[string]bool{}
	out.Silent = mr.gather(q, hosts, path, func(body []byte) error {
		var one meshState
		if err := json.Unmarshal(body, &one); err != nil {
			return err
		}
		kept := one.List[:0]
		for _, raw := range one.List {
			var p struct{ Node, ID, Service, State string }
			if err := json.Unmarshal(raw, &p); err != nil {
				return err
			}
			seen[p.Node+"/"+p.ID] = true
			if out.Services != nil {
				out.Services.count(p.Service, p.State)
			}
			if p.State != "synced" || q.Query.Has("all") {
				kept = append(kept, raw)
			}
		}
		one.List = kept
		out.add(&one)
		return nil
	})
	for _, s := range others {
		if !seen[s.Node+"/"+s.ID] {
			out.Unattended = append(out.Unattended, s.Node+"/"+s.ID)
		}
	}
	if out.Silent == nil {
		out.Silent = []silent{}
	}
	return q.ReplyValue(out)
}

// meshFind is the proxies of an id, or those that stand for a service of the name, in full, wherever they are. Those
// that the caller may not read are as if they were not there.
func (mr *Rows) meshFind(q *rows.Request) error {
	if q.Rest == "" {
		return rows.ErrNoService
	}
	st, err := mr.meshServers(q)
	if err != nil {
		return err
	}
	type place struct{ node, id string }
	var places []place
	named := func(s *catalog.Service) bool {
		if s.ID != q.Rest && s.ProxyDestination != q.Rest && s.Name != q.Rest {
			return false
		}
		if !mayReadProxy(q, cmp.Or(s.ProxyDestination, s.Name)) {
			return false
		}
		places = append(places, place{s.Node, s.ID})
		return true
	}
	hosts, _ := mr.proxyHosts(q, st, named)
	if len(places) == 0 {
		return absent(q, "no proxy has the ID %q, and none stands for a service of the name")
	}
	best := map[place]json.RawMessage{}
	var lost []silent
	slices.SortFunc(places, func(a, b place) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.id, b.id)) })
	for _, at := range places[:min(len(places), maxFound)] {
		ask := slices.DeleteFunc(slices.Clone(hosts), func(h string) bool {
			return h != at.node && !slices.Contains(mr.Proxies.Servers(), h)
		})
		lost = append(lost, mr.gather(q, ask, MeshProxyPattern+url.PathEscape(at.id)+"?node="+url.QueryEscape(at.node),
			func(body []byte) error {
				var p struct {
					Service string
					Streams int
				}
				if err := json.Unmarshal(body, &p); err != nil {
					return err
				}
				if !mayReadProxy(q, p.Service) { // its host says what it stands for now
					return nil
				}
				if best[at] == nil || p.Streams > 0 { // the one that has its stream knows best
					best[at] = body
				}
				return nil
			})...)
	}
	out := struct {
		List   []json.RawMessage
		Silent []silent
		More   int // proxies that were found and are not in the list
	}{[]json.RawMessage{}, lost, max(0, len(places)-maxFound)}
	for _, at := range places {
		if best[at] != nil {
			out.List = append(out.List, best[at])
		}
	}
	if out.Silent == nil {
		out.Silent = []silent{}
	}
	return q.ReplyValue(out)
}

// maxFound bounds the proxies that one request asks for in full.
const maxFound = 100

// meshEdge is who calls whom.
type meshEdge struct {
	Source, Destination string
	Datacenter          string `json:",omitempty"` // of the destination, where it is another one
	Proxies             int    // of the source, that name the destination as an upstream
	Allowed             bool
	PerRequest          bool   `json:",omitempty"` // intentions look at each request
	Reason              string // the intention that decides
}

// meshTopology is the services of the mesh and who calls whom.
func (mr *Rows) meshTopology(q *rows.Request) error {
	st, err := mr.meshServers(q)
	if err != nil {
		return err
	}
	services, edges := map[string]int{}, map[[3]string]*meshEdge{}
	for n := range st.Nodes() {
		for s := range st.ServicesOfNode(n.Name) {
			from := cmp.Or(s.ProxyDestination, s.Name)
			if !isProxy(s) || !q.Sees(acl.Service, from) {
				continue
			}
			services[from]++
			for _, to := range upstreamsOf(s) {
				if !q.Sees(acl.Service, to.name) {
					continue
				}
				if to.datacenter == q.Identity.Datacenter {
					to.datacenter = ""
				}
				e := edges[[3]string{from, to.name, to.datacenter}]
				if e == nil {
					e = &meshEdge{Source: from, Destination: to.name, Datacenter: to.datacenter}
					e.Allowed, e.PerRequest, e.Reason = mr.intentions.JudgeEdge(st, from, to.name)
					edges[[3]string{from, to.name, to.datacenter}] = e
				}
				e.Proxies++
			}
		}
	}
	out := struct {
		Services map[string]int // proxies of each service
		Edges    []*meshEdge
	}{services, []*meshEdge{}}
	for _, e := range edges {
		out.Edges = append(out.Edges, e)
	}
	slices.SortFunc(out.Edges, func(a, b *meshEdge) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Destination, b.Destination),
			cmp.Compare(a.Datacenter, b.Datacenter))
	})
	return q.ReplyValue(out)
}

// upstream is a service that a proxy calls; datacenter is "" where its registration names none.
type upstream struct{ name, datacenter string }

// upstreamsOf are the services that a proxy's registration names.
func upstreamsOf(s *catalog.Service) []upstream {
	var p struct {
		Upstreams []struct{ DestinationName, DestinationType, Datacenter string }
	}
	if len(s.Proxy) == 0 || json.Unmarshal(s.Proxy, &p) != nil {
		return nil
	}
	var list []upstream
	for _, u := range p.Upstreams {
		if one := (upstream{u.DestinationName, strings.ToLower(u.Datacenter)}); u.DestinationType != "prepared_query" &&
			one.name != "" && !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	return list
}

const (
	SettlePattern  = "/v1/internal/mesh/settle/"
	settledPattern = "/v1/internal/mesh/settled"
)

// maxPending bounds the proxies that are named.
const maxPending = 20

// settledState is how the proxies of one host stand to a service's instances.
type settledState struct {
	Known   bool // the host has heard of everything up to the index
	Proxies int
	Pending []string
}

// meshSettled answers for this host alone.
func (mr *Rows) meshSettled(q *rows.Request) error {
	m := mr.Proxies
	if m == nil {
		return errNoMesh
	}
	service := q.Query.Value("service")
	if !mayReadProxy(q, service) {
		return q.Allow(acl.Service, service, acl.Read)
	}
	index, err := strconv.ParseUint(q.Query.Value("index"), 10, 64)
	if err != nil {
		return answer.Invalidf("Invalid value for index: %q", q.Query.Value("index"))
	}
	var out settledState
	out.Known, out.Proxies, out.Pending = m.Settled(service, index)
	if out.Pending = out.Pending[:min(len(out.Pending), maxPending)]; out.Pending == nil {
		out.Pending = []string{}
	}
	return q.ReplyValue(out)
}

// meshSettle gathers from all hosts with proxies whether they know that an instance drains, and their proxies have
// acknowledged it.
func (mr *Rows) meshSettle(q *rows.Request) error {
	service := q.Rest
	if !mayReadProxy(q, service) {
		return q.Allow(acl.Service, service, acl.Read)
	}
	st, err := mr.meshServers(q)
	if err != nil {
		return err
	}
	out := struct {
		Settled         bool
		Index           uint64
		Hosts, Proxies  int
		Pending, Silent []string
	}{Settled: true, Index: st.Index(), Pending: []string{}, Silent: []string{}}
	// this server has not heard of the mark
	if st.Check(q.Query.Value("node"), catalog.ServiceDrainPrefix+q.Query.Value("id")) == nil {
		out.Settled = false
		return q.ReplyValue(out)
	}
	hosts, _ := mr.proxyHosts(q, st, nil)
	out.Hosts = len(hosts)
	path := settledPattern + "?" + url.Values{"service": {service}, "index": {strconv.FormatUint(out.Index, 10)}}.Encode()
	for _, s := range mr.gather(q, hosts, path, func(body []byte) error {
		var one settledState
		if err := json.Unmarshal(body, &one); err != nil {
			return err
		}
		out.Proxies += one.Proxies
		out.Settled = out.Settled && one.Known && len(one.Pending) == 0
		out.Pending = append(out.Pending, one.Pending...)
		return nil
	}) {
		out.Settled = false
		out.Silent = append(out.Silent, s.Node)
	}
	out.Pending = out.Pending[:min(len(out.Pending), maxPending)]
	return q.ReplyValue(out)
}
