package proxy

import (
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
)

const cluster = ".default.dc1.internal." + testDomain

func TestNothingUntilEverythingIsKnown(t *testing.T) {
	w := newWorld(t)
	p := New(sidecar(t, `{"Upstreams": [{"DestinationName": "api", "LocalBindPort": 9191}, {"DestinationName": "db", `+
		`"LocalBindPort": 9192}]}`), "dc1", NewCache())
	for steps := 0; !p.Ready(); steps++ {
		if len(all(p)) != 0 {
			t.Fatalf("before it is ready: %v", all(p))
		}
		missing := p.Missing()
		if len(missing) == 0 || steps > 20 {
			t.Fatalf("not ready and nothing missing after %d steps: %v", steps, p.Problems())
		}
		d := p.Step(w.change(missing[0]))
		if p.Ready() != (d.Touched != 0) {
			t.Fatalf("ready %t with %b touched", p.Ready(), d.Touched)
		}
	}
	for kind, want := range map[mesh.Type]string{
		mesh.TypeSecret:    "leaf roots",
		mesh.TypeCluster:   "api" + cluster + " db" + cluster + " local_app",
		mesh.TypeEndpoints: "api" + cluster + " db" + cluster,
		mesh.TypeListener:  "api:127.0.0.1:9191 db:127.0.0.1:9192 public_listener:127.0.0.1:21000",
		mesh.TypeExtension: "connect_authz:tcp",
		mesh.TypeRoute:     "",
	} {
		if got := names(p, kind); got != want {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
	}
	if len(p.Problems()) > 0 {
		t.Error(p.Problems())
	}
}

func TestOnlyWhatDependsOnAChangeIsTouched(t *testing.T) {
	w := newWorld(t, `{"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}`)
	p := New(sidecar(t, `{"Upstreams": [{"DestinationName": "api", "LocalBindPort": 9191}, {"DestinationName": "db", `+
		`"LocalBindPort": 9192}]}`), "dc1", NewCache())
	w.feed(p)
	only := func(list ...mesh.Type) (s mesh.Types) {
		for _, t := range list {
			s = s.With(t)
		}
		return s
	}
	step := func(subject string, want mesh.Types, changed int) {
		t.Helper()
		before := map[*mesh.Resource]bool{}
		for _, kind := range mesh.Every {
			for _, r := range p.Set(kind).All() {
				before[r] = true
			}
		}
		if d := p.Step(w.change(subject)); d.Touched != want {
			t.Errorf("%s touched %b, want %b", subject, d.Touched, want)
		}
		fresh := 0
		for _, kind := range mesh.Every {
			for _, r := range p.Set(kind).All() {
				if !before[r] {
					fresh++
				}
			}
		}
		if fresh != changed {
			t.Errorf("%s made %d resources new, want %d", subject, fresh, changed)
		}
	}
	for _, s := range p.Follows() {
		step(s, 0, 0) // the same value again, freshly decoded
	}
	w.instances["endpoints/dc1/api/"] = []mesh.Endpoint{{Address: "10.0.0.1", Port: 21000, Weight: 1}}
	step("endpoints/dc1/api/", only(mesh.TypeEndpoints), 1)
	w.put(`{"Kind": "service-intentions", "Name": "web", "Sources": [{"Name": "shop", "Action": "allow"}]}`)
	step("service/web", 0, 0) // it has rules of its own now
	step("rules/web", only(mesh.TypeExtension), 1)
	w.put(`{"Kind": "service-intentions", "Name": "*", "Sources": [{"Name": "ops", "Action": "allow"}]}`)
	step("rules/", 0, 0) // they are not its rules any more
	step("rules/web", only(mesh.TypeExtension), 1)
	w.put(`{"Kind": "service-resolver", "Name": "db", "ConnectTimeout": "3s"}`)
	step("upstream/dc1/db///", only(mesh.TypeCluster), 1) // its listener has had its routes by reference before
}

// TestSharedRulesAreNotForOwners: the rules that services share come before the word that the service has rules of its
// own. They say themselves whom they are not for: such a proxy goes on with what it has until it has its own.
func TestSharedRulesAreNotForOwners(t *testing.T) {
	for _, ready := range []bool{false, true} {
		w := newWorld(t, `{"Kind": "service-intentions", "Name": "*", "Sources": [{"Name": "ops", "Action": "deny"}]}`)
		p, other := New(sidecar(t, `{}`), "dc1", NewCache()), New(sidecar(t, `{}`), "dc1", NewCache())
		w.feed(other)
		if p.Step(w.change("service/web")); ready {
			w.feed(p)
		}
		had := p.Set(mesh.TypeExtension).All()
		w.put(`{"Kind": "service-intentions", "Name": "web", "Sources": [{"Name": "shop", "Action": "allow"}]}`)
		w.put(`{"Kind": "service-intentions", "Name": "*", "Sources": [{"Name": "ops", "Action": "allow"}]}`)
		d := p.Step(w.change("rules/"))
		if !slices.Equal(d.Follow, []string{"rules/web"}) || !slices.Equal(d.Drop, []string{"rules/"}) || d.Touched != 0 {
			t.Errorf("%+v", d)
		}
		if !slices.Equal(p.Set(mesh.TypeExtension).All(), had) {
			t.Error("it has rules that were never in force for it")
		}
		if d := p.Step(w.change("service/web")); len(d.Follow)+len(d.Drop) > 0 {
			t.Errorf("%+v", d)
		}
		w.feed(p)
		w.refresh(other)
		if got, want := all(p), all(other); !slices.Equal(got, want) || p.RulesSubject() != "rules/web" {
			t.Errorf("got %q of %s, want %q", got, p.RulesSubject(), want)
		}
	}
}

// TestSharedRulesAreNotForLinkedOwners: so does a terminating gateway, for each service that it stands for. There it
// stays when no intention names the service any more.
func TestSharedRulesAreNotForLinkedOwners(t *testing.T) {
	w := newWorld(t, `{"Kind": "service-intentions", "Name": "*", "Sources": [{"Name": "ops", "Action": "deny"}]}`,
		`{"Kind": "terminating-gateway", "Name": "web-gateway", "Services": [{"Name": "db"}, {"Name": "files"}]}`)
	r, err := ReadRegistration(&catalog.Service{Kind: catalog.KindTerminatingGateway, ID: "gateway", Name: "web-gateway",
		Address: "127.0.0.1", Port: 8443})
	if err != nil {
		t.Fatal(err)
	}
	p, other := New(r, "dc1", NewCache()), New(r, "dc1", NewCache())
	w.feed(p)
	w.feed(other)
	rules := func(p *Proxy, service string) string {
		return p.Set(mesh.TypeExtension).Get(envoy.RulesOf(mesh.NetworkRules, service)).Version
	}
	db, files := rules(p, "db"), rules(p, "files")
	w.put(`{"Kind": "service-intentions", "Name": "db", "Sources": [{"Name": "shop", "Action": "deny"}]}`)
	w.put(`{"Kind": "service-intentions", "Name": "*", "Sources": [{"Name": "ops", "Action": "allow"}]}`)
	if d := p.Step(w.change("rules/")); !slices.Equal(d.Follow, []string{"rules/db"}) || len(d.Drop) > 0 {
		t.Errorf("%+v", d)
	}
	if rules(p, "db") != db || rules(p, "files") == files {
		t.Error("db has rules that were never in force for it, or files has none of its new ones")
	}
	if d := p.Step(w.change("service/web-gateway")); len(d.Follow)+len(d.Drop) > 0 {
		t.Errorf("%+v", d)
	}
	w.feed(p)
	w.refresh(other)
	if rules(p, "db") != rules(other, "db") || rules(p, "files") != rules(other, "files") || rules(p, "db") == db {
		t.Error("not the rules of now")
	}
	delete(w.entries, entry.Key(entry.ServiceIntentions, "db"))
	if d := p.Step(w.change("service/web-gateway")); len(d.Follow)+len(d.Drop) > 0 {
		t.Errorf("%+v", d)
	}
	w.refresh(p)
	if rules(p, "db") == db || len(p.Problems()) > 0 {
		t.Errorf("%q", p.Problems())
	}
}

func TestAnUpstreamChangesWholeOrNotAtAll(t *testing.T) {
	w := newWorld(t, `{"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}`)
	p := New(sidecar(t, `{"Upstreams": [{"DestinationName": "api", "LocalBindPort": 9191}]}`), "dc1", NewCache())
	w.feed(p)
	before := all(p)
	w.put(`{"Kind": "service-resolver", "Name": "api", "DefaultSubset": "v1", "Subsets": {"v1": {"Filter": ` +
		`"Service.Meta.v == 1"}, "v2": {"Filter": "Service.Meta.v == 2"}}}`)
	w.put(`{"Kind": "service-splitter", "Name": "api", "Splits": [{"Weight": 90, "ServiceSubset": "v1"}, {"Weight": 10,` +
		` "ServiceSubset": "v2"}]}`)
	d := p.Step(w.change("upstream/dc1/api///"))
	if want := []string{"endpoints/dc1/api/v1", "endpoints/dc1/api/v2"}; d.Touched != 0 || !slices.Equal(d.Follow, want) ||
		d.Drop != nil {
		t.Fatalf("%+v, want to follow %v", d, want)
	}
	if d := p.Step(w.change("endpoints/dc1/api/v1")); d.Touched != 0 || !slices.Equal(all(p), before) {
		t.Fatalf("half of the chain is known: %+v", d)
	}
	d = p.Step(w.change("endpoints/dc1/api/v2"))
	if want := []string{"endpoints/dc1/api/"}; !slices.Equal(d.Drop, want) || !d.Touched.Has(mesh.TypeCluster) ||
		!d.Touched.Has(mesh.TypeRoute) {
		t.Fatalf("%+v, want to drop %v", d, want)
	}
	if got, want := names(p, mesh.TypeCluster), "local_app v1.api"+cluster+" v2.api"+cluster; got != want {
		t.Errorf("clusters %q, want %q", got, want)
	}
	if got := names(p, mesh.TypeRoute); got != "api" {
		t.Errorf("routes %q", got)
	}
}

func TestProxiesOfOneHostShareResources(t *testing.T) {
	w := newWorld(t)
	cache := NewCache()
	var proxies []*Proxy
	values := map[string]Change{} // a host reads each value once
	for range 3 {
		p := New(sidecar(t, `{"Upstreams": [{"DestinationName": "api", "LocalBindPort": 9191}]}`), "dc1", cache)
		w.share(p, values)
		proxies = append(proxies, p)
	}
	for _, kind := range mesh.Every {
		for i, r := range proxies[0].Set(kind).All() {
			if kind != mesh.TypeListener && proxies[2].Set(kind).All()[i] != r {
				t.Errorf("%s %q is built once for each proxy", kind, r.Name)
			}
		}
	}
}

func TestBadInputIsNamedAndTheRestStays(t *testing.T) {
	w := newWorld(t)
	tests := map[string][]string{
		`{"TransparentProxy": {"DialedDirectly": true}, "MutualTLSMode": "permissive"}`:                                   {"TransparentProxy.DialedDirectly", "permissive"},
		`{"Config": {"max_inbound_connections": -1}}`:                                                                     {"Proxy.Config.max_inbound_connections"},
		`{"Config": {"protocol": "smtp"}}`:                                                                                {"Proxy.Config.protocol"},
		`{"Config": {"bind_address": "host.example"}}`:                                                                    {"Proxy.Config.bind_address"},
		`{"Config": {"envoy_public_listener_json": "{"}}`:                                                                 {"Proxy.Config.envoy_public_listener_json"},
		`{"Config": {"envoy_local_cluster_json": "{\"nme\": \"x\"}"}}`:                                                    {"Proxy.Config.envoy_local_cluster_json", "nme"},
		`{"Upstreams": [{"DestinationName": "q", "DestinationType": "prepared_query", "LocalBindPort": 1}]}`:              {"Proxy.Upstreams[0]", "prepared_query"},
		`{"Upstreams": [{"DestinationName": "api", "LocalBindPort": 70000}]}`:                                             {"Proxy.Upstreams[0]", "LocalBindPort 70000"},
		`{"Upstreams": [{"DestinationName": "api", "LocalBindPort": 1, "Config": {"limits": {"max_connections": "x"}}}]}`: {"Proxy.Upstreams[0].Config.limits.max_connections"},
		`{"Expose": {"Paths": [{"Path": "/health"}]}}`:                                                                    {"Proxy.Expose.Paths[0]", "ListenerPort"},
	}
	for fields, want := range tests {
		p := New(sidecar(t, fields), "dc1", NewCache())
		w.feed(p)
		said := strings.Join(p.Problems(), "\n")
		for _, text := range want {
			if !strings.Contains(said, text) {
				t.Errorf("%s: %q does not say %q", fields, said, text)
			}
		}
		if !p.Ready() {
			t.Errorf("%s: keeps the whole proxy from being ready", fields)
		}
		// What was there before a bad registration stays.
		good := New(sidecar(t, ""), "dc1", NewCache())
		w.feed(good)
		before := names(good, mesh.TypeListener)
		good.Register(sidecar(t, fields))
		if got := names(good, mesh.TypeListener); !strings.Contains(got, before) {
			t.Errorf("%s: listeners %q after %q", fields, got, before)
		}
	}
}

// TestInstancesOfASubsetThatGoesServeOn: the subset's end may be known before the chain that does without it.
func TestInstancesOfASubsetThatGoesServeOn(t *testing.T) {
	w := newWorld(t, `{"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}`,
		`{"Kind": "service-resolver", "Name": "api", "DefaultSubset": "v1", "Subsets": {"v1": {}}}`)
	for _, subject := range []string{"endpoints/dc1/api/v1", "endpoints/dc1/api/"} {
		w.instances[subject] = []mesh.Endpoint{{Address: "10.0.0.1", Port: 21000, Health: mesh.Healthy, Weight: 1}}
	}
	p := New(sidecar(t, `{"Upstreams": [{"DestinationName": "api", "LocalBindPort": 9191}]}`), "dc1", NewCache())
	w.feed(p)
	before := all(p)
	if d := p.Step(Change{Subject: "endpoints/dc1/api/v1", Gone: true}); d.Touched != 0 || !slices.Equal(all(p), before) {
		t.Fatalf("%+v before the chain is another", d)
	}
	w.put(`{"Kind": "service-resolver", "Name": "api"}`)
	p.Step(w.change("upstream/dc1/api///"))
	d := p.Step(w.change("endpoints/dc1/api/"))
	if want := []string{"endpoints/dc1/api/v1"}; !slices.Equal(d.Drop, want) {
		t.Fatalf("%+v, want to drop %v", d, want)
	}
	if got, want := names(p, mesh.TypeEndpoints), "api"+cluster; got != want {
		t.Errorf("endpoints %q, want %q", got, want)
	}
	if d := p.Step(Change{Subject: "endpoints/dc1/api/"}); !d.Touched.Has(mesh.TypeEndpoints) {
		t.Errorf("%+v when it may not be followed any more", d)
	}
}

func TestValuesThatAreNotThere(t *testing.T) {
	w := newWorld(t)
	p := New(sidecar(t, `{"Upstreams": [{"DestinationName": "api", "LocalBindPort": 9191}, {"DestinationName": "db", `+
		`"LocalBindPort": 9192}]}`), "dc1", NewCache())
	for len(p.Missing()) > 0 {
		for _, s := range p.Missing() {
			c := w.change(s)
			if strings.HasPrefix(s, "upstream/dc1/db") || strings.HasPrefix(s, "endpoints/dc1/api") {
				c.Value = nil
			}
			p.Step(c)
		}
	}
	if got, want := names(p, mesh.TypeListener), "api:127.0.0.1:9191 public_listener:127.0.0.1:21000"; got != want {
		t.Errorf("listeners %q, want %q", got, want)
	}
	if got, want := names(p, mesh.TypeEndpoints), "api"+cluster; got != want {
		t.Errorf("endpoints %q, want %q", got, want)
	}
	if said := strings.Join(p.Problems(), "\n"); !strings.Contains(said, `"db"`) {
		t.Errorf("problems %q", said)
	}
}

// TestTheTimeOfAWriteIsThatOfTheNewestContent: what was there before and comes again is news.
func TestTheTimeOfAWriteIsThatOfTheNewestContent(t *testing.T) {
	w := newWorld(t)
	p := New(sidecar(t, `{"Upstreams": [{"DestinationName": "api", "LocalBindPort": 9191}]}`), "dc1", NewCache())
	w.feed(p)
	const subject = "endpoints/dc1/api/"
	var last *mesh.Resource
	for i, address := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.1"} {
		w.instances[subject] = []mesh.Endpoint{{Address: address, Port: 1, Weight: 1}}
		c := w.change(subject)
		d := p.Step(c)
		if again := i == 3; again != (d.Touched == 0) || again != (p.Set(mesh.TypeEndpoints).Get("api"+cluster) == last) {
			t.Errorf("value %d touched %b", i, d.Touched)
		}
		if last = p.Set(mesh.TypeEndpoints).Get("api" + cluster); i < 3 && last != c.Value {
			t.Errorf("value %d was replaced by an older one", i)
		}
	}
}

func TestRegistrationsThatAreNotServed(t *testing.T) {
	for kind, want := range map[string]string{"": "no proxy", "other-gateway": "no proxy",
		catalog.KindConnectProxy: "DestinationServiceName"} {
		if _, err := ReadRegistration(&catalog.Service{Kind: kind, ID: "x"}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", kind, err, want)
		}
	}
	if _, err := ReadRegistration(&catalog.Service{Kind: catalog.KindConnectProxy, ID: "x",
		Connect: catalog.Connect{Proxy: []byte(`{"LocalServicePort": "x"}`)}}); err == nil || !strings.Contains(err.Error(), "LocalServicePort") {
		t.Errorf("a bad field: %v", err)
	}
}

func TestAnIngressGatewayWithoutItsEntrySaysSo(t *testing.T) {
	w := newWorld(t)
	r, err := ReadRegistration(&catalog.Service{Kind: catalog.KindIngressGateway, ID: "gw", Name: "gw", Port: 8443})
	if err != nil {
		t.Fatal(err)
	}
	p := New(r, "dc1", NewCache())
	w.feed(p)
	if said := strings.Join(p.Problems(), "\n"); !strings.Contains(said, `ingress-gateway "gw"`) {
		t.Errorf("problems %q", said)
	}
	w.put(`{"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}`)
	w.put(`{"Kind": "ingress-gateway", "Name": "gw", "Listeners": [{"Port": 8080, "Protocol": "http", "Services": [{` +
		`"Name": "a", "Hosts": ["x"]}, {"Name": "b", "Hosts": ["x"]}]}]}`)
	w.refresh(p)
	if said := strings.Join(p.Problems(), "\n"); !strings.Contains(said, `"x" is of both "a" and "b"`) ||
		names(p, mesh.TypeListener) != "" {
		t.Errorf("two services with one host: problems %q, listeners %q", said, names(p, mesh.TypeListener))
	}
	delete(w.entries, entry.Key(entry.ProxyDefaults, entry.Global))
	w.put(`{"Kind": "ingress-gateway", "Name": "gw", "Listeners": [{"Port": 8080, "Protocol": "tcp", "Services": [{` +
		`"Name": "db"}]}]}`)
	w.refresh(p)
	if got, want := names(p, mesh.TypeListener), "db:0.0.0.0:8080"; got != want || len(p.Problems()) > 0 {
		t.Errorf("listeners %q, want %q; problems %q", got, want, p.Problems())
	}
}

func TestAPIGatewayDefaults(t *testing.T) {
	most := uint32(7)
	p := &profile{service: &mesh.Service{API: &mesh.API{Defaults: &entry.IngressDefaults{MaxConnections: &most},
		Listeners: []mesh.APIListener{{Name: "l", Service: "db"}}}}}
	list := p.behindAPI()
	if limits := list[0].Config["limits"].(map[string]any); limits["max_connections"] != 7.0 {
		t.Errorf("%v", limits)
	}
}
