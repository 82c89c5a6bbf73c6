package proxy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unique"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
)

// LeafSubject stands for the proxy's own certificate among the subjects. It is
// not followed at a server: who runs the proxy gets it, for Registration.Service.
const LeafSubject = "leaf"

// Change is the newest value of a subject.
type Change struct {
	Subject string
	// Value is of the subject's kind: *mesh.Resource (endpoints and leaf),
	// *mesh.Service, *mesh.RulesValue, *mesh.Upstream, *mesh.Roots. It is shared, and not changed.
	// nil: there is nothing under the subject, or it may not be followed.
	Value any
	// Gone says of endpoints without a value that no resolver has such a subset any more. The chains that refer to
	// it are about to be others: until then its instances go on to serve.
	Gone bool
}

// Delta is what a change did.
type Delta struct {
	Touched mesh.Types // whose Set is another now; all of them when the proxy becomes ready
	Follow  []string   // subjects whose values are wanted from now on
	Drop    []string   // subjects that do not matter any more
	// Settled tells that more was looked at than endpoints and rules. Checks is then whether config entries, and not the
	// registration, have checks of the instance go through the proxy.
	Settled, Checks bool
}

// Proxy is one proxy. New makes it; Step and Register change it.
type Proxy struct {
	// What a change of endpoints or rules looks at stands together: a process may have 100,000 proxies, and none of
	// them is in a cache when its turn comes.
	endpoints watched
	sets      *mesh.Sets // shared, and not changed; nil until the proxy is ready
	own       *own
	rules     *mesh.RulesValue
	rulesAt   string // the subject of its rules; "" while the service is not known

	profile
	rulesFrom string // the subject that rules are the value of
	roots     *mesh.Resource
	leaf      *mesh.Resource
	subject   string // the service's
	upstreams upstreams
	virtual   map[string]*mesh.Virtual // of a transparent proxy, by subject; nil for others
	gateway   *gate                    // nil: the proxy needs none
	follows   []string                 // in order
	problems  []string
}

// profile is what is set for a proxy, from which its resources are built: by its registration, and by the config
// entries for its service. It keeps nothing of what was built.
type profile struct {
	cache      *Cache
	datacenter string
	reg        *Registration
	service    *mesh.Service // nil: not known yet
	anchors    *mesh.Roots   // nil: not known yet
}

// endpoints is where the instances of a target are. The resource is there also when there are none.
type endpoints struct {
	subject string
	value   *mesh.Resource // nil: not known yet
}

// watched is the endpoints of all targets, by subject.
type watched []endpoints

// New returns a proxy that has nothing yet. Follows are the subjects to begin with.
func New(r *Registration, datacenter string, cache *Cache) *Proxy {
	p := &Proxy{profile: profile{cache: cache, datacenter: datacenter}, gateway: newGateway(r.Kind)}
	p.Register(r)
	return p
}

// Follows lists the subjects whose values are wanted, in order.
func (p *Proxy) Follows() []string { return p.follows }

// Registration is the newest one; it is not changed.
func (p *Proxy) Registration() *Registration { return p.reg }

// Ready tells whether every first value was there.
func (p *Proxy) Ready() bool { return p.sets != nil }

// Set returns the proxy's resources of a type; none before it is ready.
func (p *Proxy) Set(t mesh.Type) mesh.Set {
	if p.sets == nil {
		return mesh.Set{}
	}
	return p.sets[t]
}

// Sets returns its resources of all types; nil before it is ready. It is not changed: a step makes another.
func (p *Proxy) Sets() *mesh.Sets { return p.sets }

// put replaces the set of a type.
func (p *Proxy) put(t mesh.Type, s mesh.Set) Delta {
	next := *p.sets
	next[t] = s
	p.sets = &next
	return Delta{Touched: mesh.Types(0).With(t)}
}

// Problems says what of the inputs could not be used, each with the field's name.
func (p *Proxy) Problems() []string { return p.problems }

// RulesSubject is where the rules of its own service are; "" while that is not known, and for gateways.
func (p *Proxy) RulesSubject() string { return p.rulesAt }

// Missing lists the subjects that a proxy waits for before it is ready, or an upstream before it changes.
func (p *Proxy) Missing() []string {
	var list []string
	for _, s := range p.follows {
		if !p.known(s) {
			list = append(list, s)
		}
	}
	return list
}

// Register takes another registration of the same proxy.
func (p *Proxy) Register(r *Registration) Delta {
	p.reg = r
	p.own.outdate()
	if subject := textOf(mesh.Subject{Kind: mesh.SubjectService, Service: r.Service()}); subject != p.subject {
		p.subject, p.service, p.rulesAt = subject, nil, ""
	}
	p.plan()
	return p.settle()
}

// Step takes a new value.
func (p *Proxy) Step(c Change) Delta {
	if at, ok := p.endpoints.find(c.Subject); ok {
		return p.stepEndpoints(at, c)
	}
	if p.gateway != nil && p.gateway.take(c) || p.takeVirtual(c) {
		return p.settle()
	}
	switch v := c.Value.(type) {
	case *mesh.RulesValue:
		switch {
		case c.Subject != p.rulesAt || v == nil:
		case v.Owners.Have(p.service.Name):
			p.rulesAt = ownRules(p.service.Name) // until its value is there what the proxy has goes on to hold
		default:
			if p.rules, p.rulesFrom = v, c.Subject; p.sets != nil && p.own != nil {
				return p.stepRules()
			}
		}
	case *mesh.Service:
		if c.Subject == p.subject && v != nil {
			p.setService(v)
		}
	case *mesh.Roots:
		if c.Subject == rootsSubject && v != nil {
			if r, err := p.cache.rootsSecret(v); err == nil {
				if p.roots, p.anchors = r, v; p.service != nil && len(p.service.Trusted) > 0 {
					p.own.outdate()
				}
			}
		}
	case *mesh.Resource:
		if c.Subject == LeafSubject && v != nil {
			if !same(p.leaf, v) {
				p.leaf = v
			}
		}
	}
	for i := range p.upstreams {
		if u := &p.upstreams[i]; u.subject == c.Subject {
			u.value, _ = c.Value.(*mesh.Upstream)
			u.known = true
		}
	}
	return p.settle()
}

// ownRules is where the rules of a service are that intentions name, or have named: there it stays. The rules that
// all others share may be of a later State than the value that says that the service is one of them again, or is not
// any more: moving to and fro, it would have for a moment what was never in force.
func ownRules(service string) string {
	return textOf(mesh.Subject{Kind: mesh.SubjectRules, Service: service})
}

// setService takes what holds for the service. Where only the subject of the rules changed, nothing is built
// anew: what the proxy has of them holds until the value of that subject is there.
func (p *Proxy) setService(v *mesh.Service) {
	same := false
	if p.service != nil {
		former := *p.service
		former.OwnRules = v.OwnRules
		same = reflect.DeepEqual(&former, v)
	}
	if p.service = v; p.gateway == nil && p.rulesAt != ownRules(v.Name) { // a gateway has no rules of its own
		p.rulesAt = textOf(v.RulesSubject())
	}
	if !same {
		p.own.outdate()
		p.plan()
	}
}

// stepRules is the step that a change of intentions is: the rules are others, and nothing else moves.
func (p *Proxy) stepRules() Delta {
	held := p.sets[mesh.TypeExtension]
	var changed []*mesh.Resource
	for _, name := range p.own.rules {
		if r := p.rules.Get(name); !same(held.Get(name), r) {
			changed = append(changed, r)
		}
	}
	if len(changed) == 0 {
		return Delta{}
	}
	return p.put(mesh.TypeExtension, held.With(changed...))
}

// stepEndpoints is the step that happens most: one resource is another, and nothing else moves.
func (p *Proxy) stepEndpoints(at int, c Change) Delta {
	e := &p.endpoints[at]
	value, _ := c.Value.(*mesh.Resource)
	if value == nil && c.Gone && e.value != nil {
		return Delta{}
	}
	if value == nil {
		value = p.upstreams.noEndpoints(c.Subject)
	}
	if value == nil || same(e.value, value) {
		return Delta{}
	}
	first := e.value == nil
	e.value = value
	if first || p.sets == nil {
		return p.settle()
	}
	held := p.sets[mesh.TypeEndpoints]
	if held.Get(value.Name) == nil { // of a chain that is still coming
		return Delta{}
	}
	return p.put(mesh.TypeEndpoints, held.With(value))
}

// same tells whether two values say the same: then the former stays, with the
// time of the write that made it. What comes ready from a server is not looked
// up in the cache, which could still know it from an earlier write; the host
// shares it anyway.
func same(held, next *mesh.Resource) bool {
	return held == next || held != nil && next != nil && held.Version == next.Version && held.Name == next.Name
}

// noEndpoints says of a target that it has no instances: were it told nothing, Envoy would wait.
func (l upstreams) noEndpoints(subject string) *mesh.Resource {
	for _, u := range l {
		for _, v := range []*mesh.Upstream{u.value, u.from()} {
			if name := clusterOf(v, subject); name != "" {
				r, err := envoy.Endpoints(&mesh.Endpoints{Cluster: name})
				if err == nil {
					return r
				}
			}
		}
	}
	return nil
}

func clusterOf(v *mesh.Upstream, subject string) string {
	if v == nil {
		return ""
	}
	for _, t := range v.Chain.Targets {
		if t.Peer == "" && targetSubject(t) == subject {
			return t.Name
		}
	}
	return ""
}

const rootsSubject = "roots"

// textOf is a subject's text, one string for all proxies that follow it.
func textOf(s mesh.Subject) string { return unique.Make(s.String()).Value() }

func (l watched) find(subject string) (int, bool) {
	return slices.BinarySearchFunc(l, subject, func(e endpoints, s string) int {
		return strings.Compare(e.subject, s)
	})
}

func (p *Proxy) known(subject string) bool {
	switch subject {
	case rootsSubject:
		return p.roots != nil
	case LeafSubject:
		return p.leaf != nil
	case p.subject:
		return p.service != nil
	case p.rulesAt:
		return p.rulesFrom == p.rulesAt
	}
	if at, ok := p.endpoints.find(subject); ok {
		return p.endpoints[at].value != nil
	}
	if strings.HasPrefix(subject, "virtual/") {
		_, ok := p.virtual[subject]
		return ok
	}
	if p.gateway != nil && p.gateway.wanted(subject) {
		_, ok := p.gateway.values[subject]
		return ok
	}
	return slices.ContainsFunc(p.upstreams, func(u upstream) bool { return u.subject == subject && u.known })
}

// plan lists the upstreams of the registration under the subjects that they
// have by what is set for them. One that was there keeps what it has until it is built anew.
func (p *Proxy) plan() {
	if p.service == nil {
		return
	}
	before := p.upstreams
	calls := p.calls()
	p.upstreams = make(upstreams, 0, len(calls))
	for i := range calls {
		u := upstream{at: i, call: &calls[i], place: placeOf(&calls[i]), stale: true}
		u.subject, u.err = p.subjectOf(u.call)
		if u.subject != "" {
			u.value, u.known = before.valueOf(u.subject)
		}
		for _, old := range before {
			if old.place == u.place {
				u.built = old.built
			}
		}
		p.upstreams = append(p.upstreams, u)
	}
}

// calls is what the proxy calls: the registration's upstreams, or what a gateway's entry lists.
func (p *profile) calls() []Upstream {
	switch p.reg.Kind {
	case catalog.KindIngressGateway:
		return p.behindIngress()
	case catalog.KindAPIGateway:
		return p.behindAPI()
	case catalog.KindTerminatingGateway, catalog.KindMeshGateway:
		return nil
	}
	return p.reg.Upstreams
}

func (l upstreams) valueOf(subject string) (*mesh.Upstream, bool) {
	for _, u := range l {
		if u.subject == subject && u.known {
			return u.value, true
		}
	}
	return nil, false
}

// settle follows what is needed now, builds what can be built, and tells what changed.
func (p *Proxy) settle() Delta {
	p.problems = nil
	p.endpoints.watch(p.upstreams.targets())
	for i := range p.upstreams {
		p.advance(&p.upstreams[i])
	}
	var d Delta
	d.Follow, d.Drop = p.track()
	if p.sets == nil && !p.complete() || p.service == nil {
		return d
	}
	d.Settled, d.Checks = true, p.wantsChecks()
	if p.own == nil || p.own.stale {
		o := p.buildOwn()
		if p.own != nil && o.failed {
			p.own.problems = o.problems // what it was still holds
		} else {
			p.own = o
		}
	}
	p.problems = append(p.problems, p.own.problems...)
	switch p.reg.Kind {
	case catalog.KindTerminatingGateway:
		p.terminating()
	case catalog.KindMeshGateway:
		p.passages()
	}
	next := p.collect()
	for _, t := range mesh.Every {
		if p.sets == nil || !slices.Equal(p.sets[t].All(), next[t].All()) {
			d.Touched = d.Touched.With(t)
		} else {
			next[t] = p.sets[t]
		}
	}
	p.sets = next
	return d
}

func (p *Proxy) problem(err error) {
	if err != nil {
		p.problems = append(p.problems, errkind.Text(err))
	}
}

// complete tells whether every first value is there.
func (p *Proxy) complete() bool {
	if p.service == nil || p.roots == nil || p.leaf == nil && p.gateway == nil {
		return false
	}
	return !slices.ContainsFunc(p.follows, func(s string) bool { return !p.known(s) })
}

// targets lists the subjects of all targets, of chains that are built and of those that are coming.
func (l upstreams) targets() []string {
	var list []string
	for i := range l {
		u := &l[i]
		list = append(list, targetsOf(u.value)...)
		if u.from() != u.value {
			list = append(list, targetsOf(u.from())...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// track compares the subjects that are needed with those that are followed.
func (p *Proxy) track() (follow, drop []string) {
	targets := p.upstreams.targets()
	p.endpoints.watch(targets)
	need := append([]string{rootsSubject, p.subject}, targets...)
	if p.rulesAt != "" {
		need = append(need, p.rulesAt)
	}
	need = append(need, p.virtualWants()...)
	if p.gateway != nil {
		p.gateway.want(p.gatewayWants())
		need = append(need, p.gateway.wants...)
	} else {
		need = append(need, LeafSubject)
	}
	for i := range p.upstreams {
		if s := p.upstreams[i].subject; s != "" {
			need = append(need, s)
		}
	}
	slices.Sort(need)
	need = slices.Compact(need)
	if slices.Equal(need, p.follows) {
		return nil, nil
	}
	follow, drop = without(need, p.follows), without(p.follows, need)
	p.follows = slices.Clone(need)
	return follow, drop
}

// watch makes the endpoints those of the targets, and keeps what is known of them.
func (l *watched) watch(targets []string) {
	if len(targets) == len(*l) && !slices.ContainsFunc(targets,
		func(s string) bool { _, ok := l.find(s); return !ok }) {
		return
	}
	next := make(watched, 0, len(targets))
	for _, s := range targets {
		e := endpoints{subject: s}
		if at, ok := l.find(s); ok {
			e = (*l)[at]
		}
		next = append(next, e)
	}
	*l = next
}

// without returns what is in a and not in b; both are sorted.
func without(a, b []string) []string {
	var out []string
	for _, s := range a {
		if _, ok := slices.BinarySearch(b, s); !ok {
			out = append(out, s)
		}
	}
	return out
}

// refersToRoots tells whether a sidecar verifies somebody by this cluster's roots alone. One whose service is exported
// to peers verifies callers by the peers' and these together, and services of peers by theirs.
func (p *Proxy) refersToRoots() bool {
	if len(p.service.Trusted) == 0 || p.anchors == nil {
		return true
	}
	for i := range p.upstreams {
		if b := p.upstreams[i].built; b != nil && len(targetsOf(b.from)) > 0 {
			return true
		}
	}
	return false
}

// collect puts the resources of all parts together.
func (p *Proxy) collect() *mesh.Sets {
	lists := make([][]*mesh.Resource, len(mesh.Every))
	add := func(list ...*mesh.Resource) {
		for _, r := range list {
			if r != nil {
				lists[r.Type] = append(lists[r.Type], r)
			}
		}
	}
	switch { // only what listeners and clusters refer to: nobody asks for the rest
	case p.gateway == nil:
		if add(p.leaf); p.refersToRoots() {
			add(p.roots)
		}
	case p.reg.Kind == catalog.KindTerminatingGateway && len(p.gateway.parts) > 0:
		add(p.roots)
	}
	add(p.own.resources...)
	switch p.reg.Kind {
	case catalog.KindIngressGateway:
		add(p.ingress()...)
	case catalog.KindAPIGateway:
		add(p.api()...)
	}
	add(p.redirected()...)
	if p.gateway != nil {
		add(p.gateway.listeners...)
		for _, name := range sortedKeys(p.gateway.parts) {
			add(p.gateway.parts[name].resources...)
		}
	}
	for _, name := range p.own.rules {
		r := p.rules.Get(name)
		if held := p.Set(mesh.TypeExtension).Get(name); same(held, r) {
			r = held
		}
		add(r)
	}
	for i := range p.upstreams {
		u := &p.upstreams[i]
		if u.built == nil {
			continue
		}
		add(u.built.resources...)
		for _, s := range targetsOf(u.built.from) {
			if at, ok := p.endpoints.find(s); ok {
				add(p.endpoints[at].value)
			}
		}
	}
	sets := new(mesh.Sets)
	for _, t := range mesh.Every {
		sets[t] = mesh.NewSet(lists[t]...)
	}
	return sets
}

// part wraps the reason why something of an upstream could not be used.
func (p *profile) part(u *upstream, err error) error {
	return fmt.Errorf("%s: %w", p.pathOf(u), err)
}

// pathOf is where an upstream is set up.
func (p *profile) pathOf(u *upstream) string {
	if u.call.listener > 0 {
		return p.listenerOf(u.call)
	}
	return fmt.Sprintf("Proxy.Upstreams[%d]", u.at)
}
