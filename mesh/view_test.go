package mesh

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/statestore"
)

// world is a State under construction.
type world struct {
	t  testing.TB
	st *statestore.State
}

func newWorld(t testing.TB, entries ...string) *world {
	w := &world{t, statestore.Empty()}
	w.entries(entries...)
	return w
}

func (w *world) apply(c catalog.Command) {
	w.t.Helper()
	next, results, _ := w.st.Apply([]catalog.Command{c})
	for _, r := range results {
		if r.Err != nil {
			w.t.Fatal(r.Err)
		}
	}
	w.st = next
}

func (w *world) entries(raws ...string) {
	w.t.Helper()
	for _, raw := range raws {
		e, err := entry.Decode([]byte(raw))
		if err != nil {
			w.t.Fatalf("%s: %v", raw, err)
		}
		value, _ := entry.Encode(e)
		w.apply(&catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordSet, Record: catalog.Record{
			Kind: catalog.RecordConfigEntry, Key: entry.Key(e.Base().Kind, e.Base().Name), Value: value}}}})
	}
}

// instance registers a proxy of web on a node of its own, with checks as "id=status".
func (w *world) instance(node string, s catalog.Service, checks ...string) {
	w.t.Helper()
	if s.ID == "" {
		s.ID = "web-sidecar-proxy"
	}
	if s.Kind == "" && !s.Native {
		s.Kind, s.Name, s.ProxyDestination = catalog.KindConnectProxy, "web-sidecar-proxy", "web"
	}
	c := &catalog.Register{Node: catalog.Node{Name: node, Address: "10.0.0." + strings.TrimLeft(node, "n"),
		TaggedAddresses: map[string]string{"wan": "192.0.2.1"}}, Service: &s}
	for _, text := range checks {
		id, status, _ := strings.Cut(text, "=")
		health, ok := catalog.ParseHealth(status)
		if !ok {
			w.t.Fatal(text)
		}
		check := &catalog.Check{Node: node, ID: id, Status: health, ServiceID: s.ID, ServiceName: s.Name}
		if rest, ok := strings.CutPrefix(id, "node:"); ok {
			check.ID, check.ServiceID, check.ServiceName = rest, "", ""
		}
		c.Checks = append(c.Checks, check)
	}
	w.apply(c)
}

func (w *world) maker() *Maker {
	return &Maker{State: w.st, Datacenter: "dc1", TrustDomain: "td.consul"}
}

// endpoints are told as "address:port HEALTH weight".
func (w *world) endpoints(text string) []string {
	w.t.Helper()
	s, err := ParseSubject(text)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, e := range w.maker().Endpoints(s).List {
		out = append(out, fmt.Sprintf("%s:%d %s %d", e.Address, e.Port, e.Health, e.Weight))
	}
	return out
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestEndpointHealth(t *testing.T) {
	for _, c := range []struct {
		name    string
		weights catalog.Weights
		checks  []string
		want    string
		passing string // with OnlyPassing, when another
	}{
		{"no checks", catalog.Weights{}, nil, "HEALTHY 1", ""},
		{"passing", catalog.Weights{Passing: 10, Warning: 1}, []string{"a=passing", "node:serfHealth=passing"},
			"HEALTHY 10", ""},
		{"warning", catalog.Weights{Passing: 10, Warning: 3}, []string{"a=warning"}, "HEALTHY 3", "UNHEALTHY 3"},
		{"critical", catalog.Weights{Passing: 10, Warning: 3}, []string{"a=critical"}, "UNHEALTHY 10", ""},
		{"critical and warning", catalog.Weights{Passing: 10, Warning: 3}, []string{"a=critical", "b=warning"},
			"UNHEALTHY 3", ""},
		{"its node is lost", catalog.Weights{}, []string{"a=passing", "node:serfHealth=critical"}, "UNHEALTHY 1", ""},
		{"its node is in maintenance", catalog.Weights{}, []string{"node:" + catalog.NodeMaintenanceID + "=critical"},
			"UNHEALTHY 1", ""},
		{"in maintenance", catalog.Weights{}, []string{catalog.ServiceMaintenancePrefix + "web-sidecar-proxy=critical"},
			"UNHEALTHY 1", ""},
		{"draining", catalog.Weights{}, []string{catalog.ServiceDrainPrefix + "web-sidecar-proxy=critical"},
			"DRAINING 1", ""},
		{"no weight", catalog.Weights{Passing: 0, Warning: 1}, nil, "UNHEALTHY 1", ""},
		{"no weight with a warning", catalog.Weights{Passing: 1}, []string{"a=warning"}, "UNHEALTHY 1", ""},
		{"too much weight", catalog.Weights{Passing: 4000, Warning: 1}, nil, "HEALTHY 128", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, `{"Kind":"service-resolver","Name":"web","Subsets":{"good":{"OnlyPassing":true}}}`)
			w.instance("n1", catalog.Service{Port: 21000, Weights: c.weights}, c.checks...)
			expect(t, w.endpoints("endpoints/dc1/web/"), "10.0.0.1:21000 "+c.want)
			if c.passing == "" {
				c.passing = c.want
			}
			expect(t, w.endpoints("endpoints/dc1/web/good"), "10.0.0.1:21000 "+c.passing)
		})
	}
}

// A proxy whose own checks follow the instance behind it is draining when that is.
func TestDrainBehindAProxy(t *testing.T) {
	w := newWorld(t)
	w.instance("n1", catalog.Service{Port: 21000,
		Connect: catalog.Connect{Proxy: []byte(`{"DestinationServiceName":"web","DestinationServiceID":"web-1"}`)}},
		"alias=critical")
	w.instance("n1", catalog.Service{Kind: "typical", Name: "web", ID: "web-1"}, catalog.ServiceDrainPrefix+
		"web-1=critical")
	expect(t, w.endpoints("endpoints/dc1/web/"), "10.0.0.1:21000 DRAINING 1")
}

func TestEndpointAddresses(t *testing.T) {
	tags := func(pairs ...string) map[string]catalog.ServiceAddress {
		m := map[string]catalog.ServiceAddress{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = catalog.ServiceAddress{Address: pairs[i+1], Port: 31000}
		}
		return m
	}
	for _, c := range []struct {
		name, lan, wan string
		s              catalog.Service
	}{
		{"of the node", "10.0.0.1:21000", "192.0.2.1:21000", catalog.Service{}},
		{"its own", "10.9.9.9:21000", "10.9.9.9:21000", catalog.Service{Address: "10.9.9.9"}},
		{"its wan address", "10.9.9.9:21000", "198.51.100.7:31000",
			catalog.Service{Address: "10.9.9.9", TaggedAddresses: tags("wan", "198.51.100.7")}},
		{"IPv6", "[2001:db8::1]:21000", "[2001:db8::1]:21000", catalog.Service{Address: "2001:DB8:0::1"}},
		{"IPv4 within IPv6", "10.1.2.3:21000", "10.1.2.3:21000", catalog.Service{Address: "::ffff:10.1.2.3"}},
		{"a name with an address", "10.7.7.7:31000", "",
			catalog.Service{Address: "web.example.com", TaggedAddresses: tags("lan_ipv4", "10.7.7.7")}},
		{"a name", "", "", catalog.Service{Address: "web.example.com"}},
		{"nowhere", "", "", catalog.Service{Address: "0.0.0.0"}},
		{"on one link", "", "", catalog.Service{Address: "fe80::1%eth0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			c.s.Port = 21000
			w.instance("n1", c.s)
			for wan, want := range map[bool]string{false: c.lan, true: c.wan} {
				m := w.maker()
				v := Collect("x", m.withChecks(m.State.ConnectInstances("web")), Subset{}, wan)
				if want == "" {
					if len(v.List) != 0 || v.LeftOut != 1 {
						t.Errorf("wan %v: %+v", wan, v)
					}
				} else if len(v.List) != 1 || hostPort(v.List[0]) != want {
					t.Errorf("wan %v: %+v, want %s", wan, v, want)
				}
			}
		})
	}
}

func hostPort(e Endpoint) string {
	if strings.Contains(e.Address, ":") {
		return fmt.Sprintf("[%s]:%d", e.Address, e.Port)
	}
	return fmt.Sprintf("%s:%d", e.Address, e.Port)
}

func TestEndpointSelection(t *testing.T) {
	w := newWorld(t, `{"Kind":"service-resolver","Name":"web","Subsets":{"v2":{"Filter":"Service.Meta.v == 2"},"odd":{`+
		`"Filter":"Service.Nope == 1"}}}`)
	w.instance("n2", catalog.Service{Port: 2, Meta: map[string]string{"v": "2"}})
	w.instance("n1", catalog.Service{Port: 1, Meta: map[string]string{"v": "1"}}, "a=critical")
	// the same address, in better health
	w.instance("n1", catalog.Service{Port: 1, ID: "replaced", Meta: map[string]string{"v": "1"}})
	w.instance("n3", catalog.Service{Port: 3, Connect: catalog.Connect{Native: true}, Name: "Web", ID: "native"})
	w.instance("n4", catalog.Service{Port: 4, Kind: "typical", Name: "web", ID: "plain"}) // no way into the mesh
	w.instance("n5", catalog.Service{})                                                   // no port
	expect(t, w.endpoints("endpoints/dc1/web/"), "10.0.0.1:1 HEALTHY 1", "10.0.0.2:2 HEALTHY 1", "10.0.0.3:3 HEALTHY 1")
	expect(t, w.endpoints("endpoints/dc1/web/v2"), "10.0.0.2:2 HEALTHY 1")
	expect(t, w.endpoints("endpoints/dc1/web/odd"))
	expect(t, w.endpoints("endpoints/dc1/other/"))
	s, _ := ParseSubject("endpoints/dc1/web/v2")
	if v := w.maker().Endpoints(s); v.Cluster != "v2.web.default.dc1.internal.td.consul" {
		t.Error(v.Cluster)
	}
	s, _ = ParseSubject("endpoints/dc1/web/gone")
	if v := w.maker().Endpoints(s); v != nil {
		t.Error("of a subset that is not there:", v)
	}
}

func TestServiceView(t *testing.T) {
	w := newWorld(t,
		`{"Kind":"proxy-defaults","Name":"global","Config":{"protocol":"http","local_connect_timeout_ms":1000,"x":1},`+
			`"Mode":"transparent","Expose":{"Checks":true,"Paths":[{"Path":"/a"}]},"AccessLogs":{"Enabled":true},`+
			`"EnvoyExtensions":[{"Name":"builtin/lua"}]}`,
		`{"Kind":"service-defaults","Name":"web","Protocol":"grpc","Mode":"direct","MaxInboundConnections":7,`+
			`"LocalRequestTimeoutMs":9,"BalanceInboundConnections":"exact_balance","EnvoyExtensions":[{`+
			`"Name":"builtin/wasm"}],"UpstreamConfig":{"Defaults":{"ConnectTimeoutMs":5}}}`,
		`{"Kind":"mesh","TLS":{"Incoming":{"TLSMinVersion":"TLSv1_3"}},"HTTP":{"SanitizeXForwardedClientCert":true},`+
			`"TransparentProxy":{"MeshDestinationsOnly":true}}`,
		`{"Kind":"service-intentions","Name":"web","Sources":[{"Name":"*","Action":"deny"},{"Name":"api","Permissions":[{`+
			`"Action":"allow","HTTP":{"PathPrefix":"/x"}}]}]}`,
		`{"Kind":"service-intentions","Name":"*","Sources":[{"Name":"*","Action":"deny"},{"Name":"ops","Action":"allow"}]}`)
	v := w.maker().Service("web")
	if want := map[string]any{"protocol": "grpc", "local_connect_timeout_ms": 1000.0, "x": 1.0,
		"max_inbound_connections": 7, "local_request_timeout_ms": 9,
		"balance_inbound_connections": "exact_balance"}; !reflect.DeepEqual(v.Config, want) {
		t.Errorf("config %v", v.Config)
	}
	if v.Protocol != "grpc" || v.Mode != "direct" || !v.Expose.Checks || len(v.Expose.Paths) != 1 ||
		!v.AccessLogs.Enabled || len(v.Extensions) != 2 || v.Extensions[0].Name != "builtin/lua" ||
		v.Upstreams.Defaults.ConnectTimeoutMs != 5 || v.TLS.Incoming.TLSMinVersion != "TLSv1_3" ||
		!v.HTTP.SanitizeXForwardedClientCert || !v.MeshDestinationsOnly || !v.OwnRules {
		t.Errorf("%+v", v)
	}
	order := func(service string) (list []string) {
		for _, i := range w.maker().Rules(service).Intentions {
			list = append(list, fmt.Sprintf("%s %d %s%d", i.Source, i.Precedence, i.Action, len(i.Permissions)))
		}
		return list
	}
	expect(t, order("web"), "api 9 1", "* 8 deny0", "ops 6 allow0", "* 5 deny0")
	expect(t, order(""), "ops 6 allow0", "* 5 deny0")
	for service, want := range map[string]string{"web": "rules/web", "other": "rules/", "*": "rules/"} {
		if got := w.maker().Service(service).RulesSubject().String(); got != want {
			t.Errorf("the rules of %s are at %s, want %s", service, got, want)
		}
	}

	// Nothing of one service's settings leaks into what the others are given.
	if o := w.maker().Service("other"); o.Protocol != "http" || o.Mode != "transparent" ||
		o.Config["max_inbound_connections"] != nil || o.OwnRules {
		t.Errorf("%+v", o)
	}
	if bare := newWorld(t).maker().Service("web"); bare.Protocol != "tcp" || len(bare.Config) != 0 || bare.OwnRules {
		t.Errorf("%+v", bare)
	}
}

func TestUpstreamView(t *testing.T) {
	w := newWorld(t, `{"Kind":"proxy-defaults","Name":"global","Config":{"protocol":"http"}}`,
		`{"Kind":"service-resolver","Name":"web","DefaultSubset":"v1","Subsets":{"v1":{}},"Failover":{"*":{`+
			`"Datacenters":["dc2"]}}}`,
		`{"Kind":"service-splitter","Name":"web","Splits":[{"Weight":90},{"Weight":10,"Service":"next"}]}`)
	s, err := ParseSubject("upstream/dc1/web//250/")
	if err != nil {
		t.Fatal(err)
	}
	v := w.maker().Upstream(s)
	var targets []string
	for _, target := range v.Chain.Targets {
		targets = append(targets, EndpointsOf(target).String()+" "+time.Duration(target.ConnectTimeout).String())
		if c := w.maker().Cluster(EndpointsOf(target)); c != target.Name {
			t.Errorf("%s is called %s, its endpoints %s", target.ID, target.Name, c)
		}
	}
	slices.Sort(targets)
	expect(t, targets, "endpoints/dc1/next/ 250ms", "endpoints/dc1/web/v1 250ms", "endpoints/dc2/web/v1 250ms")
	if v.Problem != "" || v.Chain.CustomizationHash == "" {
		t.Errorf("%+v", v)
	}

	// Entries that do not fit each other leave a way to the service.
	w.entries(`{"Kind":"service-splitter","Name":"next","Splits":[{"Weight":100,"Service":"web","ServiceSubset":"v9"}]}`)
	if v = w.maker().Upstream(s); !strings.Contains(v.Problem, "v9") || len(v.Chain.Targets) != 1 ||
		v.Chain.Protocol != "http" {
		t.Errorf("%+v", v)
	}

	w = newWorld(t, `{"Kind":"proxy-defaults","Name":"global","Config":{"protocol":"http"}}`,
		`{"Kind":"service-splitter","Name":"web","Splits":[{"Weight":100,"Service":"next"}]}`,
		`{"Kind":"service-splitter","Name":"next","Splits":[{"Weight":100,"Service":"web"}]}`)
	if v = w.maker().Upstream(s); v.Problem == "" || v.sound() != nil {
		t.Errorf("splitters that name each other: %+v", v)
	}
}

func TestVirtualSubjectHasManualAddresses(t *testing.T) {
	w := newWorld(t)
	w.instance("n1", catalog.Service{Name: "web", ID: "web", Port: 80,
		TaggedAddresses: map[string]catalog.ServiceAddress{"virtual": {Address: "10.1.0.1", Port: 80}}})
	w.apply(&catalog.Records{Ops: []catalog.RecordOp{
		catalog.ManualIPs{Service: "Web", IPs: []string{"240.0.0.2", "240.0.0.1"}}.Put(0)}})
	expect(t, w.maker().Virtual(Subject{Kind: SubjectVirtual, Datacenter: "dc1", Service: "web"}).Addresses,
		"10.1.0.1", "240.0.0.1", "240.0.0.2")
	w.apply(&catalog.Records{Ops: []catalog.RecordOp{
		catalog.ManualIPs{Service: "web", Peer: "west", IPs: []string{"240.0.0.3"}}.Put(0)}})
	v := w.maker().Virtual(Subject{Kind: SubjectVirtual, Datacenter: "dc1", Service: "west/web"})
	if len(v.Addresses) > 0 {
		t.Errorf("a service here has the address of a peer's: %q", v.Addresses)
	}
}
