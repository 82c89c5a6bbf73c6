package keeper

import (
	"net/netip"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

func (h *house) from(addr string, op secrets.Operation, path string) error {
	_, err := h.Handle(h.t.Context(), &secrets.Request{Op: op, Path: path, Token: h.root, Remote: netip.MustParseAddr(addr)})
	return err
}

func TestRateLimitQuotas(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "secret/a", `{"x":1}`)
	h.refused(errkind.NotFound, h.root, secrets.List, "sys/quotas/rate-limit/", "")
	for _, body := range []string{`{}`, `{"rate":0}`, `{"rate":"x"}`, `{"rate":1,"path":"none/"}`, `{"rate":1,"interval":"1ms"}`, `{"rate":1,"role":"r","path":"secret"}`, `{"rate":1,"group_by":"moon"}`} {
		h.refused(errkind.Invalid, h.root, secrets.Update, "sys/quotas/rate-limit/kv", body)
	}
	h.ok(secrets.Update, "sys/quotas/rate-limit/kv", `{"rate":"2","interval":"1h","path":"secret"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/quotas/rate-limit/other", `{"rate":1,"path":"secret/"}`)
	if r := h.ok(secrets.Read, "sys/quotas/rate-limit/kv", ""); string(r.Data) !=
		`{"block_interval":0,"group_by":"ip","inheritable":false,"interval":3600,"name":"kv","path":"secret/","rate":2,"role":"","type":"rate-limit"}` {
		t.Errorf("the rule reads %s", r.Data)
	}
	for range 2 { // the second time after a restart, which forgets what was counted
		for i, want := range []bool{true, true, false, false} {
			if err := h.from("10.0.0.1", secrets.Read, "secret/a"); (err == nil) != want || (err != nil && !errkind.Is(err, errkind.Overloaded)) {
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
	h.ok(secrets.Update, "sys/quotas/config", `{"rate_limit_exempt_paths":["secret/*"],"enable_rate_limit_response_headers":true}`)
	if r := h.ok(secrets.Read, "sys/quotas/config", ""); !strings.Contains(string(r.Data), `"rate_limit_exempt_paths":["secret/*"]`) {
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
	h.ok(secrets.Update, "sys/leases/revoke", text(t, map[string]string{"lease_id": ids[0]})) // nothing is left to give room back
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
