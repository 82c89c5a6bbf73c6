package node

import (
	"math"
	"time"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/base"
)

// meter shows what only the whole process knows: its pool, its version, its certificate.
func (p *localAgent) meter() {
	count := func(server bool) func() float64 {
		return func() float64 {
			n := 0
			for _, m := range p.Pool.Members(member.ActShow) {
				if m.Status == member.Alive && (m.Tags["role"] == base.RoleServer) == server {
					n++
				}
			}
			return float64(n)
		}
	}
	p.Metrics.GaugeFunc("members.servers", count(true), "datacenter", p.Cfg.Node.Datacenter)
	p.Metrics.GaugeFunc("members.clients", count(false), "datacenter", p.Cfg.Node.Datacenter)
	p.Metrics.Gauge("version", "version", version.Contract).Set(1)
	// The start as a value: dashboards mark restarts, and rollouts by the release.
	p.Metrics.Gauge("process.start_ms", "release", version.Number).Set(float64(p.Clock.Now().UnixMilli()))
	p.Metrics.GaugeFunc("agent.tls.cert.expiry", p.certificateLeft)
}

// certificateLeft is how many seconds the certificate of the RPC port is still valid; 0 without one.
func (p *localAgent) certificateLeft() float64 {
	if end := p.Certs.End.Load(); end != 0 {
		return math.Round(time.Unix(end, 0).Sub(p.Clock.Now()).Seconds())
	}
	return 0
}
