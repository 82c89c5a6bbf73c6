package access

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
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
	meta, noMerge                             bool
}

func (b *bindingFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&b.description, "description", "", "description")
	f.StringVar(&b.kind, "bind-type", "service", "service, role, node, policy or templated-policy")
	f.StringVar(&b.name, "bind-name", "", "name to bind to; ${serviceaccount.name} and such are filled in at login")
	f.StringArrayVar(&b.vars, "bind-vars", nil, "name=VALUE of a templated policy (repeat)")
	f.StringVar(&b.selector, "selector", "", "expression that the login's attributes must match")
	f.BoolVar(&b.meta, "meta", false, "also print indexes")
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
	c := command.Read(e, "create", "Make a binding rule", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			if b.method == "" || b.name == "" {
				return command.Usagef("a binding rule needs --method and --bind-name")
			}
			vars, err := b.variables()
			if err != nil {
				return err
			}
			body := client.BindingRule{AuthMethod: b.method, Description: b.description, BindType: b.kind, BindName: b.name,
				BindVars: vars, Selector: b.selector}
			return send(ctx, e, r, cl, http.MethodPut, "/v1/acl/binding-rule", body,
				func(v *client.BindingRule, _ bool) string { return bindingText(v, b.meta) })
		})
	b.flags(c)
	c.Flags().StringVar(&b.method, "method", "", "name of the auth method")
	return c
}

func findBinding(ctx context.Context, cl *client.Client, d *command.Dial, id string) (string, error) {
	if id == "" {
		return "", command.Usagef("give the rule with --id; see `acl binding-rule list`")
	}
	return idOf(ctx, cl, d, "/v1/acl/binding-rules", "binding-rule", id)
}

func bindingRead(e *command.Env) *cobra.Command {
	var id string
	var meta bool
	c := command.Read(e, "read", "Show a binding rule", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			full, err := findBinding(ctx, cl, &r.Dial, id)
			if err != nil {
				return err
			}
			return read(ctx, e, r, cl, "/v1/acl/binding-rule/"+full,
				func(b *client.BindingRule) string { return bindingText(b, meta) })
		})
	c.Flags().StringVar(&id, "id", "", "id of the rule, or its beginning")
	c.Flags().BoolVar(&meta, "meta", false, "also print indexes")
	return c
}

func bindingUpdate(e *command.Env) *cobra.Command {
	var id string
	var b bindingFlags
	var changed func(string) bool
	c := command.Read(e, "update", "Change a binding rule; what no flag names stays, unless --no-merge",
		command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			full, err := findBinding(ctx, cl, &r.Dial, id)
			if err != nil {
				return err
			}
			var now client.BindingRule
			if _, err := cl.Get(ctx, "/v1/acl/binding-rule/"+full, r.Q, &now); err != nil {
				return err
			}
			if b.noMerge {
				now = client.BindingRule{ID: now.ID, AuthMethod: now.AuthMethod}
			}
			if changed("bind-type") || b.noMerge {
				now.BindType = b.kind
			}
			now.Description, now.BindName, now.Selector = cmp.Or(b.description, now.Description), cmp.Or(b.name, now.BindName),
				cmp.Or(b.selector, now.Selector)
			vars, err := b.variables()
			if err != nil {
				return err
			}
			now.BindVars = cmp.Or(vars, now.BindVars)
			return send(ctx, e, r, cl, http.MethodPut, "/v1/acl/binding-rule/"+full, now,
				func(v *client.BindingRule, _ bool) string { return bindingText(v, b.meta) })
		})
	b.flags(c)
	changed = c.Flags().Changed
	c.Flags().StringVar(&id, "id", "", "id of the rule, or its beginning")
	c.Flags().BoolVar(&b.noMerge, "no-merge", false, "clear the fields that no flag sets")
	return c
}

func bindingDelete(e *command.Env) *cobra.Command {
	var id string
	c := command.Act(e, "delete", "Delete a binding rule", command.Between(0, 0, "flags only"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, _ []string) error {
			full, err := findBinding(ctx, cl, d, id)
			if err != nil {
				return err
			}
			return remove(ctx, e, d, cl, "Binding rule", "/v1/acl/binding-rule/", full)
		})
	c.Flags().StringVar(&id, "id", "", "id of the rule, or its beginning")
	return c
}

func bindingList(e *command.Env) *cobra.Command {
	var meta bool
	var method string
	c := command.Read(e, "list", "List binding rules", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			path := "/v1/acl/binding-rules"
			if method != "" {
				path += "?authmethod=" + url.QueryEscape(method)
			}
			return list(ctx, e, r, cl, path, func(b *client.BindingRule) string {
				return b.ID + ":\n" + bindingLines(b, meta, "   ", false)
			})
		})
	c.Flags().BoolVar(&meta, "meta", false, "also print indexes")
	c.Flags().StringVar(&method, "method", "", "only rules of this auth method")
	return c
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
	return command.Read(e, "list", "List the templates", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			return read(ctx, e, r, cl, "/v1/acl/templated-policies", func(all *map[string]json.RawMessage) string {
				return strings.Join(command.SortedKeys(*all), "\n") + "\n"
			})
		})
}

func templatedRead(e *command.Env) *cobra.Command {
	var name string
	c := command.Read(e, "read", "Show a template", command.Between(0, 0, "flags only"),
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
	c := command.Read(e, "preview", "Show the policy that a template gives", command.Between(0, 0, "flags only"),
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
				body,
				func(p *client.Policy, _ bool) string { return policyText(p, false) })
		})
	c.Flags().StringVar(&name, "name", "", "name of the template")
	c.Flags().StringArrayVar(&i.variables, "var", nil, "name:VALUE (repeat)")
	c.Flags().StringVar(&i.templatedFile, "file", "", "file with the template's name and variables, JSON")
	return c
}
