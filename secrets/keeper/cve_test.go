package keeper

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/policy"
)

// What was found in Vault or OpenBao must not be found here. Each test is named by the id of the finding and of
// its twin in the other; the comment says what it was.

// CVE-2025-6004, CVE-2025-54998: a name in other letters was another one to the lock-out.
func TestCVE_2025_6004_LockoutByCase(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/auth/userpass", `{"type":"userpass"}`)
	h.ok(secrets.Update, "auth/userpass/users/ann", text(t, map[string]string{"password_hash": quick(t)}))
	answered := 0
	for _, name := range []string{"ann", "Ann", "aNn", "anN", "ANN", "aNN", "AnN", "ANn", "ann", "ANN"} {
		if _, err := h.as("", secrets.Update, "auth/userpass/login/"+name, `{"password":"guess"}`); errkind.Is(err,
			errkind.Invalid) {
			answered++
		}
	}
	if answered != 5 {
		t.Errorf("%d guesses were answered, want 5", answered)
	}
	for _, name := range []string{"ann", "ANN", " ann", "ann ", "ann/"} {
		if _, err := h.as("", secrets.Update, "auth/userpass/login/"+name, `{"password":"pw"}`); err == nil {
			t.Errorf("%q logged in while ann is locked out", name)
		}
	}
}

// CVE-2025-5999, CVE-2025-54996, CVE-2024-9180: policies by other ways than tokens, and "root" in other spellings,
// made root.
func TestCVE_2025_5999_RootBySpelling(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/auth/userpass", `{"type":"userpass"}`)
	h.ok(secrets.Update, "auth/userpass/users/ann", text(t, map[string]string{"password_hash": quick(t)}))
	r, err := h.as("", secrets.Update, "auth/userpass/login/ann", `{"password":"pw"}`)
	if err != nil {
		t.Fatal(err)
	}
	entity, ann := r.Token.Entity, r.Token.ID
	if entity == "" {
		t.Fatal("the login has no entity")
	}
	for _, name := range []string{"root", "Root", "ROOT", " root", "root ", "\troot", "root\n", "ro\u200bot",
		"root,default"} {
		list := text(t, []string{name})
		for path, body := range map[string]string{
			"identity/entity/id/" + entity:     `{"policies":` + list + `}`,
			"identity/group/name/g":            `{"policies":` + list + `,"member_entity_ids":["` + entity + `"]}`,
			"auth/userpass/users/ann":          `{"token_policies":` + list + `}`,
			"auth/userpass/users/ann/policies": `{"token_policies":` + list + `}`,
		} {
			_, _ = h.as(h.root, secrets.Update, path, body) // refused or without effect
			if _, err := h.as(ann, secrets.Read, "sys/mounts", ""); err == nil {
				t.Fatalf("%s with %q made a token root", path, name)
			}
			if r, err := h.as("", secrets.Update, "auth/userpass/login/ann", `{"password":"pw"}`); err == nil {
				if _, err := h.as(r.Token.ID, secrets.Read, "sys/mounts", ""); err == nil {
					t.Fatalf("%s with %q made a login root", path, name)
				}
			}
		}
		h.ok(secrets.Update, "sys/policy/maker",
			`{"policy":"path \"auth/token/*\" { capabilities = [\"create\", \"update\", \"sudo\"] }"}`)
		maker := h.token(`{"policies":["maker"]}`)
		for _, path := range []string{"auth/token/create", "auth/token/create-orphan"} {
			if r, err := h.as(maker, secrets.Update, path, `{"policies":`+list+`}`); err == nil {
				if _, err := h.as(r.Token.ID, secrets.Read, "sys/mounts", ""); err == nil {
					t.Fatalf("%s with %q made a root token from one that is none", path, name)
				}
			}
		}
	}
}

// CVE-2025-6000, CVE-2025-54997: an audit log with a prefix and an executable mode became a program of the server's.
func TestCVE_2025_6000_AuditIsNoProgram(t *testing.T) {
	h := newHouse(t)
	folder := t.TempDir()
	h.audits.Config.Rules.Folder = filepath.Join(folder, "logs")
	for _, options := range []map[string]string{
		{"file_path": folder + "/plugin"}, {"file_path": folder + "/logs/../plugin"}, {"file_path": folder + "/logs/plugin",
			"mode": "0755"}, {"file_path": folder + "/logs/plugin", "mode": "0711"},
		{"file_path": folder + "/logs/plugin", "prefix": "#!/bin/sh\nid #"}, {"file_path": "/etc/cron.d/x"},
		{"path": "/etc/cron.d/x"}, {"file_path": "stdout", "path": "/etc/cron.d/x", "prefix": "x"},
	} {
		h.refused(errkind.Invalid, h.root, secrets.Update, "sys/audit/x", text(t, map[string]any{"type": "file",
			"options": options}))
	}
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/audit/x", text(t, map[string]any{"type": "socket",
		"options": map[string]string{"address": "127.0.0.1:22"}}))
	if list, err := os.ReadDir(folder); err != nil || len(list) != 0 {
		t.Errorf("something was made: %v, %v", list, err)
	}
}

// CVE-2025-6011, CVE-2025-6010, CVE-2025-54999: a name that nobody has was answered sooner, since nothing was hashed.
func TestCVE_2025_6011_UnknownNamesCostAHashToo(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/auth/userpass", `{"type":"userpass"}`)
	h.ok(secrets.Update, "auth/userpass/users/ann", text(t, map[string]string{"password_hash": quick(t)}))
	said := map[string]bool{}
	for i, name := range []string{"ann", "nobody"} {
		_, err := h.as("", secrets.Update, "auth/userpass/login/"+name, `{"password":"guess"}`)
		said[fmt.Sprint(err)] = true
		if got := h.owners.mounts.Hashing.Stats().Granted; got != uint64(i+1) {
			t.Errorf("after %s %d passwords were hashed", name, got)
		}
	}
	if len(said) != 1 {
		t.Errorf("the answers differ: %v", said)
	}
}

// CVE-2025-6203, CVE-2025-12044, CVE-2025-59043: JSON that is deep, or of many small values, took memory and time
// before anybody was asked for a token.
func TestCVE_2025_6203_DeepAndWideBodies(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/auth/userpass", `{"type":"userpass"}`)
	for name, body := range map[string]string{
		"deep": `{"password":` + strings.Repeat("[", 1<<20), "deep and closed": strings.Repeat(`{"a":`,
			100_000) + "1" + strings.Repeat("}", 100_000),
		"wide": `{"password":[` + strings.Repeat("{},", 510_000) + `{}]}`, "many names": `{` + strings.Repeat(`"a":0,`,
			510_000) + `"a":0}`,
	} {
		_, err := h.as("", secrets.Update, "auth/userpass/login/ann", body)
		if kind := errkind.Of(err); kind != errkind.Invalid && kind != errkind.TooLarge {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := secrets.ParseFields([]byte(`{"csv":"` + strings.Repeat("1,", 510_000) + `"}`)); err != nil {
		t.Errorf("a long text: %v", err)
	}
}

// CVE-2025-4166, CVE-2025-52893: what could not be read was put into errors and logs as it came.
func TestCVE_2025_4166_MalformedBodiesAreNotRepeated(t *testing.T) {
	h := newHouse(t)
	for path, body := range map[string]string{"kv2/data/a": `{"data":"PLANTED"}`, "kv2/data/b": `{"data":{"x":"PLANTED"`,
		"kv2/data/c": `{"data":{"x":"y"},"options":{"cas":"PLANTED"}}`, "secret/a": `PLANTED`,
		"auth/token/create": `{"ttl":"PLANTED"}`, "auth/token/renew": `{"increment":"PLANTED"}`,
		"sys/wrapping/unwrap": `{"token":["PLANTED"]}`, "kv2/metadata/a": `{"delete_version_after":"PLANTED"}`} {
		if _, err := h.as(h.root, secrets.Update, path, body); err == nil || strings.Contains(err.Error(), "PLANTED") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// CVE-2024-0831: after a device with log_raw was enabled, others wrote in plain as well.
func TestCVE_2024_0831_RawIsOneDevices(t *testing.T) {
	h := newHouse(t)
	t.Cleanup(h.Seal)
	h.audits.Config.Rules.Folder = t.TempDir()
	log := func(name string) string { return filepath.Join(h.audits.Config.Rules.Folder, name) }
	for name, raw := range map[string]string{"raw": "true", "hashed": "false"} {
		h.ok(secrets.Update, "sys/audit/"+name, text(t, map[string]any{"type": "file",
			"options": map[string]string{"file_path": log(name), "log_raw": raw}}))
	}
	h.ok(secrets.Update, "secret/a", `{"x":"PLANTED"}`)
	h.Seal() // writes what waits
	logged(t, log("hashed"), "PLANTED", h.root)
	if text, err := os.ReadFile(log("raw")); err != nil || !bytes.Contains(text, []byte("PLANTED")) {
		t.Errorf("the raw device does not write raw: %v", err)
	}
}

// CVE-2025-62705, GO-2025-4049: answers that are not of strings, and bodies of other kinds than JSON, were recorded
// in plain.
func TestCVE_2025_62705_RawBodiesAreHashed(t *testing.T) {
	h := newHouse(t)
	t.Cleanup(h.Seal)
	h.audits.Config.Rules.Folder = t.TempDir()
	log := filepath.Join(h.audits.Config.Rules.Folder, "log")
	h.ok(secrets.Update, "sys/audit/file", text(t, map[string]any{"type": "file",
		"options": map[string]string{"file_path": log}}))
	r, err := h.Handle(t.Context(), &secrets.Request{Op: secrets.Update, Path: "sys/wrapping/wrap",
		Body: []byte(`{"v":"PLANTED"}`), Caller: secrets.Caller{Token: h.root}, Wrap: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if r := h.ok(secrets.Update, "sys/wrapping/unwrap", `{"token":"`+r.Wrap.Token+`"}`); !bytes.Contains(r.Raw.Body,
		[]byte("PLANTED")) {
		t.Errorf("unwrapped: %s", r.Raw.Body)
	}
	h.ok(secrets.Update, "sys/tools/random", `{"bytes":64}`)
	lines := logged(t, log, "PLANTED")
	if body := fmt.Sprint(inside(lines[len(lines)-3], "response", "data", "http_raw_body")); !strings.HasPrefix(body,
		"hmac-sha256:") {
		t.Errorf("the body of a raw answer is recorded as %s", body)
	}
}

// CVE-2023-24999: by an accessor one could destroy the secret id of another role.
func TestCVE_2023_24999_AccessorsAreOfTheirRole(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/auth/approle", `{"type":"approle"}`)
	for _, role := range []string{"mine", "other"} {
		h.ok(secrets.Update, "auth/approle/role/"+role, `{"token_policies":"default"}`)
	}
	role := field(t, h.ok(secrets.Read, "auth/approle/role/other/role-id", ""), "role_id")
	made := h.ok(secrets.Update, "auth/approle/role/other/secret-id", `{}`)
	id, accessor := field(t, made, "secret_id").(string), field(t, made, "secret_id_accessor").(string)
	for _, what := range []string{"lookup", "destroy"} {
		if r, err := h.as(h.root, secrets.Update, "auth/approle/role/mine/secret-id-accessor/"+what,
			`{"secret_id_accessor":"`+accessor+`"}`); err == nil && r.Data != nil {
			t.Errorf("%s by another role: %s", what, r.Data)
		}
		_, _ = h.as(h.root, secrets.Update, "auth/approle/role/mine/secret-id/"+what, `{"secret_id":"`+id+`"}`)
	}
	if _, err := h.as("", secrets.Update, "auth/approle/login", fmt.Sprintf(`{"role_id":%q,"secret_id":%q}`, role,
		id)); err != nil {
		t.Errorf("the secret id is gone: %v", err)
	}
}

// CVE-2023-5954, CVE-2023-6337: what requests made the server remember grew without bound.
func TestCVE_2023_5954_CachesAreBounded(t *testing.T) {
	h := newHouse(t)
	rules := mount.DefaultLockout()
	for range 5 {
		h.owners.mounts.Lockout.Tell(&rules, "mount\x00victim", h.now, false)
	}
	for i := range 70_000 {
		h.owners.mounts.Lockout.Tell(&rules, fmt.Sprint("mount\x00name-", i), h.now, false)
	}
	if !h.owners.mounts.Lockout.Locked(&rules, "mount\x00victim", h.now) {
		t.Error("guesses at other names let a name guess on that was locked out")
	}
	if n := len(h.owners.mounts.Lockout.Names(&rules, "mount", h.now)); n > 1<<16 {
		t.Errorf("%d names are remembered", n)
	}
	for i := range 2000 {
		_, _ = h.as(fmt.Sprint("hvs.nobody-", i), secrets.Read, "secret/a", "")
	}
	if kept := h.rights.Count(); kept > 1 { // the root token
		t.Errorf("%d tokens that nobody made are remembered", kept-1)
	}
}

// CVE-2023-0665: who could not write an issuer's settings could.
func TestCVE_2023_0665_IssuersAskForRights(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/mounts/pki", `{"type":"pki"}`)
	h.ok(secrets.Update, "sys/policy/reader", `{"policy":"path \"pki/*\" { capabilities = [\"read\", \"list\"] }"}`)
	reader := h.token(`{"policies":["reader"]}`)
	for path, ops := range map[string][]secrets.Operation{"pki/issuer/default": {secrets.Update, secrets.Patch,
		secrets.Delete}, "pki/key/default": {secrets.Update, secrets.Delete}, "pki/config/issuers": {secrets.Update},
		"pki/root": {secrets.Delete}} {
		for _, op := range ops {
			h.refused(errkind.Denied, reader, op, path, `{"issuer_name":"x"}`)
		}
	}
}

// CVE-2021-32923: a token in its last second could be renewed into one without an end.
func TestCVE_2021_32923_LastSecondGivesNoNewLife(t *testing.T) {
	h := newHouse(t)
	made := h.ok(secrets.Update, "auth/token/create",
		`{"policies":["default"],"ttl":"10s","explicit_max_ttl":"10s"}`).Token
	h.wait(9*time.Second + 999*time.Millisecond)
	r, err := h.as(made.ID, secrets.Update, "auth/token/renew-self", `{"increment":"1h"}`)
	if err == nil && (r.Token.Left > 10*time.Millisecond || r.Token.Expires.IsZero()) {
		t.Errorf("renewed to %v, %v", r.Token.Left, r.Token.Expires)
	}
	h.wait(time.Millisecond)
	h.refused(errkind.Denied, made.ID, secrets.Update, "auth/token/renew-self", "")
	h.refused(errkind.Denied, made.ID, secrets.Read, "auth/token/lookup-self", "")
}

// CVE-2020-25816: leases of a token lived on after it.
func TestCVE_2020_25816_LeasesEndWithTheirToken(t *testing.T) {
	h, e := leaseHouse(t)
	app := h.token(`{"policies":["app"],"ttl":"1m"}`)
	once := h.token(`{"policies":["app"],"num_uses":1}`)
	if _, err := h.as(app, secrets.Read, "db/creds/a", ""); err != nil {
		t.Fatal(err)
	}
	if r, err := h.as(once, secrets.Read, "db/creds/a", ""); err == nil {
		t.Errorf("the last use of a token gave the lease %s", r.Lease.ID)
	}
	h.wait(2 * time.Minute)
	if _, err := h.tokens.Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.expireLeases()
	if n := e.count(); n != 0 {
		t.Errorf("%d credentials live on", n)
	}
}

// CVE-2021-43998: a template took its values from another alias than the mount's that it names.
func TestCVE_2021_43998_TemplatesNameTheirMount(t *testing.T) {
	p, err := policy.Parse("p", `path "secret/{{identity.entity.aliases.mount_a.name}}/*" { capabilities = ["read"] }`)
	if err != nil {
		t.Fatal(err)
	}
	resolve := func(name string) (string, bool) {
		v, ok := map[string]string{"identity.entity.aliases.mount_b.name": "other", "identity.entity.name": "ann"}[name]
		return v, ok
	}
	for _, path := range []string{"secret/other/x", "secret//x", "secret/ann/x",
		"secret/{{identity.entity.aliases.mount_a.name}}/x"} {
		if policy.Compile([]*policy.Policy{p}, resolve).Allow(&policy.Request{Path: path, Need: policy.Read}).Allowed {
			t.Errorf("%s is open to who has no alias at the mount", path)
		}
	}
}

// CVE-2026-40264: tokens of others could be renewed and revoked by accessors that had leaked.
func TestCVE_2026_40264_AccessorsOpenNothingByThemselves(t *testing.T) {
	h := newHouse(t)
	victim := h.ok(secrets.Update, "auth/token/create", `{"policies":["default"],"ttl":"1h"}`).Token
	app := h.token(`{"policies":["default"]}`)
	body := `{"accessor":"` + victim.Accessor + `","token":"` + victim.Accessor + `"}`
	for _, path := range []string{"lookup-accessor", "renew-accessor", "revoke-accessor", "lookup", "renew", "revoke",
		"revoke-orphan"} {
		h.refused(errkind.Denied, app, secrets.Update, "auth/token/"+path, body)
		h.refused(errkind.Denied, victim.Accessor, secrets.Update, "auth/token/"+path, body)
	}
	h.refused(errkind.Denied, victim.Accessor, secrets.Read, "auth/token/lookup-self", "")
	if r := h.ok(secrets.Update, "auth/token/lookup-accessor", body); field(t, r, "id") != "" {
		t.Errorf("a look-up by accessor tells the token: %s", r.Data)
	}
}

// TestUnknownAccessors: a revocation of what is not there is done, a look-up is the caller's mistake.
func TestUnknownAccessors(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "auth/token/revoke-accessor", `{"accessor":"none"}`)
	for _, path := range []string{"lookup-accessor", "renew-accessor"} {
		h.refused(errkind.Invalid, h.root, secrets.Update, "auth/token/"+path, `{"accessor":"none"}`)
	}
}
