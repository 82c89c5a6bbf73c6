package identity

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/storage"
)

// route answers group, group/id and group/name.
func (c groups) route(by, name string) (*secrets.Response, error) {
	switch {
	case c.Op == secrets.List && name == "" && (by == "id" || by == "name"):
		keys, info, err := list(c.call, groupKey, by == "name", func(g *Group) (id, name string, shown map[string]any) {
			return g.ID, g.Name, map[string]any{"name": g.Name}
		})
		if err != nil {
			return nil, err
		}
		return listed(keys, info, by == "name")
	case by == "" && c.writes():
		return c.write(c.f.String("id"), c.f.String("name"))
	case name == "":
		return nil, auth.ErrUnsupported
	case by == "name" && c.writes():
		return c.write("", name)
	case c.writes():
		return c.write(name, c.f.String("name"))
	}
	find := [2]string{}
	find[map[string]int{"id": 0, "name": 1}[by]] = name
	g, err := c.find(find[0], find[1], "", "", "")
	switch {
	case err != nil:
		return nil, err
	case c.Op == secrets.Read && g == nil:
		return nil, auth.ErrNotFound
	case c.Op == secrets.Read:
		return c.show(g)
	case c.Op == secrets.Delete && g == nil:
		return nil, nil
	case c.Op == secrets.Delete:
		return nil, c.drop(g)
	}
	return nil, auth.ErrUnsupported
}

func (c groups) keep(g *Group) error {
	g.Updated = c.now
	op, err := g.put()
	c.ops = append(c.ops, op)
	return err
}

func (c groups) drop(g *Group) error {
	members, children, parents, err := c.around(g.ID)
	c.ops = append(c.ops, storage.Delete(groupKey+g.ID), storage.Delete(c.name(groupNameKey, g.Name)))
	for _, id := range members {
		c.ops = append(c.ops, leave(g.ID, id)...)
	}
	for _, id := range children {
		c.ops = append(c.ops, disown(g.ID, id)...)
	}
	for _, id := range parents {
		c.ops = append(c.ops, disown(id, g.ID)...)
	}
	if g.Alias != nil {
		c.dropAlias(g)
	}
	return err
}

// meant finds the group that a write is about, or makes it.
func (c groups) meant(id, name string) (g *Group, err error) {
	if id != "" {
		if g, err = c.Group(c, id); err != nil {
			return nil, err
		}
		if g == nil {
			return nil, unknown("id", "group", id)
		}
	}
	if name != "" {
		named, err := c.groupAt(c, c.name(groupNameKey, name))
		switch {
		case err != nil:
			return nil, err
		case g == nil:
			g = named
		case named != nil && named.ID != g.ID:
			return nil, errkind.Errorf(errkind.Invalid, "field \"name\": the group name %.64q is already in use", name)
		}
	}
	if g != nil {
		return g, nil
	}
	kind := c.f.String("type")
	if kind == "" {
		kind = internal
	}
	if kind != internal && kind != external {
		return nil, errkind.Errorf(errkind.Invalid, "field \"type\": group type %.64q is neither internal nor external", kind)
	}
	g = &Group{ID: uuid.NewString(), Type: kind, Created: c.now}
	if g.Name = name; name == "" {
		g.Name = "group_" + g.ID[:8] + g.ID[9:13]
	}
	c.ops = append(c.ops, storage.Put(c.name(groupNameKey, g.Name), []byte(g.ID)))
	return g, nil
}

func (c groups) write(id, name string) (*secrets.Response, error) {
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	g, err := c.meant(id, name)
	if err != nil {
		return nil, err
	}
	if kind := c.f.String("type"); kind != "" && kind != g.Type {
		return nil, errkind.New(errkind.Invalid, "field \"type\": group type cannot be changed")
	}
	if name != "" && name != g.Name {
		c.ops = append(c.ops, storage.Delete(c.name(groupNameKey, g.Name)),
			storage.Put(c.name(groupNameKey, name), []byte(g.ID)))
		g.Name = name
	}
	if c.f.Has("metadata") {
		if g.Meta, err = metadata(c.f, "metadata"); err != nil {
			return nil, err
		}
	}
	if c.f.Has("policies") {
		if g.Policies, err = policies(c.f); err != nil {
			return nil, err
		}
	}
	if c.f.Has("member_entity_ids") {
		if err := c.setMembers(g); err != nil {
			return nil, err
		}
	}
	if c.f.Has("member_group_ids") {
		if err := c.setChildren(g); err != nil {
			return nil, err
		}
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if err := c.keep(g); err != nil {
		return nil, err
	}
	return auth.Data(map[string]any{"id": g.ID, "name": g.Name})
}

// wanted compares a list of the request with what there is.
func (c groups) wanted(field, kind, group string) (more, less []string, err error) {
	want := c.f.Strings(field)
	if err := c.f.Err(); err != nil {
		return nil, nil, err
	}
	has, err := c.ids(c, kind+group+"/")
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(want)
	for _, id := range slices.Compact(want) {
		if !slices.Contains(has, id) {
			more = append(more, id)
		}
	}
	for _, id := range has {
		if _, in := slices.BinarySearch(want, id); !in {
			less = append(less, id)
		}
	}
	return more, less, nil
}

func (c groups) setMembers(g *Group) error {
	more, less, err := c.wanted("member_entity_ids", membersKey, g.ID)
	if err != nil {
		return err
	}
	if g.Type == external && len(more)+len(less) > 0 {
		return errkind.New(errkind.Invalid, "field \"member_entity_ids\": member entities can't be set manually for "+
			"external groups")
	}
	for _, id := range more {
		e, err := c.Entity(c, id)
		if err != nil {
			return err
		}
		if e == nil || e.ID != id {
			return unknown("member_entity_ids", "entity", id)
		}
		c.ops = append(c.ops, join(g.ID, id)...)
	}
	for _, id := range less {
		c.ops = append(c.ops, leave(g.ID, id)...)
	}
	return nil
}

func (c groups) setChildren(g *Group) error {
	more, less, err := c.wanted("member_group_ids", childrenKey, g.ID)
	if err != nil {
		return err
	}
	for _, id := range more {
		child, err := c.Group(c, id)
		if err != nil {
			return err
		}
		if child == nil {
			return unknown("member_group_ids", "group", id)
		}
		if within, err := c.within(g.ID, id); err != nil || within {
			if err == nil {
				err = errkind.Errorf(errkind.Invalid,
					"field \"member_group_ids\": %s has this group in it: groups cannot hold each other", id)
			}
			return err
		}
		c.ops = append(c.ops, adopt(g.ID, id)...)
	}
	for _, id := range less {
		c.ops = append(c.ops, disown(g.ID, id)...)
	}
	return nil
}

// within reports whether a group is another, or is in it at any depth.
func (c groups) within(id, other string) (bool, error) {
	seen := map[string]bool{}
	for next := []string{id}; len(next) > 0; {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		if at == other {
			return true, nil
		}
		if seen[at] {
			continue
		}
		seen[at] = true
		parents, err := c.ids(c, parentsKey+at+"/")
		if err != nil {
			return false, err
		}
		next = append(next, parents...)
	}
	return false, nil
}

// list reads all records of a kind: their IDs or names in order, and what is shown of each.
func list[T any](c *call, kind string, names bool,
	show func(*T) (id, name string, shown map[string]any)) (keys []string, info map[string]any, err error) {
	info = map[string]any{}
	for from := kind; ; {
		records, err := c.View.Scan(c, from, storage.After(kind), 1000)
		if err != nil {
			return nil, nil, err
		}
		if len(records) == 0 {
			slices.Sort(keys)
			return keys, info, nil
		}
		for _, r := range records {
			from = r.Key + "\x00"
			v := new(T)
			if json.Unmarshal(r.Value, v) != nil {
				return nil, nil, errkind.Errorf(errkind.Corrupt, "the record %s is not what was stored", r.Key)
			}
			id, name, shown := show(v)
			if names {
				id = name
			}
			keys = append(keys, id)
			info[id] = shown
		}
	}
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// listed answers a list; an empty one is not found.
func listed(keys []string, info map[string]any, bare bool) (*secrets.Response, error) {
	if bare {
		return auth.Keys(keys, nil)
	}
	return auth.KeyInfo(keys, info)
}
