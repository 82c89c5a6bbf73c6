// Package issue signs leaf certificates on a server: for whoever has the right to
// an identity, with the authority's active root, and without a write to the log.
//
// What always holds:
//   - A certificate is signed for an identity only when the token has the right to it (Rights),
//     in this datacenter and trust domain, and holds no other name. Agents' certificates may hold
//     the DNS names and addresses that the agent wants, but none of a server.
//   - As many requests are worked on at once as there are cores. Those who wait queue per asking
//     node and are served round robin over the nodes, so that none starves; the queue is bounded,
//     and who finds it full is told at once (kind Overloaded).
//   - Where the operator set CSRMaxPerSecond or CSRMaxConcurrent, these hold before that queue, with a
//     wait of half a second at most. Without them there is no such limit: the queue is fair already.
//
// An Issuer is safe for concurrent use and starts nothing. Any server may sign, since the records
// hold the roots' keys.
package issue

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/telemetry"
)

// The bounds of the queue. 16,384 requests are three seconds of work for two cores; one node's
// proxies, some twenty of them, renew at once at worst.
const (
	maxWaiting = 16_384
	maxPerNode = 512
	maxWait    = 10 * time.Second
)

// Config configures an Issuer.
type Config struct {
	// Now returns the store's generation and a State that is not older.
	Now func() (generation uint64, st *statestore.State)
	// Grant resolves a token; nil allows everything.
	Grant      func(ctx context.Context, token string) (*acl.Grant, error)
	Datacenter string
	Workers    int // requests worked on at once [GOMAXPROCS]
	MaxWaiting int // requests that may wait [16,384]
	Clock      clock.Clock
	Metrics    *telemetry.Registry
}

// Request asks for a certificate.
type Request struct {
	Token string
	CSR   string // PEM
	// Judged, when set, is the identity that the caller has judged already: it alone is signed, whatever Token is.
	// It never comes over the wire.
	Judged *ca.ID
}

// Certificate is what was issued.
type Certificate struct {
	ca.Leaf
	Index uint64 // of the State that it was issued from
}

// Issuer signs. Make it with New.
type Issuer struct {
	cfg   Config
	cores *limit.Gate
	now   atomic.Pointer[authority]
	build sync.Mutex // held while an authority is made, so that it is made once

	signed, refused *telemetry.Counter
	took            *telemetry.Timing
}

// New makes an Issuer.
func New(cfg Config) *Issuer {
	if cfg.Workers <= 0 {
		cfg.Workers = runtime.GOMAXPROCS(0)
	}
	if cfg.MaxWaiting <= 0 {
		cfg.MaxWaiting = maxWaiting
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	i := &Issuer{cfg: cfg, cores: limit.NewGate(limit.GateConfig{Name: "certificate signing", Slots: cfg.Workers,
		MaxWaiting: cfg.MaxWaiting, MaxPerKey: min(maxPerNode, cfg.MaxWaiting), MaxWait: maxWait, Clock: cfg.Clock}),
		signed: cfg.Metrics.Counter("mesh.ca.signed"), refused: cfg.Metrics.Counter("mesh.ca.refused"),
		took: cfg.Metrics.Timing("mesh.ca.sign")}
	cfg.Metrics.GaugeFunc("mesh.ca.waiting", func() float64 { return float64(i.cores.Stats().Waiting) })
	return i
}

// authority is what certificates are signed with, made from the records once for each change of theirs.
type authority struct {
	generation, index uint64
	trustDomain       string
	signer            *ca.Signer
	ttl               time.Duration
	limit             *limiter // nil: none
}

// authority returns that of now, and the index of the State that it was looked up in.
func (i *Issuer) authority() (*authority, uint64, error) {
	generation, st := i.cfg.Now()
	fits := func(a *authority) bool {
		return a != nil && a.generation == generation && a.index == st.RecordsIndex(catalog.RecordCA)
	}
	if a := i.now.Load(); fits(a) {
		return a, st.Index(), nil
	}
	i.build.Lock()
	defer i.build.Unlock()
	last := i.now.Load()
	if fits(last) {
		return last, st.Index(), nil
	}
	a := &authority{generation: generation, index: st.RecordsIndex(catalog.RecordCA)}
	c, _, _, err := ca.Configuration(st)
	if err != nil {
		return nil, 0, err
	}
	root, err := ca.Active(st)
	if err != nil {
		return nil, 0, err
	}
	if a.trustDomain, err = ca.TrustDomainOf(st); err != nil {
		return nil, 0, err
	}
	if a.signer, err = ca.NewSigner(root.Root); err != nil {
		return nil, 0, err
	}
	a.ttl = c.LeafTTL
	a.limit = newLimiter(c, i.cfg.Clock)
	if last != nil && last.limit.same(a.limit) {
		a.limit = last.limit // who waits at it goes on
	}
	i.now.Store(a)
	return a, st.Index(), nil
}

// Sign answers a request of who: the node or connection that it came from, which only fairness is about.
// Kinds: Invalid, Denied, Overloaded (try again later), Unavailable (there is no authority yet).
func (i *Issuer) Sign(ctx context.Context, who string, r Request) (Certificate, error) {
	begin := i.cfg.Clock.Now()
	c, err := i.sign(ctx, who, r)
	if err != nil {
		i.refused.Add(1)
		return c, err
	}
	i.signed.Add(1)
	i.took.Observe(i.cfg.Clock.Since(begin))
	return c, nil
}

func (i *Issuer) sign(ctx context.Context, who string, r Request) (Certificate, error) {
	a, _, err := i.authority()
	if err != nil {
		return Certificate{}, err
	}
	if a.limit != nil {
		release, err := a.limit.acquire(ctx, who)
		if err != nil {
			return Certificate{}, err
		}
		defer release()
	}
	permit, err := i.cores.Acquire(ctx, who)
	if err != nil {
		return Certificate{}, err
	}
	defer permit.Release()
	csr, id, err := ca.ParseRequest(r.CSR)
	if err != nil {
		return Certificate{}, err
	}
	a, index, err := i.authority() // the newest: a rotation may have come while this waited
	if err != nil {
		return Certificate{}, err
	}
	if err := i.judge(ctx, r, id, a.trustDomain); err != nil {
		return Certificate{}, err
	}
	grant := ca.Grant{ID: id}
	if id.Kind == ca.AgentID {
		grant.DNSNames, grant.IPs = slices.DeleteFunc(slices.Clone(csr.DNSNames), reserved), csr.IPAddresses
	}
	leaf, err := a.signer.SignParsed(csr, id, grant, a.ttl, i.cfg.Clock.Now())
	if err != nil {
		return Certificate{}, err
	}
	return Certificate{*leaf, index}, nil
}

// reserved tells whether a DNS name may stand in no agent's certificate: servers are known by
// server.<datacenter>.<domain>.
func reserved(name string) bool {
	return strings.Contains(name, "*") || strings.HasPrefix(strings.ToLower(name), "server.")
}

// judge tells whether the token may have the identity, here.
func (i *Issuer) judge(ctx context.Context, r Request, id ca.ID, trustDomain string) error {
	switch {
	case !strings.EqualFold(id.TrustDomain, trustDomain):
		return errkind.Errorf(errkind.Invalid, "CSR: is for the trust domain %s, this one is %s", id.TrustDomain, trustDomain)
	case id.Datacenter != i.cfg.Datacenter:
		return errkind.Errorf(errkind.Invalid, "CSR: is for the datacenter %s, this one is %s", id.Datacenter,
			i.cfg.Datacenter)
	}
	if r.Judged != nil {
		if id != *r.Judged {
			return errkind.New(errkind.Denied, "Permission denied: the request is for "+id.URI().String()+", not "+
				r.Judged.URI().String())
		}
		return nil
	}
	g := acl.Unlimited
	if i.cfg.Grant != nil {
		var err error
		if g, err = i.cfg.Grant(ctx, r.Token); err != nil {
			return err
		}
	}
	return Rights(g, id)
}

// Rights is nil when g may be certified as id: write on the service, on the node, or on the mesh for its gateways.
// Nobody may be certified as a server over the network.
func Rights(g *acl.Grant, id ca.ID) error {
	switch id.Kind {
	case ca.ServiceID:
		if id.Name == "" || id.Name == "*" {
			return errkind.Errorf(errkind.Invalid, "%q is no service that a certificate may name", id.Name)
		}
		return g.Check(acl.Service, id.Name, acl.Write)
	case ca.AgentID:
		return g.Check(acl.Node, id.Name, acl.Write)
	case ca.MeshGatewayID:
		return g.Check(acl.Mesh, "", acl.Write)
	}
	return errkind.New(errkind.Denied, "Permission denied: certificates with the identity "+id.URI().String()+
		" are not issued on request")
}
