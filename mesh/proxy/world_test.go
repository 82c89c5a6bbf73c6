package proxy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/gateway"
	"corbel.dev/corbel/catalog/peered"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
)

const (
	testDomain = "11111111-2222-3333-4444-555555555555.consul"
	peerDomain = "99999999-8888-7777-6666-555555555555.consul"
)

// world stands for the servers: config entries and instances in, values of subjects out.
type world struct {
	t         testing.TB
	entries   map[string]entry.Entry
	instances map[string][]mesh.Endpoint // by subject
	allow     bool
	roots     *mesh.Roots
	trust     map[string]*peered.Trust    // by peer
	imported  map[string]*catalog.Service // by peer/service: the one proxy of it
	leaf      *mesh.Resource
}

func newWorld(t testing.TB, entries ...string) *world {
	t.Helper()
	w := &world{t: t, entries: map[string]entry.Entry{}, instances: map[string][]mesh.Endpoint{},
		trust: map[string]*peered.Trust{}, imported: map[string]*catalog.Service{}}
	for _, text := range entries {
		w.put(text)
	}
	w.roots = &mesh.Roots{TrustDomain: testDomain, ActiveID: "a",
		List: []mesh.Root{{ID: "a", PEM: testRoot(t), Active: true}}}
	var err error
	if w.leaf, err = envoy.Leaf(testLeaf(t)); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) put(text string) {
	w.t.Helper()
	e, err := entry.Decode([]byte(text))
	if err != nil {
		w.t.Fatalf("%s: %v", text, err)
	}
	w.entries[entry.Key(e.Base().Kind, e.Base().Name)] = e
}

func (w *world) maker() *mesh.Maker {
	get := func(kind, name string) entry.Entry {
		if e := w.entries[entry.Key(kind, name)]; e != nil {
			return e
		}
		return nil
	}
	routes := func() *gateway.Routes {
		out := &gateway.Routes{}
		for _, key := range sortedKeys(w.entries) {
			switch e := w.entries[key].(type) {
			case *entry.HTTP:
				out.HTTP = append(out.HTTP, e)
			case *entry.TCP:
				out.TCP = append(out.TCP, e)
			}
		}
		return out
	}
	return &mesh.Maker{Datacenter: "dc1", TrustDomain: testDomain, Get: get, Routes: routes, DefaultAllow: w.allow,
		Trust: func(peer string) *peered.Trust { return w.trust[peer] },
		Imported: func(peer, service string) (*statestore.State, string, bool) {
			s := w.imported[peer+"/"+service]
			if s == nil {
				return nil, "", false
			}
			st, _, _ := statestore.Empty().Apply([]catalog.Command{&catalog.Register{
				Node: catalog.Node{Name: "far", Address: "10.9.0.1", Peer: peer}, Service: s}})
			return st, s.Meta["protocol"], true
		}}
}

// peer has a peer tell of its mesh, and export a service of a protocol.
func (w *world) peer(name, service, protocol string) {
	w.trust[name] = &peered.Trust{Domain: peerDomain, Datacenter: "dc9", As: "home", Roots: []string{testRoot(w.t)},
		Gateways: []peered.Gateway{{Address: "192.0.2.7", Port: 8443, Weight: 1}, {Address: "192.0.2.8", Port: 8443,
			Health: 2, Weight: 1}}}
	w.imported[name+"/"+service] = &catalog.Service{Kind: catalog.KindConnectProxy, ID: service + "-sidecar-proxy",
		Name: service + "-sidecar-proxy", Port: 21000, Connect: catalog.Connect{ProxyDestination: service},
		Meta: map[string]string{"protocol": protocol}}
}

// passages are those to the services that have instances, and to those that are exported.
func (w *world) passages() *mesh.Passages {
	st := statestore.Empty()
	register := func(service string) {
		st, _, _ = st.Apply([]catalog.Command{&catalog.Register{Node: catalog.Node{Name: "n", Address: "10.0.0.1"},
			Service: &catalog.Service{ID: service, Name: service, Connect: catalog.Connect{Native: true}}}})
	}
	for _, subject := range sortedKeys(w.instances) {
		if s, err := mesh.ParseSubject(subject); err == nil && s.Kind == mesh.SubjectEndpoints && s.Subset == "" {
			register(s.Service)
		}
	}
	for _, peer := range sortedKeys(w.trust) {
		st, _, _ = st.Apply([]catalog.Command{&catalog.Records{Ops: peered.Put(st, peer, w.trust[peer])}})
	}
	m := w.maker()
	m.State = st
	return m.Passages()
}

// change is the newest value of a subject, through the bytes that go over the network.
func (w *world) change(subject string) Change {
	w.t.Helper()
	if subject == LeafSubject {
		return Change{Subject: subject, Value: w.leaf}
	}
	if LeafService(subject, "") != "" {
		cert, key := testLeaf(w.t)
		r, err := envoy.Certificate(LeafSecret(subject), cert, key)
		if err != nil {
			w.t.Fatal(err)
		}
		return Change{Subject: subject, Value: r}
	}
	s, err := mesh.ParseSubject(subject)
	if err != nil {
		w.t.Fatal(err)
	}
	m := w.maker()
	c := Change{Subject: subject}
	switch s.Kind {
	case mesh.SubjectRoots:
		c.Value = w.roots
	case mesh.SubjectService:
		body, err := m.Service(s.Service).Encode()
		if err != nil {
			w.t.Fatal(err)
		}
		if c.Value, err = mesh.ReadService(body); err != nil {
			w.t.Fatal(err)
		}
	case mesh.SubjectRules:
		v, err := envoy.Authorization(m.Rules(s.Service))
		if err != nil {
			w.t.Fatal(err)
		}
		if s.Service == "" {
			var owners []string
			for key := range w.entries {
				if name, ok := strings.CutPrefix(key, entry.Key(entry.ServiceIntentions, "")); ok && name != "*" {
					owners = append(owners, name)
				}
			}
			v.Owners = mesh.OwnersOf(owners)
		}
		body, _ := v.Encode()
		if c.Value, err = mesh.ReadRules(body, w.leaf.Changed); err != nil {
			w.t.Fatal(err)
		}
	case mesh.SubjectUpstream:
		body, err := m.Upstream(s).Encode()
		if err != nil {
			w.t.Fatal(err)
		}
		if c.Value, err = mesh.ReadUpstream(body); err != nil {
			w.t.Fatal(err)
		}
	case mesh.SubjectPassages:
		body, err := w.passages().Encode()
		if err != nil {
			w.t.Fatal(err)
		}
		if c.Value, err = mesh.ReadPassages(body); err != nil {
			w.t.Fatal(err)
		}
	case mesh.SubjectVirtual:
		v := &mesh.Virtual{Service: s.Service}
		for _, e := range w.instances[subject] {
			v.Addresses = append(v.Addresses, e.Address)
		}
		c.Value = v
	case mesh.SubjectInstances:
		v := &mesh.Instances{Cluster: m.Cluster(s)}
		for _, e := range w.instances[subject] {
			if _, err := netip.ParseAddr(e.Address); err == nil {
				v.List = append(v.List, e)
			} else {
				v.Named = append(v.Named, e)
			}
		}
		body, err := v.Encode()
		if err != nil {
			w.t.Fatal(err)
		}
		if c.Value, err = mesh.ReadInstances(body); err != nil {
			w.t.Fatal(err)
		}
	case mesh.SubjectEndpoints:
		r, err := envoy.Endpoints(&mesh.Endpoints{Cluster: m.Cluster(s), List: w.instances[subject]})
		if err != nil {
			w.t.Fatal(err)
		}
		if c.Value, err = mesh.ReadResource(r.Body, r.Changed); err != nil {
			w.t.Fatal(err)
		}
	}
	return c
}

// feed gives the proxy the values of what it follows until it wants no more.
func (w *world) feed(p *Proxy) {
	w.t.Helper()
	for range 10 {
		missing := p.Missing()
		if len(missing) == 0 {
			return
		}
		for _, s := range missing {
			p.Step(w.change(s))
		}
	}
	w.t.Fatalf("still missing %v", p.Missing())
}

// share is feed with values that were read before.
func (w *world) share(p *Proxy, values map[string]Change) {
	for len(p.Missing()) > 0 {
		for _, s := range p.Missing() {
			if _, ok := values[s]; !ok {
				values[s] = w.change(s)
			}
			p.Step(values[s])
		}
	}
}

// refresh gives the proxy all values anew, as after a change of many things.
func (w *world) refresh(p *Proxy) {
	for _, s := range slices.Clone(p.Follows()) {
		if slices.Contains(p.Follows(), s) {
			p.Step(w.change(s))
		}
	}
	w.feed(p)
}

// sidecar is a registration of a proxy for web with further fields of Proxy as JSON.
func sidecar(t testing.TB, fields string) *Registration {
	t.Helper()
	object := map[string]any{"DestinationServiceName": "web", "LocalServiceAddress": "127.0.0.1", "LocalServicePort": 8080}
	if fields != "" {
		if err := json.Unmarshal([]byte(fields), &object); err != nil {
			t.Fatalf("%s: %v", fields, err)
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	r, err := ReadRegistration(&catalog.Service{Kind: catalog.KindConnectProxy, ID: "web-sidecar-proxy",
		Name: "web-sidecar-proxy", Address: "127.0.0.1", Port: 21000, Connect: catalog.Connect{Proxy: text}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// all lists a proxy's resources as TYPE NAME VERSION.
func all(p *Proxy) []string {
	var list []string
	for _, t := range mesh.Every {
		for _, r := range p.Set(t).All() {
			list = append(list, fmt.Sprintf("%s %s %s", t, r.Name, r.Version))
		}
	}
	return list
}

func names(p *Proxy, t mesh.Type) string {
	var list []string
	for _, r := range p.Set(t).All() {
		list = append(list, r.Name)
	}
	return strings.Join(list, " ")
}
