// Package identity keeps who people and machines are, whichever auth method they come by:
// entities, their aliases (a name at a mount), and groups of entities and of groups (contract 4.4).
//
// An entity has one record, with its aliases in it; a group has one, without its members. Each
// membership is two entries of indexes, so a login touches nothing that other logins touch. Names are
// found through keyed hashes. Nothing here writes: a Book reads and gives operations, which
// the keeper commits (the first login of an alias with the token that it gets).
package identity

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
)

// Where records are, below the mount.
const (
	entityKey      = "entity/"       // ID: Entity
	entityNameKey  = "entity-name/"  // hash of the name in lower case: the entity's ID
	aliasKey       = "alias/"        // ID of an alias: the entity's ID
	factorKey      = "factor/"       // hash of mount and name: the entity's ID
	mergedKey      = "merged/"       // ID of an entity that was merged: the ID of the one that has its aliases
	groupKey       = "group/"        // ID: Group
	groupNameKey   = "group-name/"   // hash: the group's ID
	groupAliasKey  = "group-alias/"  // ID of an alias: the group's ID
	groupFactorKey = "group-factor/" // hash: the group's ID
	membersKey     = "members/"      // group/entity
	memberOfKey    = "member-of/"    // entity/group
	childrenKey    = "children/"     // group/group
	parentsKey     = "parents/"      // child/parent
)

// Where others keep what goes with an entity, below the mount: ENTITY/METHOD each.
const (
	Secrets     = "mfa-secret/" // what its second factors are shown with
	SecretsUsed = "mfa-used/"   // the codes that were taken
)

// Entities is where the entities' records are, below the mount.
const Entities = entityKey

// AliasMounts are the accessors of the mounts that an entity's record has aliases of, one for each alias.
func AliasMounts(record []byte) (list []string, err error) {
	var e struct {
		Aliases []struct {
			Mount string `json:"mount_accessor"`
		} `json:"aliases"`
	}
	err = json.Unmarshal(record, &e)
	for _, a := range e.Aliases {
		list = append(list, a.Mount)
	}
	return list, err
}

// Alias is a name that a mount knows an entity, or an external group, by.
type Alias struct {
	ID         string            `json:"id"`
	Mount      string            `json:"mount_accessor"`
	Name       string            `json:"name"`
	Meta       map[string]string `json:"metadata,omitempty"`        // what the auth method said at the last login
	Custom     map[string]string `json:"custom_metadata,omitempty"` // what operators said
	Created    time.Time         `json:"creation_time"`
	Updated    time.Time         `json:"last_update_time"`
	MergedFrom []string          `json:"merged_from_canonical_ids,omitempty"`
}

// Entity is somebody.
type Entity struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Meta     map[string]string `json:"metadata,omitempty"`
	Policies []string          `json:"policies,omitempty"`
	Disabled bool              `json:"disabled,omitempty"`
	Aliases  []*Alias          `json:"aliases,omitempty"`
	Merged   []string          `json:"merged_entity_ids,omitempty"`
	Created  time.Time         `json:"creation_time"`
	Updated  time.Time         `json:"last_update_time"`
}

// The types of groups.
const (
	internal = "internal" // members are named by operators
	external = "external" // members are whom an auth method says at their login
)

// Group gives its policies to its members, and to those of the groups in it.
type Group struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Meta     map[string]string `json:"metadata,omitempty"`
	Policies []string          `json:"policies,omitempty"`
	Alias    *Alias            `json:"alias,omitempty"` // of an external group
	Created  time.Time         `json:"creation_time"`
	Updated  time.Time         `json:"last_update_time"`
}

// Book finds records. Hash keys the names in storage.
type Book struct {
	View engine.View
	Hash func(text string) string
}

func (b *Book) name(kind, name string) string { return kind + b.Hash(kind+strings.ToLower(name)) }

// factor is where an alias is found. Its name counts as it is written: subjects of tokens differ in case.
func (b *Book) factor(kind, mount, name string) string {
	return kind + b.Hash(kind+mount+"\x00"+name)
}

// plainID reports whether an ID that came from outside can be one.
func plainID(id string) bool {
	return id != "" && !strings.Contains(id, "/") && storage.CheckKey(id) == nil
}

func read[T any](ctx context.Context, v engine.View, kind, id string) (*T, error) {
	if !plainID(id) {
		return nil, nil
	}
	raw, ok, err := v.Get(ctx, kind+id)
	if err != nil || !ok {
		return nil, err
	}
	out := new(T)
	if json.Unmarshal(raw, out) != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "the record %s%s is not what was stored", kind, id)
	}
	return out, nil
}

// Entity returns the entity with the ID, also the one that it was merged into; nil for none.
func (b *Book) Entity(ctx context.Context, id string) (*Entity, error) {
	for range 8 { // merged into one that was merged
		e, err := read[Entity](ctx, b.View, entityKey, id)
		if err != nil || e != nil || !plainID(id) {
			return e, err
		}
		next, ok, err := b.View.Get(ctx, mergedKey+id)
		if err != nil || !ok {
			return nil, err
		}
		id = string(next)
	}
	return nil, nil
}

// Group returns the group with the ID, or nil.
func (b *Book) Group(ctx context.Context, id string) (*Group, error) {
	return read[Group](ctx, b.View, groupKey, id)
}

// at returns the entity that an entry of an index leads to, or nil.
func (b *Book) at(ctx context.Context, key string) (*Entity, error) {
	id, ok, err := b.View.Get(ctx, key)
	if err != nil || !ok {
		return nil, err
	}
	return b.Entity(ctx, string(id))
}

func (b *Book) groupAt(ctx context.Context, key string) (*Group, error) {
	id, ok, err := b.View.Get(ctx, key)
	if err != nil || !ok {
		return nil, err
	}
	return b.Group(ctx, string(id))
}

// ids gives what is in an index below prefix. Entries are opened though their keys say all: who can write to the
// storage, and has no key, must not make members of anybody.
func (b *Book) ids(ctx context.Context, prefix string) ([]string, error) {
	records, err := b.View.Scan(ctx, prefix, storage.After(prefix), 0)
	out := make([]string, 0, len(records))
	for _, r := range records {
		out = append(out, strings.TrimPrefix(r.Key, prefix))
	}
	return out, err
}

func (e *Entity) put() (secrets.Op, error) { return put(entityKey+e.ID, e) }

func (g *Group) put() (secrets.Op, error) { return put(groupKey+g.ID, g) }

func put(key string, v any) (secrets.Op, error) {
	raw, err := json.Marshal(v)
	return storage.Put(key, raw), err
}

// index gives the operations that let an alias of the entity be found.
func (b *Book) index(e *Entity, a *Alias) []secrets.Op {
	return []secrets.Op{storage.Put(aliasKey+a.ID, []byte(e.ID)), storage.Put(b.factor(factorKey, a.Mount, a.Name),
		[]byte(e.ID))}
}

func (b *Book) unindex(a *Alias) []secrets.Op {
	return []secrets.Op{storage.Delete(aliasKey + a.ID), storage.Delete(b.factor(factorKey, a.Mount, a.Name))}
}

func (e *Entity) alias(is func(a *Alias) bool) *Alias {
	if at := slices.IndexFunc(e.Aliases, is); at >= 0 {
		return e.Aliases[at]
	}
	return nil
}

// join and leave give the operations that make an entity a member of a group, and end that.
func join(group, entity string) []secrets.Op {
	return []secrets.Op{storage.Put(membersKey+group+"/"+entity, nil), storage.Put(memberOfKey+entity+"/"+group, nil)}
}

func leave(group, entity string) []secrets.Op {
	return []secrets.Op{storage.Delete(membersKey + group + "/" + entity),
		storage.Delete(memberOfKey + entity + "/" + group)}
}

func adopt(parent, child string) []secrets.Op {
	return []secrets.Op{storage.Put(childrenKey+parent+"/"+child, nil), storage.Put(parentsKey+child+"/"+parent, nil)}
}

func disown(parent, child string) []secrets.Op {
	return []secrets.Op{storage.Delete(childrenKey + parent + "/" + child),
		storage.Delete(parentsKey + child + "/" + parent)}
}

// EntityOf returns the entity whose resolution a record below the mount is part of. groups is
// true where it is part of that of everyone in a group.
func EntityOf(key string) (id string, groups bool) {
	for _, prefix := range []string{entityKey, mergedKey} {
		if id, ok := strings.CutPrefix(key, prefix); ok {
			return id, false
		}
	}
	if rest, ok := strings.CutPrefix(key, memberOfKey); ok {
		id, _, _ := strings.Cut(rest, "/")
		return id, false
	}
	return "", strings.HasPrefix(key, groupKey) || strings.HasPrefix(key, parentsKey)
}

func newEntity(name string, now time.Time) *Entity {
	e := &Entity{ID: uuid.NewString(), Name: name, Created: now, Updated: now}
	if name == "" {
		e.Name = "entity_" + strings.ReplaceAll(uuid.NewString(), "-", "")[:16]
	}
	return e
}

// The bounds of what operators write down about somebody.
const (
	maxName    = 512
	maxMeta    = 64
	maxMetaKey = 128
	maxMetaVal = 512
)

func checkName(field, name string) error {
	if len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errkind.Errorf(errkind.Invalid, "field %q: must have at most %d bytes, all of them printable", field, maxName)
	}
	return nil
}

// metadata reads an object of texts within its bounds.
func metadata(f *secrets.Fields, field string) (map[string]string, error) {
	m := auth.Pairs(f, field)
	if err := f.Err(); err != nil {
		return nil, err
	}
	if len(m) > maxMeta {
		return nil, errkind.Errorf(errkind.Invalid, "field %q: has %d keys, more than %d", field, len(m), maxMeta)
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if k == "" || len(k) > maxMetaKey || len(m[k]) > maxMetaVal {
			return nil, errkind.Errorf(errkind.Invalid, "field %q: key %.32q: a key has 1 to %d bytes and a value %d at most",
				field, k, maxMetaKey, maxMetaVal)
		}
	}
	return m, nil
}

// policies reads names of policies. Root is nobody's by identity.
func policies(f *secrets.Fields) ([]string, error) {
	var out []string
	for _, name := range f.Strings("policies") {
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "root" {
			return nil, errkind.New(errkind.Invalid, "field \"policies\": policies cannot contain root")
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out), f.Err()
}

func unknown(field, what, id string) error {
	return errkind.E(errkind.Invalid, "", fmt.Errorf("field %q: invalid %s ID %.64q", field, what, id))
}
