package dnsapi

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

// far is the servers of other datacenters.
type far map[string]*Server

func (f far) Knows(dc string) bool { _, ok := f[dc]; return ok }

func (f far) ForwardDNSTo(ctx context.Context, dc string, a Asked) ([]byte, error) {
	if f[dc] == nil {
		return nil, errkind.New(errkind.Unavailable, "No path to datacenter")
	}
	return f[dc].Resolve(ctx, a), nil
}

func in(t testing.TB, dc string, w *world, c Config) *Server {
	t.Helper()
	c.Datacenter, c.Source = dc, w
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNamesOfOtherDatacenters(t *testing.T) {
	w2 := newWorld(t,
		instance("db-1", "10.2.0.1", catalog.Service{Name: "db", Port: 5432, Tags: []string{"main"}}, catalog.Passing),
		instance("db-1", "10.2.0.1", catalog.Service{Name: "addressed", Address: "10.9.9.9", Port: 1}, catalog.Passing))
	w1 := newWorld(t, instance("n1", "10.1.0.1", catalog.Service{Name: "toward", Address: "db-1.node.dc2.consul", Port: 1},
		catalog.Passing))
	all := far{"gone": nil}
	s1 := in(t, "dc1", w1, Config{Remote: all,
		Settings: Settings{AltDomain: "alt.test", Recursion: Recursion{Recursors: []string{"127.0.0.1:1"}}}})
	all["dc2"] = in(t, "dc2", w2, Config{Remote: far{"dc1": s1}})
	const ok, nx = dns.RcodeSuccess, dns.RcodeNameError
	for _, c := range []struct {
		name   string
		qtype  uint16
		rcode  int
		answer []string
	}{
		{"db.service.dc2.consul.", dns.TypeA, ok, []string{"A 10.2.0.1"}},
		{"Main.DB.service.DC2.dc.consul.", dns.TypeA, ok, []string{"A 10.2.0.1"}},
		{"_db._main.service.dc2.consul.", dns.TypeSRV, ok, []string{"SRV 1 1 5432 db-1.node.dc2.consul."}},
		{"_db._tcp.dc2.consul.", dns.TypeSRV, ok, []string{"SRV 1 1 5432 db-1.node.dc2.consul."}},
		{"db-1.node.dc2.consul.", dns.TypeA, ok, []string{"A 10.2.0.1"}},
		// a zone that dc2 does not have
		{"db.service.dc2.alt.test.", dns.TypeSRV, ok, []string{"SRV 1 1 5432 db-1.node.dc2.alt.test."}},
		{"addressed.service.dc2.consul.", dns.TypeSRV, ok, []string{"SRV 1 1 1 0a090909.addr.dc2.consul."}},
		{"0a090909.addr.dc2.consul.", dns.TypeA, ok, []string{"A 10.9.9.9"}},
		{"db.service.consul.", dns.TypeA, nx, nil},
		{"none.service.dc2.consul.", dns.TypeA, nx, nil},
		{"db.service.dc9.consul.", dns.TypeA, nx, nil},
		{"db.service.gone.consul.", dns.TypeA, dns.RcodeServerFailure, nil},
		{"toward.service.consul.", dns.TypeA, ok, []string{"A 10.2.0.1", "CNAME db-1.node.dc2.consul."}},
	} {
		got := ask(t, s1, query(c.name, c.qtype), false)
		if got.Rcode != c.rcode || !slices.Equal(short(got.Answer), c.answer) || got.Question[0].Name != c.name {
			t.Errorf("%s: %v", c.name, got)
		}
		if !got.RecursionAvailable {
			t.Errorf("%s: whether recursion is there depends on whom one asks: %v", c.name, got.MsgHdr)
		}
	}
	// What crossed once goes no further, though dc2 knows dc1.
	b, _ := query("toward.service.dc1.consul.", dns.TypeA).Pack()
	got := new(dns.Msg)
	if err := got.Unpack(all["dc2"].Resolve(t.Context(), Asked{Query: b, Crossed: true})); err != nil || got.Rcode != nx {
		t.Errorf("a question that crossed: %v, %v", got, err)
	}
}

func TestTheTokenTravels(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	access := func(token string) Access {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, token)
		may := func(string) bool { return token == "theirs" }
		return Access{Version: uint64(len(token)), Node: may, Service: may}
	}
	w := newWorld(t, instance("n", "10.0.0.1", catalog.Service{Name: "web"}, catalog.Passing))
	server := in(t, "dc1", w, Config{Access: access, Token: func() string { return "own" }})
	agent, err := New(Config{Addresses: []string{"127.0.0.1:0"}, Token: func() string { return "theirs" },
		Forward: forwarder(func(a Asked) ([]byte, error) {
			return server.Resolve(context.Background(), a), nil
		})})
	if err != nil {
		t.Fatal(err)
	}
	address := serve(t, agent)
	got := exchange(t, "udp", address, query("web.service.consul.", dns.TypeA))
	mu.Lock()
	if len(got.Answer) != 1 {
		t.Errorf("an agent's token does not reach the server: %v, tokens %q", got, seen)
	}
	if slices.Contains(seen, "own") {
		t.Errorf("the server lent its own token: %q", seen)
	}
	mu.Unlock()
	b, _ := query("web.service.consul.", dns.TypeA).Pack()
	w2 := server.newResponder()
	reply, _ := w2.respond(b, w2.own(false))
	if got := normal(t, reply); got.Rcode != dns.RcodeNameError {
		t.Errorf("what one token may see was given to another: %v", got)
	}
}

// run answers prepared queries in tests.
type run func(name, token string, source netip.Addr) (QueryAnswer, error)

func (r run) ExecuteDNS(_ context.Context, q Query) (QueryAnswer, error) {
	return r(q.Name, q.Token, q.Source)
}

func TestPreparedQueries(t *testing.T) {
	w := newWorld(t)
	one := func(name, address string, port int) QueryInstance {
		return QueryInstance{Node: &catalog.Node{Name: name, Address: address},
			Service: &catalog.Service{Node: name, Name: "db", Port: port}}
	}
	var source netip.Addr
	s := in(t, "dc1", w, Config{Settings: Settings{ServiceTTL: map[string]time.Duration{"*": 7 * time.Second}},
		Queries: run(func(name, _ string, from netip.Addr) (QueryAnswer, error) {
			source = from
			switch name {
			case "near.db":
				return QueryAnswer{Datacenter: "dc2", TTL: 30 * time.Second, Instances: []QueryInstance{one("b", "10.2.0.2", 2),
					one("a", "10.2.0.1", 1)}}, nil
			case "plain":
				return QueryAnswer{Datacenter: "dc1", TTL: -1, Instances: []QueryInstance{one("c", "10.1.0.1", 3)}}, nil
			case "empty":
				return QueryAnswer{Datacenter: "dc1"}, nil
			case "broken":
				return QueryAnswer{}, errors.New("no")
			}
			return QueryAnswer{}, errkind.New(errkind.NotFound, "Query not found")
		})})
	q := query("Near.db.query.consul.", dns.TypeSRV)
	q.SetEdns0(1232, false)
	opt := q.IsEdns0()
	opt.Option = append(opt.Option, &dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24,
		Address: []byte{192, 0, 2, 0}})
	got := ask(t, s, q, false)
	if len(got.Answer) != 2 || got.Answer[0].(*dns.SRV).Target != "b.node.dc2.consul." ||
		got.Answer[1].(*dns.SRV).Port != 1 || got.Answer[0].Header().Ttl != 30 {
		t.Errorf("order, datacenter and TTL of the query: %v", got)
	}
	if scope := got.IsEdns0().Option[0].(*dns.EDNS0_SUBNET).SourceScope; scope != 24 ||
		source != netip.MustParseAddr("192.0.2.0") {
		t.Errorf("scope %d, source %v: the answer is this network's", scope, source)
	}
	for _, c := range []struct {
		name   string
		rcode  int
		answer []string
	}{
		{"plain.query.consul.", dns.RcodeSuccess, []string{"A 10.1.0.1"}},
		{"_plain._tcp.query.consul.", dns.RcodeSuccess, []string{"A 10.1.0.1"}},
		{"plain.query.dc1.dc.consul.", dns.RcodeSuccess, []string{"A 10.1.0.1"}},
		{"empty.query.consul.", dns.RcodeNameError, nil},
		{"none.query.consul.", dns.RcodeNameError, nil},
		{"broken.query.consul.", dns.RcodeServerFailure, nil},
	} {
		got := ask(t, s, query(c.name, dns.TypeA), false)
		if got.Rcode != c.rcode || !slices.Equal(short(got.Answer), c.answer) ||
			(len(got.Answer) > 0 && got.Answer[0].Header().Ttl != 7) {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if got := ask(t, in(t, "dc1", w, Config{}), query("plain.query.consul.", dns.TypeA),
		false); got.Rcode != dns.RcodeNameError {
		t.Errorf("without queries: %v", got)
	}
}

func TestVirtualAddresses(t *testing.T) {
	vip := map[string]catalog.ServiceAddress{"consul-virtual": {Address: "240.0.0.7", Port: 80}}
	w := newWorld(t, instance("n", "10.0.0.1", catalog.Service{Name: "web", TaggedAddresses: vip}, catalog.Critical),
		instance("n", "10.0.0.1", catalog.Service{Name: "bare"}, catalog.Passing))
	s := in(t, "dc1", w, Config{})
	if got := ask(t, s, query("web.virtual.consul.", dns.TypeA), false); !slices.Equal(short(got.Answer),
		[]string{"A 240.0.0.7"}) {
		t.Errorf("%v", got)
	}
	if got := ask(t, s, query("web.virtual.consul.", dns.TypeAAAA), false); got.Rcode != dns.RcodeSuccess ||
		len(got.Ns) != 1 {
		t.Errorf("%v", got)
	}
	if got := ask(t, s, query("bare.virtual.consul.", dns.TypeA), false); got.Rcode != dns.RcodeNameError {
		t.Errorf("%v", got)
	}
	w.apply(t, &catalog.Records{Ops: []catalog.RecordOp{
		catalog.ManualIPs{Service: "Bare", IPs: []string{"240.0.0.9", "240.0.0.8"}}.Put(0)}})
	for range 2 { // the second comes from the cache
		if got := ask(t, s, query("bare.virtual.consul.", dns.TypeA), false); !slices.Equal(short(got.Answer),
			[]string{"A 240.0.0.8"}) {
			t.Errorf("of an operator: %v", got)
		}
	}
}

func TestNamedPorts(t *testing.T) {
	api := catalog.Service{Name: "api", Port: 8080, Tags: []string{"blue"}, Sockets: catalog.Sockets{
		Ports: []catalog.NamedPort{{Name: "http", Port: 8080, Default: true}, {Name: "grpc", Port: 9090}}}}
	s := in(t, "dc1", newWorld(t, instance("n", "10.0.0.1", api, catalog.Passing),
		instance("m", "10.0.0.2", catalog.Service{Name: "api", Port: 1}, catalog.Passing)), Config{})
	for name, want := range map[string][]uint16{
		"grpc.port.api.service.consul.":          {9090},
		"GRPC.port.api.service.dc1.consul.":      {9090},
		"blue.grpc.port.api.service.dc1.consul.": {9090},
		"red.grpc.port.api.service.consul.":      nil,
		"udp.port.api.service.consul.":           nil,
		"api.service.consul.":                    {1, 8080},
	} {
		var ports []uint16
		for _, rr := range ask(t, s, query(name, dns.TypeSRV), false).Answer {
			ports = append(ports, rr.(*dns.SRV).Port)
		}
		if slices.Sort(ports); !slices.Equal(ports, want) {
			t.Errorf("%s: %v, want %v", name, ports, want)
		}
	}
	if got := ask(t, s, query("grpc.port.api.service.consul.", dns.TypeA), false); !slices.Equal(short(got.Answer),
		[]string{"A 10.0.0.1"}) {
		t.Errorf("%v", got)
	}
}

func TestIngressGateways(t *testing.T) {
	set := func(kind, name, value string) catalog.Command {
		return &catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordSet,
			Record: catalog.Record{Kind: catalog.RecordConfigEntry, Key: kind + "/" + name, Value: []byte(value)}}}}
	}
	gateway := catalog.Service{Name: "edge", Kind: catalog.KindIngressGateway, Port: 8443}
	w := newWorld(t, instance("n", "10.0.0.1", gateway, catalog.Passing),
		instance("m", "10.0.0.2", gateway, catalog.Critical))
	s := in(t, "dc1", w, Config{})
	a, srv := query("web.ingress.consul.", dns.TypeA), query("web.ingress.dc1.consul.", dns.TypeSRV)
	if got := ask(t, s, a, false); got.Rcode != dns.RcodeNameError {
		t.Errorf("before there is a gateway for it: %v", got)
	}
	w.apply(t, set("ingress-gateway", "edge",
		`{"Kind":"ingress-gateway","Name":"edge","Listeners":[{"Port":80,"Protocol":"tcp","Services":[{"Name":"web"}]}]}`))
	for range 2 { // the second comes from the cache
		if got := ask(t, s, a, false); !slices.Equal(short(got.Answer), []string{"A 10.0.0.1"}) {
			t.Errorf("%v", got)
		}
		if got := ask(t, s, srv, false); len(got.Answer) != 1 || got.Answer[0].(*dns.SRV).Port != 8443 {
			t.Errorf("%v", got)
		}
	}
	w.apply(t, instance("m", "10.0.0.2", gateway, catalog.Passing))
	if got := ask(t, s, a, false); len(got.Answer) != 2 {
		t.Errorf("after the second came up: %v", got)
	}
	w.apply(t, set("ingress-gateway", "edge",
		`{"Kind":"ingress-gateway","Name":"edge","Listeners":[{"Port":80,"Protocol":"tcp","Services":[{"Name":"db"}]}]}`))
	if got := ask(t, s, a, false); got.Rcode != dns.RcodeNameError {
		t.Errorf("after the gateway dropped it: %v", got)
	}
}

// An agent with use_cache gives an answer again until it is too old.
func TestAgentsKeepAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := in(t, "dc1", sample(t), Config{})
		forwards, down := 0, false
		agent, err := New(Config{Settings: Settings{UseCache: true, CacheMaxAge: 10 * time.Second},
			Metrics: telemetry.New(telemetry.Config{}),
			Forward: forwarder(func(a Asked) ([]byte, error) {
				if forwards++; down {
					return nil, errors.New("no server")
				}
				return server.Resolve(context.Background(), a), nil
			})})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			q := query("TEN.service.consul.", dns.TypeA)
			if got := ask(t, agent, q, true); len(got.Answer) != 10 || got.Id != q.Id ||
				got.Question[0].Name != "TEN.service.consul." {
				t.Fatalf("%v", got)
			}
		}
		if forwards != 1 {
			t.Errorf("10 questions went to the server %d times", forwards)
		}
		ask(t, agent, query("ten.service.consul.", dns.TypeA), false)
		if forwards != 2 {
			t.Error("an answer over TCP was given over UDP")
		}
		time.Sleep(11 * time.Second)
		down = true
		if got := ask(t, agent, query("ten.service.consul.", dns.TypeA), true); got.Rcode != dns.RcodeServerFailure {
			t.Errorf("an answer that is too old is given: %v", got)
		}
		down = false
		if got := ask(t, agent, query("ten.service.consul.", dns.TypeA), true); len(got.Answer) != 10 {
			t.Errorf("a failure was kept: %v", got)
		}
	})
}
