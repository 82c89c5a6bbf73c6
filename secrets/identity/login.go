package identity

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
)

// Login is somebody that an auth method found.
type Login struct {
	Mount  string // accessor
	Name   string
	Meta   map[string]string
	Groups []string // names of external groups; nil: the method says nothing of groups
}

// Found is who logs in.
type Found struct {
	Entity *Entity
	// Persona is the entity with its groups as they are after Ops; nil where there are no Ops.
	Persona *Persona
	// Ops is what the login changes: the entity made, the alias' metadata, memberships. They hold while
	// nobody else changes what Lock names.
	Ops  []secrets.Op
	Lock string
	// Made: the entity is new, once Ops are committed.
	Made bool
}

// Login finds the entity of an alias, and makes it where there is none.
func (b *Book) Login(ctx context.Context, l Login, now time.Time) (*Found, error) {
	now = now.UTC()
	at := b.factor(factorKey, l.Mount, l.Name)
	e, err := b.at(ctx, at)
	if err != nil {
		return nil, err
	}
	found := &Found{Entity: e, Lock: at}
	is := func(a *Alias) bool { return a.Mount == l.Mount && a.Name == l.Name }
	if e == nil || e.alias(is) == nil {
		found.Entity, found.Made = newEntity("", now), true
		a := &Alias{ID: uuid.NewString(), Mount: l.Mount, Name: l.Name, Meta: l.Meta, Created: now, Updated: now}
		found.Entity.Aliases = []*Alias{a}
		found.Ops = append([]secrets.Op{storage.Put(b.name(entityNameKey, found.Entity.Name), []byte(found.Entity.ID))},
			b.index(found.Entity, a)...)
	} else {
		found.Lock = entityKey + e.ID
		if a := e.alias(is); !maps.Equal(a.Meta, l.Meta) {
			a.Meta, a.Updated = l.Meta, now
			found.Ops = []secrets.Op{}
		}
	}
	if found.Ops != nil {
		op, err := found.Entity.put()
		if err != nil {
			return nil, err
		}
		found.Ops = append(found.Ops, op)
	}
	if l.Groups != nil {
		more, err := b.refresh(ctx, found.Entity.ID, l)
		if err != nil {
			return nil, err
		}
		found.Ops = append(found.Ops, more...)
	}
	if len(found.Ops) > 0 {
		after := &Book{ahead{b.View, found.Ops}, b.Hash}
		found.Persona, err = after.Resolve(ctx, found.Entity.ID)
	}
	return found, err
}

// ahead is a view as it is after some operations.
type ahead struct {
	engine.View
	ops []secrets.Op
}

// Get implements engine.View.
func (v ahead) Get(ctx context.Context, key string) ([]byte, bool, error) {
	for _, op := range v.ops {
		if op.Key == key {
			return op.Value, op.Value != nil, nil
		}
	}
	return v.View.Get(ctx, key)
}

// Scan implements engine.View, of records without others below them.
func (v ahead) Scan(ctx context.Context, from, to string, limit int) ([]secrets.Record, error) {
	records, err := v.View.Scan(ctx, from, to, limit)
	for _, op := range v.ops {
		if op.Key >= from && op.Key < to {
			records = slices.DeleteFunc(records, func(r secrets.Record) bool { return r.Key == op.Key })
			if op.Value != nil {
				records = append(records, secrets.Record(op))
			}
		}
	}
	return records, err
}

// refresh gives the operations that make the entity a member of those external groups
// of the mount that the login names, and of no others of the mount.
func (b *Book) refresh(ctx context.Context, entity string, l Login) (ops []secrets.Op, err error) {
	want := map[string]bool{}
	for _, name := range l.Groups {
		g, err := b.groupAt(ctx, b.factor(groupFactorKey, l.Mount, name))
		if err != nil {
			return nil, err
		}
		if g != nil {
			want[g.ID] = true
		}
	}
	has, err := b.ids(ctx, memberOfKey+entity+"/")
	if err != nil {
		return nil, err
	}
	for _, id := range has {
		if want[id] {
			delete(want, id)
			continue
		}
		g, err := b.Group(ctx, id)
		if err != nil {
			return nil, err
		}
		if g != nil && g.Alias != nil && g.Alias.Mount == l.Mount {
			ops = append(ops, leave(id, entity)...)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		ops = append(ops, join(id, entity)...)
	}
	return ops, nil
}

// Persona is an entity with all groups that it is in, as of one moment. Immutable.
type Persona struct {
	Entity    *Entity
	Direct    []*Group
	Inherited []*Group // those that its groups are in
	Policies  []string // of all of them, in order
}

// Resolve gives the persona of an entity, or nil where there is none.
func (b *Book) Resolve(ctx context.Context, id string) (*Persona, error) {
	e, err := b.Entity(ctx, id)
	if err != nil || e == nil {
		return nil, err
	}
	p := &Persona{Entity: e, Policies: slices.Clone(e.Policies)}
	next, err := b.ids(ctx, memberOfKey+e.ID+"/")
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for direct := true; len(next) > 0; direct = false {
		var above []string
		for _, id := range next {
			if seen[id] {
				continue
			}
			seen[id] = true
			g, err := b.Group(ctx, id)
			if err != nil {
				return nil, err
			}
			if g == nil {
				continue
			}
			if direct {
				p.Direct = append(p.Direct, g)
			} else {
				p.Inherited = append(p.Inherited, g)
			}
			p.Policies = append(p.Policies, g.Policies...)
			parents, err := b.ids(ctx, parentsKey+id+"/")
			if err != nil {
				return nil, err
			}
			above = append(above, parents...)
		}
		next = above
	}
	slices.Sort(p.Policies)
	p.Policies = slices.Compact(p.Policies)
	return p, nil
}

// Variable gives the value of a variable of a policy's path (contract 2.4).
func (p *Persona) Variable(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, "identity.")
	if !ok {
		return "", false
	}
	if rest, ok := strings.CutPrefix(rest, "entity."); ok {
		return p.entityVariable(rest)
	}
	for _, g := range slices.Concat(p.Direct, p.Inherited) {
		if rest, ok := strings.CutPrefix(rest, "groups.ids."+g.ID+"."); ok {
			return of(rest, "name", g.Name, "metadata.", g.Meta)
		}
	}
	for _, g := range slices.Concat(p.Direct, p.Inherited) {
		if rest, ok := strings.CutPrefix(rest, "groups.names."+g.Name+"."); ok {
			if v, ok := of(rest, "id", g.ID, "metadata.", g.Meta); ok {
				return v, true // else it may be a longer name's, with dots
			}
		}
	}
	return "", false
}

func of(rest, word, value, prefix string, meta map[string]string) (string, bool) {
	if rest == word {
		return value, true
	}
	key, ok := strings.CutPrefix(rest, prefix)
	if !ok {
		return "", false
	}
	v, ok := meta[key]
	return v, ok
}

func (p *Persona) entityVariable(rest string) (string, bool) {
	if rest == "id" {
		return p.Entity.ID, true
	}
	if v, ok := of(rest, "name", p.Entity.Name, "metadata.", p.Entity.Meta); ok {
		return v, true
	}
	rest, ok := strings.CutPrefix(rest, "aliases.")
	if !ok {
		return "", false
	}
	mount, rest, _ := strings.Cut(rest, ".")
	a := p.Entity.alias(func(a *Alias) bool { return a.Mount == mount })
	if a == nil {
		return "", false
	}
	if v, ok := of(rest, "name", a.Name, "metadata.", a.Meta); ok {
		return v, true
	}
	return of(rest, "id", a.ID, "custom_metadata.", a.Custom)
}
