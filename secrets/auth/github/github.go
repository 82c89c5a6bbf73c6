// Package github logs members of an organization of GitHub in by their personal access token (contract 3.7): GitHub is
// asked whose it is, and their policies go by their name and their teams.
//
// Nothing of the token is kept, so a renewal goes by the teams of the login. Every question has a deadline and a
// bounded answer; of long lists at most pagesMost pages are read.
package github

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
)

// Engine is one mount of the method.
type Engine struct{}

var (
	_ engine.Renewer = (*Engine)(nil)
	_ engine.Router  = (*Engine)(nil)
)

const (
	configKey = "config"
	users     = "map/users/"
	teams     = "map/teams/"
	everybody = "default" // the team that all members are in, as Vault has it
	tokenMost = 512
	perPage   = 100
	pagesMost = 20
)

// Special implements engine.Engine.
func (*Engine) Special() engine.Special { return engine.Special{Open: []string{"login"}} }

// Serial implements engine.Engine.
func (*Engine) Serial(r *secrets.Request) string { return strings.ToLower(auth.Serial(r)) }

// Exists implements engine.Engine.
func (*Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	prefix := users
	if strings.HasPrefix(r.Rest, teams) {
		prefix = teams
	}
	return auth.Exists[mapping](ctx, view, prefix, strings.ToLower(r.Rest))
}

// Routes implements engine.Router.
func (*Engine) Routes() []engine.Route {
	crud := []secrets.Operation{secrets.Read, secrets.Update, secrets.Delete}
	list := []secrets.Operation{secrets.List}
	return []engine.Route{{Path: "config", Ops: crud[:2]}, {Path: "map/users", Ops: list},
		{Path: "map/users/{name}", Ops: crud}, {Path: "map/teams", Ops: list}, {Path: "map/teams/{name}", Ops: crud},
		{Path: "login", Ops: []secrets.Operation{secrets.Update}, Open: true}}
}

// mapping is what a user or a team has here.
type mapping struct {
	Policies []string `json:"policies,omitempty"`
}

// Read implements auth.Record.
func (m *mapping) Read(f *secrets.Fields) error {
	if f.Has("value") {
		m.Policies = auth.Names(f.Strings("value"))
	}
	return f.Err()
}

// Show implements auth.Record.
func (m *mapping) Show() map[string]any {
	return map[string]any{"value": strings.Join(m.Policies, ",")}
}

// config is the mount's.
type config struct {
	Name   string      `json:"organization"`
	ID     int         `json:"organization_id"`
	Base   string      `json:"base_url,omitempty"`
	CA     string      `json:"base_url_ca_pem,omitempty"`
	Tokens auth.Params `json:"tokens"`
}

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	path := strings.ToLower(strings.TrimSuffix(r.Rest, "/"))
	for _, prefix := range []string{users, teams} {
		if name, is := strings.CutPrefix(path+"/", prefix); is {
			return auth.Crud(ctx, view, r, prefix, strings.TrimSuffix(name, "/"), &mapping{})
		}
	}
	if path != configKey && path != "login" {
		return nil, auth.ErrPath
	}
	c, err := auth.Find[config](ctx, view, "", configKey)
	write := r.Op == secrets.Create || r.Op == secrets.Update
	switch {
	case err != nil:
		return nil, err
	case path == "login" && write:
		return login(ctx, view, r, c)
	case path == "login":
		return nil, auth.ErrUnsupported
	case write:
		return configure(ctx, r, c)
	case r.Op != secrets.Read:
		return nil, auth.ErrUnsupported
	case c == nil:
		return nil, auth.ErrNotFound
	}
	out := map[string]any{"organization": c.Name, "organization_id": c.ID, "base_url": c.Base, "base_url_ca_pem": c.CA}
	c.Tokens.Show(out)
	return auth.Data(out)
}

func invalid(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}

func configure(ctx context.Context, r *secrets.Request, have *config) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	c := &config{}
	if have != nil {
		*c = *have
	}
	for field, at := range map[string]*string{"organization": &c.Name, "base_url": &c.Base, "base_url_ca_pem": &c.CA} {
		if f.Has(field) {
			*at = f.String(field)
		}
	}
	switch {
	case f.Has("organization_id"):
		c.ID = f.Int("organization_id", 0)
	case have == nil || have.Name != c.Name:
		c.ID = 0
	}
	if err := c.Tokens.Read(f); err != nil {
		return nil, err
	}
	if c.Base != "" {
		if err := jwks.CheckURL("base_url", c.Base); err != nil {
			return nil, errkind.E(errkind.Invalid, "", err)
		}
	}
	if err := jwks.CheckCA("base_url_ca_pem", c.CA); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	if c.Name == "" || strings.ContainsAny(c.Name, "/?#% ") {
		return nil, invalid("field \"organization\": is required, the name of an organization of GitHub")
	}
	if c.ID == 0 { // a name may be another's tomorrow, its number not
		var org organization
		if _, err := c.ask(ctx, "", "orgs/"+c.Name, &org); err != nil || org.ID == 0 {
			return nil, invalid("field \"organization_id\": cannot be found out, give it: %v", err)
		}
		c.ID = org.ID
	}
	return auth.Keep(configKey, c)
}

// What GitHub answers.
type (
	organization struct {
		ID    int    `json:"id"`
		Login string `json:"login"`
	}
	team struct {
		Name         string       `json:"name"`
		Slug         string       `json:"slug"`
		Organization organization `json:"organization"`
	}
)

// ask asks GitHub, as whoever the token is of; "" is nobody.
func (c *config) ask(ctx context.Context, token, path string, into any) (status int, err error) {
	base := c.Base
	if base == "" {
		base = "https://api.github.com"
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/"+path, nil)
	if err != nil {
		return 0, errkind.E(errkind.Invalid, "", err)
	}
	q.Header.Set("Accept", "application/vnd.github+json")
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	status, err = jwks.AskStatus(ctx, c.CA, q, into)
	switch {
	case err == nil:
		return status, nil
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusNotFound:
		return status, invalid("GitHub answers %s with %d: is the token right, and does it have read:org?", path, status)
	}
	return status, errkind.Errorf(errkind.Unavailable, "GitHub cannot be asked: %s", errkind.Text(err))
}

// pages reads a list.
func pages[T any](ctx context.Context, c *config, token, path string) (all []T, err error) {
	for page := 1; page <= pagesMost; page++ {
		var some []T
		if _, err := c.ask(ctx, token, fmt.Sprintf("%s?per_page=%d&page=%d", path, perPage, page), &some); err != nil {
			return nil, err
		}
		if all = append(all, some...); len(some) < perPage {
			return all, nil
		}
	}
	return nil, invalid("GitHub's list %s has more than %d entries", path, perPage*pagesMost)
}

// kept is what a token remembers of its login.
type kept struct {
	User  string   `json:"user"`
	Teams []string `json:"teams,omitempty"`
}

func login(ctx context.Context, view engine.View, r *secrets.Request, c *config) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	token := f.String("token")
	if err := f.Err(); err != nil {
		return nil, err
	}
	switch {
	case c == nil:
		return nil, invalid("configuration has not been set: write config first")
	case token == "" || len(token) > tokenMost || strings.ContainsAny(token, " \r\n\x00"):
		return nil, invalid("field \"token\": is required, a personal access token of GitHub")
	case !auth.Within(c.Tokens.CIDRs, r.Remote):
		return nil, auth.ErrDenied
	}
	var user organization // of the same form
	if _, err := c.ask(ctx, token, "user", &user); err != nil {
		return nil, err
	}
	orgs, err := pages[organization](ctx, c, token, "user/orgs")
	if err != nil {
		return nil, err
	}
	if user.Login == "" || !slices.ContainsFunc(orgs, func(o organization) bool { return o.ID == c.ID }) {
		return nil, invalid("user is not part of required org")
	}
	list, err := pages[team](ctx, c, token, "user/teams")
	if err != nil {
		return nil, err
	}
	k := kept{User: user.Login}
	for _, t := range list {
		if t.Organization.ID == c.ID {
			k.Teams = append(k.Teams, t.Name, t.Slug)
		}
	}
	slices.Sort(k.Teams)
	k.Teams = slices.Compact(k.Teams)
	policies, err := c.policies(ctx, view, &k)
	if err != nil {
		return nil, err
	}
	a := c.Tokens.Auth()
	a.Policies, a.Alias, a.DisplayName = policies, user.Login, auth.DisplayName(r.Mount, user.Login)
	a.Groups = append([]string{}, k.Teams...)
	a.Metadata = map[string]string{"username": user.Login, "org": c.Name}
	a.Login, err = json.Marshal(k)
	return &secrets.Response{Auth: a}, err
}

// policies are those of the mount, of the user, of their teams and of everybody.
func (c *config) policies(ctx context.Context, view engine.View, k *kept) ([]string, error) {
	all := slices.Clone(c.Tokens.Policies)
	keys := []string{users + strings.ToLower(k.User), teams + everybody}
	for _, t := range k.Teams {
		if t != "" && !strings.Contains(t, "/") {
			keys = append(keys, teams+strings.ToLower(t))
		}
	}
	for _, key := range keys {
		m, err := auth.Find[mapping](ctx, view, "", key)
		if errkind.Is(err, errkind.Invalid) {
			continue // no record can have this name
		}
		if err != nil {
			return nil, err
		}
		if m != nil {
			all = append(all, m.Policies...)
		}
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
	if p.Policies, err = c.policies(ctx, view, &k); err == nil {
		err = p.Unchanged(l.Policies)
	}
	if err != nil {
		return engine.Terms{}, err
	}
	return p.Terms(), nil
}
