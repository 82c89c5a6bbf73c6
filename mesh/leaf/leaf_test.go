package leaf

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/mesh/issue"
)

// cluster is an authority in memory, with an issuer, as servers have it.
type cluster struct {
	t         *testing.T
	authority *ca.Authority
	issuer    *issue.Issuer

	mu      sync.Mutex
	st      *statestore.State
	changed chan struct{}
	down    error                 // what Sign answers, if not nil
	grants  map[string]*acl.Grant // nil: ACLs are off
	signed  int
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, st: statestore.Empty(), changed: make(chan struct{})}
	c.authority = ca.New(c, time.Now, nil)
	op := catalog.RecordOp{Verb: catalog.RecordSet, Record: catalog.Record{Kind: catalog.RecordSystem,
		Key: catalog.ClusterIDKey, Value: []byte("11111111-2222-3333-4444-555555555555")}}
	if _, ok, err := c.SetRecords(t.Context(), op); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := c.authority.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.issuer = issue.New(issue.Config{Now: func() (uint64, *statestore.State) { return 0, c.State() }, Grant: c.grant,
		Datacenter: "dc1"})
	return c
}

func (c *cluster) State() *statestore.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.st
}

func (c *cluster) SetRecords(_ context.Context, ops ...catalog.RecordOp) (catalog.Result, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, results, _ := c.st.Apply([]catalog.Command{&catalog.Records{Ops: ops}})
	c.st = next
	close(c.changed)
	c.changed = make(chan struct{})
	return results[0], results[0].OK, results[0].Err
}

func (c *cluster) grant(_ context.Context, token string) (*acl.Grant, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.grants == nil:
		return acl.Unlimited, nil
	case c.grants[token] == nil:
		return nil, errkind.New(errkind.Denied, "ACL not found")
	}
	return c.grants[token], nil
}

// allow gives a token write on services; none takes the token away.
func (c *cluster) allow(token string, services ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.grants == nil {
		c.grants = map[string]*acl.Grant{}
	}
	delete(c.grants, token)
	var rules []acl.Rule
	for _, s := range services {
		rules = append(rules, acl.Rule{Resource: acl.Service, Name: s, Level: acl.Write})
	}
	if rules != nil {
		c.grants[token] = &acl.Grant{Accessor: token, Authorizer: acl.Compile(acl.Deny, rules)}
	}
}

func (c *cluster) sign(ctx context.Context, r issue.Request) (issue.Certificate, error) {
	c.mu.Lock()
	err := c.down
	c.signed++
	c.mu.Unlock()
	if err != nil {
		return issue.Certificate{}, err
	}
	return c.issuer.Sign(ctx, "here", r)
}

func (c *cluster) setDown(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = err
}

func (c *cluster) tries() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.signed
}

func (c *cluster) roots(ctx context.Context, index uint64) (Roots, error) {
	for {
		c.mu.Lock()
		st, changed := c.st, c.changed
		c.mu.Unlock()
		if at := st.RecordsIndex(catalog.RecordCA); at > index {
			root, err := ca.Active(st)
			domain, err2 := ca.TrustDomainOf(st)
			if err != nil || err2 != nil {
				return Roots{}, fmt.Errorf("%v %v", err, err2)
			}
			return Roots{domain, root.ID, at}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Roots{}, ctx.Err()
		}
	}
}

func (c *cluster) rotate() {
	c.t.Helper()
	bits := 384
	if r, err := ca.Active(c.State()); err == nil && r.PrivateKeyBits == 384 {
		bits = 256
	}
	if err := c.authority.SetConfiguration(c.t.Context(),
		fmt.Appendf(nil, `{"Provider":"consul","Config":{"PrivateKeyBits":%d}}`, bits)); err != nil {
		c.t.Fatal(err)
	}
}

// leaves runs Leaves on the cluster until the test's function ends.
func (c *cluster) leaves(change func(*Config)) *Leaves {
	cfg := Config{Sign: c.sign, Roots: c.roots, Grant: c.grant, Datacenter: "dc1"}
	if change != nil {
		change(&cfg)
	}
	l, err := New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = l.Run(ctx) }()
	c.t.Cleanup(func() { cancel(); <-done })
	return l
}

func (c *cluster) get(l *Leaves, name, token string) Leaf {
	c.t.Helper()
	leaf, _, err := l.Get(c.t.Context(), Query{Subject: Service(name), Token: token})
	if err != nil {
		c.t.Fatal(err)
	}
	return leaf
}

// verify checks a leaf as a proxy does that trusts all roots of now.
func (c *cluster) verify(leaf Leaf) {
	c.t.Helper()
	pair, err := tls.X509KeyPair([]byte(leaf.CertPEM), []byte(leaf.PrivateKeyPEM))
	if err != nil {
		c.t.Fatal(err)
	}
	roots, err := ca.Roots(c.State())
	if err != nil {
		c.t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	for _, r := range roots {
		trusted.AppendCertsFromPEM([]byte(r.RootCert))
	}
	between := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		more, err := x509.ParseCertificate(der)
		if err != nil {
			c.t.Fatal(err)
		}
		between.AddCert(more)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: trusted, Intermediates: between, CurrentTime: time.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		c.t.Error(err)
	}
	if len(pair.Leaf.URIs) != 1 || pair.Leaf.URIs[0].String() != leaf.ID.URI().String() {
		c.t.Errorf("names %v, want %s", pair.Leaf.URIs, leaf.ID.URI())
	}
}

// given collects what a follower is given.
type given struct {
	mu     sync.Mutex
	leaves []Leaf
	errs   []error
}

func (g *given) set(l Leaf) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leaves = append(g.leaves, l)
}

func (g *given) failed(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.errs = append(g.errs, err)
}

func (g *given) read() ([]Leaf, []error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.leaves), slices.Clone(g.errs)
}

func TestOneCertificateForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		l := c.leaves(nil)
		var a, b given
		defer l.Follow("web", "", a.set)()
		defer l.Follow("web", "", b.set)()
		first := c.get(l, "web", "")
		c.verify(first)
		again, hit, err := l.Get(t.Context(), Query{Subject: Service("web")})
		if err != nil || !hit || again != first {
			t.Errorf("asked again: %+v, %v, %v", again, hit, err)
		}
		if other := c.get(l, "api", ""); other.ModifyIndex <= first.ModifyIndex {
			t.Errorf("index %d after %d", other.ModifyIndex, first.ModifyIndex)
		}
		synctest.Wait()
		for _, g := range []*given{&a, &b} {
			if got, _ := g.read(); len(got) != 1 || got[0] != first {
				t.Errorf("followers were given %d", len(got))
			}
		}
		if n := c.tries(); n != 2 {
			t.Errorf("%d certificates for two services", n)
		}
		c.setDown(errkind.New(errkind.Unavailable, "no server"))
		defer l.Follow("later", "", a.set)()
		synctest.Wait()
		held := l.Held()
		if len(held) != 3 || held[1].Subject.Name != "later" || held[1].Failed != "no server" || held[1].SerialNumber != "" ||
			held[2].SerialNumber != first.SerialNumber || held[2].RootID != first.RootID || held[2].Failed != "" {
			t.Errorf("held: %+v", held)
		}
	})
}

// The next certificate is there before the one before it ends, at a time that differs from host to host.
func TestRenewalLeavesNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var at []time.Duration
		for range 5 {
			l := c.leaves(nil)
			var g given
			stop := l.Follow("web", "", g.set)
			synctest.Wait()
			begin := time.Now()
			for range 3 {
				time.Sleep(72 * time.Hour)
				synctest.Wait()
			}
			stop()
			got, _ := g.read()
			for i := range got[1:] {
				was, came := got[i], got[i+1].ValidAfter.Add(time.Minute)
				part := came.Sub(was.ValidAfter.Add(time.Minute)).Seconds() / (72 * time.Hour).Seconds()
				if part < 0.59 || part > 0.91 || !came.Before(was.ValidBefore) || got[i+1].ModifyIndex <= was.ModifyIndex {
					t.Errorf("renewed after %.2f of its life, index %d after %d", part, got[i+1].ModifyIndex, was.ModifyIndex)
				}
			}
			if len(got) < 4 {
				t.Fatalf("%d certificates in nine days", len(got))
			}
			at = append(at, got[1].ValidAfter.Sub(begin))
		}
		slices.Sort(at)
		if len(slices.Compact(at)) == 1 {
			t.Error("all hosts renew at the same time")
		}
	})
}

func TestRotationRenewsWithinTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		l := c.leaves(nil)
		all := make([]given, 40)
		for i := range all {
			defer l.Follow(fmt.Sprint("s", i), "", all[i].set)()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		c.rotate()
		root, err := ca.Active(c.State())
		if err != nil {
			t.Fatal(err)
		}
		done := func() (n int) {
			for i := range all {
				if got, _ := all[i].read(); len(got) == 2 && got[1].RootID == root.ID {
					c.verify(got[0])
					c.verify(got[1])
					n++
				}
			}
			return n
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if n := done(); n == 0 || n == len(all) {
			t.Errorf("%d of %d renewed after half of the window", n, len(all))
		}
		time.Sleep(16 * time.Second)
		synctest.Wait()
		if n := done(); n != len(all) {
			t.Errorf("%d of %d renewed after the window", n, len(all))
		}
	})
}

func TestRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.allow("good", "web")
		c.allow("other", "api")
		l := c.leaves(nil)
		var good, bad given
		defer l.FollowSubject(Service("web"), "other", bad.set, bad.failed)()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, errs := bad.read(); len(got) != 0 || len(errs) != 1 || !errkind.Is(errs[0], errkind.Denied) {
			t.Errorf("without the right: %d certificates, errors %v", len(got), errs)
		}
		defer l.FollowSubject(Service("web"), "good", good.set, good.failed)()
		for _, q := range []Query{{Subject: Service("web"), Token: "other"}, {Subject: Service("web"), Token: "unknown"},
			{Subject: Service("web")},
			{Subject: MeshGateway, Token: "good"}, {Subject: Subject{ca.AgentID, "n1"}, Token: "good"},
			{Subject: Subject{Kind: ca.ServerID}, Token: "good"}} {
			if _, _, err := l.Get(t.Context(), q); !errkind.Is(err, errkind.Denied) {
				t.Errorf("%+v: %v", q, err)
			}
		}
		for _, name := range []string{"", "*"} {
			c.allow("any", name)
			if _, _, err := l.Get(t.Context(), Query{Subject: Service(name), Token: "any"}); !errkind.Is(err, errkind.Invalid) {
				t.Errorf("service %q: %v", name, err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, errs := good.read(); len(got) != 1 || len(errs) != 0 {
			t.Errorf("with the right: %d, %v", len(got), errs)
		}
		if got, errs := bad.read(); len(got) != 0 || len(errs) != 1 {
			t.Errorf("without the right, while another has it: %d, %v", len(got), errs)
		}
		// Rights come, and go: the certificate of after is given to who has the right then.
		c.allow("other", "web")
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, _ := bad.read(); len(got) != 1 {
			t.Errorf("after the right came: %d", len(got))
		}
		c.allow("good")
		time.Sleep(72 * time.Hour)
		synctest.Wait()
		if got, _ := bad.read(); len(got) != 2 {
			t.Errorf("renewed by the one token that is left: %d", len(got))
		}
		if got, errs := good.read(); len(got) != 1 || len(errs) != 1 {
			t.Errorf("after the right went: %d, %v", len(got), errs)
		}
	})
}
