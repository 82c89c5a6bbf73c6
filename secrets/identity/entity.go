package identity

import (
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/storage"
)

// entities answers what is asked of entities.
type entities struct{ *call }

// route answers entity, entity/id, entity/name, entity/merge and entity/batch-delete.
func (c entities) route(by, name string) (*secrets.Response, error) {
	switch {
	case c.Op == secrets.List && name == "" && (by == "id" || by == "name"):
		return c.list(by)
	case by == "" && c.writes():
		return c.write(c.f.String("id"), c.f.String("name"))
	case by == "merge" && c.writes():
		return nil, c.merge()
	case by == "batch-delete" && c.writes():
		return nil, c.deleteMany()
	case name == "":
		return nil, auth.ErrUnsupported
	case by == "name" && c.writes():
		return c.write("", name)
	case c.writes():
		return c.write(name, c.f.String("name"))
	}
	find := [5]string{}
	find[map[string]int{"id": 0, "name": 1}[by]] = name
	e, err := c.find(find[0], find[1], "", "", "")
	switch {
	case err != nil:
		return nil, err
	case c.Op == secrets.Delete && e == nil:
		return nil, nil
	case c.Op == secrets.Delete:
		return nil, c.drop(e)
	case c.Op == secrets.Read && e == nil:
		return nil, auth.ErrNotFound
	case c.Op == secrets.Read:
		return c.show(e)
	}
	return nil, auth.ErrUnsupported
}

// list gives the IDs with what they are the IDs of, or the names.
func (c entities) list(by string) (*secrets.Response, error) {
	keys, info, err := list(c.call, entityKey, by == "name", func(e *Entity) (id, name string, shown map[string]any) {
		aliases := []any{}
		for _, a := range e.Aliases {
			aliases = append(aliases, c.showAlias(a, e.ID))
		}
		return e.ID, e.Name, map[string]any{"name": e.Name, "aliases": aliases}
	})
	if err != nil {
		return nil, err
	}
	return listed(keys, info, by == "name")
}

func (c entities) write(id, name string) (*secrets.Response, error) {
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	var e *Entity
	var err error
	if id != "" {
		if e, err = c.Entity(c, id); err != nil {
			return nil, err
		}
		if e == nil {
			return nil, unknown("id", "entity", id)
		}
	}
	if name != "" {
		named, err := c.at(c, c.name(entityNameKey, name))
		switch {
		case err != nil:
			return nil, err
		case e == nil:
			e = named
		case named != nil && named.ID != e.ID:
			return nil, errkind.Errorf(errkind.Invalid, "field \"name\": the entity name %.64q is already in use", name)
		}
	}
	made := e == nil
	if made {
		e = newEntity(name, c.now)
	}
	if name == "" {
		name = e.Name
	}
	if e.Name != name || made {
		if !made {
			c.ops = append(c.ops, storage.Delete(c.name(entityNameKey, e.Name)))
		}
		e.Name = name
		c.ops = append(c.ops, storage.Put(c.name(entityNameKey, name), []byte(e.ID)))
	}
	if c.f.Has("metadata") {
		if e.Meta, err = metadata(c.f, "metadata"); err != nil {
			return nil, err
		}
	}
	if c.f.Has("policies") {
		if e.Policies, err = policies(c.f); err != nil {
			return nil, err
		}
	}
	e.Disabled = c.f.Bool("disabled", e.Disabled)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if err := c.keep(e); err != nil || !made {
		return nil, err
	}
	return auth.Data(map[string]any{"id": e.ID, "name": e.Name, "aliases": nil})
}

// keep stores an entity that was changed now.
func (c entities) keep(e *Entity) error {
	e.Updated = c.now
	op, err := e.put()
	c.ops = append(c.ops, op)
	return err
}

func (c entities) drop(e *Entity) error {
	c.ops = append(c.ops, storage.Delete(entityKey+e.ID), storage.Delete(c.name(entityNameKey, e.Name)))
	for _, a := range e.Aliases {
		c.ops = append(c.ops, c.unindex(a)...)
	}
	for _, id := range e.Merged {
		c.ops = append(c.ops, storage.Delete(mergedKey+id))
	}
	for _, kind := range []string{Secrets, SecretsUsed} {
		methods, err := c.ids(c, kind+e.ID+"/")
		if err != nil {
			return err
		}
		for _, m := range methods {
			c.ops = append(c.ops, storage.Delete(kind+e.ID+"/"+m))
		}
	}
	groups, err := c.ids(c, memberOfKey+e.ID+"/")
	for _, g := range groups {
		c.ops = append(c.ops, leave(g, e.ID)...)
	}
	return err
}

// inherit gives an entity the second factors of another that it has none of the same method for.
func (c entities) inherit(from, to string) error {
	prefix := Secrets + from + "/"
	list, err := c.View.Scan(c, prefix, storage.After(prefix), 0)
	for _, r := range list {
		method := strings.TrimPrefix(r.Key, prefix)
		key := Secrets + to + "/" + method
		_, has, err := c.View.Get(c, key)
		if err != nil {
			return err
		}
		if has || slices.ContainsFunc(c.ops, func(op secrets.Op) bool { return op.Key == key }) {
			continue
		}
		c.ops = append(c.ops, storage.Put(key, r.Value))
		used, has, err := c.View.Get(c, SecretsUsed+from+"/"+method)
		if err != nil {
			return err
		}
		if has {
			c.ops = append(c.ops, storage.Put(SecretsUsed+to+"/"+method, used))
		}
	}
	return err
}

func (c entities) deleteMany() error {
	ids := c.f.Strings("entity_ids")
	if err := c.f.Err(); err != nil {
		return err
	}
	if len(ids) == 0 {
		return errkind.New(errkind.Invalid, "field \"entity_ids\": is missing")
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		e, err := c.Entity(c, id)
		if err != nil {
			return err
		}
		if e != nil && e.ID == id {
			if err := c.drop(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// merge makes several entities one. Tokens of those that go are the one's from then on.
func (c entities) merge() error {
	from, toID, keep := c.f.Strings("from_entity_ids"), c.f.String("to_entity_id"),
		c.f.Strings("conflicting_alias_ids_to_keep")
	if err := c.f.Err(); err != nil {
		return err
	}
	if toID == "" || len(from) == 0 {
		return errkind.New(errkind.Invalid, "from_entity_ids, to_entity_id: are missing")
	}
	to, err := c.Entity(c, toID)
	if err != nil {
		return err
	}
	if to == nil {
		return unknown("to_entity_id", "entity", toID)
	}
	slices.Sort(from)
	for _, id := range slices.Compact(from) {
		e, err := c.Entity(c, id)
		if err != nil {
			return err
		}
		if e == nil {
			return unknown("from_entity_ids", "entity", id)
		}
		if e.ID == to.ID {
			return errkind.New(errkind.Invalid, "field \"from_entity_ids\": to_entity_id must not be among them")
		}
		if err := c.mergeOne(e, to, keep); err != nil {
			return err
		}
	}
	return c.keep(to)
}

func (c entities) mergeOne(e, to *Entity, keep []string) error {
	if err := c.drop(e); err != nil {
		return err
	}
	if err := c.inherit(e.ID, to.ID); err != nil {
		return err
	}
	for _, op := range c.ops { // the memberships that end are the other's now
		if group, is := strings.CutPrefix(op.Key, memberOfKey+e.ID+"/"); is && op.Value == nil {
			c.ops = append(c.ops, join(group, to.ID)...)
		}
	}
	for _, a := range e.Aliases {
		if other := to.alias(func(b *Alias) bool { return b.Mount == a.Mount }); other != nil {
			switch {
			case slices.Contains(keep, other.ID):
				continue
			case !slices.Contains(keep, a.ID):
				return errkind.Errorf(errkind.Invalid,
					"both have an alias at the mount %s (%s, %s): name one of them in conflicting_alias_ids_to_keep", a.Mount,
					a.ID, other.ID)
			}
			to.Aliases = slices.DeleteFunc(to.Aliases, func(b *Alias) bool { return b == other })
			c.ops = append(c.ops, c.unindex(other)...)
		}
		a.MergedFrom = append(a.MergedFrom, e.ID)
		to.Aliases = append(to.Aliases, a)
		c.ops = append(c.ops, c.index(to, a)...)
	}
	to.Policies = append(to.Policies, e.Policies...)
	slices.Sort(to.Policies)
	to.Policies = slices.Compact(to.Policies)
	for k, v := range e.Meta {
		if _, has := to.Meta[k]; !has {
			if to.Meta == nil {
				to.Meta = map[string]string{}
			}
			to.Meta[k] = v
		}
	}
	to.Disabled = to.Disabled || e.Disabled // whoever was shut out does not come back by a merge
	to.Merged = append(append(to.Merged, e.ID), e.Merged...)
	for _, id := range append([]string{e.ID}, e.Merged...) {
		c.ops = append(c.ops, storage.Put(mergedKey+id, []byte(to.ID)))
	}
	return nil
}
