package rights

import (
	"net/netip"
	"testing"
	"time"

	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
)

// A token is known with its rules until a commit ends it, from the addresses that it is bound to, and before its end.
func TestKnown(t *testing.T) {
	ctx, now := t.Context(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	st := &tables.Tables{Scope: tables.Scope{ACLs: tables.NewACLs()}}
	var r *Rights
	store := sealed.New(sealed.Config{Under: memstore.New(), Now: time.Now, CacheBytes: 1 << 20,
		Committed: func(ops []storage.Op) { r.Committed(st, ops) }})
	r = NewRights(store)
	if err := store.Barrier.Initialize(ctx, 0, make([]byte, barrier.KeyBytes), nil); err != nil {
		t.Fatal(err)
	}
	p, err := policy.Parse("app", `path "secret/app" { capabilities = ["read"] }`)
	if err != nil {
		t.Fatal(err)
	}
	st.Policies = map[string]*policy.Policy{"app": p}
	st.Book = &token.Book{Reader: store, Salt: token.NewSalt()}
	tok := &token.Token{Policies: []string{"app"}, CIDRs: []string{"10.0.0.0/8"}}
	tok.Begin(now, time.Hour, token.Limits{Default: time.Hour, Max: time.Hour})
	id := token.NewID()
	if err := store.Commit(ctx, st.Book.Make(id, tok)); err != nil {
		t.Fatal(err)
	}
	inside, outside := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("192.0.2.1")
	for range 2 { // read, and kept
		h, err := r.Known(ctx, st, id, now, inside)
		if err != nil {
			t.Fatal(err)
		}
		if !h.ACL.Allow(&policy.Request{Path: "secret/app", Need: policy.Read}).Allowed ||
			h.ACL.Allow(&policy.Request{Path: "secret/other", Need: policy.Read}).Allowed {
			t.Error("the token does not allow what its policy does")
		}
	}
	if r.Count() != 1 {
		t.Errorf("%d tokens are kept", r.Count())
	}
	for what, ask := range map[string]struct {
		id   string
		now  time.Time
		from netip.Addr
	}{"none": {"", now, inside}, "another": {id + "x", now, inside}, "elsewhere": {id, now, outside},
		"late": {id, now.Add(time.Hour), inside}} {
		if _, err := r.Known(ctx, st, ask.id, ask.now, ask.from); err != ErrDenied {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := store.Commit(ctx, token.End(tok)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Known(ctx, st, id, now, inside); err != ErrDenied {
		t.Errorf("after its end: %v", err)
	}
}
