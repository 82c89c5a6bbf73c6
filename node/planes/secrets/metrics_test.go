package secretsplane

import (
	"bufio"
	"bytes"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/polltest"
)

// metricTypes are the types of a server's metrics, by their Prometheus names.
func (v *vaultTest) metricTypes(token string) map[string]string {
	v.t.Helper()
	code, body, _ := v.raw("GET", "sys/metrics?format=prometheus", token, nil)
	if code != 200 {
		v.t.Fatalf("sys/metrics: %d %s", code, body)
	}
	out := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			out[name] = kind
		}
	}
	return out
}

// metricNames are the names of contract 7.3 that a server on Raft has, with their types.
const metricNames = `
summary vault_core_handle_request vault_core_handle_login_request vault_core_check_token vault_core_fetch_acl_and_token
gauge vault_core_in_flight_requests
summary vault_route_create_secret_ vault_route_read_secret_ vault_route_update_secret_ vault_route_delete_secret_ vault_route_list_secret_ vault_route_rollback_identity_
gauge vault_core_unsealed vault_core_active vault_core_mount_table_num_entries vault_core_mount_table_size vault_core_performance_standby
summary vault_core_leadership_lost vault_core_leadership_setup_failed vault_core_step_down vault_core_post_unseal vault_core_pre_seal vault_core_seal_internal vault_core_unseal
summary vault_barrier_get vault_barrier_put vault_barrier_delete vault_barrier_list vault_barrier_list_page
gauge vault_barrier_estimated_encryptions
counter vault_cache_hit vault_cache_miss vault_cache_write vault_cache_delete
gauge vault_expire_num_leases vault_expire_num_irrevocable_leases vault_expire_leases_by_expiration vault_expire_job_manager_queue_length vault_expire_job_manager_total_jobs
summary vault_expire_register vault_expire_register_auth vault_expire_renew vault_expire_renew_token vault_expire_revoke vault_expire_revoke_common vault_expire_revoke_by_token
summary vault_expire_revoke_force vault_expire_revoke_prefix vault_expire_fetch_lease_times vault_expire_fetch_lease_times_by_token vault_expire_lease_expiration_time_in_queue
counter vault_expire_lease_expiration vault_expire_lease_expiration_error
summary vault_token_create vault_token_lookup vault_token_revoke vault_token_revoke_tree
counter vault_token_creation vault_token_create_root
gauge vault_token_count vault_token_count_by_policy vault_token_count_by_ttl vault_token_count_by_auth
summary vault_policy_get_policy vault_policy_set_policy vault_policy_delete_policy vault_policy_list_policies
summary vault_audit_log_request vault_audit_log_response vault_audit_file__log_request vault_audit_file__log_response
counter vault_audit_log_request_failure vault_audit_log_response_failure
gauge vault_runtime_num_goroutines vault_runtime_alloc_bytes vault_runtime_sys_bytes vault_runtime_heap_objects vault_runtime_malloc_count vault_runtime_free_count
gauge vault_runtime_total_gc_pause_ns vault_runtime_total_gc_runs
summary vault_runtime_gc_pause_ns
summary vault_raft_storage_get vault_raft_storage_put vault_raft_storage_delete vault_raft_storage_list
counter vault_raft_apply
summary vault_raft_commitTime vault_raft_leader_dispatchLog vault_raft_fsm_applyBatch
gauge vault_raft_storage_stats_fsm_pending vault_raft_storage_stats_applied_index vault_raft_storage_stats_commit_index
gauge vault_autopilot_healthy vault_autopilot_failure_tolerance vault_autopilot_node_healthy
summary vault_ha_rpc_client_forward vault_ha_rpc_client_echo
counter vault_ha_rpc_client_forward_errors vault_ha_rpc_client_echo_errors
gauge vault_secret_kv_count vault_identity_num_entities vault_identity_entity_count vault_identity_entity_alias_count
counter vault_secret_lease_creation vault_identity_entity_creation
counter vault_quota_rate_limit_violation vault_quota_lease_count_violation
gauge vault_quota_lease_count_counter vault_quota_lease_count_max
summary vault_rollback_attempt_identity_ vault_rollback_waiting
gauge vault_rollback_inflight vault_rollback_queued
`

// A running server has the names that operators' dashboards ask for, each of its type, after a little of everything.
func TestVaultMetricNames(t *testing.T) {
	v := startVault(t, "a", "unsafe_allow_api_audit_creation = true\ntelemetry { usage_gauge_period = \"1s\" }\n")
	shares, root := keysOf(v.must(200, "PUT", "sys/init", "", obj{"secret_shares": 1, "secret_threshold": 1}))
	v.unseal(shares)
	v.awaitHealth(200)
	v.must(204, "PUT", "sys/audit/file", root, obj{"type": "file", "options": obj{"file_path": "discard"}})
	v.must(204, "POST", "sys/mounts/secret", root, obj{"type": "kv"})
	v.must(204, "PUT", "secret/x", root, obj{"v": "1"})
	v.must(204, "PUT", "sys/quotas/lease-count/q", root, obj{"max_leases": 100, "path": "secret/"})
	v.must(204, "POST", "sys/auth/userpass", root, obj{"type": "userpass"})
	v.must(204, "PUT", "auth/userpass/users/ann", root, obj{"password": "pw"})
	v.must(200, "PUT", "auth/userpass/login/ann", "", obj{"password": "pw"})
	v.must(204, "POST", "sys/mounts/pki", root, obj{"type": "pki"})
	v.must(200, "POST", "pki/root/generate/internal", root, obj{"common_name": "r", "key_type": "ec"})
	v.must(200, "POST", "pki/roles/r", root, obj{"allow_any_name": true, "generate_lease": true, "key_type": "ec"})
	v.must(200, "POST", "pki/issue/r", root, obj{"common_name": "x", "ttl": "1h"})
	var have map[string]string
	polltest.NoError(t, polltest.Deadline, func() error { // some gauges are counted each second
		var missing []string
		have = v.metricTypes(root)
		for line := range strings.SplitSeq(strings.TrimSpace(metricNames), "\n") {
			kind, names, _ := strings.Cut(line, " ")
			for name := range strings.FieldsSeq(names) {
				if have[name] != kind {
					missing = append(missing, name+" is "+strconv.Quote(have[name])+", not "+kind)
				}
			}
		}
		if len(missing) > 0 {
			return errors.New(strings.Join(missing, "; "))
		}
		return nil
	}, "all names of metrics")
	for name := range have {
		if !regexp.MustCompile(`^vault_[a-zA-Z0-9_]+$`).MatchString(name) {
			t.Errorf("a metric is called %q", name)
		}
	}
}

// timing is how often a timing of the server was observed.
func (v *vaultTest) timing(name string) uint64 {
	return v.srv.metrics.Timing(name).Count()
}
