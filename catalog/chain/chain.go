// Package chain compiles discovery chains: what the config entries of a service
// make of a request for it, as a graph of routers, splitters and resolvers over
// targets (contract section 21).
//
// Compile is pure: entries in, a Chain out. A service without entries has the
// default chain, one resolver with one target; no service is unknown.
package chain

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"corbel.dev/corbel/catalog/entry"
)

// Kinds of node.
const (
	KindRouter   = "router"
	KindSplitter = "splitter"
	KindResolver = "resolver"
)

// defaultTimeout is how long a proxy waits for a connection unless a resolver says otherwise.
const defaultTimeout = entry.Duration(5 * time.Second)

// Request says what to compile.
type Request struct {
	Service     string
	Datacenter  string
	TrustDomain string
	Get         entry.Getter
	// The overrides stand for one upstream's own settings; empty ones override nothing.
	Protocol       string
	ConnectTimeout entry.Duration
	MeshGateway    string
}

// Chain is a compiled discovery chain; the fields are the contract's.
type Chain struct {
	ServiceName       string
	Namespace         string
	Partition         string
	Datacenter        string
	CustomizationHash string            `json:",omitempty"`
	Default           bool              `json:",omitempty"`
	Protocol          string            `json:",omitempty"`
	ServiceMeta       map[string]string `json:",omitempty"`
	StartNode         string            `json:",omitempty"`
	Nodes             map[string]*Node  `json:",omitempty"`
	Targets           map[string]*Target
}

// Node is one step.
type Node struct {
	Type         string
	Name         string
	Routes       []*Route            `json:",omitempty"`
	Splits       []*Split            `json:",omitempty"`
	Resolver     *Resolver           `json:",omitempty"`
	LoadBalancer *entry.LoadBalancer `json:",omitempty"`
}

// ID is the node's key in the chain.
func (n *Node) ID() string { return n.Type + ":" + n.Name }

// Route is one way out of a router.
type Route struct {
	Definition *entry.Route `json:",omitempty"`
	NextNode   string
}

// Split is one way out of a splitter.
type Split struct {
	Definition *entry.Split `json:",omitempty"`
	Weight     float32
	NextNode   string
}

// Resolver ends at a target.
type Resolver struct {
	Default        bool           `json:",omitempty"`
	ConnectTimeout entry.Duration `json:",omitempty"`
	RequestTimeout entry.Duration `json:",omitempty"`
	Target         string
	Failover       *Failover `json:",omitempty"`
}

// Failover lists the targets to go on at, in order.
type Failover struct {
	Targets []string              `json:",omitempty"`
	Policy  *entry.FailoverPolicy `json:",omitempty"`
}

// Target is a set of instances.
type Target struct {
	ID             string
	Service        string
	ServiceSubset  string `json:",omitempty"`
	Namespace      string
	Partition      string
	Datacenter     string
	Peer           string            `json:",omitempty"`
	MeshGateway    entry.MeshGateway `json:",omitzero"`
	Subset         entry.Subset      `json:",omitzero"`
	External       bool              `json:",omitempty"`
	ConnectTimeout entry.Duration    `json:",omitempty"`
	SNI            string            `json:",omitempty"`
	Name           string            `json:",omitempty"`
}

// maxSteps bounds redirects and references: entries that were checked never need as many.
const maxSteps = 128

var errCircular = errors.New("detected circular reference between config entries")

// compiler is one compilation.
type compiler struct {
	r       Request
	out     *Chain
	custom  bool // an override had an effect
	pending int  // steps on the way down
}

// Compile makes the chain. The error tells which entries do not work together.
func Compile(r Request) (*Chain, error) {
	c := &compiler{r: r, out: &Chain{ServiceName: r.Service, Namespace: "default", Partition: "default",
		Datacenter: r.Datacenter,
		Nodes:      map[string]*Node{}, Targets: map[string]*Target{}}}
	c.out.Protocol = entry.Protocol(r.Get, r.Service)
	if r.Protocol != "" && r.Protocol != c.out.Protocol {
		c.out.Protocol, c.custom = r.Protocol, true
	}
	if d, ok := r.Get(entry.ServiceDefaults, r.Service).(*entry.Service); ok {
		c.out.ServiceMeta = d.Meta
	}
	start, err := c.service(r.Service, true)
	if err != nil {
		return nil, err
	}
	c.out.StartNode = start.ID()
	c.flatten()
	c.sweep()
	c.out.Default = c.isDefault()
	if c.custom {
		c.out.CustomizationHash = customization(&r)
	}
	return c.out, nil
}

func (c *compiler) isDefault() bool {
	n := c.out.Nodes[c.out.StartNode]
	return n.Type == KindResolver && n.Resolver.Default && n.Resolver.Failover == nil &&
		n.Resolver.Target == targetID(c.r.Service, "", c.r.Datacenter, "")
}

// nodeName is the name of routers and splitters.
func nodeName(service string) string { return service + ".default.default" }

// http tells whether a service's requests may be told apart. The chain's own override counts for all.
func (c *compiler) http(service string) bool {
	if c.r.Protocol != "" {
		return entry.IsHTTP(c.r.Protocol)
	}
	return entry.IsHTTP(entry.Protocol(c.r.Get, service))
}

// service starts at a service by name: its router (only at the chain's begin), its splitter, its resolver.
func (c *compiler) service(name string, routed bool) (*Node, error) {
	if c.pending++; c.pending > maxSteps {
		return nil, errCircular
	}
	defer func() { c.pending-- }()
	if routed && c.http(name) {
		if e, ok := c.r.Get(entry.ServiceRouter, name).(*entry.Router); ok {
			return c.router(name, e)
		}
	}
	return c.splitOrResolve(name)
}

func (c *compiler) splitOrResolve(name string) (*Node, error) {
	if c.http(name) {
		if e, ok := c.r.Get(entry.ServiceSplitter, name).(*entry.Splitter); ok {
			return c.splitter(name, e)
		}
	}
	return c.resolve(place{service: name})
}

func (c *compiler) router(name string, e *entry.Router) (*Node, error) {
	n := &Node{Type: KindRouter, Name: nodeName(name)}
	c.out.Nodes[n.ID()] = n
	for i := range e.Routes {
		route := e.Routes[i]
		next, err := c.destination(name, route.Destination)
		if err != nil {
			return nil, err
		}
		n.Routes = append(n.Routes, &Route{Definition: &route, NextNode: next.ID()})
	}
	next, err := c.splitOrResolve(name)
	if err != nil {
		return nil, err
	}
	rest := &entry.Route{Match: &entry.RouteMatch{HTTP: &entry.HTTPMatch{PathPrefix: "/"}},
		Destination: &entry.RouteDestination{Service: name, Namespace: "default", Partition: "default"}}
	n.Routes = append(n.Routes, &Route{Definition: rest, NextNode: next.ID()})
	return n, nil
}

// destination is where a route leads: a subset is not split further.
func (c *compiler) destination(own string, d *entry.RouteDestination) (*Node, error) {
	if d == nil {
		return c.splitOrResolve(own)
	}
	name := or(d.Service, own)
	if d.ServiceSubset != "" {
		return c.resolve(place{service: name, subset: d.ServiceSubset})
	}
	return c.splitOrResolve(name)
}

func (c *compiler) splitter(name string, e *entry.Splitter) (*Node, error) {
	if c.pending++; c.pending > maxSteps {
		return nil, errCircular
	}
	defer func() { c.pending-- }()
	n := &Node{Type: KindSplitter, Name: nodeName(name)}
	if known := c.out.Nodes[n.ID()]; known != nil {
		return known, nil
	}
	c.out.Nodes[n.ID()] = n
	for i := range e.Splits {
		split := e.Splits[i]
		target := or(split.Service, name)
		var next *Node
		var err error
		if split.ServiceSubset == "" && target != name {
			next, err = c.splitOrResolve(target)
		} else {
			next, err = c.resolve(place{service: target, subset: split.ServiceSubset})
		}
		if err != nil {
			return nil, err
		}
		n.Splits = append(n.Splits, &Split{Definition: &split, Weight: split.Weight, NextNode: next.ID()})
	}
	return n, nil
}

// place is where a resolver is asked to resolve.
type place struct{ service, subset, dc, peer string }

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func targetID(service, subset, dc, peer string) string {
	id := service + ".default.default"
	if peer != "" {
		id += ".external." + peer
	} else {
		id += "." + dc
	}
	if subset != "" {
		id = subset + "." + id
	}
	return id
}

// resolver finds the entry for a service; a service without one has an empty one.
func (c *compiler) resolver(service string) (e *entry.Resolver, found bool) {
	if e, ok := c.r.Get(entry.ServiceResolver, service).(*entry.Resolver); ok {
		return e, true
	}
	return &entry.Resolver{}, false
}

// settle follows redirects and default subsets to where a place really is.
func (c *compiler) settle(p place) (place, *entry.Resolver, bool, error) {
	p.dc = or(p.dc, c.r.Datacenter)
	for range maxSteps {
		e, found := c.resolver(p.service)
		if p.peer != "" {
			return p, e, found, nil
		}
		if r := e.Redirect; r != nil {
			next := place{service: or(r.Service, p.service), subset: r.ServiceSubset, dc: or(r.Datacenter, p.dc), peer: r.Peer}
			if next.service == p.service && r.Service == "" && next.subset == "" {
				next.subset = p.subset
			}
			if next != p {
				p = next
				continue
			}
		}
		if p.subset == "" {
			p.subset = e.DefaultSubset
		}
		if _, ok := e.Subsets[p.subset]; p.subset != "" && !ok {
			return p, nil, false, fmt.Errorf("service %q does not have a subset named %q", p.service, p.subset)
		}
		return p, e, found, nil
	}
	return p, nil, false, errCircular
}

func (c *compiler) resolve(at place) (*Node, error) {
	p, e, found, err := c.settle(at)
	if err != nil {
		return nil, err
	}
	t := c.target(p, e)
	n := &Node{Type: KindResolver, Name: t.ID}
	if known := c.out.Nodes[n.ID()]; known != nil {
		return known, nil
	}
	c.out.Nodes[n.ID()] = n
	n.Resolver = &Resolver{Default: !found, ConnectTimeout: t.ConnectTimeout, RequestTimeout: e.RequestTimeout,
		Target: t.ID}
	n.LoadBalancer = e.LoadBalancer
	f, ok := e.Failover[p.subset]
	if !ok {
		f, ok = e.Failover["*"]
	}
	if !ok {
		return n, nil
	}
	n.Resolver.Failover = &Failover{Policy: f.Policy}
	for _, next := range failovers(&f, p) {
		q, qe, _, err := c.settle(next)
		if err != nil {
			return nil, err
		}
		if id := c.target(q, qe).ID; id != t.ID {
			n.Resolver.Failover.Targets = append(n.Resolver.Failover.Targets, id)
		}
	}
	if len(n.Resolver.Failover.Targets) == 0 {
		n.Resolver.Failover = nil
	}
	return n, nil
}

// failovers lists the places that a failover names.
func failovers(f *entry.Failover, from place) []place {
	var list []place
	base := from
	if f.Service != "" && f.Service != from.service {
		base.service, base.subset = f.Service, ""
	}
	if f.ServiceSubset != "" {
		base.subset = f.ServiceSubset
	}
	for _, dc := range f.Datacenters {
		next := base
		next.dc = dc
		list = append(list, next)
	}
	for _, t := range f.Targets {
		next := place{service: or(t.Service, from.service), subset: t.ServiceSubset, dc: or(t.Datacenter, from.dc),
			peer: t.Peer}
		if t.Service == "" && t.ServiceSubset == "" {
			next.subset = from.subset
		}
		list = append(list, next)
	}
	if len(list) == 0 {
		list = append(list, base)
	}
	return list
}

// target returns the target of a place, which it adds to the chain.
func (c *compiler) target(p place, e *entry.Resolver) *Target {
	id := targetID(p.service, p.subset, p.dc, p.peer)
	if t := c.out.Targets[id]; t != nil {
		return t
	}
	t := &Target{ID: id, Service: p.service, ServiceSubset: p.subset, Namespace: "default", Partition: "default",
		Datacenter: p.dc, Peer: p.peer,
		Subset: e.Subsets[p.subset], ConnectTimeout: defaultTimeout, SNI: sni(p, c.r.TrustDomain)}
	if e.ConnectTimeout > 0 {
		t.ConnectTimeout = e.ConnectTimeout
	}
	if c.r.ConnectTimeout > 0 && c.r.ConnectTimeout != t.ConnectTimeout {
		t.ConnectTimeout, c.custom = c.r.ConnectTimeout, true
	}
	t.Name = t.SNI
	c.gateway(t)
	if d, ok := c.r.Get(entry.ServiceDefaults, p.service).(*entry.Service); ok && d.ExternalSNI != "" {
		t.SNI, t.External = d.ExternalSNI, true
	}
	c.out.Targets[id] = t
	return t
}

// gateway sets how a target elsewhere is reached.
func (c *compiler) gateway(t *Target) {
	if t.Datacenter == c.r.Datacenter && t.Peer == "" {
		return
	}
	if d, ok := c.r.Get(entry.ProxyDefaults, entry.Global).(*entry.Proxy); ok {
		t.MeshGateway = d.MeshGateway
	}
	if d, ok := c.r.Get(entry.ServiceDefaults, t.Service).(*entry.Service); ok && d.MeshGateway.Mode != "" {
		t.MeshGateway = d.MeshGateway
	}
	if c.r.MeshGateway != "" && c.r.MeshGateway != t.MeshGateway.Mode {
		t.MeshGateway.Mode, c.custom = c.r.MeshGateway, true
	}
}

// sni is the name that a target's proxies answer to.
func sni(p place, trustDomain string) string {
	name := p.service + ".default." + p.dc + ".internal." + trustDomain
	if p.peer != "" {
		return p.service + ".default.default." + p.peer + ".external." + trustDomain
	}
	if p.subset != "" {
		name = p.subset + "." + name
	}
	return name
}

// flatten takes splitters that other splitters lead to into those: proxies know one level.
func (c *compiler) flatten() {
	for range maxSteps {
		changed := false
		for _, n := range c.out.Nodes {
			changed = c.inline(n) || changed
		}
		if !changed {
			return
		}
	}
}

func (c *compiler) inline(n *Node) bool {
	changed := false
	var splits []*Split
	for _, s := range n.Splits {
		next := c.out.Nodes[s.NextNode]
		if n.Type != KindSplitter || next.Type != KindSplitter || next == n {
			splits = append(splits, s)
			continue
		}
		changed = true
		for _, inner := range next.Splits {
			weight := float32(math.Round(float64(s.Weight)*float64(inner.Weight)) / 100)
			splits = append(splits, &Split{Definition: inner.Definition, Weight: weight, NextNode: inner.NextNode})
		}
	}
	if changed {
		n.Splits = splits
	}
	return changed
}

// sweep drops nodes and targets that nothing leads to.
func (c *compiler) sweep() {
	nodes, targets := map[string]*Node{}, map[string]*Target{}
	var visit func(id string)
	visit = func(id string) {
		if nodes[id] != nil {
			return
		}
		n := c.out.Nodes[id]
		nodes[id] = n
		for _, r := range n.Routes {
			visit(r.NextNode)
		}
		for _, s := range n.Splits {
			visit(s.NextNode)
		}
		if n.Resolver == nil {
			return
		}
		targets[n.Resolver.Target] = c.out.Targets[n.Resolver.Target]
		if n.Resolver.Failover != nil {
			for _, id := range n.Resolver.Failover.Targets {
				targets[id] = c.out.Targets[id]
			}
		}
	}
	visit(c.out.StartNode)
	c.out.Nodes, c.out.Targets = nodes, targets
}

// customization names the overrides: proxies must not share a chain with others.
func customization(r *Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s|%d|%s", r.Protocol, r.ConnectTimeout, r.MeshGateway)
	sum := uint32(2166136261)
	for _, ch := range []byte(b.String()) {
		sum = (sum ^ uint32(ch)) * 16777619
	}
	return fmt.Sprintf("%08x", sum)
}
