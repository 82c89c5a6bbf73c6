package consulapi

import (
	"corbel.dev/corbel/api/consulapi/aclrows"
	"corbel.dev/corbel/api/consulapi/agentcache"
	"corbel.dev/corbel/api/consulapi/agentrows"
	"corbel.dev/corbel/api/consulapi/catalogrows"
	"corbel.dev/corbel/api/consulapi/configrows"
	"corbel.dev/corbel/api/consulapi/kvrows"
	"corbel.dev/corbel/api/consulapi/meshrows"
	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/api/consulapi/peerrows"
	"corbel.dev/corbel/api/consulapi/queryrows"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/consulapi/short"
	"corbel.dev/corbel/api/consulapi/watches"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/telemetry"
)

// API answers the contract's requests. Make it with New.
type API struct {
	*rows.Core
	// Agent knows what this host registered, and drains it. Queries runs prepared queries.
	Agent   *agentrows.Rows
	Queries *queryrows.Rows

	gate        httpx.Gate
	unprintable bool
	table       *rows.Table
	answers     *agentcache.Cache
	tenants     *telemetry.Tenants
	traces      *telemetry.Traces
	watches     *watches.Hub
}

// New checks the configuration and builds the tables; it starts nothing.
func New(cfg Config) (*API, error) {
	c, err := rows.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	gate, err := httpx.NewGate(cfg.BlockEndpoints, cfg.AllowWriteFrom, cfg.ResponseHeaders)
	if err != nil {
		return nil, err
	}
	operator, entries := operatorrows.New(cfg.Operator), configrows.New(c, cfg.Entries)
	a := &API{Core: c, gate: gate, unprintable: cfg.AllowUnprintable, answers: agentcache.New(c),
		Agent:   agentrows.New(c, cfg.Agent, operator, cfg.Mesh.Proxies != nil),
		Queries: queryrows.New(c), watches: watches.New(c), tenants: c.Metrics.Tenants("catalog"),
		traces: c.Metrics.Traces()}
	c.Self = a.answerSelf
	a.table = rows.NewTable(c.Metrics, a.Agent.Routes(), catalogrows.New(cfg.Catalog).Routes(),
		kvrows.New(cfg.KV).Routes(), operator.Routes(), entries.Routes(), a.Queries.Routes(),
		aclrows.New(cfg.ACL).Routes(), meshrows.New(cfg.Mesh, entries).Routes(), a.watches.Routes(),
		peerrows.New(cfg.Peering).Routes())
	a.watches.Table = a.table
	return a, nil
}

// Cache returns the agent's cache, nil on a server, whose State needs none.
func (a *API) Cache() *agentcache.Cache {
	if a.Registry != nil {
		return nil
	}
	return a.answers
}

// Hot returns the hot path of a, nil when its configuration wants each request to be
// looked at by net/http: on a client agent, and behind rules for paths, writers or headers.
func (a *API) Hot() *short.Path {
	if a.Registry == nil || !a.gate.Plain() || a.TranslateWAN {
		return nil
	}
	return short.New(a.Core, a.table, a.tenants)
}
