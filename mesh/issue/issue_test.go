package issue

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/mesh/ca"
)

const domain = "11111111-2222-3333-4444-555555555555.consul"

// store is a Store of one process.
type store struct {
	mu sync.Mutex
	st *statestore.State
}

func (s *store) State() *statestore.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st
}

func (s *store) SetRecords(_ context.Context, ops ...catalog.RecordOp) (catalog.Result, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, results, _ := s.st.Apply([]catalog.Command{&catalog.Records{Ops: ops}})
	s.st = next
	return results[0], results[0].OK, results[0].Err
}

// founded is an authority in memory with a configuration.
func founded(t testing.TB, config string) *store {
	t.Helper()
	s := &store{st: statestore.Empty()}
	op := catalog.RecordOp{Verb: catalog.RecordSet, Record: catalog.Record{Kind: catalog.RecordSystem,
		Key: catalog.ClusterIDKey, Value: []byte(strings.TrimSuffix(domain, ".consul"))}}
	if _, ok, err := s.SetRecords(t.Context(), op); err != nil || !ok {
		t.Fatal(ok, err)
	}
	a := ca.New(s, time.Now, nil)
	if err := a.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.configure(t, config)
	return s
}

func (s *store) configure(t testing.TB, config string) {
	t.Helper()
	if err := ca.New(s, time.Now, nil).SetConfiguration(t.Context(),
		[]byte(`{"Provider":"consul","Config":`+config+`}`)); err != nil {
		t.Fatal(err)
	}
}

func (s *store) issuer(change func(*Config)) *Issuer {
	cfg := Config{Now: func() (uint64, *statestore.State) { return 0, s.State() }, Datacenter: "dc1"}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

func request(t testing.TB, id ca.ID) string {
	t.Helper()
	_, csr, err := ca.NewRequest(id, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

func web() ca.ID {
	return ca.ID{Kind: ca.ServiceID, TrustDomain: domain, Datacenter: "dc1", Name: "web"}
}

func TestSignsAndTravels(t *testing.T) {
	s := founded(t, `{"LeafCertTTL":"2h"}`)
	i := s.issuer(nil)
	req := Request{Token: "t", CSR: request(t, web())}
	reply, err := i.Serve(t.Context(), "n1", req.AppendPack(nil))
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadCertificate(reply)
	if err != nil {
		t.Fatal(err)
	}
	root, err := ca.Active(s.State())
	if err != nil {
		t.Fatal(err)
	}
	if life := got.ValidBefore.Sub(got.ValidAfter); got.RootID != root.ID || got.Index != s.State().Index() ||
		life < 2*time.Hour || life > 2*time.Hour+2*time.Minute {
		t.Errorf("issued %+v for %s", got, life)
	}
	if again, err := ReadRequest(req.AppendPack(nil)); err != nil || again != req {
		t.Errorf("request %+v: %v", again, err)
	}
	for n := range reply {
		if _, err := ReadCertificate(reply[:n]); err == nil {
			t.Errorf("%d of %d bytes make a certificate", n, len(reply))
		}
	}
	// A rotation counts from the next certificate on.
	s.configure(t, `{"PrivateKeyBits":384}`)
	next, err := i.Sign(t.Context(), "n1", req)
	if err != nil || next.RootID == got.RootID {
		t.Errorf("after the rotation: %v, root %s", err, next.RootID)
	}
}

func TestNoAuthorityYet(t *testing.T) {
	s := &store{st: statestore.Empty()}
	if _, err := s.issuer(nil).Sign(t.Context(), "n1", Request{CSR: request(t, web())}); !errkind.Is(err,
		errkind.Unavailable) {
		t.Errorf("without an authority: %v", err)
	}
}

// Who may be certified as what: nobody without the right, and nobody as somebody else.
func TestRightsToIdentities(t *testing.T) {
	s := founded(t, `{}`)
	grant := func(_ context.Context, rules string) (*acl.Grant, error) {
		parsed, err := acl.Parse(rules)
		if err != nil {
			return nil, errkind.New(errkind.Denied, "ACL not found")
		}
		return &acl.Grant{Accessor: "a", Authorizer: acl.Compile(acl.Deny, parsed)}, nil
	}
	i := s.issuer(func(c *Config) { c.Grant = grant })
	id := func(kind ca.IDKind, name string) ca.ID {
		return ca.ID{Kind: kind, TrustDomain: domain, Datacenter: "dc1", Name: name}
	}
	const all = `operator = "write" acl = "write" mesh = "write" service_prefix "" { policy = "write" } node_prefix "" ` +
		`{ policy = "write" } agent_prefix "" { policy = "write" }`
	const none = errkind.Kind(255)
	for _, c := range []struct {
		id    ca.ID
		rules string
		want  errkind.Kind
	}{
		{web(), `service "web" { policy = "write" }`, none},
		{web(), `service "web" { policy = "read" }`, errkind.Denied},
		{web(), `service "we" { policy = "write" }`, errkind.Denied},
		{web(), `node_prefix "" { policy = "write" }`, errkind.Denied},
		{web(), `no rules at all {`, errkind.Denied},
		{id(ca.ServiceID, "*"), all, errkind.Invalid},
		{id(ca.AgentID, "n1"), `node "n1" { policy = "write" }`, none},
		{id(ca.AgentID, "n2"), `node "n1" { policy = "write" }`, errkind.Denied},
		{id(ca.AgentID, "n1"), `service_prefix "" { policy = "write" }`, errkind.Denied},
		{id(ca.MeshGatewayID, ""), `mesh = "write"`, none},
		{id(ca.MeshGatewayID, ""), `mesh = "read" service_prefix "" { policy = "write" }`, errkind.Denied},
		{id(ca.ServerID, ""), all, errkind.Denied},
		{ca.ID{Kind: ca.ServiceID, TrustDomain: "other.consul", Datacenter: "dc1", Name: "web"}, all, errkind.Invalid},
		{ca.ID{Kind: ca.ServiceID, TrustDomain: domain, Datacenter: "dc2", Name: "web"}, all, errkind.Invalid},
	} {
		_, err := i.Sign(t.Context(), "n1", Request{Token: c.rules, CSR: request(t, c.id)})
		if c.want == none && err != nil || c.want != none && !errkind.Is(err, c.want) {
			t.Errorf("%s with %s: %v", c.id.URI(), c.rules, err)
		}
	}
}

// Requests that ask for more than an identity, or are no requests.
func TestHostileRequests(t *testing.T) {
	i := founded(t, `{}`).issuer(nil)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	made := func(change func(*x509.CertificateRequest)) string {
		in := &x509.CertificateRequest{URIs: []*url.URL{web().URI()}}
		change(in)
		der, err := x509.CreateCertificateRequest(rand.Reader, in, key)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	}
	for name, csr := range map[string]string{
		"nothing": "", "no PEM": "x", "long": strings.Repeat("x", 1<<20),
		"DNS name":  made(func(r *x509.CertificateRequest) { r.DNSNames = []string{"server.dc1.consul"} }),
		"address":   made(func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{{127, 0, 0, 1}} }),
		"mail":      made(func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@b"} }),
		"no id":     made(func(r *x509.CertificateRequest) { r.URIs = nil }),
		"two ids":   made(func(r *x509.CertificateRequest) { r.URIs = append(r.URIs, r.URIs[0]) }),
		"authority": made(func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: domain}} }),
		"damaged":   strings.Replace(request(t, web()), "MI", "MJ", 1),
	} {
		if _, err := i.Sign(t.Context(), "n1", Request{CSR: csr}); err == nil {
			t.Errorf("%s: signed", name)
		}
	}
}

// An agent's certificate may hold further names, and none of a server.
func TestNamesOfAgents(t *testing.T) {
	i := founded(t, `{}`).issuer(nil)
	agent := ca.ID{Kind: ca.AgentID, TrustDomain: domain, Datacenter: "dc1", Name: "n1"}
	for name, want := range map[string]bool{"localhost": true, "n1.example": true, "server.dc1.consul": false,
		"SERVER.dc1.consul": false, "*.example": false} {
		_, csr, err := ca.NewRequest(agent, []string{name}, []net.IP{{127, 0, 0, 1}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := i.Sign(t.Context(), "n1", Request{CSR: csr}); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// With the operator's rate the servers keep to it, who waits too long is told the contract's words, and nodes take
// turns.
func TestOperatorsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := founded(t, `{"CSRMaxPerSecond":10}`)
		i := s.issuer(nil)
		csr := request(t, web())
		var mu sync.Mutex
		signed := map[string]int{}
		refused := 0
		begin := time.Now()
		ask := func(node string) {
			_, err := i.Sign(t.Context(), node, Request{CSR: csr})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				signed[node]++
			case !errkind.Is(err, errkind.Overloaded) || errkind.Text(err) != "Rate limit reached, try again later":
				t.Errorf("refused with %v", err)
			default:
				refused++
			}
		}
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { ask("storm") })
		}
		synctest.Wait()
		wg.Go(func() { ask("quiet") })
		wg.Wait()
		if took := time.Since(begin); signed["storm"]+signed["quiet"] > 7 || signed["storm"] < 3 || took > time.Second {
			t.Errorf("signed %v in %s at 10 a second, refused %d", signed, took, refused)
		}
		if signed["quiet"] != 1 {
			t.Error("a node that asks once waits behind another's storm")
		}
		// The default of the contract is no limit here, and zero is none.
		for _, config := range []string{`{}`, `{"CSRMaxPerSecond":0}`} {
			s.configure(t, config)
			for range 100 {
				if _, err := i.Sign(t.Context(), "n", Request{CSR: csr}); err != nil {
					t.Fatalf("%s: %v", config, err)
				}
			}
		}
		s.configure(t, `{"CSRMaxPerSecond":0,"CSRMaxConcurrent":1}`)
		a, _, err := i.authority()
		if err != nil || a.limit == nil || a.limit.concurrent != 1 || a.limit.interval != 0 {
			t.Fatalf("limit %+v: %v", a.limit, err)
		}
		release, err := a.limit.acquire(t.Context(), "holder")
		if err != nil {
			t.Fatal(err)
		}
		refused = 0
		ask("n")
		if refused != 1 {
			t.Error("signed beyond CSRMaxConcurrent")
		}
		release()
		ask("n")
		if signed["n"] != 1 {
			t.Error("not signed after a slot was free")
		}
	})
}

// However long one node's queue, another's request is served in its turn: property over random storms.
func TestNoNodeStarves(t *testing.T) {
	s := founded(t, `{}`)
	i := s.issuer(func(c *Config) { c.Workers = 1 })
	csr := request(t, web())
	permit, err := i.cores.Acquire(t.Context(), "holder") // nothing moves until all wait
	if err != nil {
		t.Fatal(err)
	}
	const nodes = 20
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for node := range nodes {
		for range 1 + node*node/4 { // from 1 to 91
			wg.Go(func() {
				if _, err := i.Sign(t.Context(), fmt.Sprint("n", node), Request{CSR: csr}); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, node)
				mu.Unlock()
			})
		}
	}
	total := 0
	for node := range nodes {
		total += 1 + node*node/4
	}
	polltest.Until(t, func() bool { return i.cores.Stats().Waiting == total }, "all to wait")
	permit.Release()
	wg.Wait()
	seen := map[int]int{}
	for at, node := range order {
		seen[node]++
		// The nth of a node comes in the nth round at the latest; goroutines note it a little later than it came.
		if latest := seen[node]*nodes + 3*nodes; at > latest {
			t.Fatalf("request %d of node %d was number %d", seen[node], node, at)
		}
	}
	if len(order) != total {
		t.Errorf("%d of %d", len(order), total)
	}
}

// A full queue refuses at once, politely, and one node cannot fill it.
func TestQueueIsBounded(t *testing.T) {
	s := founded(t, `{}`)
	i := s.issuer(func(c *Config) { c.Workers, c.MaxWaiting = 1, 3 })
	permit, err := i.cores.Acquire(t.Context(), "holder")
	if err != nil {
		t.Fatal(err)
	}
	csr := request(t, web())
	var wg sync.WaitGroup
	for n := range 3 {
		wg.Go(func() {
			if _, err := i.Sign(t.Context(), fmt.Sprint("n", n), Request{CSR: csr}); err != nil {
				t.Error(err)
			}
		})
	}
	polltest.Until(t, func() bool { return i.cores.Stats().Waiting == 3 }, "three to wait")
	if _, err := i.Sign(t.Context(), "late", Request{CSR: csr}); !errkind.Is(err, errkind.Overloaded) {
		t.Errorf("beyond the bound: %v", err)
	}
	permit.Release()
	wg.Wait()
}

func BenchmarkSign(b *testing.B) {
	i := founded(b, `{}`).issuer(nil)
	csr := request(b, web())
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := i.Sign(context.Background(), "n", Request{CSR: csr}); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "signs/s")
}
