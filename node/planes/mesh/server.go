// Package meshplane wires the mesh: what a server does for it (Server), how a client agent follows servers (Client),
// and what each process does for the proxies of its host (Host), by way of either.
package meshplane

import (
	"cmp"
	"context"
	"math"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/mesh/issue"
	"corbel.dev/corbel/mesh/leaf"
	"corbel.dev/corbel/mesh/snapcache"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/raftgroup"
)

// rootsWait is how long one question for newer roots waits.
const rootsWait = 5 * time.Minute

// serverRecheck is how often a server looks at the tokens of its own proxies: it asks nobody for that.
const serverRecheck = 2 * time.Second

// Access turns tokens into rights. It may be ready later than New.
type Access interface {
	Grant(ctx context.Context, token string) (*acl.Grant, error)
	// GrantWithin is Grant with what is known since age at most.
	GrantWithin(ctx context.Context, token string, age time.Duration) (*acl.Grant, error)
}

// grantOf is how tokens are judged; nil while ACLs are off.
func grantOf(b *base.Base, a Access) func(context.Context, string) (*acl.Grant, error) {
	if !b.Cfg.ACL.Enabled {
		return nil
	}
	return a.Grant
}

// Server is what a server does for the mesh: it signs certificates, and tells agents how the mesh is.
type Server struct {
	b         *base.Base
	raft      *raftgroup.Group // the catalog's
	CA        *ca.Authority
	Issuer    *issue.Issuer
	Snapshots *snapcache.Cache
	Feed      *feed.Server // nil without connect
}

// NewServer makes it before the catalog's log is opened, so that the cache hears of all that is applied.
func NewServer(raft *raftgroup.Group, a Access) (*Server, error) {
	b, reg := raft.Base, raft.Registry
	first, _, err := FirstAuthority(&b.Cfg.Connect)
	if err != nil {
		return nil, err
	}
	s := &Server{b: b, raft: raft, CA: ca.New(reg, b.Clock.Now, first)}
	s.Snapshots, err = snapcache.New(snapcache.Config{Catalog: reg, Access: a, Datacenter: b.Cfg.Node.Datacenter,
		Imported:     imported,
		ServerName:   base.ServerName(b.Cfg.Node.Datacenter, b.Cfg.DNS.Domain),
		DefaultAllow: cmp.Or(b.Cfg.Connect.DefaultIntentionPolicy, b.Cfg.ACL.Policy()) == "allow",
		Clock:        b.Clock, Logger: b.Log, Metrics: b.Metrics})
	if err != nil {
		return nil, err
	}
	if b.Cfg.Connect.Enabled {
		if s.Feed, err = feed.NewServer(feed.ServerConfig{Source: s.Snapshots, Lag: raft.Lag, Clock: b.Clock, Log: b.Log,
			Metrics: b.Metrics}); err != nil {
			return nil, err
		}
	}
	s.Issuer = issue.New(issue.Config{Grant: grantOf(b, a), Datacenter: b.Cfg.Node.Datacenter, Clock: b.Clock,
		Metrics: b.Metrics, Now: func() (uint64, *statestore.State) {
			generation := reg.Generation()
			return generation, reg.State()
		}})
	// the root signs by itself
	for _, name := range []string{"mesh.active-root-ca.expiry", "mesh.active-signing-ca.expiry"} {
		b.Metrics.GaugeFunc(name, s.RootLeft)
	}
	// One connection is one node: its address cannot be made up, as a name in the request could.
	b.RPCSrv.Handle(wire.Members, issue.Method, func(ctx context.Context, req []byte) ([]byte, error) {
		return s.Issuer.Serve(ctx, rpc.Peer(ctx), req)
	})
	return s, nil
}

// RootLeft is how many seconds the active root is still valid; 0 without one.
func (s *Server) RootLeft() float64 {
	root, err := ca.Active(s.raft.Registry.State())
	if err != nil {
		return 0
	}
	return math.Round(root.NotAfter.Sub(s.b.Clock.Now()).Seconds())
}

// Drain sends agents elsewhere.
func (s *Server) Drain(ctx context.Context) {
	if s.Feed == nil {
		return
	}
	if left := s.Feed.Drain(ctx); left > 0 {
		s.b.Log.Warn("agents are still connected", "agents", left)
	}
}

// Sign implements Source.
func (s *Server) Sign(ctx context.Context, r issue.Request) (issue.Certificate, error) {
	return s.Issuer.Sign(ctx, "", r)
}

// roots implements Source: they are in the State, with or without a leader.
func (s *Server) roots(ctx context.Context, index uint64) (leaf.Roots, error) {
	indexOf := func(st *statestore.State) uint64 { return st.RecordsIndex(catalog.RecordCA) }
	st := s.raft.Registry.Await(ctx, registry.RecordsSubject(catalog.RecordCA), index, rootsWait, indexOf)
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

func (s *Server) follower() feed.Follower {
	return feed.Local{Source: s.Snapshots, Node: s.b.Cfg.Node.Name, Clock: s.b.Clock}
}

func (s *Server) registered(d *directory) {
	d.state = s.raft.Registry.State
	s.raft.Registry.OnApply(d.applied)
}

func (s *Server) recheck() time.Duration { return serverRecheck }

func (s *Server) newest() uint64 {
	_, newest := s.Snapshots.Newest()
	return newest
}

func (s *Server) lacks() []string { return nil }

func (s *Server) part() life.Part {
	return life.Part{Name: "mesh feed", Run: func(ctx context.Context) error {
		return s.Feed.Run(ctx, s.b.Wire.Listen(wire.ProtoFeed, 0, wire.Members))
	}}
}
