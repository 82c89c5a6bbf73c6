package keeper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
)

const makerPolicy = `{"policy":"path \"auth/token/create\" { capabilities = [\"update\"] } path \"cubbyhole/*\" { ` +
	`capabilities = [\"create\", \"update\"] } path \"db/*\" { capabilities = [\"read\"] }"}`

func (h *house) child(parent string) string {
	h.t.Helper()
	r, err := h.as(parent, secrets.Update, "auth/token/create", `{"policies":["maker"],"ttl":"1h"}`)
	if err != nil {
		h.t.Fatal(err)
	}
	return r.Token.ID
}

// failing is a store whose commits fail from the n-th on, while n is not 0.
type failing struct {
	*memstore.Store
	left    atomic.Int64
	largest atomic.Int64
}

func (f *failing) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	f.largest.Store(max(f.largest.Load(), int64(len(ops))))
	if f.left.Load() > 0 && f.left.Add(-1) == 0 {
		f.left.Store(1)
		return errkind.New(errkind.Unavailable, "the storage is away")
	}
	return f.Store.Commit(ctx, epoch, ops)
}

// A tree of many ends in bounded commits, with what its tokens keep; when the storage fails in the middle, or the
// server does, the parent has ended, nothing is made below it, and the rest ends later.
func TestTreesEnd(t *testing.T) {
	store := &failing{}
	h := newHouseOver(t, func(s *memstore.Store) storage.Backend { store.Store = s; return store })
	h.ok(secrets.Update, "sys/policy/maker", makerPolicy)
	h.ok(secrets.Update, "sys/mounts/db", `{"type":"issuer"}`)
	made, _ := issuers.Load(h.Keeper)
	t.Cleanup(func() { issuers.Delete(h.Keeper) })
	e := made.(*issuer)
	before := h.keysBelow("sys/token/")
	grow := func() (parent string, all []string) {
		parent = h.child(h.root)
		for range 2*flight.EndAtOnce + 7 {
			all = append(all, h.child(parent))
		}
		for i := range 5 { // some have children, leases and cubbyholes of their own
			below := h.child(all[i*100])
			all = append(all, below, h.child(below))
			if _, err := h.as(below, secrets.Update, "cubbyhole/x", `{"a":"b"}`); err != nil {
				t.Fatal(err)
			}
			if _, err := h.as(all[i*100+1], secrets.Read, "db/creds/a", ""); err != nil {
				t.Fatal(err)
			}
		}
		return parent, all
	}
	for _, at := range []int64{0, 1, 2, 3, 5} {
		parent, all := grow()
		store.left.Store(at)
		store.largest.Store(0)
		_, err := h.as(h.root, secrets.Update, "auth/token/revoke", fmt.Sprintf(`{"token":%q}`, parent))
		if (err != nil) != (at > 0) {
			t.Fatalf("commit %d fails: %v", at, err)
		}
		store.left.Store(0)
		if at != 1 { // which took nothing away
			h.refused(errkind.Denied, parent, secrets.Update, "auth/token/create", `{}`)
		}
		if at%2 == 1 { // the server goes and comes
			h.Seal()
			h.unseal()
		}
		if at == 1 {
			h.ok(secrets.Update, "auth/token/revoke", fmt.Sprintf(`{"token":%q}`, parent))
		}
		h.expire()
		h.expireLeases()
		for _, id := range append(all, parent) {
			if h.alive(id) {
				t.Fatalf("commit %d fails: a token of the tree is left", at)
			}
		}
		if most := store.largest.Load(); most > 4*flight.EndAtOnce {
			t.Errorf("a commit has %d operations", most)
		}
		if e.count() != 0 {
			t.Errorf("%d leases live on", e.count())
		}
	}
	h.wait(2 * time.Hour)
	h.expire()
	if after := h.keysBelow("sys/token/"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("left: %q", after)
	}
	if left := h.keysBelow("sys/lease/"); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	if left := h.keysBelow(h.gate.Load().Mounts.Get("cubbyhole/").Prefix()); len(left) != 0 {
		t.Errorf("left in cubbyholes: %q", left)
	}
}

// A prefix ends the logins below it and nothing else, at once or queued; the queue survives the server.
func TestRevokePrefixOfLogins(t *testing.T) {
	h := newHouse(t)
	h.users("ann", "bob")
	h.ok(secrets.Update, "sys/policy/app", `{"policy":"path \"auth/token/create\" { capabilities = [\"update\"] }"}`)
	login := func(name string) (id, below string) { id = h.loginAs(name).ID; return id, h.childOf(id) }
	ann, annBelow := login("ann")
	bob, bobBelow := login("bob")
	hash := h.gate.Load().Book.Hash(ann)
	lease := "auth/userpass/login/ann/h" + hash
	if r := h.ok(secrets.Update, "sys/leases/lookup", fmt.Sprintf(`{"lease_id":%q}`, lease)); field(t, r, "id") != lease ||
		field(t, r, "ttl").(float64) <= 0 {
		t.Errorf("lookup: %s", r.Data)
	}
	if r := h.ok(secrets.List, "sys/leases/lookup/auth/userpass/login/ann/",
		""); string(r.Data) != fmt.Sprintf(`{"keys":["h%s"]}`, hash) {
		t.Errorf("list: %s", r.Data)
	}
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/leases/lookup",
		fmt.Sprintf(`{"lease_id":"auth/userpass/login/bob/h%s"}`, hash))
	if r := h.ok(secrets.Read, "sys/leases/count", ""); field(t, r, "lease_count") != 4.0 {
		t.Errorf("count: %s", r.Data)
	}
	if r := h.ok(secrets.Read, "sys/leases/attribution", ""); field(t, r, "tokens") != 5.0 ||
		!strings.Contains(string(r.Data), `{"mount":"auth/userpass/","type":"userpass","role":"login/ann","tokens":1,`+
			`"leases":0,"grew":0}`) {
		t.Errorf("attribution: %s", r.Data) // the root token is one
	}
	h.ok(secrets.Update, "sys/leases/revoke-prefix/auth/userpass/login/ann", "")
	for id, want := range map[string]bool{ann: false, annBelow: false, bob: true, bobBelow: true} {
		if h.alive(id) != want {
			t.Errorf("a token is there %t, want %t", !want, want)
		}
	}
	r := h.ok(secrets.Update, "sys/leases/revoke-prefix/auth/userpass", `{"sync":false}`)
	if r.Status != 202 || !h.alive(bob) {
		t.Errorf("queued: status %d", r.Status)
	}
	h.Seal()
	h.unseal()
	if n, err := h.leases.RunJobs(t.Context()); n != 1 || err != nil || h.alive(bob) || h.alive(bobBelow) {
		t.Errorf("the queue: %d, %v", n, err)
	}
	if n, err := h.leases.RunJobs(t.Context()); n != 0 || err != nil {
		t.Errorf("the queue again: %d, %v", n, err)
	}
	if left := h.keysBelow("sys/lease/"); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	one := h.child(h.root)
	h.ok(secrets.Update, "sys/leases/revoke", fmt.Sprintf(`{"lease_id":"auth/token/create/h%s"}`,
		h.gate.Load().Book.Hash(one)))
	if h.alive(one) {
		t.Error("a token that was revoked by its lease is there")
	}
}

func (h *house) childOf(parent string) string {
	h.t.Helper()
	r, err := h.as(parent, secrets.Update, "auth/token/create", `{"ttl":"1h"}`)
	if err != nil {
		h.t.Fatal(err)
	}
	return r.Token.ID
}

// Revocation of a mount can be paused and resumed; a target that fails is left alone for a while, another is not.
func TestRevocationPausedAndBroken(t *testing.T) {
	h, e := leaseHouse(t)
	for range 20 {
		h.ok(secrets.Read, "db/creds/a", "")
	}
	status := func() map[string]any {
		r := h.ok(secrets.Read, "sys/leases/revocation", "")
		return field(t, r, "targets").([]any)[0].(map[string]any)
	}
	if s := status(); s["ending_within_hour"] != 20.0 || s["next_end"] == nil {
		t.Errorf("what ends next: %v", s)
	}
	h.ok(secrets.Update, "sys/leases/revocation/pause", `{"mount":"db/"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/leases/revocation/pause", `{"mount":"nothing"}`)
	h.ok(secrets.Update, "sys/leases/revoke-prefix/db", `{"sync":false}`)
	if _, err := h.leases.RunJobs(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Seal()
	h.unseal() // it is stored
	h.expireLeases()
	if s := status(); e.count() != 20 || s["paused"] != true || s["due"] != 20.0 || s["mount"] != "db/" ||
		s["eta_seconds"] != nil {
		t.Errorf("paused: %d live, %v", e.count(), s)
	}
	h.refused(errkind.Unavailable, h.root, secrets.Update, "sys/leases/revoke-prefix/db", "")
	h.ok(secrets.Update, "sys/leases/revocation/resume", "")
	e.set(errors.New("the database is away"))
	h.expireLeases()
	if s := status(); s["circuit"] != "open" || s["last_error"] != "the database is away" || s["failed"].(float64) < 5 ||
		s["failed"].(float64) > 15 {
		t.Errorf("all fail: %v", s)
	}
	e.set(nil)
	tried := status()["failed"]
	h.expireLeases()
	if s := status(); e.count() != 20 || s["failed"] != tried {
		t.Errorf("it was tried while its circuit is open: %v", s)
	}
	h.wait(time.Minute)
	h.expireLeases()
	h.wait(time.Hour)
	h.expireLeases()
	if s := field(t, h.ok(secrets.Read, "sys/leases/revocation", ""), "targets").([]any); e.count() != 0 || len(s) != 0 {
		t.Errorf("%d live on, %v", e.count(), s)
	}
}

// However many use a token at once and whenever the server goes, it is never used once too often; when nothing fails,
// every use is had.
func TestUsesAreNeverTooMany(t *testing.T) {
	h := newHouse(t)
	for _, n := range []int{1, 2, 5, 40, 300} {
		id := h.token(fmt.Sprintf(`{"policies":["root"],"num_uses":%d}`, n))
		used := 0
		for used < n/2 {
			if _, err := h.as(id, secrets.Read, "sys/mounts", ""); err != nil {
				t.Fatalf("use %d of %d: %v", used, n, err)
			}
			used++
			r := h.ok(secrets.Update, "auth/token/lookup", fmt.Sprintf(`{"token":%q}`, id))
			if left := field(t, r, "num_uses"); left != float64(n-used) {
				t.Fatalf("after %d of %d uses %v are left", used, n, left)
			}
		}
		lost := h.tokens.Ahead(h.gate.Load().Book.Hash(id))
		if lost > (n-used)/8+1 {
			t.Errorf("%d of %d uses are in memory", lost, n-used)
		}
		h.Seal()
		h.unseal()
		for ; ; used++ {
			if _, err := h.as(id, secrets.Read, "sys/mounts", ""); err != nil {
				break
			}
		}
		if used != n-lost || h.alive(id) {
			t.Errorf("used %d of %d times, %d were lost", used, n, lost)
		}
	}
}
