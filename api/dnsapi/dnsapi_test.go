package dnsapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"corbel.dev/corbel/catalog"
)

// short writes records without their header's class, sorted: "A 10.0.0.1".
func short(list []dns.RR) []string {
	var out []string
	for _, rr := range list {
		if rr.Header().Rrtype == dns.TypeOPT {
			continue
		}
		f := strings.SplitN(rr.String(), "\t", 5)
		out = append(out, f[3]+" "+f[4])
	}
	slices.Sort(out)
	return out
}

func TestAnswers(t *testing.T) {
	s := newServer(t, sample(t), Settings{AltDomain: "alt.test"})
	const ok, nx = dns.RcodeSuccess, dns.RcodeNameError
	for _, c := range []struct {
		name   string
		qtype  uint16
		rcode  int
		answer []string
		extra  []string
	}{
		{"db-1.node.consul.", dns.TypeA, ok, []string{"A 10.0.0.1"},
			[]string{"TXT \"a`=b=`\"", `TXT "plain"`, `TXT "rack=r 7"`}},
		{"DB-1.NODE.dc1.Consul.", dns.TypeTXT, ok, []string{"TXT \"a`=b=`\"", `TXT "plain"`, `TXT "rack=r 7"`}, nil},
		{"db-1.node.dc1.dc.consul.", dns.TypeAAAA, ok, nil, nil},
		{"db-1.node.dc2.consul.", dns.TypeA, nx, nil, nil},
		{"six.node.consul.", dns.TypeAAAA, ok, []string{"AAAA fd00::6"}, nil},
		{"six.node.alt.test.", dns.TypeANY, ok, []string{"AAAA fd00::6"}, nil},
		{"named.node.consul.", dns.TypeA, ok, []string{"CNAME host.example.com."}, nil},
		{"dotted.name.node.consul.", dns.TypeA, ok, []string{"A 10.0.0.9"}, nil},
		{"missing.node.consul.", dns.TypeA, nx, nil, nil},
		{"web.service.consul.", dns.TypeA, ok, []string{"A 10.1.0.1", "A 10.1.0.2"}, nil},
		{"web.service.consul.", dns.TypeAAAA, ok, nil, nil},
		{"v1.web.service.consul.", dns.TypeA, ok, []string{"A 10.1.0.1"}, nil},
		{"canary.eu.web.service.dc1.consul.", dns.TypeA, ok, []string{"A 10.1.0.1"}, nil},
		{"v9.web.service.consul.", dns.TypeA, nx, nil, nil},
		{"web.service.consul.", dns.TypeSRV, ok,
			[]string{"SRV 1 2 81 n2.node.dc1.consul.", "SRV 1 5 80 n1.node.dc1.consul."}, []string{"A 10.1.0.1", "A 10.1.0.2"}},
		{"_web._tcp.service.consul.", dns.TypeSRV, ok,
			[]string{"SRV 1 2 81 n2.node.dc1.consul.", "SRV 1 5 80 n1.node.dc1.consul."}, []string{"A 10.1.0.1", "A 10.1.0.2"}},
		{"_web._v1.service.alt.test.", dns.TypeSRV, ok, []string{"SRV 1 5 80 n1.node.dc1.alt.test."}, []string{"A 10.1.0.1"}},
		{"_web._v1.service.consul.", dns.TypeA, ok, []string{"A 10.1.0.1"}, nil},
		{"addressed.service.consul.", dns.TypeSRV, ok, []string{"SRV 1 1 1 0a090909.addr.dc1.consul."},
			[]string{"A 10.9.9.9"}},
		{"addressed.service.consul.", dns.TypeA, ok, []string{"A 10.9.9.9"}, nil},
		{"0a090909.addr.dc1.consul.", dns.TypeA, ok, []string{"A 10.9.9.9"}, nil},
		{"0a090909.addr.consul.", dns.TypeAAAA, ok, nil, nil},
		{"fd000000000000000000000000000006.addr.consul.", dns.TypeAAAA, ok, []string{"AAAA fd00::6"}, nil},
		{"nothex.addr.consul.", dns.TypeA, nx, nil, nil},
		{"outside.service.consul.", dns.TypeA, ok, []string{"CNAME web.example.com."}, nil},
		{"outside.service.consul.", dns.TypeSRV, ok, []string{"SRV 1 1 2 web.example.com."}, nil},
		{"inside.service.consul.", dns.TypeA, ok, []string{"A 10.0.0.1", "CNAME db-1.node.consul."}, nil},
		{"down.service.consul.", dns.TypeA, nx, nil, nil},
		{"none.service.consul.", dns.TypeSRV, nx, nil, nil},
		{"web.connect.consul.", dns.TypeA, ok, []string{"A 10.1.0.4"}, nil},
		{"mixed.service.consul.", dns.TypeA, ok, []string{"A 10.1.0.1"}, nil},
		{"mixed.service.consul.", dns.TypeANY, ok, []string{"A 10.1.0.1", "AAAA fd00::6"}, nil},
		{"consul.", dns.TypeA, ok, nil, nil},
		{"service.consul.", dns.TypeA, nx, nil, nil},
		{"who.knows.consul.", dns.TypeA, nx, nil, nil},
		{"consul.", dns.TypeNS, ok, []string{"NS s1.node.dc1.consul."}, []string{"A 10.2.0.1"}},
		{"1.0.1.10.in-addr.arpa.", dns.TypePTR, ok, []string{"PTR n1.node.dc1.consul."}, nil},
		{"9.9.9.10.in-addr.arpa.", dns.TypePTR, ok, []string{"PTR addressed.service.dc1.consul."}, nil},
		{"6.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.", dns.TypePTR, ok,
			[]string{"PTR six.node.dc1.consul."}, nil},
		{"1.2.3.4.in-addr.arpa.", dns.TypePTR, nx, nil, nil},
		{"www.example.com.", dns.TypeA, dns.RcodeRefused, nil, nil},
		{"consul.", dns.TypeAXFR, dns.RcodeNotImplemented, nil, nil},
	} {
		got := ask(t, s, query(c.name, c.qtype), false)
		what := c.name + " " + dns.TypeToString[c.qtype]
		if got.Rcode != c.rcode || !slices.Equal(short(got.Answer), c.answer) || !slices.Equal(short(got.Extra), c.extra) {
			t.Errorf("%s: %s\n%v\n%v", what, dns.RcodeToString[got.Rcode], short(got.Answer), short(got.Extra))
		}
		if got.Question[0].Name != c.name || got.Truncated || got.RecursionAvailable {
			t.Errorf("%s: %v", what, got.MsgHdr)
		}
		for _, rr := range got.Answer {
			if len(got.Answer) == 1 && rr.Header().Rrtype == c.qtype && c.qtype != dns.TypeNS && rr.Header().Name != c.name {
				t.Errorf("%s: the owner is %s", what, rr.Header().Name)
			}
		}
		empty := len(c.answer) == 0 && (c.rcode == ok || c.rcode == nx)
		if soa := len(got.Ns) == 1 && got.Ns[0].Header().Rrtype == dns.TypeSOA; soa != empty {
			t.Errorf("%s: authority %v", what, got.Ns)
		}
	}
	got := ask(t, s, query("consul.", dns.TypeSOA), false)
	soa, isSOA := got.Answer[0].(*dns.SOA)
	if !isSOA || soa.Ns != "ns.consul." || soa.Mbox != "hostmaster.consul." || soa.Refresh != 3600 || soa.Retry != 600 ||
		soa.Expire != 86400 || soa.Minttl != 0 || time.Since(time.Unix(int64(soa.Serial), 0)) > time.Minute ||
		len(got.Ns) != 1 || len(got.Extra) != 1 {
		t.Errorf("SOA %v", got)
	}
}

func TestAChangeIsSeenAtOnce(t *testing.T) {
	w := sample(t)
	s := newServer(t, w, Settings{})
	q := query("web.service.consul.", dns.TypeA)
	if got := short(ask(t, s, q, false).Answer); len(got) != 2 {
		t.Fatal(got)
	}
	fast := s.metrics.fast.Value()
	w.apply(t, instance("n9", "10.1.0.9", catalog.Service{Name: "other"}, catalog.Passing)) // another service
	if got := short(ask(t, s, q, false).Answer); len(got) != 2 || s.metrics.fast.Value() != fast+2 {
		t.Errorf("a change elsewhere emptied the cache: %v", got)
	}
	w.apply(t, instance("n9", "10.1.0.9", catalog.Service{Name: "web"}, catalog.Passing))
	if got := short(ask(t, s, q, false).Answer); len(got) != 3 {
		t.Errorf("a new instance is not seen: %v", got)
	}
	w.apply(t, &catalog.Register{Node: catalog.Node{Name: "n9", Address: "10.1.0.9"},
		Checks: []*catalog.Check{{Node: "n9", ID: "serfHealth", Name: "s", Status: catalog.Critical}}})
	if got := short(ask(t, s, q, false).Answer); len(got) != 2 {
		t.Errorf("a critical node is still given: %v", got)
	}
	w.apply(t, &catalog.Deregister{Node: "n1"}, &catalog.Deregister{Node: "n2"}, &catalog.Deregister{Node: "n9"})
	if got := ask(t, s, q, false); got.Rcode != dns.RcodeNameError {
		t.Errorf("a service that went is still given: %v", got)
	}
	if err := s.Reload(Settings{OnlyPassing: true, ServiceTTL: map[string]time.Duration{"*": 10 * time.Second,
		"Te*": 5 * time.Second}}); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, query("ten.service.consul.", dns.TypeA), false); got.Answer[0].Header().Ttl != 5 {
		t.Errorf("a reload is not seen: %v", got.Answer)
	}
}

func TestUDPSizesAndLimits(t *testing.T) {
	w := sample(t)
	for _, c := range []struct {
		settings Settings
		name     string
		qtype    uint16
		edns     uint16
		tcp      bool
		count    int // -1: as many as fit
		tc       bool
	}{
		{Settings{}, "ten.service.consul.", dns.TypeA, 0, false, 3, false},
		{Settings{Limits: Limits{EnableTruncate: true}}, "ten.service.consul.", dns.TypeA, 0, false, 3, true},
		{Settings{Limits: Limits{UDPAnswerLimit: 50}}, "ten.service.consul.", dns.TypeA, 0, false, 8, false},
		{Settings{}, "ten.service.consul.", dns.TypeA, 512, false, 3, false},
		{Settings{}, "ten.service.consul.", dns.TypeA, 1232, false, 10, false},
		{Settings{Limits: Limits{ARecordLimit: 2}}, "ten.service.consul.", dns.TypeA, 1232, true, 2, false},
		{Settings{}, "ten.service.consul.", dns.TypeA, 0, true, 10, false},
		{Settings{}, "ten.service.consul.", dns.TypeSRV, 0, false, 3, false},
		{Settings{}, "ten.service.consul.", dns.TypeSRV, 1232, false, 10, false},
		{Settings{Limits: Limits{EnableTruncate: true}}, "big.service.consul.", dns.TypeA, 1232, false, -1, true},
		{Settings{Limits: Limits{EnableTruncate: true}}, "big.service.consul.", dns.TypeSRV, 1232, false, -1, true},
		{Settings{}, "big.service.consul.", dns.TypeSRV, 4096, false, -1, false},
		{Settings{Limits: Limits{EnableTruncate: true}}, "big.service.consul.", dns.TypeSRV, 0, true, 200, false},
		{Settings{Limits: Limits{EnableTruncate: true, DisableCompression: true}}, "big.service.consul.", dns.TypeA, 1232,
			false, -1, true},
	} {
		s := newServer(t, w, c.settings)
		q := query(c.name, c.qtype)
		if c.edns > 0 {
			q.SetEdns0(c.edns, false)
		}
		what := fmt.Sprintf("%s %s edns %d tcp %v %+v", c.name, dns.TypeToString[c.qtype], c.edns, c.tcp, c.settings)
		b, _ := q.Pack()
		for range 2 {
			raw := s.Resolve(t.Context(), Asked{Query: b, TCP: c.tcp})
			got := new(dns.Msg)
			if err := got.Unpack(raw); err != nil {
				t.Fatal(err)
			}
			limit := max(512, int(c.edns))
			if !c.tcp && len(raw) > limit {
				t.Errorf("%s: %d bytes", what, len(raw))
			}
			if c.count == -1 && (len(raw) < limit-120 || len(got.Answer) == 200) {
				t.Errorf("%s: only %d bytes", what, len(raw))
			}
			if (c.count >= 0 && len(got.Answer) != c.count) || got.Truncated != c.tc {
				t.Errorf("%s: %d answers, TC %v", what, len(got.Answer), got.Truncated)
			}
			if opt := got.IsEdns0(); (opt != nil) != (c.edns > 0) || (opt != nil && opt.UDPSize() != c.edns) {
				t.Errorf("%s: OPT %v", what, opt)
			}
			if c.qtype == dns.TypeSRV {
				targets := map[string]bool{}
				for _, rr := range got.Answer {
					targets[rr.(*dns.SRV).Target] = true
				}
				for _, rr := range got.Extra {
					if rr.Header().Rrtype == dns.TypeA && !targets[rr.Header().Name] {
						t.Errorf("%s: %v without its SRV", what, rr)
					}
				}
				if len(short(got.Extra)) != len(got.Answer) {
					t.Errorf("%s: %d answers, %d additional", what, len(got.Answer), len(got.Extra))
				}
			}
		}
	}
}

func TestOrderIsRandomAndFair(t *testing.T) {
	s := newServer(t, sample(t), Settings{})
	first := map[string]int{}
	b, _ := query("ten.service.consul.", dns.TypeA).Pack()
	const rounds = 5000
	for range rounds {
		got := new(dns.Msg)
		if err := got.Unpack(s.Resolve(t.Context(), Asked{Query: b})); err != nil {
			t.Fatal(err)
		}
		for _, rr := range got.Answer {
			first[rr.(*dns.A).A.String()]++
		}
	}
	// Each of ten is one of three answers with probability 0.3; 5,000 rounds deviate by 32 (one sigma).
	for a, n := range first {
		if n < rounds*3/10-250 || n > rounds*3/10+250 {
			t.Errorf("%s was given %d times of %d", a, n, rounds)
		}
	}
	if len(first) != 10 {
		t.Errorf("%d of 10 instances were given", len(first))
	}
}

func TestAccessHidesNodesAndServices(t *testing.T) {
	w := sample(t)
	access := Access{Version: 1}
	s, err := New(Config{Source: w, Access: func(string) Access { return access }})
	if err != nil {
		t.Fatal(err)
	}
	q := query("ten.service.consul.", dns.TypeA)
	if got := ask(t, s, q, true); len(got.Answer) != 10 {
		t.Fatal(got)
	}
	access = Access{Version: 2, Node: func(n string) bool { return n != "ten-3" },
		Service: func(string) bool { return true }}
	if got := ask(t, s, q, true); len(got.Answer) != 9 {
		t.Errorf("a node that may not be read is given: %v", got)
	}
	if got := ask(t, s, query("3.0.10.10.in-addr.arpa.", dns.TypePTR), true); got.Rcode != dns.RcodeNameError {
		t.Errorf("a node that may not be read is given by its address: %v", got)
	}
	access = Access{Version: 3, Service: func(n string) bool { return n != "ten" }}
	if got := ask(t, s, q, true); got.Rcode != dns.RcodeNameError {
		t.Errorf("a service that may not be read is given: %v", got)
	}
}

type forwarder func(a Asked) ([]byte, error)

func (f forwarder) ForwardDNS(_ context.Context, a Asked) ([]byte, error) { return f(a) }

func TestStaleServersAndAgentsForward(t *testing.T) {
	w := sample(t)
	leader := newServer(t, w, Settings{})
	forwarded := 0
	toLeader := forwarder(func(a Asked) ([]byte, error) {
		forwarded++
		return leader.Resolve(context.Background(), a), nil
	})
	q := query("ten.service.consul.", dns.TypeA)
	agent, err := New(Config{Forward: toLeader})
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, agent, q, false); len(got.Answer) != 3 || got.Id != q.Id || forwarded != 2 {
		t.Errorf("an agent gives %v after %d forwards", got, forwarded)
	}
	follower := newServer(t, w, Settings{})
	follower.cfg.Forward = toLeader
	w.lag.Store(int64(time.Second))
	ask(t, follower, q, false)
	w.lag.Store(int64(10 * time.Second))
	ask(t, follower, q, false)
	if forwarded != 2 || follower.metrics.stale.Value() == 0 {
		t.Errorf("%d forwards, %d stale answers", forwarded, follower.metrics.stale.Value())
	}
	if err := follower.Reload(Settings{MaxStale: 5 * time.Second}); err != nil {
		t.Fatal(err)
	}
	w.lag.Store(int64(10 * time.Second))
	ask(t, follower, q, false)
	if forwarded != 4 {
		t.Errorf("a server that is too stale answered itself: %d forwards", forwarded)
	}
	lonely, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, lonely, q, false); got.Rcode != dns.RcodeServerFailure {
		t.Errorf("without a server the answer is %v", got)
	}
}

func TestEDNSAndBadQuestions(t *testing.T) {
	s := newServer(t, sample(t), Settings{})
	q := query("ten.service.consul.", dns.TypeA)
	q.SetEdns0(1232, false)
	opt := q.IsEdns0()
	opt.Option = append(opt.Option, &dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, SourceScope: 24,
		Address: []byte{192, 0, 2, 0}})
	got := ask(t, s, q, false)
	if got.IsEdns0() == nil || len(got.IsEdns0().Option) != 1 ||
		got.IsEdns0().Option[0].(*dns.EDNS0_SUBNET).SourceScope != 0 {
		t.Errorf("subnet: %v", got.Extra)
	}
	opt.Option = nil
	opt.SetVersion(3)
	if got := ask(t, s, q, false); got.Rcode != dns.RcodeBadVers {
		t.Errorf("version 3: %v", got)
	}
	q = query("ten.service.consul.", dns.TypeA)
	q.Opcode = dns.OpcodeNotify
	if got := ask(t, s, q, false); got.Rcode != dns.RcodeNotImplemented {
		t.Errorf("notify: %v", got)
	}
	q = query("ten.service.consul.", dns.TypeA)
	q.Question[0].Qclass = dns.ClassCHAOS
	if got := ask(t, s, q, false); got.Rcode != dns.RcodeRefused {
		t.Errorf("chaos: %v", got)
	}
	if got := s.Resolve(t.Context(), Asked{Query: []byte{1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 63}}); len(got) != 12 ||
		got[3] != dns.RcodeFormatError {
		t.Errorf("half a name: %x", got)
	}
	for _, b := range [][]byte{nil, {1}, {1, 2, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0}} {
		if got := s.Resolve(t.Context(), Asked{Query: b}); got != nil {
			t.Errorf("%x is answered %x", b, got)
		}
	}
}

func TestSettingsAreCheckedTogether(t *testing.T) {
	s := newServer(t, sample(t), Settings{})
	err := s.Reload(Settings{Domain: "..", Recursion: Recursion{Recursors: []string{"nowhere"}, RecursorStrategy: "loud"}})
	if err == nil {
		t.Fatal("wrong settings are taken")
	}
	for _, part := range []string{"domain", "recursors", "recursor_strategy"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
	if got := ask(t, s, query("ten.service.consul.", dns.TypeA), false); len(got.Answer) != 3 {
		t.Errorf("a refused reload took effect: %v", got)
	}
}
