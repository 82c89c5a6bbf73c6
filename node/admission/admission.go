// Package admission is what the ports of a process let in: the bytes that large requests and answers of all of them
// may hold at a time, and the connections that one address may have at each.
//
// What does not fit is refused before it is kept, and counted: request.memory.refused, net.connections_refused{port}.
package admission

import (
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/memory"
	"corbel.dev/corbel/telemetry"
)

// Ports are the budgets of a process. Each of the connections' is of one port, or of several that are alike.
type Ports struct {
	Bytes *limit.Bytes // of large requests and answers, on all ports; nil has no end

	HTTP, Monitor, Secrets *limit.Conns // refused with 429
	Agents, GRPC, RPC, DNS *limit.Conns // closed
	Cache                  *limit.Conns // of the usage plane; closed
}

// New makes the budgets, and exports them.
func New(l *config.Limits, metrics *telemetry.Registry) *Ports {
	p := &Ports{Bytes: memory.NewBudget(l.RequestMemory, metrics)}
	metrics.Declare(telemetry.KindCounter, "net.connections_refused",
		"Connections that were closed since their address has as many as it may.")
	of := func(port string) *limit.Conns {
		refused := metrics.Counter("net.connections_refused", "port", port)
		return limit.NewConns(0, 0, func() { refused.Add(1) })
	}
	p.HTTP, p.Monitor, p.Secrets = of("http"), of("monitor"), of("secrets")
	p.Agents, p.GRPC, p.RPC, p.DNS = of("monitor_agents"), of("grpc"), of("rpc"), of("dns")
	p.Cache = of("usage_cache")
	p.Reload(l)
	return p
}

// Reload has the limits of a configuration hold for connections to come.
func (p *Ports) Reload(l *config.Limits) {
	p.HTTP.Set(l.HTTPMaxConns, 0)
	p.Monitor.Set(l.HTTPMaxConns, 0)
	p.Secrets.Set(l.MaxConns, 0)
	p.Agents.Set(l.MaxConns, l.MaxStrangers)
	p.GRPC.Set(l.MaxConns, l.MaxStrangers)
	p.RPC.Set(l.MaxConns, l.MaxStrangers)
	p.DNS.Set(l.DNSMaxConns, 0)
	p.Cache.Set(l.MaxConns, 0)
}
