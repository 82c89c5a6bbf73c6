package mesh

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/chain"
	"corbel.dev/corbel/catalog/peered"
	"corbel.dev/corbel/catalog/statestore"
)

// farWorld is a cluster whose peer east exports db, over proxies that are well or not.
func farWorld(t *testing.T, status string) (*world, *Maker) {
	w := newWorld(t)
	far := newWorld(t)
	far.instance("n9", catalog.Service{Kind: catalog.KindConnectProxy, ID: "db-proxy", Name: "db-proxy", Port: 21000,
		Connect: catalog.Connect{ProxyDestination: "db"}}, "c="+status)
	m := w.maker()
	m.Trust = func(peer string) *peered.Trust {
		if peer != "east" {
			return nil
		}
		return &peered.Trust{Domain: "far.consul", Datacenter: "dc9", As: "Home", Roots: []string{"pem"},
			Gateways: []peered.Gateway{{Address: "192.0.2.7", Port: 443}}}
	}
	m.Imported = func(peer, service string) (*statestore.State, string, bool) {
		return far.st, "http", peer == "east" && service == "db"
	}
	return w, m
}

func TestUpstreamOfAPeer(t *testing.T) {
	for _, c := range []struct{ name, subject, status, want, problem string }{
		{"through its gateways", "upstream/dc1/db////east", "passing", "192.0.2.7:443 HEALTHY", ""},
		{"none of its instances is well", "upstream/dc1/db////east", "critical", "192.0.2.7:443 UNHEALTHY", ""},
		{"directly", "upstream/dc1/db///none/east", "passing", "10.0.0.9:21000 HEALTHY", ""},
		{"through our gateways", "upstream/dc1/db///local/east", "passing", "10.0.0.2:8443 HEALTHY", ""},
		{"a service that it does not export", "upstream/dc1/web////east", "passing", "", `exports no service "web"`},
		{"no peer", "upstream/dc1/db////west", "passing", "", `"west"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, m := farWorld(t, c.status)
			w.instance("n2", catalog.Service{Kind: catalog.KindMeshGateway, ID: "gw", Name: "gw", Port: 8443})
			m.State = w.st
			s, err := ParseSubject(c.subject)
			if err != nil {
				t.Fatal(err)
			}
			u := m.Upstream(s)
			if err := u.sound(); err != nil || len(u.Peers) != 1 || u.Problem != "" {
				t.Fatalf("%+v, %v", u, err)
			}
			for id, p := range u.Peers {
				var at []string
				for _, e := range p.Endpoints {
					at = append(at, fmt.Sprintf("%s:%d %s", e.Address, e.Port, e.Health))
				}
				if got := strings.Join(at, " "); got != c.want || !strings.Contains(p.Problem, c.problem) ||
					(c.problem == "") != (p.Problem == "") || p.Reached() != (c.problem == "") || u.Chain.Targets[id].Peer != p.Peer {
					t.Errorf("%s: %q, problem %q", id, got, p.Problem)
				}
				if p.Reached() && (p.SNI != "db.default.default.home.external.far.consul" ||
					p.Identity != "spiffe://far.consul/ns/default/dc/dc9/svc/db" || u.Chain.Protocol != "http") {
					t.Errorf("%+v, %s", p, u.Chain.Protocol)
				}
			}
		})
	}
}

// TestWhatAPeerIsTold: the gateways by the addresses that others reach them by.
func TestWhatAPeerIsTold(t *testing.T) {
	w := newWorld(t)
	w.instance("n1", catalog.Service{Kind: catalog.KindMeshGateway, ID: "gw", Name: "gw", Port: 8443,
		TaggedAddresses: map[string]catalog.ServiceAddress{"wan": {Address: "198.51.100.1", Port: 443}}}, "c=critical")
	w.instance("n2", catalog.Service{Kind: catalog.KindMeshGateway, ID: "gw", Name: "gw", Port: 8443,
		Address: "Name.example"})
	w.instance("n3", catalog.Service{Kind: catalog.KindIngressGateway, ID: "in", Name: "in", Port: 8443})
	got := w.maker().Own("west", []string{"pem"})
	if got.Domain != "td.consul" || got.Datacenter != "dc1" || got.As != "west" || !slices.Equal(got.Roots,
		[]string{"pem"}) || !slices.Equal(got.Gateways, []peered.Gateway{
		{Address: "198.51.100.1", Port: 443, Health: uint8(Unhealthy), Weight: 1},
		{Address: "name.example", Port: 8443, Weight: 1}}) {
		t.Errorf("%+v", got)
	}
}

// TestNoSubsetsOfPeers: who asks for a subset is not given all instances.
func TestNoSubsetsOfPeers(t *testing.T) {
	_, m := farWorld(t, "passing")
	if p := m.peered(&chain.Target{Peer: "east", Service: "db"}); !p.Reached() {
		t.Fatalf("without a subset: %+v", p)
	}
	p := m.peered(&chain.Target{Peer: "east", Service: "db", ServiceSubset: "v1"})
	if p.Reached() || len(p.Endpoints) > 0 || !strings.Contains(p.Problem, `subset "v1"`) {
		t.Errorf("%+v", p)
	}
}

// TestServersThroughGateways: servers are let peers through to where the entry says so, and only then.
func TestServersThroughGateways(t *testing.T) {
	w := newWorld(t)
	w.instance("n1", catalog.Service{ID: "consul", Name: "consul", Port: 8300, Address: "10.0.0.7",
		Kind: catalog.KindTypical, Connect: catalog.Connect{Native: true}})
	m := w.maker()
	m.ServerName = "Server.dc1.consul"
	if v := m.Passages(); v.Servers != nil {
		t.Errorf("unasked: %+v", v.Servers)
	}
	w.entries(`{"Kind":"mesh","Peering":{"PeerThroughMeshGateways":true}}`)
	m.State = w.st
	v := m.Passages().Servers
	if v == nil || !slices.Equal(v.Names, []string{"server.dc1.consul"}) || v.Cluster != "server.dc1.peering.td.consul" ||
		len(v.Endpoints) != 1 || v.Endpoints[0].Address != "10.0.0.7" || v.Endpoints[0].Port != 8300 {
		t.Errorf("%+v", v)
	}
}

func TestPassages(t *testing.T) {
	w, m := farWorld(t, "passing")
	w.entries(`{"Kind":"exported-services","Name":"default","Services":[{"Name":"Web","Consumers":[{"Peer":"east"},` +
		`{"Peer":"west"}]},{"Name":"*","Consumers":[{"Peer":"west"}]}]}`)
	for _, name := range []string{"Web", "db", "plain"} {
		w.instance("n1", catalog.Service{ID: name, Name: name, Port: 80, Kind: catalog.KindTypical,
			Connect: catalog.Connect{Native: name != "plain"}})
	}
	w.apply(&catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordSet, Record: catalog.Record{
		Kind: catalog.RecordTrust, Key: "east", Value: []byte("{}")}}}})
	m.State = w.st
	v := m.Passages()
	body, err := v.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if v, err = ReadPassages(body); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range v.Services {
		got = append(got, s.Service+": "+strings.Join(s.Names, " "))
	}
	for _, o := range v.Onward {
		got = append(got, fmt.Sprintf("%s %s: %s %v", o.Peer, o.Cluster, strings.Join(o.Names, " "), o.Endpoints))
	}
	expect(t, got, "Web: web.default.dc1.internal.td.consul web.default.default.east.external.td.consul "+
		"web.default.default.west.external.td.consul",
		"db: db.default.dc1.internal.td.consul db.default.default.west.external.td.consul",
		"east east.external.td.consul: *.default.default.home.external.far.consul [{192.0.2.7 443 HEALTHY 1}]")
	trusted := m.Service("web").Trusted
	if len(trusted) != 1 || trusted[0].Peer != "east" || trusted[0].Domain != "far.consul" {
		t.Errorf("web trusts %+v", trusted)
	}
	if trusted := m.Service("db").Trusted; len(trusted) != 0 {
		t.Errorf("db is exported to a peer that has told nothing: %+v", trusted)
	}
}
