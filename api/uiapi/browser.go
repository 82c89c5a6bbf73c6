package uiapi

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// A login by the browser is begun (login/begin), goes on at the provider's pages, and ends when the page brings what
// the provider sent the browser back with (login/end). What binds the two is a cookie of this browser alone: a state
// that was begun elsewhere ends no login here. The cookie is no session and never becomes one.

// Method is a way to log in at a provider that the browser is sent to, or to show a second factor.
type Method struct {
	ID   string `json:"id"`   // what chooses it
	Name string `json:"name"` // what the page shows
}

// ErrRole says that a login begins only with the name of a role: the page asks for one and begins again.
var ErrRole = errkind.New(errkind.Invalid, "role: this login needs the name of one")

// Visit is a login that a browser begins.
type Visit struct {
	Method string `json:"method"`
	Role   string `json:"role"`
	// Origin is the address that the person opened the page at, such as https://corbel.example:8500.
	Origin string `json:"origin"`
	// Nonce is known to the browser that began, by its cookie, and shown to whoever ends the login.
	Nonce string `json:"-"`
}

// Browser logs in at providers. State, nonce and code are good once: whoever implements it sees to that.
type Browser interface {
	// Methods are those that are offered to whoever comes.
	Methods(r *http.Request) []Method
	// Begin gives the address that the browser goes to, and the state that it comes back with. It fails with ErrRole
	// where the person has to name a role.
	Begin(r *http.Request, v *Visit) (address, state string, err error)
	// End ends the login of a method that Begin has begun; an error of kind Denied says that it is not good,
	// a *Due that passcodes are lacking.
	End(r *http.Request, method, state, code, nonce string) (Person, error)
}

const (
	visitCookie = "corbel_login"
	visitPath   = prefix + "login"
	visitTime   = 5 * time.Minute // that a person has for the provider's pages
)

// visiting is what the cookie holds. Whoever makes one up logs in with what they have begun themselves.
type visiting struct {
	Method string `json:"m"`
	State  string `json:"s"`
	Nonce  string `json:"n"`
}

func (a *API) methods(w http.ResponseWriter, r *http.Request) {
	out := []Method{}
	if a.cfg.Browser != nil {
		out = append(out, a.cfg.Browser.Methods(r)...)
	}
	answer(w, out)
}

func (a *API) begin(w http.ResponseWriter, r *http.Request) {
	var v Visit
	if !read(w, r, &v) {
		return
	}
	var err error
	if v.Origin, err = originOf(v.Origin); err != nil {
		fail(w, err)
		return
	}
	if a.cfg.Browser == nil {
		fail(w, errkind.New(errkind.NotFound, "no provider is set up on this server"))
		return
	}
	v.Nonce = rand.Text()
	address, state, err := a.cfg.Browser.Begin(r, &v)
	if err == nil {
		err = wantWeb(address)
	}
	if err != nil {
		fail(w, err)
		return
	}
	text, err := json.Marshal(visiting{v.Method, state, v.Nonce})
	if err != nil {
		fail(w, err)
		return
	}
	http.SetCookie(w, visit(r, visitCookie, base64.RawURLEncoding.EncodeToString(text), int(visitTime/time.Second)))
	answer(w, map[string]string{"address": address})
}

func (a *API) end(w http.ResponseWriter, r *http.Request) {
	var in struct {
		State string `json:"state"`
		Code  string `json:"code"`
		// Error is the provider's word for why it refuses. It is not repeated: whoever made the link chose it.
		Error string `json:"error"`
	}
	if !read(w, r, &in) {
		return
	}
	http.SetCookie(w, visit(r, visitCookie, "", -1))
	v, ok := visitOf(r)
	switch {
	case a.cfg.Browser == nil:
		fail(w, errkind.New(errkind.NotFound, "no provider is set up on this server"))
		return
	case !ok || subtle.ConstantTimeCompare([]byte(v.State), []byte(in.State)) != 1:
		fail(w, errkind.New(errkind.Denied, "this login was not begun in this browser, or has waited for too long: "+
			"begin it again"))
		return
	case in.Error != "" || in.Code == "":
		fail(w, errkind.New(errkind.Denied, "the provider refused the login: its own page says why"))
		return
	}
	p, err := a.cfg.Browser.End(r, v.Method, v.State, in.Code, v.Nonce)
	a.enter(w, r, p, err)
}

// visit is the cookie of a login that was begun: of this site, for the paths of login alone.
func visit(r *http.Request, name, value string, age int) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: visitPath, MaxAge: age, HttpOnly: true,
		Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode}
}

func visitOf(r *http.Request) (v visiting, ok bool) {
	c, err := r.Cookie(visitCookie)
	if err != nil {
		return v, false
	}
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	return v, err == nil && json.Unmarshal(text, &v) == nil && v.State != ""
}

// originOf is the origin that a page names as its own. It decides nothing: providers and methods list the addresses
// that they send browsers back to.
func originOf(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || len(text) > 300 || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return "", errkind.New(errkind.Invalid, "origin: it must be the page's own, such as https://corbel.example:8500")
	}
	return u.Scheme + "://" + u.Host, nil
}

// wantWeb refuses what a browser would run, not open.
func wantWeb(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errkind.New(errkind.Unavailable, "the provider's authorization_endpoint is no web address")
	}
	return nil
}
