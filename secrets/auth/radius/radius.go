// Package radius logs users in by a RADIUS server (RFC 2865): it is asked about name and password, and policies go by
// the name here.
//
// Nothing of a password is kept, so a renewal goes by the user's policies here alone. Each request has a
// Message-Authenticator, and an answer without one is refused unless the mount says otherwise. A login ends within
// dial_timeout and read_timeout together.
package radius

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

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
}

// New makes the engine of a mount. mount names it in the lockout.
func New(lockout *auth.Lockout, rules auth.LockoutRules, mount string) *Engine {
	return &Engine{lockout, rules, mount}
}

var (
	_ engine.Renewer = (*Engine)(nil)
	_ engine.Router  = (*Engine)(nil)
)

const (
	configKey = "config"
	users     = "users/"
	again     = 2 * time.Second // packets get lost
	within    = time.Minute     // the most that both timeouts may be
)

// config is the mount's.
type config struct {
	Host         string        `json:"host"`
	Port         int           `json:"port"`
	Secret       string        `json:"secret"`
	Unregistered []string      `json:"unregistered_user_policies,omitempty"`
	DialTimeout  time.Duration `json:"dial_timeout"`
	ReadTimeout  time.Duration `json:"read_timeout"`
	NASPort      int           `json:"nas_port"`
	NASID        string        `json:"nas_identifier,omitempty"`
	Bare         bool          `json:"bare,omitempty"` // answers may have no Message-Authenticator
	Tokens       auth.Params   `json:"tokens"`
}

// user is one that is known here.
type user struct {
	Policies []string `json:"policies,omitempty"`
}

// Read implements auth.Record.
func (u *user) Read(f *secrets.Fields) error {
	if f.Has("policies") {
		u.Policies = auth.Names(f.Strings("policies"))
	}
	return f.Err()
}

// Show implements auth.Record.
func (u *user) Show() map[string]any { return map[string]any{"policies": auth.List(u.Policies)} }

// Special implements engine.Engine.
func (*Engine) Special() engine.Special { return engine.Special{Open: []string{"login", "login/*"}} }

// Serial implements engine.Engine: changes of one record follow each other, logins wait for nobody.
func (*Engine) Serial(r *secrets.Request) string {
	if r.Op.Writes() && !strings.HasPrefix(r.Rest, "login") {
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
	return auth.Exists[user](ctx, view, users, r.Rest)
}

// Routes implements engine.Router.
func (*Engine) Routes() []engine.Route {
	crud := []secrets.Operation{secrets.Read, secrets.Update, secrets.Delete}
	return []engine.Route{{Path: "config", Ops: crud[:2]}, {Path: "users", Ops: []secrets.Operation{secrets.List}},
		{Path: "users/{name}", Ops: crud}, {Path: "login", Ops: crud[1:2], Open: true},
		{Path: "login/{name}", Ops: crud[1:2], Open: true}}
}

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	kind, name, _ := strings.Cut(strings.TrimSuffix(r.Rest, "/"), "/")
	c, err := auth.Find[config](ctx, view, "", configKey)
	write := r.Op == secrets.Create || r.Op == secrets.Update
	switch {
	case err != nil:
		return nil, err
	case kind == "users":
		return auth.Crud(ctx, view, r, users, name, &user{})
	case kind == "login" && write:
		return e.login(ctx, view, r, c, name)
	case kind == configKey && name == "" && write:
		return configure(r, c)
	case kind == configKey && name == "" && r.Op == secrets.Read && c == nil:
		return nil, auth.ErrNotFound
	case kind == configKey && name == "" && r.Op == secrets.Read:
		return auth.Data(c.show())
	case kind == configKey && name == "" || kind == "login":
		return nil, auth.ErrUnsupported
	}
	return nil, auth.ErrPath
}

// show is the configuration without its secret.
func (c *config) show() map[string]any {
	out := map[string]any{"host": c.Host, "port": c.Port, "unregistered_user_policies": auth.List(c.Unregistered),
		"dial_timeout": auth.Seconds(c.DialTimeout), "read_timeout": auth.Seconds(c.ReadTimeout), "nas_port": c.NASPort,
		"nas_identifier": c.NASID, "require_message_authenticator": !c.Bare}
	c.Tokens.Show(out)
	return out
}

func invalid(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}

func configure(r *secrets.Request, have *config) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	c := &config{Port: 1812, NASPort: 10, DialTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second}
	if have != nil {
		*c = *have
	}
	for field, at := range map[string]*string{"host": &c.Host, "secret": &c.Secret, "nas_identifier": &c.NASID} {
		if f.Has(field) {
			*at = f.String(field)
		}
	}
	c.Port, c.NASPort = f.Int("port", c.Port), f.Int("nas_port", c.NASPort)
	c.DialTimeout, c.ReadTimeout = f.Duration("dial_timeout", c.DialTimeout), f.Duration("read_timeout", c.ReadTimeout)
	c.Bare = !f.Bool("require_message_authenticator", !c.Bare)
	if f.Has("unregistered_user_policies") {
		c.Unregistered = auth.Names(f.Strings("unregistered_user_policies"))
	}
	if err := c.Tokens.Read(f); err != nil {
		return nil, err
	}
	switch {
	case f.Err() != nil:
		return nil, f.Err()
	case c.Host == "" || strings.ContainsAny(c.Host, " /\x00"):
		return nil, invalid(`field "host": is required, the name or the address of a RADIUS server`)
	case c.Secret == "":
		return nil, invalid(`field "secret": is required, what this server and the RADIUS server share`)
	case have != nil && have.Host != c.Host && !f.Has("secret"): // a new host would be asked by it
		return nil, invalid(`field "secret": is required with another host`)
	case c.Port < 1 || c.Port > 65535:
		return nil, invalid(`field "port": must be 1 to 65535`)
	case c.NASPort < 0 || c.NASPort > 1<<31-1:
		return nil, invalid(`field "nas_port": must be 0 to %d`, 1<<31-1)
	case len(c.NASID) > valueMost:
		return nil, invalid(`field "nas_identifier": must have %d bytes at most`, valueMost)
	case c.DialTimeout < time.Second || c.ReadTimeout < time.Second || c.DialTimeout+c.ReadTimeout > within:
		return nil, invalid(`fields "dial_timeout" and "read_timeout": must be 1s at least, and %s together at most`, within)
	case slices.Contains(c.Unregistered, "root"):
		return nil, invalid(`field "unregistered_user_policies": must not have root`)
	}
	return auth.Keep(configKey, c)
}

// kept is what a token remembers of its login.
type kept struct {
	User string `json:"user"`
}

var errRejected = errkind.New(errkind.Invalid, "access denied by the authentication server")

func (e *Engine) login(ctx context.Context, view engine.View, r *secrets.Request, c *config, name string) (
	*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	if name == "" {
		name = f.String("username")
	}
	password := f.String("password")
	if err := f.Err(); err != nil {
		return nil, err
	}
	switch {
	case c == nil:
		return nil, invalid("radius backend not configured")
	case name == "" || strings.ContainsAny(name, "\x00/"):
		return nil, invalid("username cannot be empty, and has no slash")
	case password == "":
		return nil, invalid("password cannot be empty")
	}
	q := question{user: name, password: password, secret: c.Secret, nasID: c.NASID, nasPort: uint32(c.NASPort)}
	if err := q.check(); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	alias := e.mount + "\x00" + strings.ToLower(name)
	if e.lockout.Locked(&e.rules, alias, r.Now) || !auth.Within(c.Tokens.CIDRs, r.Remote) {
		return nil, auth.ErrDenied
	}
	err = c.verify(ctx, &q)
	if err != nil && !errkind.Is(err, errkind.Invalid) { // nothing was learned about the password
		return nil, err
	}
	if !e.lockout.Tell(&e.rules, alias, r.Now, err == nil) {
		return nil, auth.ErrDenied
	}
	if err != nil {
		return nil, err
	}
	policies, err := c.policies(ctx, view, name)
	if err != nil {
		return nil, err
	}
	a := c.Tokens.Auth()
	a.Policies, a.Alias, a.DisplayName = policies, name, auth.DisplayName(r.Mount, name)
	a.Metadata = map[string]string{"username": name, "policies": strings.Join(policies, ",")}
	a.Login, err = json.Marshal(kept{name})
	return &secrets.Response{Auth: a}, err
}

// verify asks the server. An error of kind Invalid is its no.
func (c *config) verify(ctx context.Context, q *question) error {
	ctx, cancel := context.WithTimeout(ctx, c.DialTimeout+c.ReadTimeout)
	defer cancel()
	code, err := q.ask(ctx, net.JoinHostPort(c.Host, strconv.Itoa(c.Port)), again, !c.Bare)
	switch {
	case err != nil:
		return err
	case code == codeAccept:
		return nil
	case code == codeReject:
		return errRejected
	case code == codeChallenge:
		return invalid("the RADIUS server asks for more than a password (Access-Challenge), which is not supported: let it " +
			"take password and code in one, or log in by oidc")
	}
	return errkind.Errorf(errkind.Unavailable, "the RADIUS server answers with code %d", code)
}

// policies are those of the mount, and of the user, or of users that are not known here.
func (c *config) policies(ctx context.Context, view engine.View, name string) ([]string, error) {
	all := slices.Clone(c.Tokens.Policies)
	u, err := auth.Find[user](ctx, view, users, name)
	switch {
	case err != nil:
		return nil, err
	case u != nil:
		all = append(all, u.Policies...)
	default:
		all = append(all, c.Unregistered...)
	}
	return auth.Names(all), nil
}

// Renewable implements engine.Renewer: who has other policies by now renews nothing.
func (*Engine) Renewable(ctx context.Context, view engine.View, _ *secrets.Request, l engine.Login) (engine.Terms,
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
	p := c.Tokens
	if p.Policies, err = c.policies(ctx, view, k.User); err == nil {
		err = p.Unchanged(l.Policies)
	}
	if err != nil {
		return engine.Terms{}, err
	}
	return p.Terms(), nil
}
