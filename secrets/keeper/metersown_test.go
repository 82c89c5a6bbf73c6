package keeper

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/telemetry"
)

// meteredHouse is a house of leases that counts.
func meteredHouse(t *testing.T) (*house, *issuer, *telemetry.Registry) {
	h := newHouse(t)
	reg := telemetry.New(telemetry.Config{Settings: telemetry.Settings{MetricsPrefix: "vault"}})
	k, err := newKeeper(Config{Storage: h.store, Now: func() time.Time { return h.now }, Metrics: reg, ClusterName: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	h.Keeper = k
	h.unseal()
	h.ok(secrets.Update, "sys/mounts/db", `{"type":"issuer"}`)
	made, _ := issuers.Load(h.Keeper)
	t.Cleanup(func() { issuers.Delete(h.Keeper) })
	return h, made.(*issuer), reg
}

// counts compares what names count: timings by how often, counters by their value.
func counts(t *testing.T, reg *telemetry.Registry, when string, want map[string]uint64) {
	t.Helper()
	got := map[string]uint64{}
	for _, s := range reg.Series() {
		switch s.Kind {
		case telemetry.KindTiming:
			var b telemetry.Buckets
			s.TimingTotals(&b)
			b.Each(func(_, _, n uint64) { got[s.Name] += n })
		case telemetry.KindCounter:
			got[s.Name] += s.CounterValue()
		}
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s, %s counts %d, want %d", when, name, got[name], n)
		}
	}
}

// What a server counts of its own life: unsealing, sealing, and whether it is the active one.
func TestMetersOfLife(t *testing.T) {
	h, _, reg := meteredHouse(t)
	counts(t, reg, "unsealed", map[string]uint64{"core.unseal": 1, "core.post_unseal": 1, "core.pre_seal": 0,
		"core.seal-internal": 0})
	gauges := func(want string) {
		t.Helper()
		if got := fmt.Sprint(gaugesOf(reg, "core.active"), gaugesOf(reg, "core.unsealed"), gaugesOf(reg,
			"core.performance_standby")); got != want {
			t.Errorf("active, unsealed and standby are %s, want %s", got, want)
		}
	}
	gauges(" 1 1 0")
	if got := gaugesOf(reg, "core.mount_table.size"); strings.Contains(got, "type=logical,local=false 0") ||
		!strings.Contains(got, "type=auth,local=true 0") {
		t.Errorf("the tables of mounts have %s bytes", got)
	}
	h.ok(secrets.Update, "secret/a", `{"x":"1"}`)
	wrote, dropped := reg.Counter("cache.write").Value(), reg.Counter("cache.delete").Value()
	h.ok(secrets.Update, "secret/a", `{"x":"1"}`)
	h.ok(secrets.Delete, "secret/a", "")
	if w, d := reg.Counter("cache.write").Value()-wrote, reg.Counter("cache.delete").Value()-dropped; w != 1 || d != 1 {
		t.Errorf("a write and a delete are %d and %d of the cache", w, d)
	}
	h.Seal()
	counts(t, reg, "sealed", map[string]uint64{"core.pre_seal": 1, "core.seal-internal": 1})
	gauges(" 0 0 0")
}

// Tokens, leases, the queue of what is due, and entities, after what moves them.
func TestMetersOfLeases(t *testing.T) {
	h, e, reg := meteredHouse(t)
	h.ok(secrets.Update, "auth/token/create", `{"policies":["root"]}`)
	h.ok(secrets.Update, "auth/token/create", `{"policies":["app"],"ttl":"30m"}`)
	counts(t, reg, "two tokens later", map[string]uint64{"token.create_root": 1, "expire.register-auth": 2,
		"token.creation": 2, "identity.entity.creation": 0})
	for range 3 {
		h.ok(secrets.Read, "db/creds/a", "")
	}
	counts(t, reg, "three leases later", map[string]uint64{"expire.register": 3, "secret.lease.creation": 3,
		"expire.lease_expiration": 0})

	h.now = h.now.Add(45 * time.Minute)
	if _, err := h.tokens.Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts(t, reg, "after the token's end", map[string]uint64{"expire.lease_expiration": 1,
		"expire.lease_expiration.time_in_queue": 1, "expire.revoke-by-token": 1, "expire.lease_expiration.error": 0})
	if waited := reg.Timing("expire.lease_expiration.time_in_queue").Sum(); waited != 15*time.Minute {
		t.Errorf("it waited %v", waited)
	}

	e.set(errors.New("away"))
	h.now = h.now.Add(time.Hour)
	h.expireLeases()
	counts(t, reg, "when the engine is away", map[string]uint64{"expire.lease_expiration": 4,
		"expire.lease_expiration.error": 3, "expire.revoke-common": 3})
	accessor := h.gate.Load().Mounts.Get("db/").Accessor
	g := newComeAndGo(reg)
	g.tell([]string{accessor}, func(string) int { return 3 }, h.gate.Load())
	if queue, all := gaugesOf(reg, "expire.job_manager.queue_length"), gaugesOf(reg,
		"expire.job_manager.total_jobs"); queue != "queue_id="+accessor+" 3" || all != " 3" {
		t.Errorf("the queues are %s; together %s", queue, all)
	}
	e.set(nil)
	h.now = h.now.Add(24 * time.Hour)
	h.expireLeases()
	counts(t, reg, "once it is back", map[string]uint64{"expire.lease_expiration": 7, "expire.lease_expiration.error": 3,
		"expire.revoke-common": 6})
	g.tell([]string{accessor}, h.leases.DueAt, h.gate.Load())
	if queue, all := gaugesOf(reg, "expire.job_manager.queue_length"), gaugesOf(reg,
		"expire.job_manager.total_jobs"); queue != "queue_id="+accessor+" 0" || all != " 0" {
		t.Errorf("nothing is due, and the queues are %s; together %s", queue, all)
	}
	g.gone()
	if queue, all := gaugesOf(reg, "expire.job_manager.queue_length"), gaugesOf(reg,
		"expire.job_manager.total_jobs"); queue+all != "" {
		t.Errorf("a standby tells of queues: %s; %s", queue, all)
	}
}

// Entities that logins and operators make, and no others.
func TestMetersOfEntities(t *testing.T) {
	h, _, reg := meteredHouse(t)
	made := func(method, path string) uint64 {
		return reg.Counter("identity.entity.creation", "cluster", "c1", "namespace", "root", "auth_method", method,
			"mount_point", path).Value()
	}
	h.ok(secrets.Update, "sys/auth/userpass", `{"type":"userpass"}`)
	for _, name := range []string{"ann", "bob"} {
		h.ok(secrets.Update, "auth/userpass/users/"+name, text(t, map[string]any{"password_hash": quick(t)}))
		for range 2 {
			if _, err := h.as("", secrets.Update, "auth/userpass/login/"+name, `{"password":"pw"}`); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := made("userpass", "auth/userpass/"); n != 2 {
		t.Errorf("four logins of two people made %d entities", n)
	}
	h.ok(secrets.Update, "identity/entity", `{"name":"cat"}`)
	h.ok(secrets.Update, "identity/entity", `{"name":"cat","metadata":{"a":"b"}}`)
	h.ok(secrets.Update, "identity/group", `{"name":"g"}`)
	if n := made("identity", "identity/"); n != 1 {
		t.Errorf("an operator's one entity counts %d", n)
	}
}

// The work that engines ask of themselves has the names of Vault's periodic rollbacks; quotas of leases tell how full
// they are.
func TestMetersOfBackground(t *testing.T) {
	h, _, reg := meteredHouse(t)
	h.ok(secrets.Update, "sys/mounts/keys", `{"type":"transit"}`)
	for range 2 {
		if _, err := h.Tend(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	counts(t, reg, "after two rounds", map[string]uint64{"rollback.attempt.keys-": 2, "rollback.attempt.identity-": 2,
		"route.rollback.keys-": 2, "rollback.waiting": 4, "rollback.attempt.secret-": 0})
	if got := gaugesOf(reg, "rollback.inflight") + gaugesOf(reg, "rollback.queued"); got != " 0 0" {
		t.Errorf("between rounds are under way and wait: %s", got)
	}
	h.ok(secrets.Update, "sys/quotas/lease-count/q", `{"max_leases":7,"path":"db/"}`)
	h.ok(secrets.Read, "db/creds/a", "")
	newComeAndGo(reg).tell(nil, h.leases.DueAt, h.gate.Load())
	if count, most := gaugesOf(reg, "quota.lease_count.counter"), gaugesOf(reg,
		"quota.lease_count.max"); count != "name=q 1" || most != "name=q 7" {
		t.Errorf("the quota counts %s of %s", count, most)
	}
}
