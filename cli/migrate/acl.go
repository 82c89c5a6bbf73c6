package migrate

import (
	"context"
	"errors"

	"corbel.dev/corbel/client"
)

// builtIn are the policies that each cluster has by itself.
var builtIn = map[string]bool{"00000000-0000-0000-0000-000000000001": true,
	"00000000-0000-0000-0000-000000000002": true}

const anonymous = "00000000-0000-0000-0000-000000000002"

// byNames replaces links by their names: ids are given anew in each cluster, names are unique.
func byNames(o object, fields ...string) {
	for _, field := range fields {
		links, _ := o[field].([]any)
		for i, l := range links {
			link, _ := l.(object)
			if name := text(link, "Name"); name != "" {
				links[i] = object{"Name": name}
			}
		}
	}
}

// strip takes fields away.
func strip(o object, fields ...string) object {
	for _, f := range fields {
		delete(o, f)
	}
	return o
}

func (r *run) policies(ctx context.Context) error {
	all, err := list(ctx, r.cfg.From, "/v1/acl/policies")
	if err != nil {
		return err
	}
	for _, p := range all {
		name := text(p, "Name")
		if builtIn[text(p, "ID")] {
			r.skip("policies", name, "each cluster has it by itself")
			continue
		}
		want, err := one(ctx, r.cfg.From, "/v1/acl/policy/"+text(p, "ID")) // the list lacks the rules
		if err == nil && want == nil {
			continue // deleted meanwhile
		}
		var have object
		if err == nil {
			have, err = one(ctx, r.cfg.To, "/v1/acl/policy/name/"+client.Escape(name))
		}
		if err != nil {
			r.fail("policies", name, err)
			continue
		}
		r.placeByID(ctx, "policies", name, "/v1/acl/policy", want, have)
	}
	return nil
}

// placeByID places an object whose id the target gives. have is nil when the target has none of the name.
func (r *run) placeByID(ctx context.Context, kind, name, path string, want, have object) {
	strip(want, append([]string{"ID"}, volatile...)...)
	if have == nil {
		r.place(kind, name, want, nil, func() error { return r.put(ctx, path, want) })
		return
	}
	id := text(have, "ID")
	r.place(kind, name, want, strip(have, "ID"), func() error {
		want["ID"] = id
		return r.put(ctx, path+"/"+id, want)
	})
}

func (r *run) roles(ctx context.Context) error {
	all, err := list(ctx, r.cfg.From, "/v1/acl/roles")
	if err != nil {
		return err
	}
	for _, want := range all {
		name := text(want, "Name")
		have, err := one(ctx, r.cfg.To, "/v1/acl/role/name/"+client.Escape(name))
		if err != nil {
			r.fail("roles", name, err)
			continue
		}
		byNames(want, "Policies")
		byNames(have, "Policies")
		r.placeByID(ctx, "roles", name, "/v1/acl/role", want, have)
	}
	return nil
}

func (r *run) authMethods(ctx context.Context) error {
	all, err := list(ctx, r.cfg.From, "/v1/acl/auth-methods")
	if err != nil {
		return err
	}
	for _, m := range all {
		name := text(m, "Name")
		want, err := one(ctx, r.cfg.From, "/v1/acl/auth-method/"+client.Escape(name)) // the list lacks the settings
		if err == nil && want == nil {
			continue
		}
		var have object
		if err == nil {
			have, err = one(ctx, r.cfg.To, "/v1/acl/auth-method/"+client.Escape(name))
		}
		if err != nil {
			r.fail("auth-methods", name, err)
			continue
		}
		strip(want, volatile...)
		path := "/v1/acl/auth-method"
		if have != nil {
			path += "/" + client.Escape(name)
		}
		r.place("auth-methods", name, want, nilIfEmpty(have), func() error { return r.put(ctx, path, want) })
	}
	return nil
}

// nilIfEmpty makes a nil map a nil value.
func nilIfEmpty(o object) any {
	if o == nil {
		return nil
	}
	return o
}

// bindingRules have no name: two are the same when all but their ids is.
func (r *run) bindingRules(ctx context.Context) error {
	all, err := list(ctx, r.cfg.From, "/v1/acl/binding-rules")
	if err != nil || len(all) == 0 {
		return err
	}
	there, err := list(ctx, r.cfg.To, "/v1/acl/binding-rules")
	if err != nil {
		return errors.Join(errors.New("the target's binding rules cannot be listed"), err)
	}
	for _, want := range all {
		name := text(want, "AuthMethod") + " " + text(want, "BindType") + " " + text(want, "BindName")
		strip(want, append([]string{"ID"}, volatile...)...)
		r.place("binding-rules", name, want, sameAs(want, there, "ID"),
			func() error { return r.put(ctx, "/v1/acl/binding-rule", want) })
	}
	return nil
}

// tokens keep their accessor and secret ids, so that whoever holds one goes on with it.
func (r *run) tokens(ctx context.Context) error {
	all, err := list(ctx, r.cfg.From, "/v1/acl/tokens")
	if err != nil {
		return err
	}
	for _, t := range all {
		id := text(t, "AccessorID")
		name := id
		if d := text(t, "Description"); d != "" {
			name += " (" + d + ")"
		}
		if text(t, "AuthMethod") != "" {
			r.skip("tokens", name, "comes from a login: its owner logs in again")
			continue
		}
		want, err := one(ctx, r.cfg.From, "/v1/acl/token/"+id)
		if err == nil && want == nil {
			continue
		}
		var have object
		if err == nil {
			have, err = one(ctx, r.cfg.To, "/v1/acl/token/"+id)
		}
		if err == nil && (text(want, "SecretID") == "" || text(want, "SecretID") == "<hidden>") {
			err = errors.New("the source hides its secret: give a token with acl = \"write\" in --from-token")
		}
		if err != nil {
			r.fail("tokens", name, err)
			continue
		}
		r.placeToken(ctx, id, name, want, have)
	}
	return nil
}

func (r *run) placeToken(ctx context.Context, id, name string, want, have object) {
	for _, t := range []object{want, have} {
		byNames(t, "Policies", "Roles")
		strip(t, append([]string{"ExpirationTTL", "ExpandedPolicies", "ExpandedRoles", "AgentACLDefaultPolicy",
			"AgentACLDownPolicy", "ResolvedByAgent", "AuthMethodNamespace", "Rules"}, volatile...)...)
	}
	path := "/v1/acl/token"
	if have != nil {
		path += "/" + id
	} else if self, err := one(ctx, r.cfg.To.WithToken(text(want, "SecretID")), "/v1/acl/token/self"); err == nil &&
		self != nil && text(self, "AccessorID") != anonymous {
		r.skip("tokens", name, "the target has this secret already, under the accessor "+text(self, "AccessorID"))
		return
	}
	if id == anonymous && clean(strip(copyOf(want), "AccessorID", "SecretID", "Description")) == nil {
		r.skip("tokens", name, "has no rights of its own")
		return
	}
	r.place("tokens", name, want, nilIfEmpty(have), func() error { return r.put(ctx, path, want) })
}

func copyOf(o object) object {
	out := make(object, len(o))
	for k, v := range o {
		out[k] = v
	}
	return out
}
