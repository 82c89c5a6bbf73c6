package node

import (
	"corbel.dev/corbel/api/consulapi"
	"corbel.dev/corbel/api/consulapi/agentrows"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/promapi"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/forward"
	meshplane "corbel.dev/corbel/node/planes/mesh"
)

func (p *localAgent) buildAPI() (err error) {
	cfg, build := p.Cfg, version.Of()
	passOn := forward.Config{Client: p.RPC, Leader: func() string { return "" }, Others: p.Others,
		Ending: p.doors.Ending.Load, Changes: p.Pool.Changes, Hold: cfg.Raft.RPCHold, Limits: forwardLimits(cfg)}
	p.role.passOn(&passOn)
	grpc, secure := p.mesh.Ports()
	c := consulapi.Config{
		Config: rows.Config{
			Identity: rows.Identity{Datacenter: cfg.Node.Datacenter, PrimaryDatacenter: cfg.Node.PrimaryDatacenter,
				NodeName: cfg.Node.Name, NodeID: p.ID, NodeMeta: p.nodeMeta(), Version: version.Contract, Server: cfg.Server,
				Revision: build.Revision, BuildDate: build.Date, GRPCPort: grpc, GRPCTLSPort: secure},
			Forward: forward.New(passOn), Authorizer: p.access.tokens, DefaultACLPolicy: cfg.ACL.Policy(),
			DefaultToken: func() string { return p.Tokens.Get(base.TokenDefault) }, RequestLimits: requestLimitsOf(cfg),
			Limits: rows.Limits{KVValueBytes: int64(cfg.Limits.KVMaxValueBytes), TxnBytes: int64(cfg.Limits.TxnMaxBytes)},
			Wait:   httpx.WaitLimits{Default: cfg.Queries.DefaultTime, Max: cfg.Queries.MaxTime}, Clock: p.Clock,
			DiscoveryMaxStale: cfg.Queries.DiscoveryMaxStale, NoCache: !cfg.HTTP.UseCache, Pretty: cfg.Dev,
			TranslateWAN: cfg.Addresses.TranslateWAN, Logger: p.Log, Metrics: p.Metrics},
		Agent: agentrows.Config{Local: p.local, Members: apiMembers{p.Pool}, Events: poolEvents{p.Pool}, Info: info{p},
			Place: p.Pool.Coordinate, MetricsHandler: promapi.New(p.Metrics), Connections: connections,
			Lacks: func() []string { return p.Health().Lacks }, Logs: p.Logs},
		AllowUnprintable: cfg.Limits.AllowUnprintable, BlockEndpoints: cfg.HTTP.BlockEndpoints,
		AllowWriteFrom: cfg.HTTP.AllowWriteFrom, ResponseHeaders: cfg.HTTP.ResponseHeaders,
	}
	c.KV.SessionTTLMin, c.KV.KeyListPolicy = cfg.Queries.SessionTTLMin, cfg.ACL.KeyListPolicy
	c.ACL.DownACLPolicy = cfg.ACL.DownPolicy
	c.Entries.DefaultIntentionPolicy, c.Entries.ConnectOff = cfg.Connect.DefaultIntentionPolicy, !cfg.Connect.Enabled
	c.Entries.TrustDomain, c.Mesh.Leaves = p.mesh.TrustDomain, meshplane.APILeaves{Leaves: p.mesh.Leaves}
	if cfg.ACL.Enabled {
		c.Agent.SetToken = p.setToken
	}
	if cfg.Connect.Enabled {
		c.Mesh.Proxies = meshplane.View{Host: p.mesh, Ask: p.askMember}
	}
	p.role.configureAPI(&c)
	p.Pool.KeepEvents(p.concerns)
	if p.api, err = consulapi.New(c); err != nil {
		return err
	}
	p.api.SetForwardRate(cfg.Limits.RPCRate, cfg.Limits.RPCMaxBurst)
	return nil
}

// setToken sets one of the agent's own tokens; what it lacked a right for so far is tried again.
func (p *localAgent) setToken(kind, token string) error {
	err := p.Tokens.Change(kind, token)
	if err == nil {
		p.local.SyncNow()
	}
	return err
}

func forwardLimits(cfg *config.Config) forward.Limits {
	return forward.Limits{Call: cfg.Limits.RPCClient, Block: cfg.Queries.MaxTime * 9 / 8}
}
