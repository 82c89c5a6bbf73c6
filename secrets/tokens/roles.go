package tokens

import (
	"context"
	"path"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/task"
)

// tokenRole bounds and shapes the tokens that are made by its name (contract 3.1).
type tokenRole struct {
	Allowed        []string    `json:"allowed_policies,omitempty"`
	Disallowed     []string    `json:"disallowed_policies,omitempty"`
	AllowedGlob    []string    `json:"allowed_policies_glob,omitempty"`
	DisallowedGlob []string    `json:"disallowed_policies_glob,omitempty"`
	Aliases        []string    `json:"allowed_entity_aliases,omitempty"`
	Orphan         bool        `json:"orphan,omitempty"`
	Renewable      bool        `json:"renewable"`
	Suffix         string      `json:"path_suffix,omitempty"`
	Tokens         auth.Params `json:"tokens"`
}

const tokenRoles = "role/"

func findTokenRole(ctx context.Context, v engine.View, name string) (*tokenRole, error) {
	return auth.Find[tokenRole](ctx, v, tokenRoles, name)
}

// roles answers auth/token/roles.
func (e *Engine) roles(ctx context.Context, v engine.View, r *secrets.Request, f *secrets.Fields,
	name string) (*secrets.Response, error) {
	if name == "" {
		if r.Op != secrets.List {
			return nil, system.ErrUnsupported
		}
		return auth.Keys(v.List(ctx, tokenRoles, "", 0))
	}
	role, err := findTokenRole(ctx, v, name)
	if err != nil {
		return nil, err
	}
	switch {
	case r.Op == secrets.Delete:
		return &secrets.Response{Ops: []secrets.Op{storage.Delete(tokenRoles + name)}}, nil
	case r.Op == secrets.Read && role != nil:
		return auth.Data(role.shown(name))
	case r.Op == secrets.Read:
		return nil, errkind.New(errkind.NotFound, "")
	case r.Op != secrets.Create && r.Op != secrets.Update:
		return nil, system.ErrUnsupported
	}
	if role == nil {
		role = &tokenRole{Renewable: true}
	}
	if err := role.read(f); err != nil {
		return nil, err
	}
	op, err := storage.PutJSON(tokenRoles+name, role)
	return &secrets.Response{Ops: []secrets.Op{op}}, err
}

func (r *tokenRole) read(f *secrets.Fields) error {
	if err := r.Tokens.Read(f); err != nil {
		return err
	}
	for name, into := range map[string]*[]string{"allowed_policies": &r.Allowed, "disallowed_policies": &r.Disallowed,
		"allowed_policies_glob":    &r.AllowedGlob,
		"disallowed_policies_glob": &r.DisallowedGlob, "allowed_entity_aliases": &r.Aliases} {
		if f.Has(name) {
			*into = auth.Names(f.Strings(name))
		}
	}
	r.Orphan, r.Renewable = f.Bool("orphan", r.Orphan), f.Bool("renewable", r.Renewable)
	if f.Has("path_suffix") {
		r.Suffix = f.String("path_suffix")
	}
	if err := f.Err(); err != nil {
		return err
	}
	if r.Suffix != "" && (storage.CheckKey(r.Suffix) != nil ||
		strings.ContainsFunc(r.Suffix, func(c rune) bool { return c <= ' ' || c == 0x7f })) {
		return errkind.New(errkind.Invalid, "field \"path_suffix\": must be a path without empty, relative or unprintable "+
			"parts")
	}
	for _, pattern := range slices.Concat(r.AllowedGlob, r.DisallowedGlob) {
		if _, err := path.Match(pattern, ""); err != nil {
			return errkind.Errorf(errkind.Invalid, "allowed_policies_glob, disallowed_policies_glob: %q is no pattern", pattern)
		}
	}
	return nil
}

func (r *tokenRole) shown(name string) map[string]any {
	out := map[string]any{"name": name, "allowed_policies": auth.List(r.Allowed),
		"disallowed_policies":   auth.List(r.Disallowed),
		"allowed_policies_glob": auth.List(r.AllowedGlob), "disallowed_policies_glob": auth.List(r.DisallowedGlob),
		"allowed_entity_aliases": auth.List(r.Aliases),
		"orphan":                 r.Orphan, "renewable": r.Renewable, "path_suffix": r.Suffix}
	r.Tokens.Show(out)
	for _, old := range []string{"explicit_max_ttl", "period", "bound_cidrs"} {
		out[old] = out["token_"+old]
	}
	return out
}

func listed(name string, names, globs []string) bool {
	return slices.Contains(names, name) || slices.ContainsFunc(globs,
		func(g string) bool { ok, _ := path.Match(g, name); return ok })
}

// shape bounds a token that is asked for by the role, and reports whether the
// role itself says which policies it may have, whoever asks.
func (r *tokenRole) shape(a *secrets.Auth, name string) (says bool, err error) {
	a.Role, a.Suffix, a.BoundCIDRs = name, r.Suffix, r.Tokens.CIDRs
	a.Orphan = a.Orphan || r.Orphan
	a.Renewable = a.Renewable && r.Renewable
	a.NoDefault = a.NoDefault || r.Tokens.NoDefault || listed("default", r.Disallowed, r.DisallowedGlob)
	if r.Tokens.Period > 0 {
		a.Period = r.Tokens.Period
	}
	if most := r.Tokens.ExplicitMax; most > 0 && (a.ExplicitMax == 0 || a.ExplicitMax > most) {
		a.ExplicitMax = most
	}
	if most := r.Tokens.NumUses; most > 0 && (a.NumUses == 0 || a.NumUses > most) {
		a.NumUses = most
	}
	if a.MaxTTL = r.Tokens.MaxTTL; a.TTL == 0 {
		a.TTL = r.Tokens.TTL
	}
	switch kind := r.Tokens.Type; kind {
	case "service", "batch":
		a.Type = kind
	case "default-service", "default-batch":
		if a.Type == "" || a.Type == "default" {
			a.Type = kind
		}
	}
	says = len(r.Allowed)+len(r.AllowedGlob) > 0
	if len(a.Policies) == 0 {
		a.Policies = r.Allowed
	}
	for _, p := range auth.Names(a.Policies) {
		switch {
		case listed(p, r.Disallowed, r.DisallowedGlob):
			return says, errkind.Errorf(errkind.Invalid, "token policies (%q) are disallowed by this role", p)
		case says && p != "default" && !listed(p, r.Allowed, r.AllowedGlob):
			return says, errkind.Errorf(errkind.Invalid, "token policies (%q) must be subset of the role's allowed policies", p)
		}
	}
	return says, nil
}

// asked reads what a token is asked to be.
func asked(t *task.Task, f *secrets.Fields) (*secrets.Auth, error) {
	a := &secrets.Auth{ID: f.String("id"), Policies: f.Strings("policies"), Metadata: f.Texts("meta"),
		NoDefault: f.Bool("no_default_policy", false),
		Lifetime: secrets.Lifetime{Renewable: f.Bool("renewable", true), TTL: f.Duration("ttl", f.Duration("lease", 0)),
			ExplicitMax: f.Duration("explicit_max_ttl", 0),
			Period:      f.Duration("period", 0)}, Principal: secrets.Principal{Alias: f.String("entity_alias"),
			DisplayName: "token"}, NumUses: f.Int("num_uses", 0),
		Orphan: t.Rest == "create-orphan" || f.Bool("no_parent", false)}
	if name := f.String("display_name"); name != "" {
		a.DisplayName = "token-" + name
	}
	a.Type = f.String("type")
	if err := f.Err(); err != nil {
		return nil, err
	}
	switch {
	case a.Type != "" && a.Type != "service" && a.Type != "batch" && a.Type != "default":
		return nil, errkind.Errorf(errkind.Invalid, "field \"type\": invalid 'token_type' value %q: use service or batch",
			a.Type)
	case a.Alias != "" && !strings.HasPrefix(t.Rest, "create/"):
		return nil, errkind.New(errkind.Invalid, "field \"entity_alias\": is only allowed in combination with a token role")
	case a.NumUses < 0 || a.TTL < 0 || a.Period < 0 || a.ExplicitMax < 0:
		return nil, errkind.New(errkind.Invalid, "num_uses, ttl, period, explicit_max_ttl: must not be negative")
	case strings.ContainsAny(a.ID, ".\n "):
		return nil, errkind.New(errkind.Invalid, "field \"id\": must not have a dot or blank in it")
	}
	return a, nil
}

// create makes a token below the caller's (contract 3.1), by a role where one is named.
func (e *Engine) create(ctx context.Context, v engine.View, t *task.Task, f *secrets.Fields,
	roleName string) (*secrets.Response, error) {
	parent := t.Bearer.Token
	a, err := asked(t, f)
	if err != nil {
		return nil, err
	}
	// its policies, and whose it is, mean nothing below its own namespace
	above := t.Tables.Path() != t.Bearer.Space
	sudo := t.Bearer.ACL.Allow(&policy.Request{Path: t.Bearer.At(t.Tables, t.Path), Need: policy.Update,
		Protected: true}).Allowed
	switch {
	case parent.Batch:
		return nil, errkind.New(errkind.Invalid, "batch tokens cannot create more tokens")
	case parent.Uses != 0:
		return nil, errkind.New(errkind.Invalid, "restricted use token cannot generate child tokens")
	case !sudo && (a.ID != "" || a.Period > 0 || f.Bool("no_parent", false)):
		return nil, errkind.New(errkind.Denied, "root or sudo privileges required to set id, period or no_parent")
	}
	says, refuse := false, error(nil)
	if roleName != "" {
		role, err := findTokenRole(ctx, v, roleName)
		if err != nil {
			return nil, err
		}
		if role == nil {
			return nil, errkind.Errorf(errkind.Invalid, "unknown role %s", roleName)
		}
		if len(a.Policies)+len(role.Allowed) == 0 && !above { // the caller's, which the role may refuse
			a.Policies = parent.Policies
		}
		if says, refuse = role.shape(a, roleName); refuse != nil {
			return nil, refuse
		}
		if a.Alias != "" && !listed(strings.ToLower(a.Alias), role.Aliases, role.Aliases) {
			return nil, errkind.New(errkind.Invalid, "field \"entity_alias\": is not among the role's allowed_entity_aliases")
		}
	}
	switch {
	case len(a.Policies) > 0:
	case above && parent.Root():
		return nil, errkind.New(errkind.Invalid, "root tokens may not be created from a non-root namespace")
	case !above:
		a.Policies, a.NoDefault = parent.Policies, true
	}
	for _, name := range withDefault(a.Policies, true) {
		if name == policy.RootName && !parent.Root() {
			return nil, errkind.New(errkind.Invalid, "root tokens may not be created without parent token being root")
		}
		if !sudo && !says && name != "default" && (above || !slices.Contains(parent.Policies, name)) {
			return nil, errkind.New(errkind.Invalid, "child policies must be subset of parent")
		}
	}
	if !a.Orphan { // what bounds the parent bounds what it makes
		if !above {
			a.Entity = parent.Entity
		}
		if len(a.BoundCIDRs) == 0 {
			a.BoundCIDRs = parent.CIDRs
		}
	}
	return &secrets.Response{Auth: a}, nil
}
