package admission

import (
	"net/netip"
	"testing"

	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/telemetry"
)

// TestPortsAreBoundedAndReloaded takes connections of one address at each port up to its key's limit, and beyond it
// after a reload.
func TestPortsAreBoundedAndReloaded(t *testing.T) {
	metrics := telemetry.New(telemetry.Config{})
	l := config.Limits{RequestMemory: 1 << 20, HTTPMaxConns: 1, MaxConns: 2, MaxStrangers: 1, DNSMaxConns: 1}
	p := New(&l, metrics)
	if got := p.Bytes.Stats().Most; got != 1<<20 {
		t.Errorf("a budget of %d bytes", got)
	}
	who := netip.MustParseAddr("10.0.0.1")
	for name, port := range map[string]struct {
		conns *limit.Conns
		known int // connections that have shown who they are
		all   int // beyond these, strangers
	}{
		"http": {p.HTTP, 1, 1}, "monitor": {p.Monitor, 1, 1}, "secrets": {p.Secrets, 2, 2}, "dns": {p.DNS, 1, 1},
		"monitor_agents": {p.Agents, 0, 1}, "grpc": {p.GRPC, 1, 2}, "rpc": {p.RPC, 1, 2},
	} {
		take := func(stranger bool) bool { _, ok := port.conns.Take(who, stranger); return ok }
		for range port.known {
			if !take(false) {
				t.Errorf("%s: one that is known was refused", name)
			}
		}
		for range port.all - port.known {
			if !take(true) {
				t.Errorf("%s: a stranger was refused", name)
			}
		}
		if take(true) {
			t.Errorf("%s: one too many", name)
		}
		if got := metrics.Counter("net.connections_refused", "port", name).Value(); got != 1 {
			t.Errorf("%s: %v refusals were counted", name, got)
		}
	}
	l.HTTPMaxConns, l.MaxConns, l.MaxStrangers, l.DNSMaxConns = 0, 10, 10, 10
	p.Reload(&l)
	for _, conns := range []*limit.Conns{p.HTTP, p.Monitor, p.Secrets, p.DNS, p.Agents, p.GRPC, p.RPC} {
		if _, ok := conns.Take(who, true); !ok {
			t.Error("a reload did not count")
		}
	}
}
