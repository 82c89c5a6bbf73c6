package promapi

import "corbel.dev/corbel/telemetry"

// declared are the names that dashboards and alerts rely on: they exist at zero from
// the start, so that a rate over them is never "no data".
var declared = []struct {
	kind  telemetry.Kind
	names []string
}{
	{telemetry.KindTiming, []string{
		"raft.commitTime", "raft.fsm.apply", "raft.fsm.enqueue", "raft.leader.dispatchLog", "raft.leader.lastContact",
		"catalog.register", "catalog.deregister", "kvs.apply", "txn.apply", "txn.read",
		"session.apply", "session.renew", "session_ttl.invalidate",
		"prepared-query.apply", "prepared-query.explain", "prepared-query.execute", "prepared-query.execute_remote",
		"acl.ResolveToken", "acl.token.upsert", "acl.token.delete", "acl.token.clone",
		"acl.policy.upsert", "acl.policy.delete", "acl.role.upsert", "acl.role.delete",
		"acl.authmethod.upsert", "acl.authmethod.delete", "acl.bindingrule.upsert", "acl.bindingrule.delete",
		"acl.login", "acl.logout",
		"rpc.consistentRead", "rpc.server.call", "api.http",
		"raft.replication.appendEntries.rpc", "raft.replication.heartbeat", "raft.rpc.appendEntries",
		"raft.rpc.appendEntries.storeLogs",
		"raft.rpc.appendEntries.processLogs", "raft.rpc.installSnapshot", "raft.snapshot.create", "raft.snapshot.persist",
		"raft.snapshot.takeSnapshot", "raft.fsm.snapshot", "raft.fsm.restore",
		"dns.domain_query", "dns.ptr_query", "dns.query", "runtime.gc_pause_ns",
	}},
	{telemetry.KindCounter, []string{
		"raft.apply", "raft.state.leader", "raft.state.candidate", "raft.state.follower", "raft.barrier",
		"raft.verify_leader",
		"rpc.request", "rpc.request_error", "rpc.query", "rpc.cross-dc", "rpc.accept_conn", "rpc.rate_limit.exceeded",
		"rpc.rate_limit.log_dropped",
		"dns.stale_queries", "raft.replication.appendEntries.logs", "client.rpc", "client.rpc.failed", "client.rpc.exceeded",
		"cache.fetch_success", "cache.fetch_error", "cache.evict_expired", "cache.bypass",
		"memberlist.msg.alive", "memberlist.msg.suspect", "memberlist.msg.dead",
	}},
	{telemetry.KindGauge, []string{
		"raft.leader.oldestLogAge", "raft.fsm.lastRestoreDuration", "raft.commitNumLogs", "raft.leader.dispatchNumLogs",
		"raft.last_index", "raft.applied_index",
		"autopilot.healthy", "autopilot.failure_tolerance", "server.isLeader", "session_ttl.active", "rpc.queries_blocking",
		"state.nodes", "state.services", "state.service_instances", "state.connect_instances", "state.kv_entries",
		"members.servers", "members.clients", "version", "agent.tls.cert.expiry", "cache.entries_count",
		"memberlist.health.score",
		"runtime.num_goroutines", "runtime.alloc_bytes", "runtime.sys_bytes", "runtime.heap_objects",
		"runtime.malloc_count", "runtime.free_count", "runtime.total_gc_pause_ns", "runtime.total_gc_runs",
	}},
}

// Declare makes the names of the contract exist at zero in r.
func Declare(r *telemetry.Registry) {
	for _, group := range declared {
		for _, name := range group.names {
			r.Declare(group.kind, name, name)
		}
	}
}
