package proxy

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"corbel.dev/corbel/mesh"
)

// randomEntries are what config entries may become; each replaces another of its kind and name.
var randomEntries = []string{
	`{"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}`,
	`{"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "grpc", "max_inbound_connections": 9}}`,
	`{"Kind": "service-defaults", "Name": "web", "Protocol": "tcp", "UpstreamConfig": {"Defaults": {` +
		`"ConnectTimeoutMs": 700}}}`,
	`{"Kind": "service-defaults", "Name": "web", "Protocol": "http", "UpstreamConfig": {"Overrides": [{"Name": "api", ` +
		`"Protocol": "http2"}]}}`,
	`{"Kind": "service-intentions", "Name": "web", "Sources": [{"Name": "a", "Action": "allow"}]}`,
	`{"Kind": "service-intentions", "Name": "web", "Sources": [{"Name": "a", "Permissions": [{"Action": "allow", ` +
		`"HTTP": {"PathPrefix": "/"}}]}]}`,
	`{"Kind": "service-resolver", "Name": "api", "ConnectTimeout": "3s"}`,
	`{"Kind": "service-resolver", "Name": "api", "DefaultSubset": "v1", "Subsets": {"v1": {"Filter": "Service.Meta.v ` +
		`== 1"}}, "Failover": {"*": {"Service": "db"}}}`,
	`{"Kind": "service-resolver", "Name": "db", "Redirect": {"Service": "store"}}`,
	`{"Kind": "service-resolver", "Name": "db", "Failover": {"*": {"Targets": [{"Peer": "east"}, {"Service": "store"}]}}}`,
	`{"Kind": "service-splitter", "Name": "db", "Splits": [{"Weight": 60, "Service": "db"}, {"Weight": 40, "Service": ` +
		`"api"}]}`,
	`{"Kind": "service-router", "Name": "db", "Routes": [{"Match": {"HTTP": {"PathPrefix": "/x"}}, "Destination": {` +
		`"Service": "other"}}]}`,
	`{"Kind": "exported-services", "Name": "default", "Services": [{"Name": "web", "Consumers": [{"Peer": "east"}]}]}`,
	`{"Kind": "mesh", "TLS": {"Outgoing": {"TLSMinVersion": "TLSv1_3"}}}`,
}

var randomRegistrations = []string{
	`{}`,
	`{"Upstreams": [{"DestinationName": "api", "LocalBindPort": 9191}]}`,
	`{"Upstreams": [{"DestinationName": "api", "LocalBindPort": 9191, "Config": {"connect_timeout_ms": 800}}, {` +
		`"DestinationName": "db", "LocalBindPort": 9192}]}`,
	`{"Upstreams": [{"DestinationName": "db", "LocalBindPort": 9192}, {"DestinationName": "db", "LocalBindPort": 9193, ` +
		`"Datacenter": "dc2"}], "Config": {"local_connect_timeout_ms": 1}}`,
	`{"Upstreams": [{"DestinationName": "db", "DestinationPeer": "east", "LocalBindPort": 9192}, {"DestinationName": ` +
		`"api", "DestinationPeer": "east", "LocalBindPort": 9193, "MeshGateway": {"Mode": "none"}}]}`,
}

// TestAnySequenceEndsWhereABuildFromScratchDoes: what a proxy has depends on the newest values alone; from where it has
// its rules depends on whether intentions have named its service.
func TestAnySequenceEndsWhereABuildFromScratchDoes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		draw := func() *Registration {
			return sidecar(t, rapid.SampledFrom(randomRegistrations).Draw(rt, "registration"))
		}
		p := New(draw(), "dc1", NewCache())
		followed := map[string]bool{}
		track := func(d Delta) {
			for _, s := range d.Drop {
				delete(followed, s)
			}
			for _, s := range d.Follow {
				followed[s] = true
			}
		}
		track(Delta{Follow: p.Follows()})
		for range rapid.IntRange(0, 25).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0:
				w.put(rapid.SampledFrom(randomEntries).Draw(rt, "entry"))
			case 1:
				keys := sortedKeys(w.entries)
				if len(keys) > 0 {
					delete(w.entries, rapid.SampledFrom(keys).Draw(rt, "gone"))
				}
			case 2:
				service := rapid.SampledFrom([]string{"api/", "api/v1", "db/", "store/"}).Draw(rt, "service")
				w.instances["endpoints/dc1/"+service] = []mesh.Endpoint{{Address: fmt.Sprintf("10.0.0.%d",
					rapid.IntRange(1, 9).Draw(rt, "address")), Port: 1, Weight: 1}}
			case 3:
				track(p.Register(draw()))
			case 4:
				if delete(w.trust, "east"); rapid.Bool().Draw(rt, "told") {
					w.peer("east", rapid.SampledFrom([]string{"db", "api"}).Draw(rt, "exported"),
						rapid.SampledFrom([]string{"tcp", "http"}).Draw(rt, "protocol"))
				}
			}
			// Any part of what is followed becomes known, in any order.
			list := slices.Clone(p.Follows())
			for range rapid.IntRange(0, 4).Draw(rt, "deliveries") {
				s := rapid.SampledFrom(list).Draw(rt, "subject")
				touched, ready := snapshot(p), p.Ready()
				d := p.Step(w.change(s))
				track(d)
				if !ready && p.Ready() != (d.Touched == mesh.AllTypes) {
					rt.Fatalf("ready %t, touched %b", p.Ready(), d.Touched)
				}
				for _, kind := range mesh.Every {
					if same := slices.Equal(touched[kind], p.Set(kind).All()); ready && same == d.Touched.Has(kind) {
						rt.Fatalf("%s: %s are the same %t, touched %b", s, kind, same, d.Touched)
					}
				}
			}
			whole(rt, p)
			if want := sortedKeys(followed); !slices.Equal(want, p.Follows()) {
				rt.Fatalf("the deltas say %v, Follows %v", want, p.Follows())
			}
		}
		last := p.Registration()
		w.refresh(p)
		w.refresh(p)
		fresh := New(last, "dc1", NewCache())
		w.feed(fresh)
		if got, want := all(p), all(fresh); !slices.Equal(got, want) {
			rt.Fatalf("got  %q\nwant %q", got, want)
		}
		want := slices.Clone(fresh.Follows())
		if at := slices.Index(want, fresh.RulesSubject()); at >= 0 && p.RulesSubject() == ownRules("web") {
			want[at] = p.RulesSubject()
			slices.Sort(want)
		}
		if got := p.Follows(); !slices.Equal(got, want) {
			rt.Fatalf("follows %q\nwant %q", got, want)
		}
	})
}

func snapshot(p *Proxy) [][]*mesh.Resource {
	var list [][]*mesh.Resource
	for _, kind := range mesh.Every {
		list = append(list, p.Set(kind).All())
	}
	return list
}

// whole checks that nothing refers to what is not there.
func whole(t *rapid.T, p *Proxy) {
	if !p.Ready() {
		if n := len(all(p)); n != 0 {
			t.Fatalf("%d resources before it is ready", n)
		}
		return
	}
	for _, kind := range mesh.Every {
		for _, r := range p.Set(kind).All() {
			for _, ref := range references(r) {
				if p.Set(ref.kind).Get(ref.name) == nil {
					t.Fatalf("%s %q refers to %s %q, which is not there", kind, r.Name, ref.kind, ref.name)
				}
			}
		}
	}
}
