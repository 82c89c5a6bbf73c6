package doctor

// Signals are the names of the series that rules read (docs/internals/doctor.md says what each tells). A gatherer
// follows these and no others, which bounds what evidence weighs.
var Signals = []string{
	"autopilot.failed_voters", "autopilot.failure_tolerance", "autopilot.voters",
	"blocked_evals.lacks", "blocked_evals.oldest_ms", "blocked_evals.total_blocked", "broker.total_ready",
	"catalog.register",
	"drain.new_connections",
	"expire.num_revoking", "expire.revoke_failed", "expire.revoked",
	"group.append", "group.apply", "group.leader", "group.leaderless_ms", "group.queue", "group.replicate", "group.shed",
	"group.stalls", "group.write.inflight_ms",
	"heartbeat.active", "heartbeat.invalidate",
	"host.cgroup.throttled", "host.conntrack.used", "host.cpu.busy", "host.fd.used", "host.ports.used", "host.psi",
	"host.net.listen_overflows", "host.nic.dropped", "host.nic.exceeded", "host.nic.queue_packets", "host.softnet.dropped",
	"host.tcp.peer_resets", "host.tcp.retransmits", "host.tcp.segments",
	"monitor.stored", "monitor.unreached", "monitor.unreached_by",
	"net.accept_errors", "net.connections_refused",
	"peer.clock_offset_ms",
	"pipeline.merged", "pipeline.oldest_ms", "pipeline.queued",
	"plan.node_rejected", "plan.placed", "plan.submit",
	"request.memory.limit", "request.memory.refused", "request.memory.used", "request.shed", "request.stage",
	"request.storage_ops", "request.total",
	"runtime.gc_cpu", "runtime.num_goroutines",
	"storage.call", "storage.errors", "storage.inflight_ms",
	"subscriber.cut", "subscriber.lag_ms",
	"task.circles", "task.preparing_ms",
	"telemetry.sink.deaf", "telemetry.sink.dropped", "telemetry.sink.sent", "telemetry.tap",
	"tenant.requests",
	"xds.nacks",
}
