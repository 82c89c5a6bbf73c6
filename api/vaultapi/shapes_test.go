package vaultapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// The members of answers that clients index without asking whether they are there (contract 1.2, 2 to 4).
const (
	envelopeKeys = "auth data lease_duration lease_id mount_type renewable request_id warnings wrap_info"
	mountKeys    = "accessor config deprecation_status description external_entropy_access local options " +
		"plugin_version running_plugin_version running_sha256 seal_wrap type uuid"
	tokenKeys = "accessor creation_time creation_ttl display_name entity_id expire_time explicit_max_ttl id meta " +
		"num_uses orphan path policies ttl type"
	roleKeys = "token_bound_cidrs token_explicit_max_ttl token_max_ttl token_no_default_policy token_num_uses " +
		"token_period token_policies token_ttl token_type"
	kvKeys     = "created_time custom_metadata deletion_time destroyed version"
	entityKeys = "aliases creation_time direct_group_ids disabled group_ids id inherited_group_ids last_update_time " +
		"merged_entity_ids metadata name namespace_id policies"
)

// TestShapes: an answer's members are all there, and none that nobody knows. at is where they are.
func TestShapes(t *testing.T) {
	d := openDoor(t)
	for _, step := range [][3]string{{"sys/auth/userpass", `{"type":"userpass"}`},
		{"auth/userpass/users/ann", `{"password":"p"}`}, {"sys/auth/approle", `{"type":"approle"}`},
		{"auth/approle/role/r", `{}`}, {"auth/token/roles/r", `{}`}, {"identity/entity", `{"name":"e"}`},
		{"sys/mounts/transit", `{"type":"transit"}`}, {"transit/keys/k", `{}`}} {
		if code, body := d.do("POST", step[0], step[1]); code >= 300 {
			t.Fatalf("%s: %d %v", step[0], code, body)
		}
	}
	for _, test := range []struct{ method, path, body, wrap, at, want string }{
		{"GET", "sys/init", "", "", "", "initialized"},
		{"GET", "sys/seal-status", "", "", "", "build_date cluster_id cluster_name commit_date initialized migration n " +
			"nonce progress recovery_seal sealed storage_type t type version"},
		{"GET", "sys/health", "", "", "", "clock_skew_ms cluster_id cluster_name echo_duration_ms enterprise initialized " +
			"performance_standby replication_dr_mode replication_performance_mode sealed server_time_utc standby version"},
		{"GET", "sys/leader", "", "", "", "ha_enabled is_self leader_address leader_cluster_address performance_standby " +
			"performance_standby_last_remote_wal"},
		{"GET", "sys/key-status", "", "", "", envelopeKeys + " encryptions install_time term"},
		{"GET", "secret/a", "", "", "", envelopeKeys},
		{"GET", "secret/a", "", "60", "", envelopeKeys},
		{"GET", "secret/a", "", "60", "wrap_info", "accessor creation_path creation_time token ttl"},
		{"POST", "auth/token/create", `{}`, "60", "wrap_info",
			"accessor creation_path creation_time token ttl wrapped_accessor"},
		{"POST", "auth/userpass/login/ann", `{"password":"p"}`, "", "auth", "accessor client_token entity_id " +
			"lease_duration metadata mfa_requirement num_uses orphan policies renewable token_policies token_type"},
		{"GET", "sys/mounts", "", "", "", envelopeKeys + " cubbyhole/ identity/ kv2/ secret/ sys/ transit/"},
		{"GET", "sys/mounts", "", "", "data", "cubbyhole/ identity/ kv2/ secret/ sys/ transit/"},
		{"GET", "sys/mounts", "", "", "data.kv2/", mountKeys},
		{"GET", "sys/mounts", "", "", "data.kv2/.config", "default_lease_ttl force_no_cache max_lease_ttl"},
		{"GET", "sys/mounts/kv2", "", "", "data", mountKeys},
		{"GET", "sys/mounts/kv2/tune", "", "", "data", "default_lease_ttl description force_no_cache max_lease_ttl options"},
		{"GET", "sys/auth", "", "", "", envelopeKeys + " approle/ token/ userpass/"},
		{"GET", "sys/auth", "", "", "token/.config", "default_lease_ttl force_no_cache max_lease_ttl token_type"},
		{"GET", "sys/policy", "", "", "", envelopeKeys + " keys policies"},
		{"GET", "sys/policy/default", "", "", "data", "name rules"},
		{"GET", "sys/policies/acl/default", "", "", "data", "name policy"},
		{"POST", "sys/capabilities-self", `{"paths":["a","b"]}`, "", "data", "a b"},
		{"POST", "sys/capabilities-self", `{"paths":["a"]}`, "", "data", "a capabilities"},
		{"GET", "sys/internal/ui/mounts", "", "", "data", "auth secret"},
		{"GET", "sys/internal/ui/mounts/kv2/data/x", "", "", "data", mountKeys + " path"},
		{"GET", "auth/token/lookup-self", "", "", "data", tokenKeys},
		{"GET", "auth/token/roles/r", "", "", "data", roleKeys + " allowed_entity_aliases allowed_policies " +
			"allowed_policies_glob bound_cidrs disallowed_policies disallowed_policies_glob explicit_max_ttl name orphan " +
			"path_suffix period renewable"},
		{"GET", "auth/userpass/users/ann", "", "", "data", roleKeys},
		{"GET", "auth/approle/role/r", "", "", "data",
			roleKeys + " bind_secret_id local_secret_ids secret_id_bound_cidrs secret_id_num_uses secret_id_ttl"},
		{"POST", "auth/approle/role/r/secret-id", `{}`, "", "data",
			"secret_id secret_id_accessor secret_id_num_uses secret_id_ttl"},
		{"POST", "kv2/data/x", `{"data":{"a":1}}`, "", "data", kvKeys},
		{"GET", "kv2/data/x", "", "", "data", "data metadata"},
		{"GET", "kv2/data/x", "", "", "data.metadata", kvKeys},
		{"GET", "kv2/metadata/x", "", "", "data", "cas_required created_time current_metadata_version current_version " +
			"custom_metadata delete_version_after max_versions metadata_cas_required oldest_version updated_time versions"},
		{"GET", "kv2/metadata/x", "", "", "data.versions.1", "created_time deletion_time destroyed"},
		{"GET", "kv2/config", "", "", "data", "cas_required delete_version_after max_versions metadata_cas_required"},
		{"GET", "identity/entity/name/e", "", "", "data", entityKeys},
		{"GET", "transit/keys/k", "", "", "data", "allow_plaintext_backup auto_rotate_period deletion_allowed derived " +
			"exportable imported_key keys latest_version min_available_version min_decryption_version min_encryption_version " +
			"name soft_deleted supports_decryption supports_derivation supports_encryption supports_signing type"},
		{"GET", "none/x", "", "", "", "errors"},
	} {
		if test.path == "secret/a" {
			d.do("PUT", "secret/a", `{"x":1}`)
		}
		code, body := d.do(test.method, test.path, test.body, "X-Vault-Wrap-TTL", test.wrap)
		got := body
		for name := range strings.SplitSeq(test.at, ".") {
			if name != "" {
				got, _ = got[name].(map[string]any)
			}
		}
		want := strings.Fields(test.want)
		slices.Sort(want)
		if have := slices.Sorted(maps.Keys(got)); !slices.Equal(have, want) {
			t.Errorf("%s %s (wrapped %q), %d, %q holds\n%q, want\n%q", test.method, test.path, test.wrap, code, test.at,
				have, want)
		}
	}
}

// TestTexts: the words of refusals that clients look for (contract 1.3), with their codes.
func TestTexts(t *testing.T) {
	d := openDoor(t)
	for _, step := range [][3]string{{"POST", "sys/auth/userpass", `{"type":"userpass"}`},
		{"POST", "auth/userpass/users/ann", `{"password":"p"}`}, {"POST", "sys/auth/approle", `{"type":"approle"}`},
		{"POST", "auth/approle/role/r", `{}`}, {"POST", "sys/mounts/transit", `{"type":"transit"}`},
		{"POST", "kv2/data/x", `{"data":{"a":1}}`}, {"POST", "kv2/metadata/x", `{"cas_required":true}`}} {
		if code, body := d.do(step[0], step[1], step[2]); code >= 300 {
			t.Fatalf("%s: %d %v", step[1], code, body)
		}
	}
	_, fixed := d.do("POST", "auth/token/create", `{"renewable":false,"ttl":"1h"}`)
	still, _ := fixed["auth"].(map[string]any)["client_token"].(string)
	const denied = "1 error occurred:\n\t* permission denied\n\n"
	for _, test := range []struct {
		method, path, body string
		code               int
		text               string
	}{
		{"PUT", "sys/init", `{"secret_shares":1,"secret_threshold":1}`, 400, "Vault is already initialized"},
		{"PUT", "sys/unseal", `{}`, 400, "'key' must be specified in request body as JSON, or 'reset' set to true"},
		{"GET", "none/x", "", 404, `no handler for route "none/x". route entry not found.`},
		{"GET", "sys/none", "", 404, "unsupported path"},
		{"DELETE", "sys/mounts", "", 405, "unsupported operation"},
		{"POST", "sys/mounts/secret", `{"type":"kv"}`, 400, "path is already in use at secret/"},
		{"POST", "sys/auth/userpass", `{"type":"userpass"}`, 400, "path is already in use at auth/userpass/"},
		{"GET", "sys/mounts/none", "", 400, "No secret engine mount at none/"},
		{"POST", "sys/remount", `{"from":"none","to":"new"}`, 400, `no matching mount at "none/"`},
		{"PUT", "sys/policy/root", `{"policy":""}`, 400, `cannot update "root" policy`},
		{"DELETE", "sys/policy/default", "", 400, `cannot delete "default" policy`},
		{"PUT", "secret/dir/", `{"a":1}`, 400, "cannot write to a path ending in '/'"},
		{"PUT", "secret/a", `{}`, 400, "missing data fields"},
		{"POST", "kv2/data/y", `{}`, 400, "no data provided"},
		{"POST", "kv2/data/x", `{"data":{},"options":{"cas":9}}`, 400,
			"check-and-set parameter did not match the current version"},
		{"POST", "kv2/data/x", `{"data":{}}`, 400, "check-and-set parameter required for this call"},
		{"POST", "auth/token/lookup", `{"token":"none"}`, 403, "bad token"},
		{"POST", "auth/token/renew", `{"token":"none"}`, 403, "bad token"},
		{"POST", "auth/token/renew", fmt.Sprintf(`{"token":%q}`, still), 400, "lease is not renewable"},
		{"PUT", "sys/leases/renew", `{"lease_id":"none"}`, 400, "lease not found"},
		{"PUT", "sys/leases/lookup", `{"lease_id":"none"}`, 400, "invalid lease ID"},
		{"POST", "sys/wrapping/unwrap", `{"token":"none"}`, 400, "wrapping token is not valid or does not exist"},
		{"POST", "auth/userpass/login/ann", `{"password":"no"}`, 400, "invalid username or password"},
		{"POST", "auth/userpass/login/none", `{"password":"no"}`, 400, "invalid username or password"},
		{"POST", "auth/approle/login", `{"role_id":"x","secret_id":"y"}`, 400, "invalid role or secret ID"},
		{"POST", "transit/decrypt/none", `{"ciphertext":"vault:v1:AAAA"}`, 400, "encryption key not found"},
		{"GET", "secret/a", "no token", 403, denied},
		{"GET", "sys/internal/ui/mounts/none/x", "", 403,
			`preflight capability check returned 403, please ensure client's policies grant access to path "none/x/"`},
	} {
		token := d.root
		if test.body == "no token" {
			token, test.body = "", ""
		}
		code, body := d.do(test.method, test.path, test.body, "X-Vault-Token", token)
		if texts, _ := body["errors"].([]any); code != test.code || len(texts) != 1 || texts[0] != test.text {
			t.Errorf("%s %s %s: %d %q, want %d %q", test.method, test.path, test.body, code, body["errors"],
				test.code, test.text)
		}
	}
}
