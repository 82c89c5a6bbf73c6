// Package secretlogin logs people of the web UI in at the secrets plane: with a token, by password, or at an OIDC
// provider that a method of the plane names. It keeps no session and no token.
package secretlogin

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/node/planes/ui/planeasker"
)

// API is a secrets plane's own API, with the token of a person.
func API(h http.Handler) uiapi.Plane {
	return uiapi.Plane{Handler: h, Attach: func(r *http.Request, p *uiapi.Person) error {
		r.Header.Del("Authorization")
		r.Header.Set("X-Vault-Token", p.Secrets)
		r.Header.Set("X-Vault-Request", "true")
		return nil
	}}
}

// loginTime is what a login may take, less than the page waits: passwords are hashed slowly on purpose, and a provider
// is asked over the network.
const loginTime = 9 * time.Second

// patient asks as a login may.
func patient(a *planeasker.Asker) *planeasker.Asker {
	return &planeasker.Asker{Planes: a.Planes, Time: loginTime}
}

// ByToken logs a person in with a token that the secrets plane knows.
func ByToken(ctx context.Context, a *planeasker.Asker, token string, p *uiapi.Person) error {
	as := uiapi.Person{Secrets: token, Remote: p.Remote}
	var self struct {
		Data struct {
			Name string `json:"display_name"`
		} `json:"data"`
	}
	if err := a.Get(ctx, &as, "secrets", "/v1/auth/token/lookup-self", &self); err != nil {
		return err
	}
	p.Secrets = token
	if p.Name == "" {
		p.Name = self.Data.Name
	}
	return nil
}

// ByPassword logs a person in by the userpass method. It fails with a *uiapi.Due where a second factor is lacking.
func ByPassword(ctx context.Context, a *planeasker.Asker, c *uiapi.Credentials, p *uiapi.Person) error {
	var answer loggedIn
	err := patient(a).Send(ctx, &uiapi.Person{Remote: p.Remote}, http.MethodPost, "secrets",
		"/v1/auth/userpass/login/"+url.PathEscape(c.User), map[string]string{"password": c.Password}, &answer)
	if err != nil {
		return err
	}
	known := *p
	known.Name = c.User
	known, err = answer.enter(ctx, a, "userpass/"+c.User, known)
	if err == nil {
		*p = known
	}
	return err
}

// Leave gives back the token that a login made, when its person logs out.
func Leave(a *planeasker.Asker) func(*http.Request, *uiapi.Person) {
	return func(r *http.Request, p *uiapi.Person) {
		if p.Made && p.Secrets != "" {
			// Whoever logs out waits for it; where it fails, the token ends by its own time.
			_ = a.Send(r.Context(), p, http.MethodPost, "secrets", "/v1/auth/token/revoke-self", nil, nil)
		}
	}
}
