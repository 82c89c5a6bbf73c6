package secretlogin

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/planes/ui/planeasker"
)

// Providers log people in by the OIDC methods of the secrets plane. A method is offered where its mount shows itself
// (listing_visibility); it is asked for nothing before somebody begins a login, since each question to it is a line of
// the audit log. What a login needs beside the browser's cookie (state, PKCE, the provider's nonce) is the method's
// own. It is safe for concurrent use.
type Providers struct {
	Ask *planeasker.Asker

	mu   sync.Mutex
	at   time.Time // of list
	list []uiapi.Method
}

const (
	offeredFor  = 15 * time.Second // that the list of methods is not looked up again
	mostMethods = 16               // that are offered
	offerTime   = 3 * time.Second  // for the list of mounts
	atSecrets   = "secrets:"       // begins the id of a method; its mount follows
)

// BackTo is where the provider sends the browser back to: as Vault's UI has it, so that what is registered for it at a
// provider stays good.
func BackTo(origin, mount string) string { return origin + "/ui/vault/auth/" + mount + "oidc/callback" }

// Methods implements uiapi.Browser.
func (p *Providers) Methods(r *http.Request) []uiapi.Method {
	p.mu.Lock()
	defer p.mu.Unlock() // who comes meanwhile wants the same list
	if !p.at.IsZero() && time.Since(p.at) < offeredFor {
		return p.list
	}
	ctx, cancel := context.WithTimeout(r.Context(), offerTime)
	defer cancel()
	list, err := p.look(ctx, r)
	if err == nil || ctx.Err() == nil { // sealed and not there are answers too; who went away has none
		p.at, p.list = time.Now(), list
	}
	return list
}

func (p *Providers) look(ctx context.Context, r *http.Request) ([]uiapi.Method, error) {
	var seen struct {
		Data struct {
			Auth map[string]struct{ Type, Description string } `json:"auth"`
		} `json:"data"`
	}
	nobody := &uiapi.Person{Remote: r.RemoteAddr}
	if err := p.Ask.Get(ctx, nobody, "secrets", "/v1/sys/internal/ui/mounts", &seen); err != nil {
		return nil, err
	}
	var list []uiapi.Method
	for _, mount := range slices.Sorted(maps.Keys(seen.Data.Auth)) {
		if m := seen.Data.Auth[mount]; m.Type == "oidc" && len(list) < mostMethods {
			list = append(list, uiapi.Method{ID: atSecrets + mount, Name: cmp.Or(m.Description, strings.TrimSuffix(mount, "/"))})
		}
	}
	return list, nil
}

// address asks a mount where the browser goes to; "" where its role does not allow the way back.
func (p *Providers) address(ctx context.Context, as *uiapi.Person, mount, role, back, nonce string) (string, error) {
	var answer struct {
		Data struct {
			Address string `json:"auth_url"`
		} `json:"data"`
	}
	err := p.Ask.Send(ctx, as, http.MethodPost, "secrets", "/v1/auth/"+pathOf(mount)+"oidc/auth_url",
		map[string]string{"role": role, "redirect_uri": back, "client_nonce": nonce}, &answer)
	return answer.Data.Address, err
}

// Begin implements uiapi.Browser.
func (p *Providers) Begin(r *http.Request, v *uiapi.Visit) (address, state string, err error) {
	mount, err := mountOf(v.Method)
	if err != nil {
		return "", "", err
	}
	back := BackTo(v.Origin, mount)
	address, err = p.address(r.Context(), &uiapi.Person{Remote: r.RemoteAddr}, mount, v.Role, back, v.Nonce)
	if err != nil && v.Role == "" && strings.Contains(err.Error(), "missing role") {
		return "", "", uiapi.ErrRole
	}
	if err != nil {
		return "", "", err
	}
	if address == "" {
		return "", "", errkind.Errorf(errkind.Invalid,
			"allowed_redirect_uris of the role do not have %s: add it, here and at the provider", back)
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", "", errkind.E(errkind.Unavailable, "authorization_endpoint", err)
	}
	return address, u.Query().Get("state"), nil
}

// End implements uiapi.Browser.
func (p *Providers) End(r *http.Request, method, state, code, nonce string) (uiapi.Person, error) {
	who := uiapi.Person{Remote: r.RemoteAddr}
	mount, err := mountOf(method)
	if err != nil {
		return who, err
	}
	var answer loggedIn
	q := url.Values{"state": {state}, "code": {code}, "client_nonce": {nonce}}
	err = patient(p.Ask).Get(r.Context(), &uiapi.Person{Remote: r.RemoteAddr}, "secrets", "/v1/auth/"+pathOf(mount)+
		"oidc/callback?"+q.Encode(), &answer)
	switch {
	case errkind.Is(err, errkind.Invalid): // what the method says of a login that is not good
		return who, errkind.E(errkind.Denied, "", err)
	case err != nil:
		return who, err
	}
	return answer.enter(r.Context(), p.Ask, "", who)
}

// mountOf is the mount of a method's id, such as oidc/.
func mountOf(id string) (string, error) {
	mount, ok := strings.CutPrefix(id, atSecrets)
	if !ok || !strings.HasSuffix(mount, "/") || strings.Contains("/"+mount, "/../") ||
		strings.Contains("/"+mount, "/./") {
		return "", errkind.New(errkind.Invalid, "method: there is no such login")
	}
	return mount, nil
}

// pathOf writes a mount for a request line.
func pathOf(mount string) string { return (&url.URL{Path: mount}).EscapedPath() }
