package access

import (
	"context"
	"net/http"
	"net/url"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// kind is what the commands about one kind of object have in common: where it is, how it is named and printed.
type kind[T any] struct {
	title     string // what a deletion calls it
	one, many string // paths
	meta      string // what --meta is for
	// text prints one, and row one of a list; meta adds hash and indexes.
	text, row func(v *T, meta bool) string
	// which adds the flags that name one to a command.
	which func(c *cobra.Command) finder
}

// finder finds the id of the object that flags name.
type finder func(ctx context.Context, cl *client.Client, d *command.Dial) (string, error)

var (
	policies = kind[client.Policy]{title: "Policy", one: "/v1/acl/policy", many: "/v1/acl/policies",
		meta: "also print hash and indexes", text: policyText, row: policyRow, which: idOrName("policy")}
	roles = kind[client.Role]{title: "Role", one: "/v1/acl/role", many: "/v1/acl/roles",
		meta: "also print hash and indexes", text: roleText, row: roleRow, which: idOrName("role")}
	tokens = kind[client.Token]{title: "Token", one: "/v1/acl/token", many: "/v1/acl/tokens",
		meta: "also print hash and indexes", text: tokenText, row: tokenRow, which: whichToken}
	methods = kind[client.AuthMethod]{title: "Auth-method", one: "/v1/acl/auth-method", many: "/v1/acl/auth-methods",
		meta: "also print indexes", text: methodText, row: methodRow, which: whichMethod}
	bindings = kind[client.BindingRule]{title: "Binding rule", one: "/v1/acl/binding-rule",
		many: "/v1/acl/binding-rules", meta: "also print indexes", text: bindingText, row: bindingRow, which: whichBinding}
)

func flagsOnly() cobra.PositionalArgs { return command.Between(0, 0, "flags only") }

// create builds `create`, which sends what made gives.
func (k *kind[T]) create(e *command.Env, short string,
	made func(ctx context.Context, cl *client.Client, d *command.Dial) (*T, error)) *cobra.Command {
	var meta bool
	c := command.Read(e, "create", short, flagsOnly(),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			body, err := made(ctx, cl, &r.Dial)
			if err != nil {
				return err
			}
			return send(ctx, e, r, cl, http.MethodPut, k.one, body, func(v *T) string { return k.text(v, meta) })
		})
	c.Flags().BoolVar(&meta, "meta", false, k.meta)
	return c
}

// read builds `read`.
func (k *kind[T]) read(e *command.Env, short string) *cobra.Command {
	var find finder
	var meta bool
	c := command.Read(e, "read", short, flagsOnly(),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			id, err := find(ctx, cl, &r.Dial)
			if err != nil {
				return err
			}
			return read(ctx, e, r, cl, k.one+"/"+client.Escape(id), func(v *T) string { return k.text(v, meta) })
		})
	find = k.which(c)
	c.Flags().BoolVar(&meta, "meta", false, k.meta)
	return c
}

// update builds `update`: change lays its flags over the object as it is. which adds the flags that name the object.
func (k *kind[T]) update(e *command.Env, short string, which func(c *cobra.Command) finder,
	change func(ctx context.Context, cl *client.Client, d *command.Dial, now *T) error) *cobra.Command {
	var find finder
	var meta bool
	c := command.Read(e, "update", short, flagsOnly(),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			id, err := find(ctx, cl, &r.Dial)
			if err != nil {
				return err
			}
			path, now := k.one+"/"+client.Escape(id), new(T)
			if _, err := cl.Get(ctx, path, r.Q, now); err != nil {
				return err
			}
			if err := change(ctx, cl, &r.Dial, now); err != nil {
				return err
			}
			return send(ctx, e, r, cl, http.MethodPut, path, now, func(v *T) string { return k.text(v, meta) })
		})
	find = which(c)
	c.Flags().BoolVar(&meta, "meta", false, k.meta)
	return c
}

// remove builds `delete`.
func (k *kind[T]) remove(e *command.Env, short string) *cobra.Command {
	var find finder
	c := command.Act(e, "delete", short, flagsOnly(),
		func(ctx context.Context, d *command.Dial, cl *client.Client, _ []string) error {
			id, err := find(ctx, cl, d)
			if err != nil {
				return err
			}
			q := client.Query{Datacenter: d.Q.Datacenter}
			if err := cl.Send(ctx, http.MethodDelete, k.one+"/"+client.Escape(id), q.Values(), nil, nil); err != nil {
				return err
			}
			return e.Printf("%s %q deleted successfully\n", k.title, id)
		})
	find = k.which(c)
	return c
}

// filter is a flag of list, and the parameter that it sets.
type filter struct{ flag, parameter, help string }

// list builds `list`.
func (k *kind[T]) list(e *command.Env, short string, filters ...filter) *cobra.Command {
	var meta bool
	values := make([]string, len(filters))
	c := command.Read(e, "list", short, flagsOnly(),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			q, path := url.Values{}, k.many
			for i, value := range values {
				if value != "" {
					q.Set(filters[i].parameter, value)
				}
			}
			if len(q) > 0 {
				path += "?" + q.Encode()
			}
			return list(ctx, e, r, cl, path, func(v *T) string { return k.row(v, meta) })
		})
	c.Flags().BoolVar(&meta, "meta", false, k.meta)
	for i, f := range filters {
		c.Flags().StringVar(&values[i], f.flag, "", f.help)
	}
	return c
}
