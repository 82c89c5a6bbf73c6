package identity

import (
	"slices"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/storage"
)

// aliases answers what is asked of entities' aliases.
type aliases struct{ *call }

// route answers entity-alias and entity-alias/id.
func (c aliases) route(by, id string) (*secrets.Response, error) {
	switch {
	case by == "" && c.writes():
		return c.write(c.f.String("id"))
	case by == "id" && id == "" && c.Op == secrets.List:
		return c.list()
	case by != "id" || id == "":
		return nil, auth.ErrUnsupported
	case c.writes():
		return c.write(id)
	}
	e, a, err := c.byID(id)
	switch {
	case err != nil:
		return nil, err
	case c.Op == secrets.Read && a == nil:
		return nil, auth.ErrNotFound
	case c.Op == secrets.Read:
		return auth.Data(c.showAlias(a, e.ID))
	case c.Op == secrets.Delete && a == nil:
		return nil, nil
	case c.Op == secrets.Delete:
		e.Aliases = slices.DeleteFunc(e.Aliases, func(b *Alias) bool { return b == a })
		c.ops = append(c.ops, c.unindex(a)...)
		return nil, entities(c).keep(e)
	}
	return nil, auth.ErrUnsupported
}

func (c aliases) byID(id string) (*Entity, *Alias, error) {
	if !plainID(id) {
		return nil, nil, nil
	}
	e, err := c.at(c, aliasKey+id)
	if err != nil || e == nil {
		return nil, nil, err
	}
	a := e.alias(func(a *Alias) bool { return a.ID == id })
	return e, a, nil
}

func (c aliases) list() (*secrets.Response, error) {
	info := map[string]any{}
	_, _, err := list(c.call, entityKey, false, func(e *Entity) (string, string, map[string]any) {
		for _, a := range e.Aliases {
			info[a.ID] = c.showAlias(a, e.ID)
		}
		return e.ID, e.Name, nil
	})
	if err != nil {
		return nil, err
	}
	return listed(sortedKeys(info), info, false)
}

// mountField reads the mount of an alias.
func (c *call) mountField(old string) (string, error) {
	accessor := c.f.String("mount_accessor")
	if accessor == "" {
		accessor = old
	}
	m := c.e.Mounts(accessor)
	switch {
	case accessor == "":
		return "", errkind.New(errkind.Invalid, "field \"mount_accessor\": is missing")
	case m == nil || !m.Auth():
		return "", errkind.Errorf(errkind.Invalid, "field \"mount_accessor\": invalid mount accessor %.64q", accessor)
	}
	return accessor, nil
}

// write makes an alias, or changes the one with the ID or with the same name at the same mount.
func (c aliases) write(id string) (*secrets.Response, error) {
	name, canonical := c.f.String("name"), c.f.String("canonical_id")
	if canonical == "" {
		canonical = c.f.String("entity_id") // the word of old
	}
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	var from *Entity
	var old *Alias
	var err error
	if id != "" {
		if from, old, err = c.byID(id); err != nil {
			return nil, err
		}
		if old == nil {
			return nil, unknown("id", "entity alias", id)
		}
	}
	next := Alias{ID: uuid.NewString(), Created: c.now}
	if old != nil {
		next = *old
	}
	if name != "" {
		next.Name = name
	}
	if next.Mount, err = c.mountField(next.Mount); err != nil {
		return nil, err
	}
	if next.Name == "" {
		return nil, errkind.New(errkind.Invalid, "field \"name\": is missing")
	}
	holder, err := c.at(c, c.factor(factorKey, next.Mount, next.Name))
	if err != nil {
		return nil, err
	}
	if holder != nil {
		same := holder.alias(func(a *Alias) bool { return a.Mount == next.Mount && a.Name == next.Name })
		switch {
		case same == nil:
		case old == nil:
			from, old, next = holder, same, *same
		case same.ID != old.ID:
			return nil, errkind.New(errkind.Invalid, "alias with combination of mount accessor and name already exists")
		}
	}
	if c.f.Has("custom_metadata") {
		if next.Custom, err = metadata(c.f, "custom_metadata"); err != nil {
			return nil, err
		}
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	next.Updated = c.now
	return c.place(from, old, &next, canonical)
}

// place puts an alias to its entity, which is made where none is named.
func (c aliases) place(from *Entity, old, next *Alias, canonical string) (*secrets.Response, error) {
	to, err := from, error(nil)
	switch {
	case canonical != "" && (from == nil || canonical != from.ID):
		if to, err = c.Entity(c, canonical); err != nil {
			return nil, err
		}
		if to == nil {
			return nil, unknown("canonical_id", "canonical", canonical)
		}
	case from == nil:
		to = newEntity("", c.now)
		c.ops = append(c.ops, storage.Put(c.name(entityNameKey, to.Name), []byte(to.ID)))
	}
	if old != nil {
		c.ops = append(c.ops, c.unindex(old)...)
		from.Aliases = slices.DeleteFunc(from.Aliases, func(a *Alias) bool { return a.ID == old.ID })
		if from.ID != to.ID {
			if err := (entities(c)).keep(from); err != nil {
				return nil, err
			}
		}
		if from.ID == to.ID {
			to = from
		}
	}
	if other := to.alias(func(a *Alias) bool { return a.Mount == next.Mount }); other != nil {
		return nil, errkind.Errorf(errkind.Invalid, "entity already has an alias at the mount %s: %s", next.Mount, other.ID)
	}
	to.Aliases = append(to.Aliases, next)
	c.ops = append(c.ops, c.index(to, next)...)
	if err := (entities(c)).keep(to); err != nil {
		return nil, err
	}
	return auth.Data(map[string]any{"id": next.ID, "canonical_id": to.ID})
}

// groups answers what is asked of groups and their aliases.
type groups struct{ *call }

// routeAlias answers group-alias and group-alias/id: the name that a mount knows an external group by.
func (c groups) routeAlias(by, id string) (*secrets.Response, error) {
	switch {
	case by == "" && c.writes():
		return c.writeAlias(c.f.String("id"))
	case by == "id" && id == "" && c.Op == secrets.List:
		info := map[string]any{}
		_, _, err := list(c.call, groupKey, false, func(g *Group) (string, string, map[string]any) {
			if g.Alias != nil {
				info[g.Alias.ID] = c.showAlias(g.Alias, g.ID)
			}
			return g.ID, g.Name, nil
		})
		if err != nil {
			return nil, err
		}
		return listed(sortedKeys(info), info, false)
	case by != "id" || id == "":
		return nil, auth.ErrUnsupported
	case c.writes():
		return c.writeAlias(id)
	}
	g, err := c.find("", "", id, "", "")
	switch {
	case err != nil:
		return nil, err
	case c.Op == secrets.Read && (g == nil || g.Alias == nil):
		return nil, auth.ErrNotFound
	case c.Op == secrets.Read:
		return auth.Data(c.showAlias(g.Alias, g.ID))
	case c.Op == secrets.Delete && (g == nil || g.Alias == nil):
		return nil, nil
	case c.Op == secrets.Delete:
		c.dropAlias(g)
		return nil, c.keep(g)
	}
	return nil, auth.ErrUnsupported
}

// dropAlias takes a group's alias. Its members stay until their next login says otherwise.
func (c groups) dropAlias(g *Group) {
	c.ops = append(c.ops, storage.Delete(groupAliasKey+g.Alias.ID),
		storage.Delete(c.factor(groupFactorKey, g.Alias.Mount, g.Alias.Name)))
	g.Alias = nil
}

func (c groups) writeAlias(id string) (*secrets.Response, error) {
	name, canonical := c.f.String("name"), c.f.String("canonical_id")
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	var g *Group
	var err error
	if id != "" {
		if g, err = c.find("", "", id, "", ""); err != nil {
			return nil, err
		}
		if g == nil || g.Alias == nil {
			return nil, unknown("id", "group alias", id)
		}
	}
	next := Alias{ID: uuid.NewString(), Created: c.now}
	if g != nil {
		next = *g.Alias
		if canonical == "" {
			canonical = g.ID
		}
	}
	if name != "" {
		next.Name = name
	}
	if next.Mount, err = c.mountField(next.Mount); err != nil {
		return nil, err
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if next.Name == "" {
		return nil, errkind.New(errkind.Invalid, "field \"name\": is missing")
	}
	to, err := c.Group(c, canonical)
	if err != nil {
		return nil, err
	}
	if to == nil {
		return nil, unknown("canonical_id", "group", canonical)
	}
	if to.Type != external {
		return nil, errkind.New(errkind.Invalid, "field \"canonical_id\": alias can be set only on an external group")
	}
	return c.placeAlias(g, to, &next)
}

// placeAlias puts an alias to its group; from is the one that has it, or nil.
func (c groups) placeAlias(from, to *Group, next *Alias) (*secrets.Response, error) {
	holder, err := c.groupAt(c, c.factor(groupFactorKey, next.Mount, next.Name))
	if err != nil {
		return nil, err
	}
	if holder != nil && holder.ID != to.ID && (from == nil || holder.ID != from.ID) {
		return nil, errkind.New(errkind.Invalid, "group alias with combination of mount accessor and name already exists")
	}
	if from != nil && from.ID != to.ID {
		c.dropAlias(from)
		if err := c.keep(from); err != nil {
			return nil, err
		}
	}
	if to.Alias != nil {
		if from == nil { // one alias a group: writing it again changes it
			next.ID, next.Created = to.Alias.ID, to.Alias.Created
		}
		c.dropAlias(to)
	}
	next.Updated = c.now
	to.Alias = next
	c.ops = append(c.ops, storage.Put(groupAliasKey+next.ID, []byte(to.ID)),
		storage.Put(c.factor(groupFactorKey, next.Mount, next.Name), []byte(to.ID)))
	if err := c.keep(to); err != nil {
		return nil, err
	}
	return auth.Data(map[string]any{"id": next.ID, "canonical_id": to.ID})
}
