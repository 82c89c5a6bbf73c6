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

func policyText(p *client.Policy, meta bool) string {
	f := command.Fields{Width: 14}
	f.Add("ID", p.ID)
	f.Add("Name", p.Name)
	f.Add("Description", p.Description)
	f.Add("Datacenters", strings.Join(p.Datacenters, ", "))
	if meta {
		f.Add("Hash", fmt.Sprintf("%x", p.Hash))
		f.Add("Create Index", fmt.Sprint(p.CreateIndex))
		f.Add("Modify Index", fmt.Sprint(p.ModifyIndex))
	}
	f.Line("Rules:")
	f.Line(p.Rules)
	return f.String()
}

// objectID is the pair of flags that names a policy or role.
type objectID struct{ what, id, name string }

func (o *objectID) flags(c *cobra.Command, what string) {
	o.what = what
	c.Flags().StringVar(&o.id, "id", "", "id of the "+what+", or its beginning")
	c.Flags().StringVar(&o.name, "name", "", "name of the "+what)
}

// find gives the object's id by either flag.
func (o *objectID) find(ctx context.Context, cl *client.Client, d *command.Dial) (string, error) {
	list := map[string]string{"policy": "/v1/acl/policies", "role": "/v1/acl/roles"}[o.what]
	if (o.id == "") == (o.name == "") {
		return "", command.Usagef("give one of --id and --name; see `acl %s list`", o.what)
	}
	if o.id != "" {
		return idOf(ctx, cl, d, list, o.what, o.id)
	}
	var found named
	if _, err := cl.Get(ctx, "/v1/acl/"+o.what+"/name/"+client.Escape(o.name), d.Q, &found); err != nil {
		return "", fmt.Errorf("look for the %s %q: %w; see `acl %s list`", o.what, o.name, err, o.what)
	}
	return found.ID, nil
}

// policyFlags are the flags of create and update.
type policyFlags struct {
	name, description, rules, fromToken string
	datacenters                         []string
	meta, noMerge                       bool
}

func (p *policyFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&p.description, "description", "", "description")
	f.StringVar(&p.rules, "rules", "", "rules in HCL or JSON: the text, @file, or - for stdin")
	f.StringArrayVar(&p.datacenters, "valid-datacenter", nil, "datacenter where it is valid; default all (repeat)")
	f.BoolVar(&p.meta, "meta", false, "also print hash and indexes")
	f.StringVar(&p.fromToken, "from-token", "", "tokens with rules of their own ended with Consul 1.11")
	_ = c.Flags().MarkHidden("from-token") // fails for an unknown flag only
}

func (p *policyFlags) ruleText(e *command.Env) (string, error) {
	if p.fromToken != "" {
		return "", command.Usagef("--from-token is for tokens with rules of their own, which ended with Consul 1.11: give " +
			"the rules with --rules")
	}
	text, err := e.Input(p.rules)
	return string(text), err
}

func policyCreate(e *command.Env) *cobra.Command {
	var p policyFlags
	c := command.Read(e, "create", "Make a policy", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			if p.name == "" {
				return command.Usagef("a policy needs --name")
			}
			rules, err := p.ruleText(e)
			if err != nil {
				return err
			}
			body := client.Policy{Name: p.name, Description: p.description, Datacenters: p.datacenters, Rules: rules}
			return send(ctx, e, r, cl, http.MethodPut, "/v1/acl/policy", body,
				func(v *client.Policy, _ bool) string { return policyText(v, p.meta) })
		})
	p.flags(c)
	c.Flags().StringVar(&p.name, "name", "", "name of the policy")
	return c
}

func policyRead(e *command.Env) *cobra.Command {
	var id objectID
	var meta bool
	c := command.Read(e, "read", "Show a policy with its rules", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			full, err := id.find(ctx, cl, &r.Dial)
			if err != nil {
				return err
			}
			return read(ctx, e, r, cl, "/v1/acl/policy/"+full, func(p *client.Policy) string { return policyText(p, meta) })
		})
	id.flags(c, "policy")
	c.Flags().BoolVar(&meta, "meta", false, "also print hash and indexes")
	return c
}

func policyUpdate(e *command.Env) *cobra.Command {
	var id, name string
	var p policyFlags
	c := command.Read(e, "update", "Change a policy; what no flag names stays, unless --no-merge",
		command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			// With both flags --id says which one, and --name is its new name.
			which := objectID{what: "policy", id: id}
			if id == "" {
				which.name = name
			}
			full, err := which.find(ctx, cl, &r.Dial)
			if err != nil {
				return err
			}
			rules, err := p.ruleText(e)
			if err != nil {
				return err
			}
			body := client.Policy{ID: full, Name: name, Description: p.description, Datacenters: p.datacenters, Rules: rules}
			var now client.Policy
			if _, err := cl.Get(ctx, "/v1/acl/policy/"+full, r.Q, &now); err != nil {
				return err
			}
			body.Name = cmp.Or(body.Name, now.Name)
			if !p.noMerge {
				body.Description, body.Rules = cmp.Or(body.Description, now.Description), cmp.Or(body.Rules, now.Rules)
				if body.Datacenters == nil {
					body.Datacenters = now.Datacenters
				}
			}
			return send(ctx, e, r, cl, http.MethodPut, "/v1/acl/policy/"+full, body,
				func(v *client.Policy, _ bool) string { return policyText(v, p.meta) })
		})
	p.flags(c)
	c.Flags().StringVar(&id, "id", "", "id of the policy, or its beginning")
	c.Flags().StringVar(&name, "name", "", "name of the policy; with --id its new name")
	c.Flags().BoolVar(&p.noMerge, "no-merge", false, "clear the fields that no flag sets")
	return c
}

func policyDelete(e *command.Env) *cobra.Command {
	var id objectID
	c := command.Act(e, "delete", "Delete a policy", command.Between(0, 0, "flags only"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, _ []string) error {
			full, err := id.find(ctx, cl, d)
			if err != nil {
				return err
			}
			return remove(ctx, e, d, cl, "Policy", "/v1/acl/policy/", full)
		})
	id.flags(c, "policy")
	return c
}

func policyList(e *command.Env) *cobra.Command {
	var meta bool
	c := command.Read(e, "list", "List policies", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			return list(ctx, e, r, cl, "/v1/acl/policies", func(p *client.Policy) string {
				f := command.Fields{Width: 17}
				f.Line(p.Name + ":")
				f.Add("   ID", p.ID)
				f.Add("   Description", p.Description)
				f.Add("   Datacenters", strings.Join(p.Datacenters, ", "))
				if meta {
					f.Add("   Hash", fmt.Sprintf("%x", p.Hash))
					f.Add("   Create Index", fmt.Sprint(p.CreateIndex))
					f.Add("   Modify Index", fmt.Sprint(p.ModifyIndex))
				}
				return f.String()
			})
		})
	c.Flags().BoolVar(&meta, "meta", false, "also print hash and indexes")
	return c
}
