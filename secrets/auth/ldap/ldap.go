// Package ldap logs users in by a directory (contract 3.7): their password is tried there, and their policies go by
// their name and their groups in it.
//
// Nothing of a password is kept. A renewal looks the user up again where the mount has an account of its own in the
// directory (binddn); where it has none, it goes by the groups of the login. A login ends within
// request_timeout.
package ldap

import (
	"context"
	"encoding/json"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/directory"
	"corbel.dev/corbel/secrets/engine"
)

// Engine is one mount of the method. Made with New.
type Engine struct {
	lockout *auth.Lockout // shared between mounts
	rules   auth.LockoutRules
	mount   string // what tells this mount's users from others' in lockout
	desk    *directory.Desk
}

// New makes the engine of a mount. mount names it in the lockout.
func New(lockout *auth.Lockout, rules auth.LockoutRules, mount string) *Engine {
	return &Engine{lockout: lockout, rules: rules, mount: mount, desk: directory.New()}
}

var _ engine.Renewer = (*Engine)(nil)

const configKey = "config"

// Special implements engine.Engine.
func (*Engine) Special() engine.Special { return engine.Special{Open: []string{"login/*"}} }

// Serial implements engine.Engine: changes of one record follow each other, logins wait for nobody.
func (*Engine) Serial(r *secrets.Request) string {
	if r.Op.Writes() && !strings.HasPrefix(r.Rest, "login/") {
		return strings.ToLower(r.Rest)
	}
	return ""
}

// Exists implements engine.Engine.
func (e *Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	c, err := settings(ctx, view)
	if err != nil || r.Rest == configKey {
		return c != nil, err == nil, err
	}
	for _, prefix := range []string{auth.UserPrefix, auth.GroupPrefix} {
		if name, is := strings.CutPrefix(r.Rest, prefix); is {
			return auth.Exists[auth.Mapping](ctx, view, prefix, prefix+c.fold(name))
		}
	}
	return false, false, nil
}

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	kind, name, _ := strings.Cut(strings.TrimSuffix(r.Rest, "/"), "/")
	c, err := settings(ctx, view)
	if err != nil {
		return nil, err
	}
	switch {
	case kind == configKey && name == "":
		return e.config(r, c)
	case kind == "users" || kind == "groups":
		return auth.Crud(ctx, view, r, kind+"/", c.fold(name), auth.MappingUnder(kind+"/"))
	case kind == "login" && name != "" && (r.Op == secrets.Update || r.Op == secrets.Create):
		return e.login(ctx, view, r, c, name)
	case kind == "login" && name != "":
		return nil, auth.ErrUnsupported
	}
	return nil, auth.ErrPath
}

func (e *Engine) config(r *secrets.Request, have *config) (*secrets.Response, error) {
	switch r.Op {
	case secrets.Read:
		if have == nil {
			return nil, auth.ErrNotFound
		}
		return auth.Data(have.show())
	case secrets.Create, secrets.Update:
	default:
		return nil, auth.ErrUnsupported
	}
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	c := fresh()
	if have != nil {
		*c = *have
	}
	if err := c.read(f); err != nil {
		return nil, err
	}
	if have != nil {
		if err := c.Keeps(&have.Place, f); err != nil {
			return nil, err
		}
	}
	return auth.Keep(configKey, c)
}

// kept is what a token remembers of its login.
type kept struct {
	User   string   `json:"user"`
	Groups []string `json:"groups,omitempty"`
}

func (e *Engine) login(ctx context.Context, view engine.View, r *secrets.Request, c *config,
	name string) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	password := f.String("password")
	if err := f.Err(); err != nil {
		return nil, err
	}
	name = c.fold(name)
	switch {
	case c == nil:
		return nil, errkind.New(errkind.Invalid, "ldap backend not configured")
	case password == "": // a directory takes it for a wish to be nobody, and says yes
		return nil, errkind.New(errkind.Invalid, "password cannot be of zero length when passwordless binds are being denied")
	case len(name) > nameBytes || strings.ContainsAny(name, "\x00/"):
		return nil, errBadLogin
	}
	alias := e.mount + "\x00" + name
	if e.lockout.Locked(&e.rules, alias, r.Now) {
		return nil, auth.ErrDenied
	}
	found, err := e.bind(ctx, c, name, password)
	if err != nil && !errkind.Is(err, errkind.Invalid) { // nothing was learned about the password
		return nil, err
	}
	if !e.lockout.Tell(&e.rules, alias, r.Now, err == nil) {
		return nil, auth.ErrDenied
	}
	if err != nil {
		return nil, err
	}
	if !auth.Within(c.Tokens.CIDRs, r.Remote) {
		return nil, auth.ErrDenied
	}
	policies, all, err := auth.Mapped(ctx, view, c.Tokens.Policies, name, found, c.fold)
	if err != nil {
		return nil, err
	}
	a := c.Tokens.Auth()
	a.Policies, a.Groups, a.Alias, a.DisplayName = policies, all, name, auth.DisplayName(r.Mount, name)
	a.Metadata = map[string]string{"username": name}
	if a.Login, err = json.Marshal(kept{User: name, Groups: found}); err != nil {
		return nil, err
	}
	return &secrets.Response{Auth: a}, nil
}

// Renewable implements engine.Renewer: who is gone from the directory, or has other policies by now, renews nothing.
func (e *Engine) Renewable(ctx context.Context, view engine.View, _ *secrets.Request, l engine.Login) (engine.Terms,
	error) {
	c, err := settings(ctx, view)
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
	if c.BindDN != "" {
		if k.Groups, err = e.lookUp(ctx, c, k.User); err != nil {
			return engine.Terms{}, err
		}
	}
	p := c.Tokens
	if p.Policies, _, err = auth.Mapped(ctx, view, p.Policies, k.User, k.Groups, c.fold); err == nil {
		err = p.Unchanged(l.Policies)
	}
	if err != nil {
		return engine.Terms{}, err
	}
	return p.Terms(), nil
}
