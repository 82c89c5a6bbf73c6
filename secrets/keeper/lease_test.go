package keeper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/leases"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/mounting"
	"corbel.dev/corbel/secrets/storage"
)

// issuer is an engine that makes a credential for each read.
type issuer struct {
	mu     sync.Mutex
	made   int
	live   map[string]bool
	broken error // what Revoke answers
}

func (*issuer) Special() engine.Special        { return engine.Special{} }
func (*issuer) Serial(*secrets.Request) string { return "" }
func (*issuer) Exists(context.Context, engine.View, *secrets.Request) (bool, bool, error) {
	return false, false, nil
}

func (e *issuer) Handle(context.Context, engine.View, *secrets.Request) (*secrets.Response, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.made++
	name := fmt.Sprint("user-", e.made)
	e.live[name] = true
	return &secrets.Response{Data: []byte(`{"user":"` + name + `"}`), Lease: &secrets.Lease{TTL: time.Hour,
		MaxTTL: 3 * time.Hour, Renewable: true, Internal: []byte(name)}}, nil
}

func (*issuer) Renew(context.Context, engine.View, engine.Lease) (*secrets.Response, error) {
	return nil, nil
}

func (e *issuer) Revoke(_ context.Context, _ engine.View, l engine.Lease) (*secrets.Response, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken != nil {
		return nil, e.broken
	}
	delete(e.live, string(l.Internal))
	return nil, nil
}

func (e *issuer) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.live)
}

func (e *issuer) set(broken error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broken = broken
}

// issuers are the engines of the mounts of the type "issuer", which there is in tests alone.
var issuers sync.Map

// newKeeper makes a keeper that has the type.
func newKeeper(cfg Config) (*Keeper, error) {
	k, err := New(cfg)
	if err == nil {
		k.owners.mounts.Kinds["issuer"] = mounting.Kind{Side: mounting.Secret, Make: func(*mount.Entry,
			[]byte) engine.Engine {
			made, _ := issuers.LoadOrStore(k, &issuer{live: map[string]bool{}})
			return made.(*issuer)
		}}
	}
	return k, err
}

func leaseHouse(t *testing.T) (*house, *issuer) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/mounts/db", `{"type":"issuer"}`)
	h.ok(secrets.Update, "sys/policy/app", `{"policy":"path \"db/*\" { capabilities = [\"read\"] }"}`)
	made, _ := issuers.Load(h.Keeper)
	t.Cleanup(func() { issuers.Delete(h.Keeper) })
	return h, made.(*issuer)
}

func (h *house) expireLeases() {
	h.t.Helper()
	if _, err := h.leases.ExpireLeases(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

func TestLeases(t *testing.T) {
	h, e := leaseHouse(t)
	r := h.ok(secrets.Read, "db/creds/a", "")
	id := r.Lease.ID
	if !strings.HasPrefix(id, "db/creds/a/") || len(id) != len("db/creds/a/")+24 || r.Lease.Left != time.Hour ||
		!r.Lease.Renewable {
		t.Errorf("the lease is %+v", r.Lease)
	}
	if env := string(r.Envelope(nil, &secrets.Request{ID: "x"}, true)); !strings.Contains(env,
		`"lease_id":"`+id+`","renewable":true,"lease_duration":3600,`) {
		t.Errorf("the envelope is %s", env)
	}
	h.wait(30 * time.Minute)
	if l := h.ok(secrets.Update, "sys/leases/lookup", `{"lease_id":"`+id+`"}`); field(t, l, "ttl") != 1800.0 || field(t, l,
		"last_renewal") != nil {
		t.Errorf("lookup: %s", l.Data)
	}
	if l := h.ok(secrets.Update, "sys/leases/renew", `{"lease_id":"`+id+`","increment":7200}`); l.Lease == nil ||
		l.Lease.Left != 2*time.Hour || l.Warnings != nil {
		t.Errorf("renew: %+v", l)
	}
	if l := h.ok(secrets.Update, "sys/renew/"+id, `{"increment":"100h"}`); l.Lease == nil ||
		l.Lease.Left != 150*time.Minute || len(l.Warnings) != 1 {
		t.Errorf("renew past its maximum: %+v", l)
	}
	if l := h.ok(secrets.List, "sys/leases/lookup/db/creds/a/", ""); !strings.Contains(string(l.Data),
		id[len("db/creds/a/"):]) {
		t.Errorf("the leases below: %s", l.Data)
	}
	if l := h.ok(secrets.Read, "sys/leases/count", ""); field(t, l, "lease_count") != 1.0 {
		t.Errorf("count: %s", l.Data)
	}
	h.wait(2 * time.Hour)
	h.expireLeases()
	if e.count() != 1 {
		t.Error("a lease that was renewed is gone")
	}
	h.wait(time.Hour)
	h.expireLeases()
	if left := h.keysBelow("sys/lease/"); e.count() != 0 || len(left) != 0 {
		t.Errorf("after its end %d live and %q is left", e.count(), left)
	}
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/leases/renew", `{"lease_id":"`+id+`"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/leases/lookup", `{"lease_id":"../x"}`)
	for range 5 {
		h.ok(secrets.Read, "db/creds/b", "")
	}
	one := h.ok(secrets.Read, "db/creds/c", "").Lease.ID
	h.ok(secrets.Update, "sys/leases/revoke-prefix/db/creds/b", "")
	if e.count() != 1 {
		t.Errorf("%d live after the prefix was revoked, want 1", e.count())
	}
	h.ok(secrets.Update, "sys/leases/revoke", `{"lease_id":"`+one+`"}`)
	h.ok(secrets.Update, "sys/leases/revoke", `{"lease_id":"`+one+`"}`)
	if left := h.keysBelow("sys/lease/"); e.count() != 0 || len(left) != 0 {
		t.Errorf("after the revocations %d live and %q is left", e.count(), left)
	}
}

// Leases end with their token, whether it is revoked, runs out, or goes with its parent.
func TestLeasesEndWithTheirToken(t *testing.T) {
	h, e := leaseHouse(t)
	revoked, out, last := h.token(`{"policies":["app"]}`), h.token(`{"policies":["app"],"ttl":"10m"}`),
		h.token(`{"policies":["app"],"num_uses":1}`)
	for _, id := range []string{revoked, revoked, out} {
		if _, err := h.as(id, secrets.Read, "db/creds/a", ""); err != nil {
			t.Fatal(err)
		}
	}
	h.refused(errkind.Invalid, last, secrets.Read, "db/creds/a", "")
	if e.count() != 3 {
		t.Errorf("%d live: the last use of a token left something behind", e.count())
	}
	h.ok(secrets.Update, "auth/token/revoke", `{"token":"`+revoked+`"}`)
	h.expireLeases()
	if e.count() != 1 {
		t.Errorf("%d live after the token was revoked, want 1", e.count())
	}
	h.wait(10 * time.Minute)
	h.expire()
	h.expireLeases()
	if left := h.keysBelow("sys/lease/"); e.count() != 0 || len(left) != 0 {
		t.Errorf("after the token ran out %d live and %q is left", e.count(), left)
	}
}

// What an engine cannot revoke is tried ever more seldom, then kept in sight, and ends when the engine can.
func TestLeasesThatCannotBeRevoked(t *testing.T) {
	h, e := leaseHouse(t)
	e.set(errors.New("the database is away"))
	h.ok(secrets.Read, "db/creds/a", "")
	good := h.ok(secrets.Read, "db/creds/b", "").Lease.ID
	h.wait(time.Hour)
	for range 2 * leases.Tries { // where all fail, the circuit opens and one at a time is tried
		h.expireLeases()
		h.expireLeases() // is put off: nothing is due
		h.wait(20 * time.Minute)
	}
	if l := h.ok(secrets.Read, "sys/leases/count", `{"type":"irrevocable"}`); field(t, l, "lease_count") != 2.0 {
		t.Errorf("irrevocable: %s", l.Data)
	}
	if l := h.ok(secrets.Read, "sys/leases", `{"type":"irrevocable"}`); !strings.Contains(string(l.Data),
		`{"error":"the database is away","lease_id":"`+good+`"}`) || field(t, l, "lease_count") != 2.0 {
		t.Errorf("irrevocable: %s", l.Data)
	}
	if l := h.ok(secrets.Read, "sys/leases", `{"type":"irrevocable","limit":1}`); field(t, l, "lease_count") != 1.0 {
		t.Errorf("one irrevocable: %s", l.Data)
	}
	h.refused(errkind.Invalid, h.root, secrets.Read, "sys/leases", "")
	h.ok(secrets.Update, "sys/leases/revoke-force/db/creds/a", "")
	e.set(nil)
	h.expireLeases()
	if l := h.ok(secrets.Update, "sys/leases/lookup", `{"lease_id":"`+good+`"}`); field(t, l, "renewable") != false {
		t.Errorf("an irrevocable lease: %s", l.Data)
	}
	h.wait(24 * time.Hour)
	h.expireLeases()
	if left := h.keysBelow("sys/lease/"); e.count() != 1 || len(left) != 0 { // the one that was forced
		t.Errorf("%d live and %q is left", e.count(), left)
	}
}

func TestTokenRoles(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "auth/token/roles/app",
		`{"allowed_policies":"a,b","disallowed_policies":"c","orphan":true,"renewable":false,"path_suffix":"v1",`+
			`"token_period":"1h","token_num_uses":3,"token_bound_cidrs":"10.0.0.0/8"}`)
	if r := h.ok(secrets.Read, "auth/token/roles/app", ""); field(t, r, "period") != 3600.0 || field(t, r,
		"orphan") != true || fmt.Sprint(field(t, r, "allowed_policies")) != "[a b]" || field(t, r, "path_suffix") != "v1" {
		t.Errorf("the role reads %s", r.Data)
	}
	if r := h.ok(secrets.List, "auth/token/roles/", ""); string(r.Data) != `{"keys":["app"]}` {
		t.Errorf("the roles: %s", r.Data)
	}
	r := h.ok(secrets.Update, "auth/token/create/app", `{}`)
	if tok := r.Token; fmt.Sprint(tok.Policies) != "[a b default]" || tok.Parent != "" || tok.Renewable ||
		tok.Path != "auth/token/create/app/v1" || tok.Period != time.Hour || tok.Uses != 3 || tok.Role != "app" ||
		len(tok.CIDRs) != 1 {
		t.Errorf("a token of the role: %+v", tok.Token)
	}
	for _, body := range []string{`{"policies":["c"]}`, `{"policies":["d"]}`, `{"policies":["root"]}`} {
		h.refused(errkind.Invalid, h.root, secrets.Update, "auth/token/create/app", body)
	}
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/token/create/none", `{}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/token/roles/bad",
		`{"allowed_policies_glob":"[","path_suffix":""}`)
	h.ok(secrets.Update, "auth/token/roles/globs",
		`{"allowed_policies_glob":"team-*","disallowed_policies_glob":"*-admin"}`)
	h.ok(secrets.Update, "auth/token/roles/deny", `{"disallowed_policies":"secret"}`)
	h.ok(secrets.Update, "sys/policy/maker",
		`{"policy":"path \"auth/token/create/*\" { capabilities = [\"update\"] } path \"auth/token/create-orphan\" { `+
			`capabilities = [\"update\"] }"}`)
	weak := h.token(`{"policies":["maker"]}`)
	if _, err := h.as(weak, secrets.Update, "auth/token/create/globs", `{"policies":["team-x"]}`); err != nil {
		t.Errorf("by a role's pattern: %v", err)
	}
	h.refused(errkind.Invalid, weak, secrets.Update, "auth/token/create/globs", `{"policies":["team-admin"]}`)
	h.refused(errkind.Invalid, weak, secrets.Update, "auth/token/create/deny",
		`{"policies":["other"]}`) // a role that only denies gives nobody more than they have
	if r, err := h.as(weak, secrets.Update, "auth/token/create-orphan", `{}`); err != nil || r.Token.Parent != "" ||
		fmt.Sprint(r.Token.Policies) != "[default maker]" {
		t.Errorf("an orphan by the right to make one: %v", err)
	}
	h.refused(errkind.Denied, weak, secrets.Update, "auth/token/create-orphan", `{"period":"1h"}`)
	h.ok(secrets.Delete, "auth/token/roles/app", "")
	h.refused(errkind.NotFound, h.root, secrets.Read, "auth/token/roles/app", "")
}

// A renewal is one operation, and none where one came a moment before; the entry in the index of time follows when
// its time comes. What a client was told lives on, over a restart too.
func TestRenewalsAreCoalesced(t *testing.T) {
	h, e := leaseHouse(t)
	id := h.ok(secrets.Read, "db/creds/app", "").Lease.ID
	token := h.token(`{"policies":["default"],"ttl":"1h"}`)
	operations := func(do func()) (n int) {
		next := h.records.Committed
		defer func() { h.records.Committed = next }()
		h.records.Committed = func(ops []storage.Op) { n += len(ops); next(ops) }
		do()
		return n
	}
	told := map[string]time.Duration{}
	renewal := map[string]func(){
		"lease": func() {
			r := h.ok(secrets.Update, "sys/leases/renew", `{"lease_id":"`+id+`","increment":"1h"}`)
			told["lease"] = r.Lease.Left
		},
		"token": func() {
			r, err := h.as(token, secrets.Update, "auth/token/renew-self", `{"increment":"1h"}`)
			if err != nil {
				t.Fatal(err)
			}
			told["token"] = r.Token.Left
		},
	}
	for _, what := range []string{"lease", "token"} {
		renew := renewal[what]
		for i, want := range []struct {
			after      time.Duration
			operations int
			told       time.Duration
		}{
			{time.Second, 1, time.Hour}, {time.Second, 0, time.Hour - time.Second}, {59 * time.Second, 0, 59 * time.Minute},
			{time.Second, 1, time.Hour}, {10 * time.Minute, 1, time.Hour},
		} {
			h.wait(want.after)
			if n := operations(renew); n != want.operations || told[what] != want.told {
				t.Errorf("%s, renewal %d: %d operations, told %v, want %d and %v", what, i, n, told[what], want.operations,
					want.told)
			}
		}
	}
	h.wait(30 * time.Second)
	renewal["token"]() // within the minute, and the server stops before anything could be written down later
	last := h.now.Add(told["token"])
	h.Seal()
	h.unseal()
	h.wait(40 * time.Minute)
	h.expireLeases() // the first entries in the index are long due
	if h.expire(); e.count() != 1 || len(h.keysBelow("sys/lease/at/")) != 1 {
		t.Fatalf("%d leases live, with %q in the index", e.count(), h.keysBelow("sys/lease/at/"))
	}
	h.now = last.Add(-time.Millisecond)
	if h.expire(); !h.alive(token) {
		t.Error("a token ended before it was said to")
	}
	h.now = last
	if h.expire(); h.alive(token) {
		t.Error("a token lives longer than it was said to")
	}
	h.expireLeases()
	if left := h.keysBelow("sys/lease/"); e.count() != 0 || len(left) != 0 {
		t.Errorf("%d live at the engine, and of leases is left %q", e.count(), left)
	}
}
