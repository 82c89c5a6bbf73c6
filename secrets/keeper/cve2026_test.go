package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/rights"
)

// What was found in Vault and OpenBao in 2026, and later finds of the same kind in older code.

// CVE-2026-63131: a LIST with a slash at its end was judged by a wide rule though a narrower one denied it.
func TestCVE_2026_63131_ListsAreDeniedByTheNarrowerRule(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "secret/team/private/a", `{"x":"1"}`)
	h.ok(secrets.Update, "secret/team/open/a", `{"x":"1"}`)
	for i, deny := range []string{"secret/team/private/*", "secret/team/private*", "secret/team/private/",
		"secret/team/+/*"} {
		name := fmt.Sprint("lister-", i)
		h.policy(name, `path "secret/*" { capabilities = ["list", "read"] } path "`+deny+`" { capabilities = ["deny"] }`)
		token := h.token(`{"policies":["` + name + `"],"no_default_policy":true}`)
		for _, path := range []string{"secret/team/private/", "secret/team/private"} {
			h.refused(errkind.Denied, token, secrets.List, path, "")
		}
		if _, err := h.as(token, secrets.List, "secret/team/", ""); err != nil {
			t.Errorf("%s: the list above it is denied as well: %v", deny, err)
		}
	}
}

// CVE-2026-115362: a secret id whose time was over logged in until somebody tidied.
func TestCVE_2026_115362_SecretIDsEndByThemselves(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/auth/approle", `{"type":"approle"}`)
	id := h.role(`{"token_policies":"app","secret_id_ttl":"1m"}`)
	secret := fmt.Sprint(field(t, h.ok(secrets.Update, "auth/approle/role/app/secret-id", `{}`), "secret_id"))
	h.wait(59 * time.Second)
	if _, err := h.login(id, secret); err != nil {
		t.Fatal(err)
	}
	h.wait(time.Second)
	if _, err := h.login(id, secret); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("at its end, untidied: %v", err)
	}
}

// CVE-2026-55776: asking for a key that cannot be (derived, of an asymmetric type) ended the process.
func TestCVE_2026_55776_ImpossibleKeysAreRefused(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/mounts/transit", `{"type":"transit"}`)
	for _, kind := range []string{"rsa-2048", "rsa-3072", "rsa-4096", "ecdsa-p256", "ecdsa-p384", "ecdsa-p521", "hmac",
		"none"} {
		for _, more := range []string{`"derived":true`, `"derived":"true","convergent_encryption":true`} {
			path := "transit/keys/" + kind
			h.refused(errkind.Invalid, h.root, secrets.Update, path, `{"type":"`+kind+`",`+more+`}`)
			h.refused(errkind.Invalid, h.root, secrets.Update, path,
				`{"type":"`+kind+`",`+more+`}`) // a lock that was left behind would show here
			h.refused(errkind.NotFound, h.root, secrets.Read, path, "")
		}
	}
	h.ok(secrets.Update, "transit/keys/rsa-2048", `{"type":"aes256-gcm96","derived":true}`)
}

// CVE-2026-115365: a token named policies of elsewhere by names that led out of its own.
func TestCVE_2026_115365_NamesOfPoliciesLeadNowhere(t *testing.T) {
	h := newHouse(t)
	h.policy("strong", `path "secret/*" { capabilities = ["read", "list"] }`)
	h.ok(secrets.Update, "secret/a", `{"x":"1"}`)
	h.token(`{"policies":["strong"]}`) // it is compiled and kept
	for _, name := range []string{"../strong", "./strong", "ns/../strong", "/strong", "strong/", "root/../strong",
		"sys/policy/strong", "ns1/strong", "..", "strong\x00", "acl/strong", "../../core/strong", "ns1/../root", "../root"} {
		body := text(t, map[string]any{"policies": []string{name}, "no_default_policy": true})
		r, err := h.as(h.root, secrets.Update, "auth/token/create", body)
		if err != nil {
			continue
		}
		h.refused(errkind.Denied, r.Token.ID, secrets.Read, "secret/a", "")
		h.refused(errkind.Denied, r.Token.ID, secrets.Read, "sys/mounts", "")
	}
}

// CVE-2026-115358: values that could not be read as pairs stood in errors, and so in the audit log.
func TestCVE_2026_115358_MalformedPairsAreNotRecorded(t *testing.T) {
	h := newHouse(t)
	t.Cleanup(h.Seal)
	h.audits.Config.Rules.Folder = t.TempDir()
	log := filepath.Join(h.audits.Config.Rules.Folder, "log")
	h.ok(secrets.Update, "sys/audit/file", text(t, map[string]any{"type": "file",
		"options": map[string]string{"file_path": log}}))
	h.ok(secrets.Update, "sys/auth/approle", `{"type":"approle"}`)
	h.ok(secrets.Update, "sys/auth/jwt", `{"type":"jwt"}`)
	h.role(`{"token_policies":"app"}`)
	for path, bodies := range map[string][]string{
		"identity/entity": {`{"metadata":"PLANTED"}`, `{"metadata":["PLANTED"]}`,
			`{"metadata":{"a":["PLANTED"]}}`, `{"metadata":"{PLANTED"}`},
		"auth/approle/role/app/secret-id":     {`{"metadata":"PLANTED"}`, `{"metadata":"{\"a\":[\"PLANTED\"]}"}`},
		"auth/approle/role/app/secret-id-ttl": {`{"secret_id_ttl":"PLANTED"}`},
		"auth/jwt/role/r": {`{"role_type":"jwt","user_claim":"sub","bound_claims":"PLANTED"}`,
			`{"role_type":"jwt","user_claim":"sub","claim_mappings":"PLANTED"}`},
		"kv2/metadata/a":      {`{"custom_metadata":"PLANTED"}`, `{"custom_metadata":{"a":["PLANTED"]}}`},
		"sys/mounts/kv2/tune": {`{"options":"PLANTED"}`, `{"passthrough_request_headers":{"a":"PLANTED"}}`},
		"auth/token/create": {`{"meta":"PLANTED"}`, `{"meta":{"a":["PLANTED"]}}`,
			`{"num_uses":"PLANTED"}`},
		"auth/approle/role/app/bind-secret-id": {`{"bind_secret_id":"PLANTED"}`},
	} {
		for _, body := range bodies {
			if _, err := h.as(h.root, secrets.Update, path, body); err == nil || strings.Contains(err.Error(), "PLANTED") {
				t.Errorf("%s %s: %v", path, body, err)
			}
		}
	}
	h.Seal() // writes what waits
	if raw, err := os.ReadFile(log); err != nil || strings.Contains(string(raw), "PLANTED") ||
		!strings.Contains(string(raw), "claim_mappings") {
		t.Errorf("the audit log repeats what could not be read, or says nothing: %v", err)
	}
}

// CVE-2025-64761: who could write groups gave them, and so themselves, the policy root.
func TestCVE_2025_64761_GroupsGiveNoRoot(t *testing.T) {
	h := newHouse(t)
	h.users("ann")
	h.policy("operator",
		`path "identity/*" { capabilities = ["create", "read", "update", "patch", "delete", "list"] } path `+
			`"sys/policies/acl/*" { capabilities = ["create", "update"] }`)
	operator := h.token(`{"policies":["operator"]}`)
	ann := h.loginAs("ann")
	for _, name := range []string{"root", "ROOT", " root ", "Root\t", "root,default"} {
		for path, more := range map[string]string{"identity/group": `"member_entity_ids":["` + ann.Entity + `"],`,
			"identity/group/name/g":            `"member_entity_ids":["` + ann.Entity + `"],`,
			"identity/entity/id/" + ann.Entity: "", "identity/entity": `"id":"` + ann.Entity + `",`} {
			for _, form := range []string{`"` + strings.ReplaceAll(name, "\t", `\t`) + `"`, `["` + strings.ReplaceAll(name, "\t",
				`\t`) + `"]`} {
				_, _ = h.as(operator, secrets.Update, path, `{`+more+`"policies":`+form+`}`)
				h.refused(errkind.Denied, ann.ID, secrets.Read, "sys/mounts", "")
			}
		}
	}
	h.refused(errkind.Invalid, operator, secrets.Update, "sys/policies/acl/root",
		`{"policy":"path \"*\" { capabilities = [\"sudo\"] }"}`)
	h.ok(secrets.Update, "identity/group", `{"name":"ops","policies":["operator"],"member_entity_ids":["`+ann.Entity+`"]}`)
	if _, err := h.as(ann.ID, secrets.List, "identity/group/name/", ""); errors.Is(err, rights.ErrDenied) {
		t.Error("a group gives no policy at all, so the test shows nothing")
	}
}
