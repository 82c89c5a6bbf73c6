package node

import (
	"context"
	"path/filepath"

	"corbel.dev/corbel/api/dnsapi"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wan"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/forward"
)

// newWAN makes this server's part in the pool of all datacenters; nil means that it takes none.
func newWAN(b *base.Base) (*wan.WAN, error) {
	cfg, g := b.Cfg, &b.Cfg.Gossip
	if cfg.Listen.GossipWAN == "" {
		return nil, nil
	}
	profile := member.WAN
	if cfg.Dev {
		profile = member.Local
	}
	snapshot := base.InDir(cfg.DataDir, "gossip", "members-wan")
	if snapshot != "" {
		if err := b.FS.MkdirAll(filepath.Dir(snapshot), 0o700); err != nil {
			return nil, err
		}
	}
	return wan.New(wan.Config{
		Node: cfg.Node.Name, Datacenter: cfg.Node.Datacenter, LAN: b.Pool, Near: b.RPC, Announce: b.AddTag, Wire: b.Wire,
		ServerName: func(dc string) string { return base.ServerName(dc, cfg.DNS.Domain) }, Timeout: cfg.Limits.RPCClient,
		Optional: cfg.Origin("ports.serf_wan") == "default" && len(g.RetryJoinWAN)+len(g.StartJoinWAN) == 0,
		Log:      b.Log, Metrics: b.Metrics,
		Gossip: member.Config{Bind: cfg.Listen.GossipWAN, Advertise: cfg.Advertise.AddrWAN, Tags: b.Tags(),
			Encrypt: g.Encrypt, KeyringFile: base.InDir(cfg.DataDir, "gossip", "keyring-wan"),
			PlainIncoming: !g.VerifyIncoming, PlainOutgoing: !g.VerifyOutgoing,
			SnapshotFile: snapshot, RejoinAfterLeave: cfg.Leave.RejoinAfterLeave, Profile: profile,
			ReconnectTimeout: g.ReconnectTimeout, Faults: b.Faults.Net(), FS: b.FS, Clock: b.Clock,
			Log: b.Log.With("pool", "wan"), Metrics: b.Metrics},
	})
}

// addWAN adds the parts of the pool between datacenters.
func addWAN(b *base.Base, w *wan.WAN) {
	b.Parts.Add("wan gossip", w.Run)
	b.Parts.Add("wan join", func(ctx context.Context) error {
		g := &b.Cfg.Gossip
		return base.JoinPool(ctx, w.Pool, base.JoinPlan{Start: g.StartJoinWAN, Retry: g.RetryJoinWAN,
			Interval: g.RetryIntervalWAN, Most: g.RetryMaxWAN, Suffix: "_wan"})
	})
	b.Parts.Add("wan paths", w.Watch)
	b.Parts.Add("wan neighbours", w.Gather)
}

// dnsRemote is the other datacenters as DNS sees them.
type dnsRemote struct{ *wan.WAN }

// ForwardDNSTo implements dnsapi.Remote.
func (r dnsRemote) ForwardDNSTo(ctx context.Context, dc string, a dnsapi.Asked) ([]byte, error) {
	return r.Ask(ctx, dc, methodDNS, encodeAsked(a), true, false)
}

// remote is the other datacenters as the API sees them.
type remote struct {
	forward.Datacenters
	wan *wan.WAN
}

// Known implements rows.Datacenters.
func (r remote) Known() []string { return r.wan.Known() }
