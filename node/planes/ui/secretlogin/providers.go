package secretlogin

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
)

// Providers log people in by the OIDC methods of the secrets plane. A method is offered where its mount shows itself
// (listing_visibility) and its role sends browsers back to this page. What a login needs beside the browser's cookie
// (state, PKCE, the provider's nonce) is the method's own. It is safe for concurrent use.
type Providers struct {
	Ask *planeasker.Asker

	mu    sync.Mutex
	known map[string]offered // by origin
}

// offered are the methods of an origin as they were at a time.
type offered struct {
	at   time.Time
	list []uiapi.Method
}

const (
	offeredFor  = 15 * time.Second // that the list of methods is not looked up again
	mostOrigins = 64               // whose lists are kept
	mostMethods = 16               // that are looked at
	offerTime   = 3 * time.Second  // for a method to say whether it is set up
	atSecrets   = "secrets:"       // begins the id of a method; its mount follows
)

// BackTo is where the provider sends the browser back to: as Vault's UI has it, so that what is registered for it at a
// provider stays good.
func BackTo(origin, mount string) string { return origin + "/ui/vault/auth/" + mount + "oidc/callback" }

// Methods implements uiapi.Browser.
func (p *Providers) Methods(r *http.Request, origin string) []uiapi.Method {
	p.mu.Lock()
	kept, ok := p.known[origin]
	p.mu.Unlock()
	if ok && time.Since(kept.at) < offeredFor {
		return kept.list
	}
	ctx, cancel := context.WithTimeout(r.Context(), offerTime)
	defer cancel()
	list := p.look(ctx, r, origin)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil || len(p.known) >= mostOrigins {
		p.known = map[string]offered{}
	}
	p.known[origin] = offered{time.Now(), list}
	return list
}

func (p *Providers) look(ctx context.Context, r *http.Request, origin string) []uiapi.Method {
	nobody := &uiapi.Person{Remote: r.RemoteAddr}
	var seen struct {
		Data struct {
			Auth map[string]struct{ Type, Description string } `json:"auth"`
		} `json:"data"`
	}
	if p.Ask.Get(ctx, nobody, "secrets", "/v1/sys/internal/ui/mounts", &seen) != nil {
		return nil // sealed, or not there
	}
	var mounts []string
	for name, m := range seen.Data.Auth {
		if m.Type == "oidc" || m.Type == "jwt" {
			mounts = append(mounts, name)
		}
	}
	slices.Sort(mounts)
	mounts = mounts[:min(len(mounts), mostMethods)]
	all := make([]uiapi.Method, len(mounts))
	var looking sync.WaitGroup
	for i, mount := range mounts {
		looking.Go(func() {
			address, err := p.address(ctx, nobody, mount, "", BackTo(origin, mount), "")
			m := uiapi.Method{ID: atSecrets + mount, Role: err != nil && strings.Contains(err.Error(), "missing role"),
				Name: cmp.Or(seen.Data.Auth[mount].Description, strings.TrimSuffix(mount, "/"))}
			// One whose provider does not answer now is set up all the same.
			if address != "" || m.Role || errkind.Is(err, errkind.Unavailable) || ctx.Err() != nil {
				all[i] = m
			}
		})
	}
	looking.Wait()
	return slices.DeleteFunc(all, func(m uiapi.Method) bool { return m.ID == "" })
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
	err = p.Ask.Get(r.Context(), &uiapi.Person{Remote: r.RemoteAddr}, "secrets", "/v1/auth/"+pathOf(mount)+
		"oidc/callback?"+q.Encode(), &answer)
	switch {
	case errkind.Is(err, errkind.Invalid): // what the method says of a login that is not good
		return who, errkind.E(errkind.Denied, "", err)
	case err != nil:
		return who, err
	case answer.Auth.Token == "":
		return who, errkind.New(errkind.Denied, "the login gave no token")
	}
	who.Made = true
	return who, ByToken(r.Context(), p.Ask, answer.Auth.Token, &who)
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
