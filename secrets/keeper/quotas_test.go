package keeper

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/quota"
	"corbel.dev/corbel/secrets/task"
)

func (h *house) from(addr string, op secrets.Operation, path string) error {
	_, err := h.Handle(h.t.Context(), &secrets.Request{Op: op, Path: path, Caller: secrets.Caller{Token: h.root},
		Origin: secrets.Origin{Remote: netip.MustParseAddr(addr)}})
	return err
}

func TestRateLimitQuotas(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "secret/a", `{"x":1}`)
	h.refused(errkind.NotFound, h.root, secrets.List, "sys/quotas/rate-limit/", "")
	for _, body := range []string{`{}`, `{"rate":0}`, `{"rate":"x"}`, `{"rate":1,"path":"none/"}`,
		`{"rate":1,"interval":"1ms"}`, `{"rate":1,"role":"r","path":"secret"}`, `{"rate":1,"group_by":"moon"}`} {
		h.refused(errkind.Invalid, h.root, secrets.Update, "sys/quotas/rate-limit/kv", body)
	}
	h.ok(secrets.Update, "sys/quotas/rate-limit/kv", `{"rate":"2","interval":"1h","path":"secret"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/quotas/rate-limit/other", `{"rate":1,"path":"secret/"}`)
	if r := h.ok(secrets.Read, "sys/quotas/rate-limit/kv", ""); string(r.Data) !=
		`{"block_interval":0,"group_by":"ip","inheritable":false,"interval":3600,"name":"kv","path":"secret/","rate":2,`+
			`"role":"","type":"rate-limit"}` {
		t.Errorf("the rule reads %s", r.Data)
	}
	for range 2 { // the second time after a restart, which forgets what was counted
		for i, want := range []bool{true, true, false, false} {
			if err := h.from("10.0.0.1", secrets.Read, "secret/a"); (err == nil) != want ||
				(err != nil && !errkind.Is(err, errkind.Overloaded)) {
				t.Errorf("request %d: %v", i, err)
			}
		}
		for addr, path := range map[string]string{"10.0.0.2": "secret/a", "10.0.0.1": "sys/mounts"} {
			if err := h.from(addr, secrets.Read, path); err != nil {
				t.Errorf("%s %s: %v", addr, path, err)
			}
		}
		h.Seal()
		h.unseal()
	}
	h.ok(secrets.Update, "sys/quotas/config",
		`{"rate_limit_exempt_paths":["secret/*"],"enable_rate_limit_response_headers":true}`)
	if r := h.ok(secrets.Read, "sys/quotas/config", ""); !strings.Contains(string(r.Data),
		`"rate_limit_exempt_paths":["secret/*"]`) {
		t.Errorf("the settings are %s", r.Data)
	}
	for range 5 {
		if err := h.from("10.0.0.3", secrets.Read, "secret/a"); err != nil {
			t.Error(err)
		}
	}
	h.ok(secrets.Delete, "sys/quotas/rate-limit/kv", "")
	h.refused(errkind.NotFound, h.root, secrets.Read, "sys/quotas/rate-limit/kv", "")
}

// A lease past the quota does not come to be, nor what its engine made for it; room comes back when leases end.
func TestLeaseCountQuotas(t *testing.T) {
	h, e := leaseHouse(t)
	var ids []string
	for range 3 {
		ids = append(ids, h.ok(secrets.Read, "db/creds/app", "").Lease.ID)
	}
	h.ok(secrets.Update, "sys/quotas/lease-count/db", `{"path":"db","max_leases":4}`)
	counter := func() any { return field(t, h.ok(secrets.Read, "sys/quotas/lease-count/db", ""), "counter") }
	if got := counter(); got != 3.0 {
		t.Errorf("%v leases are counted of 3", got)
	}
	h.ok(secrets.Read, "db/creds/app", "")
	h.refused(errkind.Overloaded, h.root, secrets.Read, "db/creds/app", "")
	if got, live := counter(), e.count(); got != 4.0 || live != 4 {
		t.Errorf("after a refusal %v leases are counted and %d credentials live", got, live)
	}
	h.ok(secrets.Update, "sys/leases/revoke", text(t, map[string]string{"lease_id": ids[0]}))
	// nothing is left to give room back
	h.ok(secrets.Update, "sys/leases/revoke", text(t, map[string]string{"lease_id": ids[0]}))
	if got := counter(); got != 3.0 {
		t.Errorf("after a revocation %v", got)
	}
	h.Seal()
	h.unseal()
	if got := counter(); got != 3.0 {
		t.Errorf("after a restart %v", got)
	}
	h.ok(secrets.Read, "db/creds/app", "")
	h.refused(errkind.Overloaded, h.root, secrets.Read, "db/creds/app", "")
}

// Logins and tokens are leases: a quota counts them, refuses politely past it, and gives room back however they end.
func TestLeaseCountQuotasOfTokens(t *testing.T) {
	h := newHouse(t)
	h.users("ann")
	login := func() (*task.Reply, error) {
		return h.as("", secrets.Update, "auth/userpass/login/ann", `{"password":"pw"}`)
	}
	first := h.loginAs("ann")
	h.ok(secrets.Update, "sys/quotas/lease-count/logins", `{"path":"auth/userpass","max_leases":3}`)
	counts := func(name string, want float64) {
		t.Helper()
		if got := field(t, h.ok(secrets.Read, "sys/quotas/lease-count/"+name, ""), "counter"); got != want {
			t.Errorf("%v leases are counted, want %v", got, want)
		}
	}
	counts("logins", 1)
	second, third := h.loginAs("ann"), h.loginAs("ann")
	var over *quota.Exceeded
	if _, err := login(); !errkind.Is(err, errkind.Overloaded) || !errors.As(err, &over) {
		t.Fatalf("a login past the quota: %v", err)
	}
	counts("logins", 3)
	h.ok(secrets.Update, "auth/token/revoke-accessor", text(t, map[string]string{"accessor": first.Token.Accessor}))
	counts("logins", 2)
	h.Seal()
	h.unseal()
	counts("logins", 2)
	h.ok(secrets.Update, "sys/leases/revoke", text(t, map[string]string{"lease_id": second.Token.LeaseID()}))
	counts("logins", 1)
	h.ok(secrets.Update, "sys/leases/revoke-prefix/auth/userpass/login", "")
	counts("logins", 0)
	if h.alive(third.ID) {
		t.Error("a token lives whose prefix was revoked")
	}

	// Children that go with their parent, tokens that expire, and batch tokens and root tokens.
	h.ok(secrets.Update, "sys/quotas/lease-count/tokens", `{"path":"auth/token","max_leases":4}`)
	h.policy("maker", `path "auth/token/create" { capabilities = ["update"] }`)
	parent := h.token(`{"policies":["maker"],"ttl":"1h"}`)
	for range 2 {
		if _, err := h.as(parent, secrets.Update, "auth/token/create", `{"ttl":"1h"}`); err != nil {
			t.Fatal(err)
		}
	}
	h.token(`{"policies":["maker"],"ttl":"1m"}`)
	counts("tokens", 4)
	h.refused(errkind.Overloaded, h.root, secrets.Update, "auth/token/create", `{"policies":["maker"],"ttl":"1h"}`)
	h.refused(errkind.Overloaded, h.root, secrets.Update, "auth/token/create",
		`{"policies":["maker"],"ttl":"1h","type":"batch"}`)
	h.ok(secrets.Update, "auth/token/create", `{"policies":["root"]}`)
	root := h.token(`{"policies":["root"],"ttl":"1h"}`)
	counts("tokens", 5) // it has a lease, and was not refused
	h.wait(2 * time.Minute)
	h.expire()
	counts("tokens", 4)
	if _, err := h.as(parent, secrets.Update, "auth/token/revoke-self", ""); err != nil {
		t.Fatal(err)
	}
	counts("tokens", 1)
	h.token(`{"policies":["maker"],"ttl":"1h","type":"batch"}`)
	counts("tokens", 1)
	if _, err := h.as(root, secrets.Update, "auth/token/revoke-self", ""); err != nil {
		t.Fatal(err)
	}
	counts("tokens", 0)
}
