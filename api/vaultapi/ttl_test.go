package vaultapi

import (
	"fmt"
	"strings"
	"testing"
)

// endless are lifetimes whose end has no number of nanoseconds since 1970, and such that are no lifetimes at all.
var endless = []string{"8000000000", "8e9", `"8000000000"`, `"8000000000s"`, "9223372036", "9223372037",
	"18446744073709551616", "1e300", `"2562047h"`, `"1280001h"`, `"60000d"`, `"1e300d"`, `"NaN"`, `"Inf"`}

// TestLifetimesThatCannotBeToldAreRefused gives each input of a lifetime one that ends after time does. Such a wrap
// answered 200 with a token that was over at once, and the wrapped answer was lost.
func TestLifetimesThatCannotBeToldAreRefused(t *testing.T) {
	d := openDoor(t)
	for _, made := range [][2]string{{"sys/auth/userpass", `{"type":"userpass"}`},
		{"sys/auth/approle", `{"type":"approle"}`}, {"sys/mounts/pki", `{"type":"pki"}`},
		{"sys/mounts/transit", `{"type":"transit"}`}, {"auth/approle/role/r", `{}`}, {"auth/token/roles/r", `{}`},
		{"transit/keys/k", `{}`},
		{"kv2/data/a", `{"data":{"x":1}}`}, {"identity/oidc/key/k", `{}`}} {
		if code, out := d.do("POST", made[0], made[1]); code >= 300 {
			t.Fatalf("%s: %d %v", made[0], code, out)
		}
	}
	for path, fields := range map[string]string{
		"auth/token/create":             "ttl explicit_max_ttl period",
		"auth/token/create-orphan":      "ttl explicit_max_ttl period",
		"auth/token/renew-self":         "increment",
		"auth/token/roles/r":            "token_explicit_max_ttl token_period",
		"auth/userpass/users/u":         "token_ttl token_max_ttl token_explicit_max_ttl token_period",
		"auth/approle/role/r":           "token_ttl token_max_ttl token_period secret_id_ttl",
		"auth/approle/role/r/secret-id": "ttl",
		"sys/mounts/secret/tune":        "default_lease_ttl max_lease_ttl",
		"sys/auth/userpass/tune":        "default_lease_ttl max_lease_ttl",
		"sys/leases/renew":              "increment",
		"pki/root/generate/internal":    "ttl not_before_duration",
		"pki/roles/r":                   "ttl max_ttl not_before_duration",
		"pki/config/crl":                "expiry",
		"transit/keys/k/config":         "auto_rotate_period",
		"kv2/config":                    "delete_version_after",
		"kv2/metadata/a":                "delete_version_after",
		"identity/oidc/key/k":           "rotation_period verification_ttl",
		"identity/oidc/role/r":          "ttl",
		"sys/quotas/rate-limit/q":       "interval block_interval",
	} {
		for field := range strings.FieldsSeq(fields) {
			for _, value := range endless {
				body := fmt.Sprintf(`{%q:%s,"common_name":"x","key_type":"ca","rate":10,"password":"p","allowed_users":"x",`+
					`"allow_user_certificates":true,"key":"k","lease_id":"x"}`, field, value)
				if strings.HasPrefix(path, "pki/roles") || strings.HasPrefix(path, "pki/root") {
					body = strings.Replace(body, `"key_type":"ca"`, `"key_type":"ec"`, 1)
				}
				if code, out := d.do("POST", path, body); code != 400 {
					t.Errorf("%s with %s %s: %d %v", path, field, value, code, out["errors"])
				}
			}
		}
	}
	for _, value := range endless {
		text := strings.Trim(value, `"`)
		if code, out := d.do("GET", "auth/token/lookup-self", "", "X-Vault-Wrap-TTL", text); code != 400 {
			t.Errorf("wrapped for %s: %d %v", text, code, out)
		}
		for _, key := range []string{"min_wrapping_ttl", "max_wrapping_ttl"} {
			body := fmt.Sprintf(`{"policy":"path \"secret/*\" { capabilities = [\"read\"] %s = %s }"}`, key,
				strings.ReplaceAll(value, `"`, `\"`))
			if code, out := d.do("POST", "sys/policies/acl/p", body); code != 400 {
				t.Errorf("a policy with %s %s: %d %v", key, text, code, out)
			}
		}
	}
	for _, longest := range []string{"1280000h", "4608000000"} { // may be told, and the wrapped answer is there
		code, out := d.do("GET", "auth/token/lookup-self", "", "X-Vault-Wrap-TTL", longest)
		if code != 200 {
			t.Fatalf("wrapped for %s: %d %v", longest, code, out)
		}
		id, _ := out["wrap_info"].(map[string]any)["token"].(string)
		if code, out := d.do("POST", "sys/wrapping/unwrap", "", "X-Vault-Token", id); code != 200 {
			t.Errorf("unwrapped, wrapped for %s: %d %v", longest, code, out)
		}
	}
}
