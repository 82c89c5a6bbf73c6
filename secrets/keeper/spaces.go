package keeper

import (
	"context"
	"strings"

	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/identity"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
)

// readSpaces reads the namespaces, with their mounts and policies: three scans, however many there are.
func (k *Keeper) readSpaces(ctx context.Context, st *tables.Tables, made makes) error {
	st.Spaces = tables.NewSpaces(k.freshScope(st.Mounts.Get("cubbyhole/"), st.Book, made))
	records, err := k.records.Scan(ctx, tables.SpacePrefix, storage.After(tables.SpacePrefix), 0)
	if err != nil || len(records) == 0 {
		return err
	}
	all, own := map[string]*tables.Space{}, map[string]*tables.Scope{}
	list := make([]*tables.Space, 0, len(records))
	for _, r := range records {
		one := &tables.Space{}
		if err := sealed.ReadJSON(r.Key, r.Value, one); err != nil {
			return err
		}
		all[one.UUID], list = one, append(list, one)
	}
	// what is of a namespace that went is left over of a deletion, and is nobody's
	each := func(prefix string, take func(in *tables.Space, scope *tables.Scope, name string,
		r storage.Record) error) error {
		records, err := k.records.Scan(ctx, prefix, storage.After(prefix), 0)
		for _, r := range records {
			id, name, _ := strings.Cut(r.Key[len(prefix):], "/")
			in := all[id]
			if in == nil {
				continue
			}
			if own[id] == nil {
				fresh := st.Spaces.Fresh(in)
				own[id] = &fresh
			}
			if err := take(in, own[id], name, r); err != nil {
				return err
			}
		}
		return err
	}
	err = each(tables.SpaceMountPrefix, func(in *tables.Space, scope *tables.Scope, _ string, r storage.Record) error {
		e := &mount.Entry{}
		if err := sealed.ReadJSON(r.Key, r.Value, e); err != nil {
			return err
		}
		if e.Base, e.Space = in.Data(), in.ID; e.Type == "cubbyhole" {
			e.Base = ""
		}
		own, err := made(e, st.Book.Salt)
		scope.Mounts, scope.Engines[e.Accessor] = scope.Mounts.With(e), own
		return err
	})
	if err != nil {
		return err
	}
	err = each(tables.SpacePolicyPrefix, func(_ *tables.Space, scope *tables.Scope, name string, r storage.Record) error {
		return readPolicy(scope.Policies, name, r.Value)
	})
	st.Spaces = st.Spaces.WithAll(list, func(one *tables.Space) *tables.Scope { return own[one.UUID] })
	return err
}

// makes makes the engine of a mount.
type makes func(e *mount.Entry, salt []byte) (engine.Engine, error)

// freshScope gives what a namespace has from its beginning: mounts of the plane's own, and no policy but the default
// one.
func (k *Keeper) freshScope(cubbyhole *mount.Entry, book *token.Book, made makes) func(*tables.Space) tables.Scope {
	return func(one *tables.Space) tables.Scope {
		scope := tables.Scope{Space: one, Mounts: &mount.Table{}, Engines: map[string]engine.Engine{},
			Policies: map[string]*policy.Policy{}, ACLs: tables.NewACLs(), IdentitiesPrefix: one.IdentitiesAt()}
		scope.Identities = &identity.Book{View: k.records.At(scope.IdentitiesPrefix), Hash: book.Hash}
		for _, e := range tables.FreshMounts(one, cubbyhole) {
			own, _ := made(e, book.Salt) // which fails for unknown types alone
			scope.Mounts, scope.Engines[e.Accessor] = scope.Mounts.With(e), own
		}
		return scope
	}
}
