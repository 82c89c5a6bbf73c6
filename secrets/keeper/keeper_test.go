package keeper

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
	"corbel.dev/corbel/secrets/task"
)

// house is an unsealed keeper over memory.
type house struct {
	*Keeper
	t      testing.TB
	store  *memstore.Store
	now    time.Time
	root   string
	shares [][]byte
}

func newHouse(t testing.TB) *house {
	return newHouseOver(t, func(s *memstore.Store) storage.Backend { return s })
}

// newHouseOver is newHouse with something between the keeper and its memory.
func newHouseOver(t testing.TB, over func(*memstore.Store) storage.Backend) *house {
	h := &house{t: t, store: memstore.New(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	var err error
	if h.Keeper, err = newKeeper(Config{Storage: over(h.store), Now: func() time.Time { return h.now }}); err != nil {
		t.Fatal(err)
	}
	first, err := h.Init(t.Context(), 5, 3, "")
	if err != nil {
		t.Fatal(err)
	}
	h.root, h.shares = first.RootToken, first.Shares
	h.unseal()
	h.ok(secrets.Update, "sys/mounts/secret", `{"type":"kv"}`)
	h.ok(secrets.Update, "sys/mounts/kv2", `{"type":"kv-v2"}`)
	return h
}

func (h *house) unseal() {
	h.t.Helper()
	for i, share := range h.shares[1:4] {
		st, err := h.Unseal(h.t.Context(), share)
		if err != nil || st.Sealed != (i < 2) || st.Progress != (i+1)%3 {
			h.t.Fatalf("after share %d: %+v, %v", i, st, err)
		}
	}
}

func (h *house) as(token string, op secrets.Operation, path, body string) (*task.Reply, error) {
	return h.Handle(h.t.Context(), &secrets.Request{Op: op, Path: path, Body: []byte(body),
		Caller: secrets.Caller{Token: token}})
}

func (h *house) ok(op secrets.Operation, path, body string) *task.Reply {
	h.t.Helper()
	r, err := h.as(h.root, op, path, body)
	if err != nil {
		h.t.Fatalf("%v %s %s: %v", op, path, body, err)
	}
	return r
}

func (h *house) refused(kind errkind.Kind, token string, op secrets.Operation, path, body string) {
	h.t.Helper()
	if _, err := h.as(token, op, path, body); !errkind.Is(err, kind) {
		h.t.Errorf("%v %s %s: %v, want %v", op, path, body, err, kind)
	}
}

func (h *house) token(body string) (id string) {
	h.t.Helper()
	return h.ok(secrets.Update, "auth/token/create", body).Token.ID
}

func field(t testing.TB, r *task.Reply, name string) any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(r.Data, &m); err != nil {
		t.Fatalf("%s: %v", r.Data, err)
	}
	return m[name]
}

func TestSealAndUnseal(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "secret/a", `{"x":"1"}`)
	if _, err := h.Init(t.Context(), 1, 1, ""); err != barrier.ErrInitialized {
		t.Errorf("Init twice: %v", err)
	}
	h.ok(secrets.Update, "sys/seal", "")
	if _, err := h.as(h.root, secrets.Read, "secret/a", ""); err != barrier.ErrSealed {
		t.Errorf("a read while sealed: %v", err)
	}
	wrong := append([]byte(nil), h.shares[2]...)
	wrong[0] ^= 1
	for i, share := range [][]byte{h.shares[0], h.shares[0], h.shares[1], wrong} { // one is given twice
		st, err := h.Unseal(t.Context(), share)
		if i < 3 && (err != nil || st.Progress != (i+2)/2) {
			t.Errorf("share %d: %+v, %v", i, st, err)
		}
		if i == 3 && !errkind.Is(err, errkind.Invalid) {
			t.Errorf("with a wrong share: %v", err)
		}
	}
	if st, err := h.SealStatus(t.Context()); err != nil || !st.Sealed || st.Progress != 0 || st.Config.Shares != 5 {
		t.Errorf("after a wrong share: %+v, %v", st, err)
	}
	h.unseal()
	if got := h.ok(secrets.Read, "secret/a", "").Data; string(got) != `{"x":"1"}` {
		t.Errorf("after unsealing: %s", got)
	}
}

func TestPoliciesDecide(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/policies/acl/App", `{"policy":"path \"secret/app/*\" { capabilities = [\"read\", `+
		`\"create\"] } path \"kv2/data/+\" { capabilities = [\"read\"] allowed_parameters = { version = [\"1\"] } }"}`)
	app := h.token(`{"policies":["app"],"ttl":"1h"}`)
	if _, err := h.as(app, secrets.Update, "secret/app/a", `{"x":1}`); err != nil {
		t.Errorf("create: %v", err)
	}
	h.refused(errkind.Denied, app, secrets.Update, "secret/app/a", `{"x":2}`) // that would be an update
	h.refused(errkind.Denied, app, secrets.Read, "secret/other", "")
	h.refused(errkind.Denied, app, secrets.Read, "sys/mounts", "")
	h.refused(errkind.Denied, app, secrets.Read, "none/x", "") // and not: there is no such mount
	h.refused(errkind.NotFound, h.root, secrets.Read, "none/x", "")
	for _, token := range []string{"", "wrong", h.root + "x", " " + h.root} {
		h.refused(errkind.Denied, token, secrets.Read, "secret/app/a", "")
	}
	r, err := h.as(app, secrets.Update, "sys/capabilities-self", `{"paths":["secret/app/z","sys/seal"]}`)
	if err != nil || fmt.Sprint(field(t, r, "secret/app/z"), field(t, r, "sys/seal")) != "[create read] [deny]" {
		t.Errorf("capabilities: %v", err)
	}
	h.ok(secrets.Update, "sys/policy/app", `{"policy":"path \"secret/app/*\" { capabilities = [\"update\"] }"}`)
	h.refused(errkind.Denied, app, secrets.Read, "secret/app/a", "") // from the next request on
	if _, err := h.as(app, secrets.Update, "secret/app/a", `{"x":2}`); err != nil {
		t.Errorf("update under the new policy: %v", err)
	}
	h.ok(secrets.Delete, "sys/policy/app", "")
	h.refused(errkind.Denied, app, secrets.Update, "secret/app/a", `{"x":3}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/policy/bad",
		`{"policy":"path \"x\" { capabilities = [\"fly\"] }"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/policy/root", `{"policy":"path \"x\" {}"}`)
	h.refused(errkind.Invalid, h.root, secrets.Delete, "sys/policy/default", "")
}

func TestTokens(t *testing.T) {
	h := newHouse(t)
	parent := h.token(`{"policies":["default"],"ttl":"1h","meta":{"a":"b"},"display_name":"p"}`)
	r, err := h.as(parent, secrets.Read, "auth/token/lookup-self", "")
	if err != nil || field(t, r, "display_name") != "token-p" || field(t, r, "ttl") != 3600.0 ||
		field(t, r, "orphan") != false || field(t, r, "id") != parent {
		t.Errorf("lookup-self: %s, %v", r.Data, err)
	}
	h.refused(errkind.Denied, parent, secrets.Update, "auth/token/create", "")
	h.now = h.now.Add(30 * time.Minute)
	if r, err := h.as(parent, secrets.Update, "auth/token/renew-self", `{"increment":"2h"}`); err != nil ||
		r.Token.Left != 2*time.Hour || r.Token.ID != parent {
		t.Errorf("renew-self: %+v, %v", r, err)
	}
	if r := h.ok(secrets.Update, "auth/token/renew", `{"token":"`+parent+`"}`); r.Token.ID != parent {
		t.Errorf("renew of a token named by its id answers with %q", r.Token.ID)
	}
	if r := h.ok(secrets.Update, "auth/token/renew-accessor", `{"accessor":"`+field(t, r, "accessor").(string)+
		`"}`); r.Token.ID != "" {
		t.Error("renew by the accessor gave the id away")
	}
	h.now = h.now.Add(2 * time.Hour)
	h.refused(errkind.Denied, parent, secrets.Read, "auth/token/lookup-self", "")
	few := h.token(`{"num_uses":2}`)
	for range 2 {
		if _, err := h.as(few, secrets.Read, "auth/token/lookup-self", ""); err != nil {
			t.Errorf("a use that was left: %v", err)
		}
	}
	h.refused(errkind.Denied, few, secrets.Read, "auth/token/lookup-self", "")
	h.refused(errkind.Denied, h.root, secrets.Update, "auth/token/lookup", `{"token":"`+few+`"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/token/create", `{"ttl":"soon"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/token/create", `{"type":"batch"}`)
	h.ok(secrets.Update, "auth/token/create", `{"id":"mine"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/token/create", `{"id":"mine"}`)
}

func TestRevokeTakesTheTreeAndCubbyholes(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/policy/maker", `{"policy":"path \"auth/token/create\" { capabilities = [\"update\"] }"}`)
	parent := h.token(`{"policies":["maker"]}`)
	made, err := h.as(parent, secrets.Update, "auth/token/create", `{"policies":["default"]}`)
	if err != nil {
		t.Fatal(err)
	}
	child := made.Token.ID
	if _, err := h.as(child, secrets.Update, "cubbyhole/mine", `{"x":1}`); err != nil {
		t.Fatal(err)
	}
	if r, err := h.as(child, secrets.Read, "cubbyhole/mine", ""); err != nil || string(r.Data) != `{"x":1}` {
		t.Errorf("the cubbyhole: %v", err)
	}
	h.refused(errkind.NotFound, parent, secrets.Read, "cubbyhole/mine", "") // everyone has another
	h.refused(errkind.Invalid, parent, secrets.Update, "auth/token/create", `{"policies":["other"]}`)
	h.ok(secrets.Update, "auth/token/revoke", `{"token":"`+parent+`"}`)
	h.refused(errkind.Denied, child, secrets.Read, "cubbyhole/mine", "")
	h.refused(errkind.Denied, parent, secrets.Read, "auth/token/lookup-self", "")
	records, err := h.store.Scan(t.Context(), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if strings.HasPrefix(r.Key, "sys/token/parent/") || strings.HasSuffix(r.Key, "/mine") {
			t.Errorf("%s is left", r.Key)
		}
	}
}

func TestMounts(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "secret/a/b", `{"x":1}`)
	h.ok(secrets.Update, "sys/mounts/secret/tune", `{"default_lease_ttl":"30m","description":"d"}`)
	if r := h.ok(secrets.Read, "secret/a/b", ""); r.LeaseTTL != 30*time.Minute {
		t.Errorf("the mount's default: %v", r.LeaseTTL)
	}
	for body, path := range map[string]string{`{"type":"kv"}`: "secret", `{"type":"none"}`: "new", `{}`: "new",
		`{"type":"kv","options":{"version":"3"}}`: "new",
		`{"type":"system"}`:                       "new",
		`{"type":"kv","config":{"max_lease_ttl":"1h","default_lease_ttl":"2h"}}`: "new", `{"type":"kv","config":1}`: "new"} {
		h.refused(errkind.Invalid, h.root, secrets.Update, "sys/mounts/"+path, body)
	}
	h.refused(errkind.Invalid, h.root, secrets.Delete, "sys/mounts/sys", "")
	h.refused(errkind.Invalid, h.root, secrets.Read, "sys/mounts/none", "")
	h.ok(secrets.Delete, "sys/mounts/secret", "")
	h.ok(secrets.Delete, "sys/mounts/secret", "")
	h.ok(secrets.Update, "sys/mounts/secret", `{"type":"kv"}`)
	h.refused(errkind.NotFound, h.root, secrets.Read, "secret/a/b", "")
	if r := h.ok(secrets.Read, "sys/internal/ui/mounts/kv2/data/x", ""); field(t, r, "path") != "kv2/" {
		t.Errorf("the preflight: %s", r.Data)
	}
	h.Seal()
	h.unseal()
	if r := h.ok(secrets.Read, "sys/mounts", ""); field(t, r, "kv2/") == nil {
		t.Error("a mount did not outlive sealing")
	}
}

// A use-limited token grants no use too many, whoever asks at once.
func TestUsesUnderTraffic(t *testing.T) {
	h := newHouse(t)
	const uses = 20
	tok := h.token(fmt.Sprintf(`{"num_uses":%d}`, uses))
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if _, err := h.Handle(context.Background(), &secrets.Request{Op: secrets.Read, Path: "auth/token/lookup-self",
					Caller: secrets.Caller{Token: tok}}); err == nil {
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if granted.Load() != uses {
		t.Errorf("%d uses were granted, want %d", granted.Load(), uses)
	}
}

// No child outlives a parent that is revoked while children are made.
func TestNoChildOutlivesItsParent(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/policy/maker", `{"policy":"path \"auth/token/create\" { capabilities = [\"update\"] }"}`)
	for range 20 {
		parent := h.token(`{"policies":["maker"]}`)
		var mu sync.Mutex
		var children []string
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 10 {
					r, err := h.as(parent, secrets.Update, "auth/token/create", `{"policies":["default"]}`)
					if err != nil {
						return
					}
					mu.Lock()
					children = append(children, r.Token.ID)
					mu.Unlock()
				}
			})
		}
		h.ok(secrets.Update, "auth/token/revoke", `{"token":"`+parent+`"}`)
		wg.Wait()
		for _, id := range children {
			h.refused(errkind.Denied, id, secrets.Read, "auth/token/lookup-self", "")
		}
	}
}

func BenchmarkRead(b *testing.B) {
	store := memstore.New()
	k, err := newKeeper(Config{Storage: store})
	if err != nil {
		b.Fatal(err)
	}
	first, err := k.Init(b.Context(), 1, 1, "root")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := k.Unseal(b.Context(), first.Shares[0]); err != nil {
		b.Fatal(err)
	}
	do := func(op secrets.Operation, path, body string) {
		if _, err := k.Handle(b.Context(), &secrets.Request{Op: op, Path: path, Body: []byte(body),
			Caller: secrets.Caller{Token: "root"}}); err != nil {
			b.Fatal(err)
		}
	}
	do(secrets.Update, "sys/mounts/secret", `{"type":"kv"}`)
	do(secrets.Update, "secret/a", `{"value":"something of a hundred bytes or so, as the published comparison has it"}`)
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			do(secrets.Read, "secret/a", "")
		}
	})
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			do(secrets.Update, "secret/a", `{"value":"something of a hundred bytes or so, as the published comparison has it"}`)
		}
	})
}
