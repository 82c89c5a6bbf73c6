package movein

import (
	"context"
	"fmt"

	"corbel.dev/corbel/cli/migrate"
)

// pick is an object of some fields of another.
func pick(from object, fields ...string) object {
	out := object{}
	for _, f := range fields {
		if from[f] != nil {
			out[f] = from[f]
		}
	}
	return out
}

// people brings entities over, and under which names their methods know them. IDs are the target's own.
func (v *vaultRun) people(ctx context.Context) error {
	list, err := names(ctx, v.from, "identity/entity/name")
	if err != nil {
		return err
	}
	there, err := table(ctx, v.to, "sys/auth")
	if err != nil {
		return err
	}
	for _, name := range list {
		e, err := data(ctx, v.from, "identity/entity/name/"+name)
		if err != nil || e == nil {
			v.note("entities", name, migrate.Failed, fmt.Sprint("cannot be read: ", err))
			continue
		}
		v.entities[text(e, "id")] = name
		if !v.put(ctx, "entities", name, "identity/entity/name/"+name, pick(e, "name", "metadata", "policies",
			"disabled")) || v.DryRun {
			continue
		}
		mine, err := data(ctx, v.to, "identity/entity/name/"+name)
		if err != nil {
			return err
		}
		aliases, _ := e["aliases"].([]any)
		for _, x := range aliases {
			if a, ok := x.(object); ok {
				v.alias(ctx, name, a, mine, there)
			}
		}
	}
	return nil
}

// alias says that a method's user is an entity.
func (v *vaultRun) alias(ctx context.Context, entity string, a, mine object, there map[string]object) {
	path := text(a, "mount_path")
	if len(path) > 5 && path[:5] == "auth/" {
		path = path[5:]
	}
	accessor := text(there[path], "accessor")
	name := entity + " as " + text(a, "name") + " at " + path
	if accessor == "" {
		v.note("entities", name, migrate.Skipped, "the target has no such auth method")
		return
	}
	want := object{"name": a["name"], "mount_accessor": accessor}
	v.bring(ctx, thing{kind: "entities", name: name, want: want,
		read: func(ctx context.Context) (object, error) {
			e, err := data(ctx, v.to, "identity/entity/name/"+entity)
			list, _ := e["aliases"].([]any)
			for _, x := range list {
				if have, ok := x.(object); ok && covers(have, want) {
					return have, nil
				}
			}
			return nil, err
		},
		write: func(ctx context.Context) error {
			_, err := v.to.Do(ctx, "POST", "identity/entity-alias", nil, object{"name": a["name"],
				"mount_accessor": accessor, "canonical_id": mine["id"]})
			return short(err)
		}})
}

// groups brings internal groups over, with the entities in them.
func (v *vaultRun) groups(ctx context.Context) error {
	list, err := names(ctx, v.from, "identity/group/name")
	if err != nil {
		return err
	}
	for _, name := range list {
		g, err := data(ctx, v.from, "identity/group/name/"+name)
		if err != nil || g == nil {
			v.note("groups", name, migrate.Failed, fmt.Sprint("cannot be read: ", err))
			continue
		}
		if text(g, "type") == "external" {
			v.note("groups", name, migrate.Skipped, "an external group: make it here with its alias")
			continue
		}
		want := pick(g, "name", "type", "metadata", "policies")
		var members []any
		for _, id := range strs(g["member_entity_ids"]) {
			mine, err := data(ctx, v.to, "identity/entity/name/"+v.entities[id])
			if err != nil {
				return err
			}
			if mine != nil {
				members = append(members, mine["id"])
			}
		}
		want["member_entity_ids"] = members
		v.put(ctx, "groups", name, "identity/group/name/"+name, want)
	}
	return nil
}

// left counts what ends by itself and is not brought.
func (v *vaultRun) left(ctx context.Context) {
	if list, err := names(ctx, v.from, "auth/token/accessors"); err == nil {
		v.report.Notes = append(v.report.Notes, fmt.Sprintf("%d tokens, with their leases: clients log in here anew",
			len(list)))
	}
}
