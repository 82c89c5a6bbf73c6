package proxy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
)

// gate is what a terminating or mesh gateway has beside what sidecars have: subjects that are not of upstreams.
type gate struct {
	wants  []string       // in order
	values map[string]any // of those that are known; nil: there is nothing, or it may not be followed
	parts  map[string]*part
	// of is what the listeners were built of.
	of        []any
	listeners []*mesh.Resource
}

// part is what a gateway has for one service: whole, and as it was while something new of it is not known yet.
type part struct {
	of        []any // what it was built of
	stood     []envoy.Stood
	resources []*mesh.Resource
}

// newGateway returns nil for proxies that need none.
func newGateway(kind string) *gate {
	if kind != catalog.KindTerminatingGateway && kind != catalog.KindMeshGateway {
		return nil
	}
	return &gate{values: map[string]any{}, parts: map[string]*part{}}
}

// want sets what is followed.
func (g *gate) want(list []string) {
	slices.Sort(list)
	g.wants = slices.Compact(list)
	maps.DeleteFunc(g.values, func(s string, _ any) bool { return !g.wanted(s) })
}

func (g *gate) wanted(subject string) bool {
	_, ok := slices.BinarySearch(g.wants, subject)
	return ok
}

// take notes a value; false: it is none of the gateway's.
func (g *gate) take(c Change) bool {
	if !g.wanted(c.Subject) {
		return false
	}
	if next, ok := c.Value.(*mesh.Resource); ok {
		if held, ok := g.values[c.Subject].(*mesh.Resource); ok && same(held, next) {
			return true
		}
	}
	g.values[c.Subject] = c.Value
	return true
}

// inputs are the values of subjects; false: not all are known.
func (g *gate) inputs(subjects []string) ([]any, bool) {
	var list []any
	for _, s := range subjects {
		v, ok := g.values[s]
		if !ok {
			return nil, false
		}
		list = append(list, v)
	}
	return list, true
}

// gatewayWants lists what a gateway follows beside its own settings.
func (p *Proxy) gatewayWants() []string {
	if p.service == nil {
		return nil
	}
	if p.reg.Kind == catalog.KindMeshGateway {
		return p.passageWants()
	}
	var list []string
	for _, l := range p.gateway.linked(p.service) {
		list = append(list, p.linkedSubjects(l)...)
	}
	return list
}

// wanted is a part that there shall be: of the values of subjects, and of what else compares equal while it is the
// same.
type wanted struct {
	subjects []string
	also     any
	build    func(inputs []any) (*part, error)
}

// gatewayParts builds what of the gateway changed. Parts are by service; want are those that there shall be.
// missing says what it means that one of the values is not there.
func (p *Proxy) gatewayParts(missing string, want map[string]wanted) {
	g := p.gateway
	maps.DeleteFunc(g.parts, func(name string, _ *part) bool { return want[name].build == nil })
	for _, name := range sortedKeys(want) {
		inputs, known := g.inputs(want[name].subjects)
		if !known {
			continue // as it was, until all is known
		}
		if slices.Contains(inputs, nil) {
			p.problem(errkind.Errorf(errkind.Denied, "service %q: %s, or the servers say nothing of it", name, missing))
			delete(g.parts, name)
			continue
		}
		inputs = append(inputs, p.service, p.reg, want[name].also)
		if held := g.parts[name]; held != nil && slices.Equal(held.of, inputs) {
			continue
		}
		next, err := want[name].build(inputs)
		if err != nil {
			p.problem(fmt.Errorf("service %q: %w", name, err))
			continue
		}
		next.of = inputs
		g.parts[name] = next
	}
}

// gatewayListeners builds the listeners of a gateway's parts, at each of its addresses.
func (p *Proxy) gatewayListeners(make func(*envoy.Gateway) (*mesh.Resource, error), stat string) {
	g := p.gateway
	of := []any{p.service, p.reg}
	var stood []envoy.Stood
	for _, name := range sortedKeys(g.parts) {
		of, stood = append(of, g.parts[name]), append(stood, g.parts[name].stood...)
	}
	if slices.Equal(of, g.of) {
		return
	}
	c := p.config()
	v := envoy.Gateway{Stat: stat, Stood: stood, HTTP: p.service.HTTP, Logs: p.logs(), Tracing: p.tracing()}
	if p.service.TLS != nil {
		v.TLS = p.service.TLS.Incoming
	}
	var list []*mesh.Resource
	for _, at := range p.gatewayBinds(c) {
		v.Label, v.Bind = at.label, at.Bind
		r, err := make(&v)
		if err != nil {
			p.problem(err)
			return // as they were
		}
		list = append(list, p.cache.one(r))
	}
	for _, err := range c.problems {
		p.problem(err)
	}
	g.of, g.listeners = of, list
}

type gatewayBind struct {
	label string
	envoy.Bind
}

// gatewayBinds are the addresses that a gateway listens on: its own, its tagged ones where that is asked for, and those
// that its registration names.
func (p *profile) gatewayBinds(c *options) []gatewayBind {
	var list []gatewayBind
	add := func(label string, b envoy.Bind) {
		if !slices.ContainsFunc(list, func(o gatewayBind) bool { return o.Address == b.Address && o.Port == b.Port }) {
			list = append(list, gatewayBind{label, b})
		}
	}
	if !c.flag("envoy_gateway_no_default_bind") {
		add("default", p.publicBind(c))
	}
	if c.flag("envoy_gateway_bind_tagged_addresses") {
		for _, tag := range sortedKeys(p.reg.tagged) {
			t := p.reg.tagged[tag]
			if _, err := netip.ParseAddr(t.Address); err == nil && t.Port > 0 {
				add(tag, envoy.Bind{Address: t.Address, Port: t.Port})
			}
		}
	}
	if named := c.object("envoy_gateway_bind_addresses"); named != nil {
		for _, label := range sortedKeys(named.m) {
			if o := named.object(label); o != nil {
				b := envoy.Bind{Address: o.text("address")}
				b.Port, _ = o.number("port", 65535)
				add(label, b)
				c.problems = append(c.problems, o.problems...)
			}
		}
		c.problems = append(c.problems, named.problems...)
	}
	return list
}
