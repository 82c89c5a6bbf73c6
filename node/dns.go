package node

import (
	"context"
	"net/netip"

	"corbel.dev/corbel/api/dnsapi"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/raftgroup"
)

// methodDNS is the RPC that carries one DNS question.
const methodDNS = "dns"

func (p *localAgent) buildDNS() (err error) {
	cfg := dnsapi.Config{
		Addresses: p.Cfg.Listen.DNS, Datacenter: p.Cfg.Node.Datacenter, NodeName: p.Cfg.Node.Name,
		Settings: dnsSettings(p.Cfg),
		Bytes:    p.Ports.Bytes, Conns: p.Ports.DNS,
		Metrics: p.Metrics, Logger: p.Log, Token: p.dnsToken, Access: p.dnsAccess(),
	}
	p.role.configureDNS(&cfg)
	if p.dns, err = dnsapi.New(cfg); err != nil {
		return err
	}
	if len(p.Cfg.Listen.DNS) == 0 {
		return nil
	}
	return p.dns.Bind()
}

// dnsSource is the registry as DNS sees it.
type dnsSource struct{ *raftgroup.Group }

// State implements dnsapi.Source.
func (s dnsSource) State() *statestore.State { return s.Registry.State() }

// anyDNS asks any server, from a client agent.
type anyDNS struct{ *base.Base }

// ForwardDNS implements dnsapi.Forwarder.
func (f anyDNS) ForwardDNS(ctx context.Context, a dnsapi.Asked) ([]byte, error) {
	return f.Others.Ask(ctx, methodDNS, encodeAsked(a))
}

// leaderDNS asks the leader, from a server.
type leaderDNS struct{ *Server }

// ForwardDNS implements dnsapi.Forwarder.
func (f leaderDNS) ForwardDNS(ctx context.Context, a dnsapi.Asked) ([]byte, error) {
	return f.callLeader(ctx, methodDNS, encodeAsked(a))
}

func encodeAsked(a dnsapi.Asked) []byte {
	b := pack.Bytes(pack.Bool(nil, a.TCP), a.Query)
	b = pack.Bool(pack.String(pack.String(b, a.Token), a.Domain), a.Crossed)
	return pack.Bytes(pack.String(b, a.Agent), a.Source.AsSlice())
}

// serveDNS answers forwarded questions.
func serveDNS(s *dnsapi.Server) rpc.Handler {
	return func(ctx context.Context, req []byte) ([]byte, error) {
		rd := pack.Read(req)
		a := dnsapi.Asked{TCP: rd.Bool(), Query: rd.Bytes(), Token: rd.String(), Domain: rd.String(), Crossed: rd.Bool(),
			Agent: rd.String()}
		a.Source, _ = netip.AddrFromSlice(rd.Bytes())
		if rd.Err() != nil {
			return nil, errkind.E(errkind.Invalid, "read a DNS question", rd.Err())
		}
		return s.Resolve(ctx, a), nil
	}
}
