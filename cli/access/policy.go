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

// idOrName makes the flags of one object of a kind.
func idOrName(what string) func(c *cobra.Command) finder {
	return func(c *cobra.Command) finder {
		o := objectID{what: what}
		c.Flags().StringVar(&o.id, "id", "", "id of the "+what+", or its beginning")
		c.Flags().StringVar(&o.name, "name", "", "name of the "+what)
		return o.find
	}
}

// renaming adds the flags of update: with both of them --id says which one, and --name is its new name.
func (o *objectID) renaming(c *cobra.Command) finder {
	c.Flags().StringVar(&o.id, "id", "", "id of the "+o.what+", or its beginning")
	c.Flags().StringVar(&o.name, "name", "", "name of the "+o.what+"; with --id its new name")
	return func(ctx context.Context, cl *client.Client, d *command.Dial) (string, error) {
		which := *o
		if o.id != "" {
			which.name = ""
		}
		return which.find(ctx, cl, d)
	}
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
	noMerge                             bool
}

func (p *policyFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&p.description, "description", "", "description")
	f.StringVar(&p.rules, "rules", "", "rules in HCL or JSON: the text, @file, or - for stdin")
	f.StringArrayVar(&p.datacenters, "valid-datacenter", nil, "datacenter where it is valid; default all (repeat)")
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
	c := policies.create(e, "Make a policy",
		func(context.Context, *client.Client, *command.Dial) (*client.Policy, error) {
			if p.name == "" {
				return nil, command.Usagef("a policy needs --name")
			}
			rules, err := p.ruleText(e)
			return &client.Policy{Name: p.name, Description: p.description, Datacenters: p.datacenters, Rules: rules}, err
		})
	p.flags(c)
	c.Flags().StringVar(&p.name, "name", "", "name of the policy")
	return c
}

func policyUpdate(e *command.Env) *cobra.Command {
	var p policyFlags
	id := objectID{what: "policy"}
	c := policies.update(e, "Change a policy; what no flag names stays, unless --no-merge", id.renaming,
		func(_ context.Context, _ *client.Client, _ *command.Dial, now *client.Policy) error {
			rules, err := p.ruleText(e)
			if err != nil {
				return err
			}
			was := *now
			*now = client.Policy{ID: was.ID, Name: cmp.Or(id.name, was.Name), Description: p.description,
				Datacenters: p.datacenters, Rules: rules}
			if p.noMerge {
				return nil
			}
			now.Description, now.Rules = cmp.Or(p.description, was.Description), cmp.Or(rules, was.Rules)
			if p.datacenters == nil {
				now.Datacenters = was.Datacenters
			}
			return nil
		})
	p.flags(c)
	c.Flags().BoolVar(&p.noMerge, "no-merge", false, "clear the fields that no flag sets")
	return c
}

func policyRow(p *client.Policy, meta bool) string {
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
}
