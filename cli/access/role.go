package access

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

func roleText(r *client.Role, meta bool) string { return roleLines(r, meta, "", true) }

// roleLines prints a role with indent before each line, with or without its name.
func roleLines(r *client.Role, meta bool, indent string, withName bool) string {
	f := command.Fields{Width: 14 + len(indent)}
	f.Add(indent+"ID", r.ID)
	if withName {
		f.Add(indent+"Name", r.Name)
	}
	f.Add(indent+"Description", r.Description)
	if meta {
		f.Add(indent+"Hash", fmt.Sprintf("%x", r.Hash))
		f.Add(indent+"Create Index", fmt.Sprint(r.CreateIndex))
		f.Add(indent+"Modify Index", fmt.Sprint(r.ModifyIndex))
	}
	var b strings.Builder
	b.WriteString(f.String())
	linksText(&b, "Policies", indent, r.Policies)
	identitiesText(&b, indent, r.ServiceIdentities, r.NodeIdentities, r.TemplatedPolicies)
	return b.String()
}

// roleFlags are the flags of create and update.
type roleFlags struct {
	description   string
	meta, noMerge bool
	policies      links
	identities    identities
}

func (o *roleFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.description, "description", "", "description")
	c.Flags().BoolVar(&o.meta, "meta", false, "also print hash and indexes")
	o.policies.flags(c, "policy", "policies", false)
	o.identities.flags(c, false)
}

// apply lays the flags over a role: they add, or replace everything with --no-merge.
func (o *roleFlags) apply(ctx context.Context, cl *client.Client, d *command.Dial, role *client.Role) error {
	o.policies.merge, o.identities.mergeServices, o.identities.mergeNodes = !o.noMerge, !o.noMerge, !o.noMerge
	if o.noMerge {
		*role = client.Role{ID: role.ID, Name: role.Name}
	}
	var err error
	role.Description = cmp.Or(o.description, role.Description)
	if role.Policies, err = o.policies.apply(ctx, cl, d, role.Policies); err != nil {
		return err
	}
	role.ServiceIdentities = o.identities.servicesAfter(role.ServiceIdentities)
	if role.NodeIdentities, err = o.identities.nodesAfter(role.NodeIdentities); err != nil {
		return err
	}
	role.TemplatedPolicies, err = o.identities.templatedAfter(role.TemplatedPolicies)
	return err
}

func roleCreate(e *command.Env) *cobra.Command {
	var o roleFlags
	var name string
	c := command.Read(e, "create", "Make a role", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			if name == "" {
				return command.Usagef("a role needs --name")
			}
			role := client.Role{Name: name}
			if err := o.apply(ctx, cl, &r.Dial, &role); err != nil {
				return err
			}
			return send(ctx, e, r, cl, http.MethodPut, "/v1/acl/role", role,
				func(v *client.Role, _ bool) string { return roleText(v, o.meta) })
		})
	o.flags(c)
	c.Flags().StringVar(&name, "name", "", "name of the role")
	return c
}

func roleRead(e *command.Env) *cobra.Command {
	var id objectID
	var meta bool
	c := command.Read(e, "read", "Show a role", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			full, err := id.find(ctx, cl, &r.Dial)
			if err != nil {
				return err
			}
			return read(ctx, e, r, cl, "/v1/acl/role/"+full, func(v *client.Role) string { return roleText(v, meta) })
		})
	id.flags(c, "role")
	c.Flags().BoolVar(&meta, "meta", false, "also print hash and indexes")
	return c
}

func roleUpdate(e *command.Env) *cobra.Command {
	var id, name string
	var o roleFlags
	c := command.Read(e, "update", "Change a role; flags add to what is there, unless --no-merge",
		command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			which := objectID{what: "role", id: id}
			if id == "" {
				which.name = name
			}
			full, err := which.find(ctx, cl, &r.Dial)
			if err != nil {
				return err
			}
			var role client.Role
			if _, err := cl.Get(ctx, "/v1/acl/role/"+full, r.Q, &role); err != nil {
				return err
			}
			if id != "" {
				role.Name = cmp.Or(name, role.Name)
			}
			if err := o.apply(ctx, cl, &r.Dial, &role); err != nil {
				return err
			}
			return send(ctx, e, r, cl, http.MethodPut, "/v1/acl/role/"+full, role,
				func(v *client.Role, _ bool) string { return roleText(v, o.meta) })
		})
	o.flags(c)
	c.Flags().StringVar(&id, "id", "", "id of the role, or its beginning")
	c.Flags().StringVar(&name, "name", "", "name of the role; with --id its new name")
	c.Flags().BoolVar(&o.noMerge, "no-merge", false, "clear the fields that no flag sets")
	return c
}

func roleDelete(e *command.Env) *cobra.Command {
	var id objectID
	c := command.Act(e, "delete", "Delete a role", command.Between(0, 0, "flags only"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, _ []string) error {
			full, err := id.find(ctx, cl, d)
			if err != nil {
				return err
			}
			return remove(ctx, e, d, cl, "Role", "/v1/acl/role/", full)
		})
	id.flags(c, "role")
	return c
}

func roleList(e *command.Env) *cobra.Command {
	var meta bool
	c := command.Read(e, "list", "List roles", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			return list(ctx, e, r, cl, "/v1/acl/roles", func(v *client.Role) string {
				return v.Name + ":\n" + roleLines(v, meta, "   ", false)
			})
		})
	c.Flags().BoolVar(&meta, "meta", false, "also print hash and indexes")
	return c
}
