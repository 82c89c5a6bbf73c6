package node

import (
	"context"
	"net/netip"
	"strconv"

	"corbel.dev/corbel/api/consulapi"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/dnsapi"
	"corbel.dev/corbel/catalog/coordinates"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/vivaldi"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/forward"
	catalogplane "corbel.dev/corbel/node/planes/catalog"
	meshplane "corbel.dev/corbel/node/planes/mesh"
	"corbel.dev/corbel/node/raftgroup"
)

// methodResolve is the RPC that asks a server what a token allows.
const methodResolve = "acl.resolve"

// Agent is a client agent: what it does not know itself it asks servers.
type Agent struct {
	*localAgent
	tokens *grants.Agent     // nil while ACLs are off
	feeds  *meshplane.Client // by which it follows the mesh
}

func newAgent(p *localAgent) (_ *Agent, err error) {
	a := &Agent{localAgent: p}
	var judge rows.Authorizer = rows.AllowAll{}
	if c := &p.Cfg.ACL; c.Enabled {
		a.tokens = grants.NewAgent(grants.AgentConfig{Fetch: a.resolve, NodeName: p.Cfg.Node.Name,
			AllowByDefault: c.Policy() == "allow", DownPolicy: c.DownPolicy, TTL: min(c.TokenTTL, c.PolicyTTL, c.RoleTTL),
			Recovery: func() string { return p.Tokens.Get(base.TokenRecovery) }, Clock: p.Clock, Logger: p.Log})
		judge = a.tokens
	}
	p.take(a, nil, judge)
	a.feeds, err = meshplane.NewClient(p.Base, p.late())
	return a, err
}

// resolve asks a server about a token.
func (a *Agent) resolve(ctx context.Context, secret string) (grants.Resolution, error) {
	reply, err := a.Others.Ask(ctx, methodResolve, pack.String(nil, secret))
	if err != nil {
		return grants.Resolution{}, err
	}
	return grants.ReadResolution(reply)
}

func (a *Agent) servers() *catalogplane.Servers {
	return &catalogplane.Servers{Client: a.RPC, Own: func() catalogplane.Applier { return nil }, Target: a.AnyServer}
}

func (a *Agent) meshSource() meshplane.Source { return a.feeds }

func (a *Agent) passOn(*forward.Config) {}

func (a *Agent) configureAPI(*consulapi.Config) {}

func (a *Agent) configureDNS(c *dnsapi.Config) { c.Forward = anyDNS{a.Base} }

func (a *Agent) answers(*catalogplane.Servers) {} // an agent is asked by servers alone, and answers for itself

func (a *Agent) runs() {
	if a.Cfg.AutoEncrypt.TLS {
		a.Parts.Add("auto encrypt", enrolled(a.Base).Run)
	}
	if a.tokens != nil {
		a.Parts.Add("acl", a.tokens.Run)
	}
}

// roleOf implements role: an agent, of which servers ask nothing but to look, believes the pool.
func (a *Agent) roleOf(addr netip.Addr, _ wire.Protocol) wire.Role {
	if raftgroup.GossipsAsServer(a.Pool, addr) {
		return wire.Server
	}
	return 0
}

func (a *Agent) place(ctx context.Context, at vivaldi.Coord) error {
	addr, err := a.AnyServer()
	if err != nil {
		return err
	}
	_, err = a.RPC.Call(ctx, addr, coordinates.MethodUpdate, coordinates.Update(a.Tokens.Own(), a.Cfg.Node.Name, at))
	return err
}

func (a *Agent) leader() (string, <-chan struct{}) { return "", nil }

func (a *Agent) missing() []string {
	if len(a.LivingServers()) == 0 {
		return []string{"no server is known"}
	}
	return nil
}

func (a *Agent) announceReady(context.Context) {}

func (a *Agent) handOver(context.Context) {}

func (a *Agent) leaving(context.Context) {}

func (a *Agent) gone(context.Context) {}

func (a *Agent) stop() {}

func (a *Agent) addStats(stats map[string]map[string]string) {
	stats["consul"]["known_servers"] = strconv.Itoa(len(a.OtherServers()))
}
