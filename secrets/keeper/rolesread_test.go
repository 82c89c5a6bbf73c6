package keeper

import (
	"encoding/json"
	"reflect"
	"testing"

	"corbel.dev/corbel/kit/jwks/jwkstest"
	"corbel.dev/corbel/secrets"
)

// What is written of roles and configurations reads back under the same names and in the same types, as Terraform
// compares them; and what was not written has the default of Vault's documentation.
func TestRolesReadWhatTheyWrote(t *testing.T) {
	h := newHouse(t)
	key, ca := jwkstest.New(t, "ES256").PublicKey(), pemOf(newSigner(t, h.now).cert.Raw)
	type fields = map[string]any
	tokens := fields{"token_ttl": 60, "token_max_ttl": 600, "token_explicit_max_ttl": 1200, "token_period": 30,
		"token_policies": []string{"a", "b"}, "token_bound_cidrs": []string{"10.0.0.0/8"},
		"token_no_default_policy": true, "token_num_uses": 3, "token_type": "service"}
	plain := fields{"token_ttl": 0, "token_max_ttl": 0, "token_explicit_max_ttl": 0, "token_period": 0,
		"token_policies": []string{}, "token_bound_cidrs": []string{}, "token_no_default_policy": false, "token_num_uses": 0,
		"token_type": "default"}
	with := func(maps ...fields) fields {
		all := fields{}
		for _, m := range maps {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	for _, test := range []struct {
		kind, path  string
		least, more fields // what must be written, and what is written once more with all else
		def         fields
	}{
		{"userpass", "users/ann", fields{}, tokens, plain},
		{"approle", "role/r", fields{}, with(tokens, fields{"bind_secret_id": true,
			"secret_id_bound_cidrs": []string{"10.0.0.0/8"}, "secret_id_num_uses": 2, "secret_id_ttl": 90}),
			with(plain, fields{"bind_secret_id": true, "secret_id_bound_cidrs": []string{}, "secret_id_num_uses": 0,
				"secret_id_ttl": 0, "local_secret_ids": false})},
		{"jwt", "config", fields{"jwt_validation_pubkeys": []string{key}}, fields{"bound_issuer": "me",
			"jwt_supported_algs": []string{"ES256"}, "default_role": "r", "namespace_in_state": false},
			fields{"bound_issuer": "", "jwt_supported_algs": []string{}, "default_role": "", "jwks_url": "",
				"oidc_discovery_url": "", "namespace_in_state": true, "provider_config": fields{}}},
		{"jwt", "role/r", fields{"role_type": "jwt", "user_claim": "sub", "bound_subject": "s"},
			with(tokens, fields{"bound_audiences": []string{"v"}, "user_claim_json_pointer": true,
				"bound_claims": fields{"a": []string{"x", "y"}, "b": "z"}, "bound_claims_type": "glob", "groups_claim": "g",
				"claim_mappings": fields{"a": "b"}, "clock_skew_leeway": 7, "expiration_leeway": 8, "not_before_leeway": 9,
				"verbose_oidc_logging": true}),
			with(plain, fields{"bound_audiences": []string{}, "user_claim_json_pointer": false, "bound_claims_type": "string",
				"groups_claim": "", "clock_skew_leeway": 0, "expiration_leeway": 0, "not_before_leeway": 0, "max_age": 0,
				"verbose_oidc_logging": false})},
		{"oidc", "role/people", fields{"user_claim": "email", "allowed_redirect_uris": []string{cliAddress}}, with(tokens,
			fields{"oidc_scopes": []string{"email"}, "max_age": 60, "bound_audiences": []string{"v"}}),
			with(plain, fields{"role_type": "oidc", "max_age": 0})},
		{"kubernetes", "config", fields{"kubernetes_host": "https://k8s:6443", "kubernetes_ca_cert": ca},
			fields{"pem_keys": []string{key}, "disable_local_ca_jwt": true, "disable_iss_validation": false, "issuer": "me",
				"use_annotations_as_alias_metadata": true},
			fields{"pem_keys": []string{}, "disable_local_ca_jwt": false, "disable_iss_validation": true, "issuer": "",
				"use_annotations_as_alias_metadata": false, "token_reviewer_jwt_set": false}},
		{"kubernetes", "role/r", fields{"bound_service_account_names": []string{"web"},
			"bound_service_account_namespaces": []string{"shop"}}, with(tokens, fields{"audience": "v",
			"alias_name_source": "serviceaccount_name"}),
			with(plain, fields{"audience": "", "alias_name_source": "serviceaccount_uid",
				"bound_service_account_namespace_selector": ""})},
		{"cert", "certs/web", fields{"certificate": ca}, with(tokens, fields{"allowed_names": []string{"a"},
			"allowed_common_names": []string{"b"}, "allowed_dns_sans": []string{"c"}, "allowed_email_sans": []string{"d"},
			"allowed_uri_sans":             []string{"e"},
			"allowed_organizational_units": []string{"f"}, "required_extensions": []string{"1.2:x"},
			"allowed_metadata_extensions": []string{"1.3"}, "display_name": "w", "ocsp_enabled": true,
			"ocsp_servers_override": []string{"http://o"}, "ocsp_fail_open": true, "ocsp_query_all_servers": true}),
			with(plain, fields{"allowed_names": []string{}, "required_extensions": []string{}, "display_name": "",
				"ocsp_enabled": false, "ocsp_fail_open": false, "ocsp_query_all_servers": false})},
		{"cert", "config", fields{}, fields{"disable_binding": true, "enable_identity_alias_metadata": true,
			"ocsp_cache_size": 7}, fields{"disable_binding": false, "enable_identity_alias_metadata": false,
			"ocsp_cache_size": 100}},
	} {
		if h.gate.Load().Mounts.Get("auth/"+test.kind+"/") == nil {
			h.ok(secrets.Update, "sys/auth/"+test.kind, `{"type":"`+test.kind+`"}`)
		}
		path := "auth/" + test.kind + "/" + test.path
		reads := func(want fields) {
			t.Helper()
			var got, wanted map[string]any
			if err := json.Unmarshal(h.ok(secrets.Read, path, "").Data, &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(text(t, want)), &wanted); err != nil {
				t.Fatal(err)
			}
			for name, v := range wanted {
				if !reflect.DeepEqual(got[name], v) {
					t.Errorf("%s: %s reads %v, want %v", path, name, got[name], v)
				}
			}
		}
		least := test.least
		if test.kind == "userpass" {
			least = fields{"password_hash": quick(t)}
		}
		h.ok(secrets.Update, path, text(t, least))
		reads(with(test.least, test.def))
		h.ok(secrets.Update, path, text(t, with(least, test.more)))
		reads(with(test.least, test.more))
	}
}
