// Package okta logs users in by Okta's authentication API (contract 3.7): it is asked about name and password, and
// about a second factor where it wants one; policies go by the name and by groups, of Okta where the mount has an API
// token.
//
// Nothing of a password is kept. A renewal reads the groups again where there is an API token, and else goes by those
// of the login. Every question has a deadline and a bounded answer, and so have all pages of groups together: beyond
// maxGroups nobody logs in. A push waits for pushWithin at most.
package okta

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
)

// Engine is one mount of the method. Made with New.
type Engine struct {
	lockout *auth.Lockout // shared between mounts
	rules   auth.LockoutRules
	mount   string // what tells this mount's users from others' in lockout
	// origin is where an organization's API is; tests have another.
	origin func(*config) string
}

// New makes the engine of a mount. mount names it in the lockout.
func New(lockout *auth.Lockout, rules auth.LockoutRules, mount string) *Engine {
	return &Engine{lockout, rules, mount, func(c *config) string { return "https://" + c.Org + "." + c.Base }}
}

var (
	_ engine.Renewer = (*Engine)(nil)
	_ engine.Router  = (*Engine)(nil)
)

const configKey = "config"

// config is the mount's.
type config struct {
	Org    string      `json:"org_name"`
	Base   string      `json:"base_url"`
	Token  string      `json:"api_token,omitempty"`
	Bypass bool        `json:"bypass_okta_mfa,omitempty"`
	Tokens auth.Params `json:"tokens"`
}

// Special implements engine.Engine.
func (*Engine) Special() engine.Special { return engine.Special{Open: []string{"login/*"}} }

// Serial implements engine.Engine: changes of one record follow each other, logins wait for nobody.
func (*Engine) Serial(r *secrets.Request) string {
	if r.Op.Writes() && !strings.HasPrefix(r.Rest, "login/") {
		return r.Rest
	}
	return ""
}

// Exists implements engine.Engine.
func (*Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	if r.Rest == configKey {
		c, err := auth.Find[config](ctx, view, "", configKey)
		return c != nil, err == nil, err
	}
	prefix := auth.UserPrefix
	if strings.HasPrefix(r.Rest, auth.GroupPrefix) {
		prefix = auth.GroupPrefix
	}
	return auth.Exists[auth.Mapping](ctx, view, prefix, r.Rest)
}

// Routes implements engine.Router.
func (*Engine) Routes() []engine.Route {
	crud := []secrets.Operation{secrets.Read, secrets.Update, secrets.Delete}
	list := []secrets.Operation{secrets.List}
	return []engine.Route{{Path: "config", Ops: crud[:2]}, {Path: "users", Ops: list}, {Path: "users/{name}", Ops: crud},
		{Path: "groups", Ops: list}, {Path: "groups/{name}", Ops: crud}, {Path: "login/{name}", Ops: crud[1:2], Open: true}}
}

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	kind, name, _ := strings.Cut(strings.TrimSuffix(r.Rest, "/"), "/")
	c, err := auth.Find[config](ctx, view, "", configKey)
	write := r.Op == secrets.Create || r.Op == secrets.Update
	switch {
	case err != nil:
		return nil, err
	case kind == "users" || kind == "groups":
		return auth.Crud(ctx, view, r, kind+"/", name, auth.MappingUnder(kind+"/"))
	case kind == "login" && name != "" && write:
		return e.login(ctx, view, r, c, name)
	case kind == configKey && name == "" && write:
		return configure(r, c)
	case kind == configKey && name == "" && r.Op == secrets.Read && c == nil:
		return nil, auth.ErrNotFound
	case kind == configKey && name == "" && r.Op == secrets.Read:
		out := map[string]any{"org_name": c.Org, "organization": c.Org, "base_url": c.Base, "bypass_okta_mfa": c.Bypass}
		c.Tokens.Show(out)
		return auth.Data(out)
	case kind == configKey && name == "" || kind == "login" && name != "":
		return nil, auth.ErrUnsupported
	}
	return nil, auth.ErrPath
}

func invalid(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}

var (
	label  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)
	domain = regexp.MustCompile(`^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$`)
)

func configure(r *secrets.Request, have *config) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	c := &config{Base: "okta.com"}
	if have != nil {
		*c = *have
	}
	gave := false
	for _, one := range []struct {
		field string
		at    *string
	}{{"organization", &c.Org}, {"org_name", &c.Org}, {"base_url", &c.Base}, {"token", &c.Token},
		{"api_token", &c.Token}} {
		if f.Has(one.field) {
			*one.at = f.String(one.field)
			gave = gave || one.at == &c.Token
		}
	}
	c.Bypass = f.Bool("bypass_okta_mfa", c.Bypass)
	if err := c.Tokens.Read(f); err != nil {
		return nil, err
	}
	switch {
	case f.Err() != nil:
		return nil, f.Err()
	case !label.MatchString(c.Org):
		return nil, invalid(`field "org_name": is required, the first part of its address: shop of shop.okta.com`)
	case !domain.MatchString(c.Base):
		return nil, invalid(`field "base_url": must be a domain such as okta.com or oktapreview.com`)
	case have != nil && have.Token != "" && !gave && (have.Org != c.Org || have.Base != c.Base):
		return nil, invalid(`field "api_token": is required with another organization`)
	case strings.ContainsAny(c.Token, " \r\n"):
		return nil, invalid(`field "api_token": must have no spaces`)
	}
	return auth.Keep(configKey, c)
}

// kept is what a token remembers of its login.
type kept struct {
	User   string   `json:"user"`
	ID     string   `json:"id"`
	Groups []string `json:"groups,omitempty"`
}

func asItIs(name string) string { return name }

func (e *Engine) login(ctx context.Context, view engine.View, r *secrets.Request, c *config, name string) (
	*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	try := attempt{c: c, user: name, password: f.String("password"), code: f.String("totp"),
		provider: strings.ToUpper(f.String("provider"))}
	if err := f.Err(); err != nil {
		return nil, err
	}
	switch {
	case c == nil:
		return nil, invalid("Okta backend not configured")
	case try.password == "":
		return nil, invalid("password cannot be empty")
	case try.provider != "" && try.provider != "OKTA" && try.provider != "GOOGLE":
		return nil, invalid(`field "provider": must be OKTA or GOOGLE`)
	case len(name) > 256 || strings.ContainsAny(name, "\x00/"):
		return nil, errBadLogin
	}
	try.origin = e.origin(c)
	alias := e.mount + "\x00" + strings.ToLower(name)
	if e.lockout.Locked(&e.rules, alias, r.Now) || !auth.Within(c.Tokens.CIDRs, r.Remote) {
		return nil, auth.ErrDenied
	}
	id, err := try.verify(ctx)
	if err != nil && !errkind.Is(err, errkind.Invalid) { // nothing was learned about the password
		return nil, err
	}
	if !e.lockout.Tell(&e.rules, alias, r.Now, err == nil) {
		return nil, auth.ErrDenied
	}
	if err != nil {
		return nil, err
	}
	k := kept{User: name, ID: id}
	if k.Groups, err = try.groups(ctx, id); err != nil {
		return nil, err
	}
	policies, all, err := auth.Mapped(ctx, view, c.Tokens.Policies, name, k.Groups, asItIs)
	if err != nil {
		return nil, err
	}
	a := c.Tokens.Auth()
	a.Policies, a.Groups, a.Alias, a.DisplayName = policies, all, name, auth.DisplayName(r.Mount, name)
	a.Metadata = map[string]string{"username": name, "policies": strings.Join(policies, ",")}
	a.Login, err = json.Marshal(k)
	return &secrets.Response{Auth: a}, err
}

// Renewable implements engine.Renewer: who has other policies by now renews nothing.
func (e *Engine) Renewable(ctx context.Context, view engine.View, _ *secrets.Request, l engine.Login) (engine.Terms,
	error) {
	c, err := auth.Find[config](ctx, view, "", configKey)
	if err != nil {
		return engine.Terms{}, err
	}
	if c == nil {
		return engine.Terms{}, auth.Gone("configuration", configKey)
	}
	var k kept
	if json.Unmarshal(l.Data, &k) != nil {
		return engine.Terms{}, errkind.New(errkind.Corrupt, "the token's login is not what was stored")
	}
	if c.Token != "" {
		try := attempt{c: c, origin: e.origin(c)}
		if k.Groups, err = try.groups(ctx, k.ID); err != nil {
			return engine.Terms{}, err
		}
	}
	p := c.Tokens
	if p.Policies, _, err = auth.Mapped(ctx, view, p.Policies, k.User, k.Groups, asItIs); err == nil {
		err = p.Unchanged(l.Policies)
	}
	if err != nil {
		return engine.Terms{}, err
	}
	return p.Terms(), nil
}
