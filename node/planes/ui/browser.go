package uiplane

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/planes/ui/planeasker"
	"corbel.dev/corbel/node/planes/ui/secretlogin"
)

// browsers log people in at the providers of all planes: those of the secrets plane, the auth methods of type oidc of
// the catalog, which are the jobs plane's too, and the providers of the monitor. It is safe for concurrent use.
type browsers struct {
	secretlogin.Providers
	monitor monitorProviders // nil where it is not here

	mu   sync.Mutex
	at   time.Time // of list
	list []uiapi.Method
}

const (
	offeredFor  = 15 * time.Second // that the list of the catalog's methods is not looked up again
	offerTime   = 3 * time.Second
	mostMethods = 16
	atCatalog   = "catalog:" // begins the id of a method; its name follows
)

// backTo is where a provider sends the browser back to: as Consul's UI has it, so that what is registered for it at a
// provider stays good.
func backTo(origin string) string { return origin + "/ui/oidc/callback" }

// Methods implements uiapi.Browser.
func (b *browsers) Methods(r *http.Request) []uiapi.Method {
	return slices.Concat([]uiapi.Method{}, b.ofCatalog(r), b.Providers.Methods(r), b.ofMonitor())
}

func (b *browsers) ofCatalog(r *http.Request) []uiapi.Method {
	b.mu.Lock()
	defer b.mu.Unlock() // who comes meanwhile wants the same list
	if !b.at.IsZero() && time.Since(b.at) < offeredFor {
		return b.list
	}
	ctx, cancel := context.WithTimeout(r.Context(), offerTime)
	defer cancel()
	var methods []struct{ Name, DisplayName string }
	err := b.Ask.Get(ctx, &uiapi.Person{Remote: r.RemoteAddr}, "catalog", "/v1/internal/ui/oidc-auth-methods", &methods)
	if err != nil {
		return b.list // what was there last: begun at a method that is gone, a login says so
	}
	b.at, b.list = time.Now(), nil
	for _, m := range methods[:min(len(methods), mostMethods)] {
		b.list = append(b.list, uiapi.Method{ID: atCatalog + m.Name, Name: cmp.Or(m.DisplayName, m.Name)})
	}
	return b.list
}

// Begin implements uiapi.Browser.
func (b *browsers) Begin(r *http.Request, v *uiapi.Visit) (address, state string, err error) {
	if address, state, ok, err := b.beginAtMonitor(r, v); ok {
		return address, state, err
	}
	name, ok := strings.CutPrefix(v.Method, atCatalog)
	if !ok {
		return b.Providers.Begin(r, v)
	}
	var answer struct{ AuthURL string }
	err = b.Ask.Send(r.Context(), &uiapi.Person{Remote: r.RemoteAddr}, http.MethodPost, "catalog", "/v1/acl/oidc/auth-url",
		map[string]string{"AuthMethod": name, "RedirectURI": backTo(v.Origin), "ClientNonce": v.Nonce}, &answer)
	if err != nil {
		return "", "", err
	}
	u, err := url.Parse(answer.AuthURL)
	if err != nil {
		return "", "", errkind.E(errkind.Unavailable, "authorization_endpoint", err)
	}
	return answer.AuthURL, u.Query().Get("state"), nil
}

// End implements uiapi.Browser.
func (b *browsers) End(r *http.Request, method, state, code, nonce string) (uiapi.Person, error) {
	if p, ok, err := b.endAtMonitor(r, method, state, code, nonce); ok {
		return p, err
	}
	name, ok := strings.CutPrefix(method, atCatalog)
	if !ok {
		return b.Providers.End(r, method, state, code, nonce)
	}
	p := uiapi.Person{Remote: r.RemoteAddr}
	err := tokenOf(r.Context(), b.Ask, "/v1/acl/oidc/callback", map[string]string{"AuthMethod": name, "State": state,
		"Code": code, "ClientNonce": nonce}, name, &p)
	return p, err
}

// tokenOf logs a person in at an auth method of the catalog, by one of its paths.
func tokenOf(ctx context.Context, ask *planeasker.Asker, path string, body map[string]string, name string,
	p *uiapi.Person) error {
	var made struct{ SecretID, Description string }
	err := ask.Send(ctx, &uiapi.Person{Remote: p.Remote}, http.MethodPost, "catalog", path, body, &made)
	if err == nil && made.SecretID == "" {
		err = errkind.New(errkind.Denied, "the login gave no token")
	}
	if err == nil {
		p.Catalog, p.Name, p.Made = made.SecretID, name, true
	}
	return err
}
