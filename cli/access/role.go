package access

import (
	"cmp"
	"context"
	"fmt"
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
	description string
	noMerge     bool
	policies    links
	identities  identities
}

func (o *roleFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.description, "description", "", "description")
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
	c := roles.create(e, "Make a role",
		func(ctx context.Context, cl *client.Client, d *command.Dial) (*client.Role, error) {
			if name == "" {
				return nil, command.Usagef("a role needs --name")
			}
			role := &client.Role{Name: name}
			return role, o.apply(ctx, cl, d, role)
		})
	o.flags(c)
	c.Flags().StringVar(&name, "name", "", "name of the role")
	return c
}

func roleUpdate(e *command.Env) *cobra.Command {
	var o roleFlags
	id := objectID{what: "role"}
	c := roles.update(e, "Change a role; flags add to what is there, unless --no-merge", id.renaming,
		func(ctx context.Context, cl *client.Client, d *command.Dial, role *client.Role) error {
			if id.id != "" {
				role.Name = cmp.Or(id.name, role.Name)
			}
			return o.apply(ctx, cl, d, role)
		})
	o.flags(c)
	c.Flags().BoolVar(&o.noMerge, "no-merge", false, "clear the fields that no flag sets")
	return c
}

func roleRow(r *client.Role, meta bool) string {
	return r.Name + ":\n" + roleLines(r, meta, "   ", false)
}
