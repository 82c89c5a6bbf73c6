package local

import "corbel.dev/corbel/telemetry"

// metrics count what goes to the servers.
type metrics struct{ full, failed, registers, deregisters *telemetry.Counter }

func newMetrics(r *telemetry.Registry) metrics {
	return metrics{full: r.Counter("agent.sync.full"), failed: r.Counter("agent.sync.failed"),
		registers: r.Counter("agent.sync.registrations"), deregisters: r.Counter("agent.sync.deregistrations")}
}
