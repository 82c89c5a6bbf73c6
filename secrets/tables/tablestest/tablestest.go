// Package tablestest gives tests of the owners of state what they work on: an unsealed store over memory, and tables
// with the mounts of the plane's own. Each call makes another one; it lives as long as its test.
package tablestest

import (
	"context"
	"testing"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/quota"
	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// Desk is what an owner works on.
type Desk struct {
	Store  *sealed.Store
	Gate   *tables.Gate
	Rights *rights.Rights
	Flying *flight.List
	Time   time.Time // of all that asks for it
}

// New makes a desk.
func New(t testing.TB) *Desk {
	t.Helper()
	d := &Desk{Flying: &flight.List{}, Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	d.Flying.Now = d.Now
	d.Store = sealed.New(sealed.Config{Under: memstore.New(), Now: d.Now, CacheBytes: 1 << 20,
		Committed: func(ops []storage.Op) { d.Rights.Committed(d.Gate.Load(), ops) }})
	d.Rights = rights.NewRights(d.Store)
	d.Gate = &tables.Gate{Store: d.Store, TTLs: token.Limits{Default: time.Hour, Max: 24 * time.Hour}}
	if err := d.Store.Barrier.Initialize(context.Background(), 0, make([]byte, barrier.KeyBytes), nil); err != nil {
		t.Fatal(err)
	}
	st := &tables.Tables{Scope: tables.Scope{Mounts: &mount.Table{}, Engines: map[string]engine.Engine{},
		Policies: map[string]*policy.Policy{}, ACLs: tables.NewACLs()},
		Book: &token.Book{Reader: d.Store, Salt: token.NewSalt()}, Quotas: quota.NewSet(quota.Settings{}, nil)}
	for path, kind := range map[string]string{"sys/": "system", "cubbyhole/": "cubbyhole", "auth/token/": "token"} {
		st.Mounts = st.Mounts.With(&mount.Entry{Path: path, Type: kind, UUID: "uuid-" + kind, Accessor: kind + "_1"})
	}
	d.Gate.Set(st)
	return d
}

// Now is the desk's time.
func (d *Desk) Now() time.Time { return d.Time }

// Mount adds a mount with its engine to the tables.
func (d *Desk) Mount(path, kind string, e engine.Engine) *mount.Entry {
	entry := &mount.Entry{Path: path, Type: kind, UUID: "uuid-" + kind + "-1", Accessor: tables.NewAccessor(kind)}
	next := *d.Gate.Load()
	next.Mounts = next.Mounts.With(entry)
	next.Engines = map[string]engine.Engine{entry.Accessor: e}
	d.Gate.Set(&next)
	return entry
}

// Token stores a token with policies, and gives its id and holder.
func (d *Desk) Token(t testing.TB, tok *token.Token) (id string, h *rights.Holder) {
	t.Helper()
	tok.Begin(d.Time, tok.TTL, d.Gate.TTLs)
	id = token.NewID()
	st := d.Gate.Load()
	if err := d.Store.Commit(t.Context(), st.Book.Make(id, tok)); err != nil {
		t.Fatal(err)
	}
	h, err := d.Rights.Known(t.Context(), st, id, d.Time, secrets.Request{}.Remote)
	if err != nil {
		t.Fatal(err)
	}
	return id, h
}

// Task is a request that was routed.
func (d *Desk) Task(op secrets.Operation, path, body string) *task.Task {
	st := d.Gate.Load()
	t := &task.Task{Request: &secrets.Request{Op: op, Path: path, Body: []byte(body), Now: d.Time}, Tables: st}
	if t.Entry, t.Rest = st.Mounts.Route(path); t.Entry != nil {
		t.Engine, t.View = st.Engines[t.Entry.Accessor], d.Store.At(t.Entry.Prefix())
	}
	return t
}

// Ask has rows answer a request below sys/.
func (d *Desk) Ask(ctx context.Context, rows []system.Row, op secrets.Operation, path, body string) (*secrets.Response,
	error) {
	t := d.Task(op, "sys/"+path, body)
	return (&system.System{Rows: rows}).Answer(ctx, t, t.Request)
}
