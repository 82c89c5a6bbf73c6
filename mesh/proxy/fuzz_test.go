package proxy

import (
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/mesh"
)

// FuzzRegistration: whatever a registration says, a proxy is built or the field is named; nothing
// panics, and what comes out is what Envoy's definitions allow and refers to what is there.
func FuzzRegistration(f *testing.F) {
	for i := range goldens {
		f.Add(catalog.KindConnectProxy, "127.0.0.1", 21000, []byte(goldens[i].fields))
	}
	f.Add(catalog.KindIngressGateway, "::", 8443, []byte(`{}`))
	f.Add(catalog.KindConnectProxy, "", -1, []byte(`{"DestinationServiceName": "a/b", "LocalServicePort": 1, `+
		`"Upstreams": [{"DestinationName": "\u0000"}, {"DestinationName": "*", "LocalBindPort": 99999999}]}`))
	w := newWorld(f, httpForAll)
	f.Fuzz(func(t *testing.T, kind, address string, port int, fields []byte) {
		r, err := ReadRegistration(&catalog.Service{Kind: kind, ID: "x", Name: "x", Address: address, Port: port,
			Connect: catalog.Connect{Proxy: fields}})
		if err != nil {
			return
		}
		if len(r.Upstreams) > 20 {
			return
		}
		w := *w // its helpers belong to a test, not to the target
		w.t = t
		p := New(r, "dc1", NewCache())
		for rounds := 0; len(p.Missing()) > 0 && rounds < 10; rounds++ {
			for _, s := range p.Missing() {
				if _, err := mesh.ParseSubject(s); err != nil && s != LeafSubject {
					p.Step(Change{Subject: s}) // servers refuse it: there is nothing
					continue
				}
				p.Step(w.change(s))
			}
		}
		for _, kind := range mesh.Every {
			for _, one := range p.Set(kind).All() {
				for _, ref := range references(one) {
					if p.Set(ref.kind).Get(ref.name) == nil && !custom(r) {
						t.Errorf("%s %q refers to %s %q, which is not there", kind, one.Name, ref.kind, ref.name)
					}
				}
			}
		}
	})
}

// custom tells whether an operator's own JSON takes part, which may refer to anything.
func custom(r *Registration) bool {
	for key := range r.Config {
		if len(key) > 5 && key[len(key)-5:] == "_json" {
			return true
		}
	}
	for i := range r.Upstreams {
		if len(r.Upstreams[i].Config) > 0 {
			return true
		}
	}
	return false
}
