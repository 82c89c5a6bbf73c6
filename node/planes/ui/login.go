package uiplane

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/planes/ui/planeasker"
	"corbel.dev/corbel/node/planes/ui/secretlogin"
)

// login tries what was given at each plane that could know it: it is in when one of them does.
func (u *UI) login(r *http.Request, c *uiapi.Credentials) (uiapi.Person, error) {
	p := uiapi.Person{Remote: r.RemoteAddr}
	if c.Method != "" {
		err := byMethod(r.Context(), &u.ask, c, &p)
		return p, err
	}
	if c.Token != "" {
		u.byToken(r.Context(), c.Token, &p)
		if p.Name == "" {
			return p, errkind.New(errkind.Denied, "no plane of this server knows this token")
		}
		return p, nil
	}
	if c.User == "" || c.Password == "" {
		return p, errkind.New(errkind.Invalid, "a login needs a token, or a user and a password")
	}
	err := u.byPassword(r.Context(), c, &p)
	return p, err
}

// byMethod trades a proof of identity for a token at an auth method of the catalog.
func byMethod(ctx context.Context, ask *planeasker.Asker, c *uiapi.Credentials, p *uiapi.Person) error {
	if c.Token == "" {
		return errkind.New(errkind.Invalid, "token: a login at an auth method needs the token (JWT) that it takes")
	}
	body := map[string]string{"AuthMethod": c.Method, "BearerToken": c.Token}
	return tokenOf(ctx, ask, "/v1/acl/login", body, c.Method, p)
}

// leave gives back the tokens that a login made, when its person logs out.
func leave(ask *planeasker.Asker) func(*http.Request, *uiapi.Person) {
	secrets := secretlogin.Leave(ask)
	return func(r *http.Request, p *uiapi.Person) {
		if p.Made && p.Catalog != "" {
			// Whoever logs out waits for it; where it fails, the token ends by its own time.
			_ = ask.Send(r.Context(), p, http.MethodPost, "catalog", "/v1/acl/logout", nil, nil)
		}
		secrets(r, p)
	}
}

func (u *UI) byToken(ctx context.Context, token string, p *uiapi.Person) {
	if u.d.Cfg.ACL.Enabled {
		if grant, err := u.d.Grant(ctx, token); err == nil {
			p.Catalog, p.Name = token, nameOf(grant)
		}
	}
	if u.secrets != nil {
		_ = secretlogin.ByToken(ctx, &u.ask, token, p) // another plane may know it
	}
	if u.monitor != nil {
		asMonitor := uiapi.Person{Monitor: "Key " + token, Remote: p.Remote}
		var all []struct{}
		if u.ask.Get(ctx, &asMonitor, "monitor", "/api/core/v2/namespaces", &all) == nil {
			p.Monitor = asMonitor.Monitor
			if p.Name == "" {
				p.Name = "an API key"
			}
		}
	}
}

func nameOf(g *acl.Grant) string {
	switch {
	case g.Token != nil && g.Token.Description != "":
		return g.Token.Description
	case len(g.Accessor) > 8:
		return "token " + g.Accessor[:8]
	}
	return "token"
}

// byPassword asks the monitor plane, then the userpass method of the secrets plane.
func (u *UI) byPassword(ctx context.Context, c *uiapi.Credentials, p *uiapi.Person) error {
	wrong := errkind.New(errkind.Denied, "no plane of this server knows this user and password")
	if u.monitor != nil {
		from, _, err := net.SplitHostPort(p.Remote)
		if err != nil {
			from = p.Remote
		}
		session, err := u.monitor.Login(ctx, from, c.User, c.Password)
		if err == nil {
			p.Monitor, p.Name = session, c.User
		} else if !errkind.Is(err, errkind.Denied) {
			return err
		}
	}
	if u.secrets != nil {
		var due *uiapi.Due
		if err := secretlogin.ByPassword(ctx, &u.ask, c, p); errors.As(err, &due) {
			return err // whoever the monitor plane knows has no session before it, either
		} // else the monitor plane may know it
	}
	if p.Name == "" {
		return wrong
	}
	return nil
}

// devSession keeps the administrator's session of dev.
type devSession struct {
	mu    sync.Mutex
	token string
	until time.Time
}

// devHold is less than what a session holds for.
const devHold = 6 * time.Hour

// open is who asks without a session: in dev the host's user, who may do everything, when the page was asked for by an
// address of loopback; while access control is off, anybody, with no more rights than that gives.
func (u *UI) open(r *http.Request) *uiapi.Person {
	cfg := u.d.Cfg
	switch {
	case cfg.Dev && ownHost(r.Host):
		p := &uiapi.Person{Name: "dev", Catalog: cfg.ACL.InitialManagement, Remote: r.RemoteAddr}
		if u.secrets != nil {
			p.Secrets = u.secrets.DevToken()
		}
		if u.monitor != nil {
			p.Monitor = u.devMonitor(r.Context())
		}
		return p
	case !cfg.ACL.Enabled:
		return &uiapi.Person{Remote: r.RemoteAddr}
	}
	return nil
}

func (u *UI) devMonitor(ctx context.Context) string {
	u.dev.mu.Lock()
	defer u.dev.mu.Unlock()
	if now := u.d.Clock.Now(); now.After(u.dev.until) {
		token, err := u.monitor.DevSession(ctx)
		if err != nil {
			return "" // not yet
		}
		u.dev.token, u.dev.until = token, now.Add(devHold)
	}
	return u.dev.token
}

// ownHost tells whether a request was sent to loopback by its name: another site's name that leads here is not.
func ownHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
