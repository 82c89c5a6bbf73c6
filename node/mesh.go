package node

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/meshrows"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/mesh/issue"
	"corbel.dev/corbel/mesh/leaf"
)

// rootsWait is how long one question for newer roots waits.
const rootsWait = 5 * time.Minute

// buildLeaves makes what keeps this host's leaf certificates, and on servers what signs them. servers is how
// a client agent reaches one.
func (p *Process) buildLeaves(servers *catalogServers) (err error) {
	var grant func(context.Context, string) (*acl.Grant, error)
	if p.Cfg.ACL.Enabled {
		grant = p.access.tokens.Grant
	}
	sign := func(ctx context.Context, r issue.Request) (issue.Certificate, error) {
		reply, err := servers.ask(ctx, issue.Method, r.AppendPack(nil))
		if err != nil {
			return issue.Certificate{}, err
		}
		return issue.ReadCertificate(reply)
	}
	if p.registry != nil {
		issuer := issue.New(issue.Config{Grant: grant, Datacenter: p.Cfg.Node.Datacenter, Clock: p.Clock, Metrics: p.Metrics,
			Now: func() (uint64, *catalog.State) {
				generation := p.registry.Generation()
				return generation, p.registry.State()
			}})
		sign = func(ctx context.Context, r issue.Request) (issue.Certificate, error) { return issuer.Sign(ctx, "", r) }
		// the root signs by itself
		for _, name := range []string{"mesh.active-root-ca.expiry", "mesh.active-signing-ca.expiry"} {
			p.Metrics.GaugeFunc(name, p.rootLeft)
		}
		p.issuer = issuer
		// One connection is one node: its address cannot be made up, as a name in the request could.
		p.RPCSrv.Handle(wire.Members, issue.Method, func(ctx context.Context, req []byte) ([]byte, error) {
			return issuer.Serve(ctx, rpc.Peer(ctx), req)
		})
	}
	p.sign = sign
	p.leaves, err = leaf.New(leaf.Config{Sign: sign, Roots: p.rootsOfNow, Grant: grant, Datacenter: p.Cfg.Node.Datacenter,
		RotationWindow: p.Cfg.Connect.RotationWindow, Clock: p.Clock, Logger: p.Log, Metrics: p.Metrics})
	return err
}

// rootLeft is how many seconds the active root is still valid; 0 without one.
func (p *Process) rootLeft() float64 {
	root, err := ca.Active(p.registry.State())
	if err != nil {
		return 0
	}
	return math.Round(root.NotAfter.Sub(p.Clock.Now()).Seconds())
}

// rootsOfNow waits for roots newer than index: in the State on a server, with or without a leader, and on a client
// agent by a question to any server.
func (p *Process) rootsOfNow(ctx context.Context, index uint64) (leaf.Roots, error) {
	if p.registry == nil {
		return p.rootsOfServers(ctx, index)
	}
	indexOf := func(st *catalog.State) uint64 { return st.RecordsIndex(catalog.RecordCA) }
	st := p.registry.Await(ctx, registry.RecordsSubject(catalog.RecordCA), index, rootsWait, indexOf)
	if err := ctx.Err(); err != nil {
		return leaf.Roots{}, err
	}
	out := leaf.Roots{Index: indexOf(st)}
	if root, err := ca.Active(st); err == nil { // an error: there is none yet
		out.Active = root.ID
		out.TrustDomain, err = ca.TrustDomainOf(st)
		return out, err
	}
	return out, nil
}

func (p *Process) rootsOfServers(ctx context.Context, index uint64) (leaf.Roots, error) {
	path := "/v1/connect/ca/roots?stale"
	if index > 0 {
		path += "&wait=" + rootsWait.String() + "&index=" + strconv.FormatUint(index, 10)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return leaf.Roots{}, err
	}
	r.RequestURI, r.RemoteAddr = path, "127.0.0.1:0"
	answer, err := httpx.Answer(p.api, r)
	if err != nil {
		return leaf.Roots{}, err
	}
	if answer.Status != http.StatusOK {
		return leaf.Roots{}, fmt.Errorf("%d %s", answer.Status, strings.TrimSpace(string(answer.Body)))
	}
	var out struct{ ActiveRootID, TrustDomain string }
	if err := json.Unmarshal(answer.Body, &out); err != nil {
		return leaf.Roots{}, err
	}
	at, err := strconv.ParseUint(answer.Head.Get("X-Consul-Index"), 10, 64)
	return leaf.Roots{TrustDomain: out.TrustDomain, Active: out.ActiveRootID, Index: at}, err
}

// apiLeaves are the leaf certificates as the API sees them.
type apiLeaves struct{ *leaf.Leaves }

// Leaf implements meshrows.Leaves.
func (l apiLeaves) Leaf(ctx context.Context, service, token string, index uint64, wait time.Duration) (meshrows.CALeaf,
	bool, error) {
	c, hit, err := l.Get(ctx, leaf.Query{Subject: leaf.Service(service), Token: token, Index: index, Wait: wait})
	if err != nil {
		return meshrows.CALeaf{}, false, err
	}
	return meshrows.CALeaf{SerialNumber: c.SerialNumber, CertPEM: c.CertPEM, PrivateKeyPEM: c.PrivateKeyPEM,
		Service:    service,
		ServiceURI: c.ID.URI().String(), ValidAfter: c.ValidAfter, ValidBefore: c.ValidBefore,
		CreateIndex: c.CreateIndex, ModifyIndex: c.ModifyIndex, Received: c.Received}, hit, nil
}
