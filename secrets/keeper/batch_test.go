package keeper

import (
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/task"
)

func TestBatchTokens(t *testing.T) {
	h := newHouse(t)
	h.policy("app", `path "secret/*" { capabilities = ["read", "create", "update"] } path "auth/token/*" { `+
		`capabilities = ["update"] }`)
	var made *task.Issued
	before := len(h.keysBelow(""))
	if n := h.commits(func() {
		made = h.ok(secrets.Update, "auth/token/create",
			`{"type":"batch","policies":["app"],"ttl":"1h","meta":{"k":"v"},"renewable":true}`).Token
	}); n != 0 || len(h.keysBelow("")) != before {
		t.Errorf("a batch token is stored: %d commits", n)
	}
	if !strings.HasPrefix(made.ID, "hvb.") || made.Accessor != "" || made.Renewable || made.Type() != "batch" {
		t.Errorf("made %+v", made.Token)
	}
	if _, err := h.as(made.ID, secrets.Update, "secret/x", `{"a":"b"}`); err != nil {
		t.Errorf("a write: %v", err)
	}
	r, err := h.as(made.ID, secrets.Read, "auth/token/lookup-self", "")
	if err != nil || field(t, r, "type") != "batch" || field(t, r, "ttl") != 3600.0 || field(t, r, "accessor") != "" ||
		field(t, r, "orphan") != false {
		t.Errorf("looks like %+v, %v", r, err)
	}
	for path, body := range map[string]string{"auth/token/renew-self": "", "auth/token/revoke-self": "",
		"auth/token/create": `{}`, "cubbyhole/x": `{"a":"b"}`} {
		h.refused(errkind.Invalid, made.ID, secrets.Update, path, body)
	}
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/token/revoke", text(t, map[string]string{"token": made.ID}))
	for field, body := range map[string]string{"num_uses": `"num_uses":1`, "period": `"period":"1h"`,
		"explicit_max_ttl": `"explicit_max_ttl":"1h"`, `"id"`: `"id":"mine"`, `"policies"`: `"policies":["root"]`} {
		if _, err := h.as(h.root, secrets.Update, "auth/token/create", `{"policies":["app"],"type":"batch",`+body+
			`}`); !errkind.Is(err, errkind.Invalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", body, err)
		}
	}
	for i := range len(made.ID) - 4 { // every changed letter, bit by bit enough: nobody made that token
		letters := []byte(made.ID)
		if letters[i+4]++; i%7 == 0 {
			letters[i+4] = 'A'
		}
		if string(letters) == made.ID || i == len(made.ID)-5 { // the last letter may hold unused bits
			continue
		}
		if _, err := h.as(string(letters), secrets.Read, "secret/x", ""); !errkind.Is(err, errkind.Denied) {
			t.Fatalf("changed at %d: %v", i, err)
		}
	}
	h.ok(secrets.Update, "sys/rotate", "")
	h.Seal()
	h.unseal()
	if _, err := h.as(made.ID, secrets.Read, "secret/x", ""); err != nil {
		t.Errorf("after a rotation and a restart: %v", err)
	}
	h.wait(time.Hour)
	h.refused(errkind.Denied, made.ID, secrets.Read, "secret/x", "")
}

// The rule by which the barrier's key changes is the operator's, and is there after a restart.
func TestRotationRule(t *testing.T) {
	h := newHouse(t)
	rule := func() string { return string(h.ok(secrets.Read, "sys/rotate/config", "").Data) }
	if got := rule(); got != `{"enabled":true,"interval":0,"max_operations":3865470566}` {
		t.Errorf("at first: %s", got)
	}
	for _, body := range []string{`{"max_operations":10}`, `{"max_operations":3865470567}`, `{"interval":"1h"}`,
		`{"enabled":"perhaps"}`, `{"interval":"x"}`} {
		h.refused(errkind.Invalid, h.root, secrets.Update, "sys/rotate/config", body)
	}
	h.ok(secrets.Update, "sys/rotate/config", `{"interval":"24h"}`)
	h.ok(secrets.Update, "sys/rotate/config", `{"max_operations":2000000}`)
	h.Seal()
	h.unseal()
	if got := rule(); got != `{"enabled":true,"interval":"24h0m0s","max_operations":2000000}` {
		t.Errorf("after a restart: %s", got)
	}
	for i, want := range []int{0, 1, 0} {
		if n, err := h.TendKeys(t.Context()); n != want || err != nil {
			t.Errorf("look %d: %d, %v; want %d", i, n, err, want)
		}
		if i == 0 {
			h.wait(25 * time.Hour)
		}
	}
	h.ok(secrets.Update, "sys/rotate/config", `{"enabled":false}`)
	h.wait(25 * time.Hour)
	if n, err := h.TendKeys(t.Context()); n != 0 || err != nil {
		t.Errorf("turned off: %d, %v", n, err)
	}
}

// A batch token ends with what it was made below, and its leases with that or with the token's time.
func TestBatchTokensBelow(t *testing.T) {
	h, l := leaseHouse(t)
	h.policy("app", `path "db/*" { capabilities = ["read"] } path "auth/token/*" { capabilities = ["update", "sudo"] }`)
	parent := h.token(`{"policies":["app"],"ttl":"10h"}`)
	below := func(path string) string {
		r, err := h.as(parent, secrets.Update, "auth/token/"+path, `{"type":"batch","ttl":"30m"}`)
		if err != nil {
			t.Fatal(err)
		}
		return r.Token.ID
	}
	child, orphan := below("create"), below("create-orphan")
	for _, id := range []string{child, orphan} {
		r, err := h.as(id, secrets.Read, "db/creds", "")
		if err != nil || r.Lease.Left > 30*time.Minute {
			t.Fatalf("a lease: %+v, %v", r, err)
		}
		renewed, err := h.as(h.root, secrets.Update, "sys/leases/renew",
			text(t, map[string]any{"lease_id": r.Lease.ID, "increment": 7200}))
		if err != nil || renewed.Lease.Left > 30*time.Minute {
			t.Errorf("renewed: %+v, %v", renewed, err)
		}
	}
	h.ok(secrets.Update, "auth/token/revoke", text(t, map[string]string{"token": parent}))
	h.refused(errkind.Denied, child, secrets.Read, "db/creds", "")
	if _, err := h.as(orphan, secrets.Read, "db/creds", ""); err != nil {
		t.Errorf("an orphan ends with its maker: %v", err)
	}
	if _, err := h.leases.ExpireLeases(t.Context()); err != nil || l.count() != 2 {
		t.Errorf("%d leases ended with the parent: %v", l.count(), err)
	}
}

func TestBatchLogins(t *testing.T) {
	h := newHouse(t)
	h.users("ann")
	h.ok(secrets.Update, "auth/userpass/users/ann", `{"token_type":"batch","token_ttl":"5m"}`)
	tok := h.loginAs("ann")
	if !tok.Batch || tok.Entity == "" {
		t.Errorf("the login gives %+v", tok.Token)
	}
	h.ok(secrets.Update, "identity/entity/id/"+tok.Entity, `{"disabled":true}`)
	h.refused(errkind.Denied, tok.ID, secrets.Read, "auth/token/lookup-self", "")
	h.ok(secrets.Update, "identity/entity/id/"+tok.Entity, `{"disabled":false}`)
	h.ok(secrets.Update, "sys/auth/userpass/tune", `{"token_type":"service"}`)
	if tok := h.loginAs("ann"); tok.Batch {
		t.Error("the mount's token type does not overrule the role's")
	}
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/auth/userpass/tune", `{"token_type":"odd"}`)
	h.ok(secrets.Update, "sys/auth/userpass/tune", `{"token_type":"default-batch"}`)
	h.ok(secrets.Update, "auth/userpass/users/ann", `{"token_type":"default","token_num_uses":3}`)
	h.refused(errkind.Invalid, "", secrets.Update, "auth/userpass/login/ann", `{"password":"pw"}`)
	h.ok(secrets.Update, "auth/token/roles/r", `{"token_type":"default-batch","allowed_policies":"app"}`)
	for body, want := range map[string]bool{`{}`: true, `{"type":"service"}`: false, `{"type":"batch"}`: true} {
		if r := h.ok(secrets.Update, "auth/token/create/r", body); r.Token.Batch != want {
			t.Errorf("by a role of default-batch: %s: %+v", body, r.Token.Token)
		}
	}
}
