package jwkstest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Provider is an Issuer that logs users in, as an OIDC provider does: at /authorize it sends the browser back with a
// code at once, at /token it exchanges codes, at /userinfo it tells more. It refuses what RFC 6749, RFC 7636 and OIDC
// tell it to refuse.
type Provider struct {
	*Issuer
	ClientID, ClientSecret string
	// Claims are what ID tokens say beside what every one says; Info what userinfo says. Change changes a token before
	// it is signed.
	Claims, Info map[string]any
	Change       func(claims map[string]any)
	Now          func() time.Time

	mu    sync.Mutex
	codes map[string]url.Values // what the authorization of a code asked for
}

// provide adds the paths of a provider to the issuer's server.
func (i *Issuer) provide(mux *http.ServeMux) {
	for path, do := range map[string]func(*Provider, http.ResponseWriter,
		*http.Request){"/authorize": (*Provider).authorize, "/token": (*Provider).token, "/userinfo": (*Provider).userinfo} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if p := i.provider; p != nil {
				do(p, w, r)
				return
			}
			http.NotFound(w, r)
		})
	}
}

// Provider makes the issuer a provider with one client. Call it before the issuer is asked anything.
func (i *Issuer) Provider(id, secret string) *Provider {
	i.provider = &Provider{Issuer: i, ClientID: id, ClientSecret: secret, Now: time.Now, codes: map[string]url.Values{}}
	return i.provider
}

func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("client_id") != p.ClientID || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" ||
		q.Get("state") == "" || q.Get("nonce") == "" {
		http.Error(w, "invalid_request", http.StatusBadRequest)
		return
	}
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil {
		http.Error(w, "invalid_request", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	p.mu.Lock()
	p.codes[code] = q
	p.mu.Unlock()
	back.RawQuery = url.Values{"state": {q.Get("state")}, "code": {code}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, basic := r.BasicAuth()
	if basic { // its two halves are written as forms are (RFC 6749, 2.3.1)
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	} else {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	p.mu.Lock()
	q := p.codes[r.PostFormValue("code")]
	delete(p.codes, r.PostFormValue("code"))
	p.mu.Unlock()
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if id != p.ClientID || secret != p.ClientSecret || q == nil || r.PostFormValue("grant_type") != "authorization_code" ||
		r.PostFormValue("redirect_uri") != q.Get("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(sum[:]) != q.Get("code_challenge") {
		http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		return
	}
	claims := map[string]any{"iss": p.URL, "sub": "ann", "aud": p.ClientID, "nonce": q.Get("nonce"), "iat": p.Now().Unix(),
		"exp": p.Now().Add(time.Minute).Unix(), "auth_time": p.Now().Unix()}
	for name, v := range p.Claims {
		claims[name] = v
	}
	if p.Change != nil {
		p.Change(claims)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"id_token": p.Sign(claims), "access_token": "access",
		"token_type": "Bearer"})
}

func (p *Provider) userinfo(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer access" || p.Info == nil {
		http.Error(w, "invalid_token", http.StatusUnauthorized)
		return
	}
	_ = json.NewEncoder(w).Encode(p.Info)
}

// Browse follows an address of the provider as a browser does, and gives where it sends the browser back to.
func (p *Provider) Browse(address string) *url.URL {
	p.t.Helper()
	client := *p.server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Get(address)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }() // nothing of it is read
	back, err := res.Location()
	if err != nil {
		p.t.Fatalf("the provider answers %s: %v", res.Status, err)
	}
	return back
}
