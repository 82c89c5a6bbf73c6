package access

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

func bindingText(b *client.BindingRule, meta bool) string { return bindingLines(b, meta, "", true) }

func bindingLines(b *client.BindingRule, meta bool, indent string, withID bool) string {
	f := command.Fields{Width: 14 + len(indent)}
	if withID {
		f.Add(indent+"ID", b.ID)
	}
	f.Add(indent+"AuthMethod", b.AuthMethod)
	f.Add(indent+"Description", b.Description)
	f.Add(indent+"BindType", b.BindType)
	f.Add(indent+"BindName", b.BindName)
	if b.BindVars != nil && b.BindVars.Name != "" {
		f.Add(indent+"BindVars", "")
		f.Line(indent + "   - Name: " + b.BindVars.Name)
	}
	f.Add(indent+"Selector", b.Selector)
	if meta {
		f.Add(indent+"Create Index", fmt.Sprint(b.CreateIndex))
		f.Add(indent+"Modify Index", fmt.Sprint(b.ModifyIndex))
	}
	return f.String()
}

// bindingFlags are the flags of create and update.
type bindingFlags struct {
	method, description, kind, name, selector string
	vars                                      []string
	noMerge                                   bool
}

func (b *bindingFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&b.description, "description", "", "description")
	f.StringVar(&b.kind, "bind-type", "service", "service, role, node, policy or templated-policy")
	f.StringVar(&b.name, "bind-name", "", "name to bind to; ${serviceaccount.name} and such are filled in at login")
	f.StringArrayVar(&b.vars, "bind-vars", nil, "name=VALUE of a templated policy (repeat)")
	f.StringVar(&b.selector, "selector", "", "expression that the login's attributes must match")
}

func (b *bindingFlags) variables() (*client.TemplateVariables, error) {
	pairs, err := command.Pairs("bind-vars", b.vars)
	if err != nil || len(pairs) == 0 {
		return nil, err
	}
	for name, value := range pairs {
		if strings.EqualFold(name, "name") {
			return &client.TemplateVariables{Name: value}, nil
		}
	}
	return nil, command.Usagef("--bind-vars knows the variable name alone")
}

func bindingCreate(e *command.Env) *cobra.Command {
	var b bindingFlags
	c := bindings.create(e, "Make a binding rule",
		func(context.Context, *client.Client, *command.Dial) (*client.BindingRule, error) {
			if b.method == "" || b.name == "" {
				return nil, command.Usagef("a binding rule needs --method and --bind-name")
			}
			vars, err := b.variables()
			return &client.BindingRule{AuthMethod: b.method, Description: b.description, BindType: b.kind, BindName: b.name,
				BindVars: vars, Selector: b.selector}, err
		})
	b.flags(c)
	c.Flags().StringVar(&b.method, "method", "", "name of the auth method")
	return c
}

func whichBinding(c *cobra.Command) finder {
	id := c.Flags().String("id", "", "id of the rule, or its beginning")
	return func(ctx context.Context, cl *client.Client, d *command.Dial) (string, error) {
		if *id == "" {
			return "", command.Usagef("give the rule with --id; see `acl binding-rule list`")
		}
		return idOf(ctx, cl, d, "/v1/acl/binding-rules", "binding-rule", *id)
	}
}

func bindingUpdate(e *command.Env) *cobra.Command {
	var b bindingFlags
	var changed func(string) bool
	c := bindings.update(e, "Change a binding rule; what no flag names stays, unless --no-merge", whichBinding,
		func(_ context.Context, _ *client.Client, _ *command.Dial, now *client.BindingRule) error {
			if b.noMerge {
				*now = client.BindingRule{ID: now.ID, AuthMethod: now.AuthMethod}
			}
			if changed("bind-type") || b.noMerge {
				now.BindType = b.kind
			}
			now.Description, now.BindName, now.Selector = cmp.Or(b.description, now.Description), cmp.Or(b.name, now.BindName),
				cmp.Or(b.selector, now.Selector)
			vars, err := b.variables()
			now.BindVars = cmp.Or(vars, now.BindVars)
			return err
		})
	b.flags(c)
	changed = c.Flags().Changed
	c.Flags().BoolVar(&b.noMerge, "no-merge", false, "clear the fields that no flag sets")
	return c
}

func bindingRow(b *client.BindingRule, meta bool) string {
	return b.ID + ":\n" + bindingLines(b, meta, "   ", false)
}

// template is a built-in policy with variables.
type template struct {
	TemplateName, Schema, Template, Description string
}

func (t *template) text() string {
	f := command.Fields{Width: 14}
	f.Add("Name", t.TemplateName)
	f.Add("Description", t.Description)
	f.Line("Input variables:")
	f.Line(t.Schema)
	f.Line("Raw Template:")
	f.Line(t.Template)
	return f.String()
}

func templatedList(e *command.Env) *cobra.Command {
	return command.Read(e, "list", "List the templates", flagsOnly(),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			return read(ctx, e, r, cl, "/v1/acl/templated-policies", func(all *map[string]json.RawMessage) string {
				return strings.Join(command.SortedKeys(*all), "\n") + "\n"
			})
		})
}

func templatedRead(e *command.Env) *cobra.Command {
	var name string
	c := command.Read(e, "read", "Show a template", flagsOnly(),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			if err := needName(name, "templated-policy"); err != nil {
				return err
			}
			return read(ctx, e, r, cl, "/v1/acl/templated-policy/name/"+client.Escape(name),
				func(t *template) string { return t.text() })
		})
	c.Flags().StringVar(&name, "name", "", "name of the template, builtin/service for one")
	return c
}

func templatedPreview(e *command.Env) *cobra.Command {
	var i identities
	var name string
	c := command.Read(e, "preview", "Show the policy that a template gives", flagsOnly(),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			i.templated = name
			list, err := i.templatedAfter(nil)
			if err != nil {
				return err
			}
			if len(list) != 1 {
				return command.Usagef("preview needs one template: --name with --var, or --file with one in it")
			}
			body := any(list[0].TemplateVariables)
			if list[0].TemplateVariables == nil {
				body = struct{}{}
			}
			return send(ctx, e, r, cl, http.MethodPost, "/v1/acl/templated-policy/preview/"+client.Escape(list[0].TemplateName),
				body, func(p *client.Policy) string { return policyText(p, false) })
		})
	c.Flags().StringVar(&name, "name", "", "name of the template")
	c.Flags().StringArrayVar(&i.variables, "var", nil, "name:VALUE (repeat)")
	c.Flags().StringVar(&i.templatedFile, "file", "", "file with the template's name and variables, JSON")
	return c
}
