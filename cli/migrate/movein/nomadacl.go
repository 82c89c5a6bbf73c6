package movein

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/cli/migrate"
	"corbel.dev/corbel/client/nomad"
)

// acl reads a list of access control; a source without access control has none.
func (n *nomadRun) acl(ctx context.Context, path string) ([]object, error) {
	list, err := n.list(ctx, path, nil)
	var refused *nomad.Error
	if errors.As(err, &refused) && refused.Status == http.StatusBadRequest &&
		strings.Contains(refused.Text, "ACL support disabled") {
		return nil, nil
	}
	return list, err
}

// builtin are the policies that every Corbel has.
var builtin = []string{"global-management", "builtin/global-read-only"}

func (n *nomadRun) policies(ctx context.Context) error {
	list, err := n.acl(ctx, "acl/policies")
	for _, stub := range list {
		name := text(stub, "Name")
		if slices.Contains(builtin, name) {
			continue
		}
		path := "acl/policy/" + url.PathEscape(name)
		p, err := at(ctx, n.from, path, nil)
		switch {
		case err != nil || p == nil:
			n.note("policies", name, migrate.Failed, fmt.Sprint("cannot be read: ", orGone(err)))
		case p["JobACL"] != nil:
			n.note("policies", name, migrate.Skipped, "is for workload identities (JobACL): use auth methods and variables")
		default:
			n.put(ctx, "policies", name, path, nil, pick(p, "Name", "Description", "Rules"))
		}
	}
	return err
}

// linkNames are the names of links, in order.
func linkNames(v any) []any {
	var out []string
	list, _ := v.([]any)
	for _, x := range list {
		if l, ok := x.(object); ok {
			out = append(out, text(l, "Name"))
		}
	}
	slices.Sort(out)
	return anys(out)
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// named are links by name.
func named(names []any) []object {
	out := []object{}
	for _, name := range names {
		out = append(out, object{"Name": name})
	}
	return out
}

// roles have the target's own IDs.
func (n *nomadRun) roles(ctx context.Context) error {
	list, err := n.acl(ctx, "acl/roles")
	for _, stub := range list {
		name := text(stub, "Name")
		r, err := at(ctx, n.from, "acl/role/"+text(stub, "ID"), nil)
		if err != nil || r == nil {
			n.note("roles", name, migrate.Failed, fmt.Sprint("cannot be read: ", orGone(err)))
			continue
		}
		read := func(ctx context.Context) (object, error) {
			o, err := at(ctx, n.to, "acl/role/name/"+url.PathEscape(name), nil)
			if o != nil {
				o["Policies"] = linkNames(o["Policies"])
			}
			return o, err
		}
		want := pick(r, "Name", "Description")
		want["Policies"] = linkNames(r["Policies"])
		n.bring(ctx, thing{kind: "roles", name: name, want: want, read: read,
			write: func(ctx context.Context) error {
				send := pick(r, "Name", "Description")
				send["Policies"] = named(linkNames(r["Policies"]))
				path := "acl/role"
				if have, err := read(ctx); err == nil && have != nil {
					path += "/" + text(have, "ID")
				}
				return n.to.Put(ctx, path, nil, send, nil)
			}})
	}
	return err
}

func (n *nomadRun) methods(ctx context.Context) error {
	list, err := n.acl(ctx, "acl/auth-methods")
	for _, stub := range list {
		name := text(stub, "Name")
		path := "acl/auth-method/" + url.PathEscape(name)
		m, err := at(ctx, n.from, path, nil)
		switch {
		case err != nil || m == nil:
			n.note("auth-methods", name, migrate.Failed, fmt.Sprint("cannot be read: ", orGone(err)))
			continue
		case text(m, "Type") != "JWT":
			n.note("auth-methods", name, migrate.Skipped, "is of type "+text(m, "Type")+": logins in a browser are not "+
				"supported, use one of type JWT")
			continue
		}
		want, config := pick(m, "Name", "Type", "TokenLocality", "MaxTokenTTL"), object{}
		all, _ := m["Config"].(object)
		for key, v := range all {
			if !hollow(v) && key != "VerboseLogging" {
				config[key] = v
			}
		}
		want["Config"] = config
		n.bring(ctx, thing{kind: "auth-methods", name: name, want: want,
			read: func(ctx context.Context) (object, error) { return at(ctx, n.to, path, nil) },
			write: func(ctx context.Context) error {
				to := "acl/auth-method"
				if have, err := at(ctx, n.to, path, nil); err == nil && have != nil {
					to = path
				}
				return n.to.Put(ctx, to, nil, want, nil)
			}})
	}
	return err
}

// rules have no names: one that says the same is the same.
func (n *nomadRun) rules(ctx context.Context) error {
	list, err := n.acl(ctx, "acl/binding-rules")
	for _, stub := range list {
		r, err := at(ctx, n.from, "acl/binding-rule/"+text(stub, "ID"), nil)
		if err != nil || r == nil {
			n.note("binding-rules", text(stub, "ID"), migrate.Failed, fmt.Sprint("cannot be read: ", orGone(err)))
			continue
		}
		want := pick(r, "Description", "AuthMethod", "Selector", "BindType", "BindName")
		name := fmt.Sprintf("%s to %s %s", text(r, "AuthMethod"), text(r, "BindType"), text(r, "BindName"))
		if m, err := at(ctx, n.to, "acl/auth-method/"+url.PathEscape(text(r, "AuthMethod")), nil); err == nil && m == nil &&
			!n.DryRun {
			n.note("binding-rules", name, migrate.Skipped, "the target has no such auth method")
			continue
		}
		n.bring(ctx, thing{kind: "binding-rules", name: name, want: want,
			read: func(ctx context.Context) (object, error) {
				var there []object
				if _, err := n.to.Get(ctx, "acl/binding-rules", nil, &there); err != nil {
					return nil, err
				}
				i := slices.IndexFunc(there, func(o object) bool {
					return covers(o, want) && text(o, "Selector") == text(want, "Selector")
				})
				if i < 0 {
					return nil, nil
				}
				return there[i], nil
			},
			write: func(ctx context.Context) error { return n.to.Put(ctx, "acl/binding-rule", nil, want, nil) }})
	}
	return err
}

// anonymous are the accessors of the tokens of those who have none.
var anonymous = []string{"anonymous", "00000000-0000-0000-0000-000000000002"}

// tokens keep their accessors and secrets, where the source shows these.
func (n *nomadRun) tokens(ctx context.Context) error {
	list, err := n.acl(ctx, "acl/tokens")
	for _, stub := range list {
		accessor := text(stub, "AccessorID")
		if slices.Contains(anonymous, accessor) {
			continue
		}
		name := strings.TrimSpace(accessor + " " + text(stub, "Name"))
		path := "acl/token/" + url.PathEscape(accessor)
		t, err := at(ctx, n.from, path, nil)
		switch {
		case err != nil || t == nil:
			n.note("tokens", name, migrate.Failed, fmt.Sprint("cannot be read: ", orGone(err)))
			continue
		case text(t, "SecretID") == "" || text(t, "SecretID") == "<hidden>":
			n.note("tokens", name, migrate.Skipped, "the source does not show its secret: make a new one")
			continue
		}
		n.token(ctx, name, path, t)
	}
	return err
}

// shortestLife and longestLife bound a token that ends.
const shortestLife, longestLife = time.Minute, 24 * time.Hour

func (n *nomadRun) token(ctx context.Context, name, path string, t object) {
	send := pick(t, "AccessorID", "SecretID", "Name", "Type", "Policies", "Global")
	send["Roles"] = named(linkNames(t["Roles"]))
	if ends := text(t, "ExpirationTime"); ends != "" {
		at, err := time.Parse(time.RFC3339, ends)
		left := time.Until(at)
		if err != nil || left < shortestLife || left > longestLife {
			n.note("tokens", name, migrate.Skipped, "ends at "+ends+": tokens that end live 1 minute to 24 hours here")
			return
		}
		send["ExpirationTime"] = ends
	}
	shown := func(o object) object {
		if o == nil {
			return nil
		}
		out := pick(o, "AccessorID", "SecretID", "Name", "Type", "Global")
		policies := strs(o["Policies"])
		slices.Sort(policies)
		out["Policies"], out["Roles"] = anys(policies), linkNames(o["Roles"])
		return out
	}
	n.bring(ctx, thing{kind: "tokens", name: name, want: shown(t),
		read: func(ctx context.Context) (object, error) {
			o, err := at(ctx, n.to, path, nil)
			return shown(o), err
		},
		write: func(ctx context.Context) error {
			if have, err := at(ctx, n.to, path, nil); err == nil && have != nil {
				return n.to.Put(ctx, path, nil, pick(send, "AccessorID", "Name", "Type", "Policies", "Roles"), nil)
			}
			return n.to.Put(ctx, "acl/token", nil, send, nil)
		}})
}
