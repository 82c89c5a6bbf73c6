package uiplane

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/kit/errkind"
)

// sealStatus is what anybody may know of the secrets plane.
type sealStatus struct {
	Initialized bool `json:"initialized"`
	Sealed      bool `json:"sealed"`
	Threshold   int  `json:"t"`
	Progress    int  `json:"progress"`
}

// secretsLine is the secrets plane in one line; false where it is not here, or the person has no login of it.
func (a *asker) secretsLine(ctx context.Context, p *uiapi.Person) (planeRow, bool) {
	line := planeRow{Name: "Secrets", State: "passing", Path: "/secrets"}
	if a.planes["secrets"].Handler == nil || p.Secrets == "" {
		return line, false
	}
	var s sealStatus
	err := a.get(ctx, p, "secrets", "/v1/sys/seal-status", &s)
	switch {
	case err != nil:
		line.State, line.Words = "critical", err.Error()
	case !s.Initialized:
		line.State, line.Words = "warning", "not initialized"
	case s.Sealed:
		line.State, line.Words = "critical", fmt.Sprintf("sealed: %d of %d keys were given", s.Progress, s.Threshold)
	default:
		line.Words = "unsealed"
	}
	return line, true
}

// secretsAPI is a secrets plane's own API, with the token of a person.
func secretsAPI(h http.Handler) uiapi.Plane {
	return uiapi.Plane{Handler: h, Attach: func(r *http.Request, p *uiapi.Person) error {
		r.Header.Del("Authorization")
		r.Header.Set("X-Vault-Token", p.Secrets)
		r.Header.Set("X-Vault-Request", "true")
		return nil
	}}
}

// secretsToken logs a person in with a token that the secrets plane knows.
func (a *asker) secretsToken(ctx context.Context, token string, p *uiapi.Person) error {
	as := uiapi.Person{Secrets: token, Remote: p.Remote}
	var self struct {
		Data struct {
			Name string `json:"display_name"`
		} `json:"data"`
	}
	if err := a.get(ctx, &as, "secrets", "/v1/auth/token/lookup-self", &self); err != nil {
		return err
	}
	p.Secrets = token
	if p.Name == "" {
		p.Name = self.Data.Name
	}
	return nil
}

// secretsPassword logs a person in by the userpass method.
func (a *asker) secretsPassword(ctx context.Context, c *uiapi.Credentials, p *uiapi.Person) error {
	var answer loggedIn
	err := a.send(ctx, &uiapi.Person{Remote: p.Remote}, http.MethodPost, "secrets",
		"/v1/auth/userpass/login/"+url.PathEscape(c.User), map[string]string{"password": c.Password}, &answer)
	if err == nil && answer.Auth.Token == "" {
		err = errkind.New(errkind.Denied, "the login gave no token")
	}
	if err == nil {
		p.Secrets, p.Name, p.Made = answer.Auth.Token, c.User, true
	}
	return err
}

// loggedIn is the answer of a login of the secrets plane.
type loggedIn struct {
	Auth struct {
		Token string `json:"client_token"`
	} `json:"auth"`
}

// leave gives back the token that a login made.
func (a *asker) leave(r *http.Request, p *uiapi.Person) {
	if !p.Made || p.Secrets == "" {
		return
	}
	// Whoever logs out waits for it; where it fails, the token ends by its own time.
	_ = a.send(r.Context(), p, http.MethodPost, "secrets", "/v1/auth/token/revoke-self", nil, nil)
}
