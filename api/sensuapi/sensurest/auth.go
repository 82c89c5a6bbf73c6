package sensurest

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/logins"
	"corbel.dev/corbel/monitor/users"
)

var errCredentials = errkind.New(errkind.Denied, "bad credentials")

// authenticate finds out who asks: by an access token or an API key.
func (a *API) authenticate(r *http.Request) (monitor.Caller, error) {
	return a.caller(r, a.cfg.Logins.Check)
}

// caller finds out who asks; check judges access tokens.
func (a *API) caller(r *http.Request, check func(string) (monitor.Caller, error)) (monitor.Caller, error) {
	scheme, secret, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || secret == "" {
		return monitor.Caller{}, errkind.New(errkind.Denied,
			"missing credentials: bring an access token (Bearer) or an API key (Key)")
	}
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		return check(secret)
	case strings.EqualFold(scheme, "Key"):
		view := a.cfg.Resources.View()
		key := view.APIKey(secret)
		if key == nil {
			return monitor.Caller{}, errCredentials
		}
		item := view.Get("users", "", key.Username)
		if item == nil {
			return monitor.Caller{}, errCredentials
		}
		user := item.Object().(*monitor.User)
		if user.Disabled {
			return monitor.Caller{}, errCredentials
		}
		return monitor.Caller{User: user.Username, Groups: user.Groups}, nil
	}
	return monitor.Caller{}, errkind.New(errkind.Denied, "the scheme of Authorization is neither Bearer nor Key")
}

// password finds out who asks by name and password, and by which provider; nil is this cluster's own users. It answers
// when it is nobody.
func (a *API) password(w http.ResponseWriter, r *http.Request) (who monitor.Caller, by *monitor.AuthProvider, ok bool) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		(&request{API: a, w: w, r: r}).fail((&request{w: w, r: r}).notAllowed("GET"))
		return who, nil, false
	}
	name, password, ok := r.BasicAuth()
	if !ok {
		unauthorized(w)
		return who, nil, false
	}
	who, err := a.cfg.Users.Login(r.Context(), from(r), name, password)
	if errors.Is(err, users.ErrWrong) && a.cfg.Directory != nil {
		who, by, err = a.cfg.Directory.Login(r.Context(), from(r), name, password)
	}
	switch {
	case err == nil:
		return who, by, true
	case errkind.Is(err, errkind.Denied):
		a.cfg.Log.Warn("wrong credentials", "user", name, "from", r.RemoteAddr)
		unauthorized(w)
	default: // a storm: this one may come again
		(&request{API: a, w: w, r: r}).fail(err)
	}
	return who, nil, false
}

// from is whose turn it is in the queue of password checks.
func from(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

func unauthorized(w http.ResponseWriter) {
	httpx.WriteText(w, http.StatusUnauthorized, "Request unauthorized\n")
}

// issuer is the address that the caller reached us by: sensuctl refreshes its tokens there.
func issuer(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// login answers GET /auth.
func (a *API) login(w http.ResponseWriter, r *http.Request) {
	who, by, ok := a.password(w, r)
	if !ok {
		return
	}
	var tokens logins.Tokens
	var err error
	if by != nil {
		tokens, err = a.cfg.Logins.IssueNamed(r.Context(), who, by, issuer(r))
	} else {
		tokens, err = a.cfg.Logins.Issue(r.Context(), who, issuer(r))
	}
	a.tokens(w, r, tokens, err)
}

// testLogin answers GET /auth/test.
func (a *API) testLogin(w http.ResponseWriter, r *http.Request) {
	if _, _, ok := a.password(w, r); ok {
		w.WriteHeader(http.StatusOK)
	}
}

func (a *API) tokens(w http.ResponseWriter, r *http.Request, t logins.Tokens, err error) {
	q := &request{API: a, w: w, r: r}
	switch {
	case errors.Is(err, logins.ErrWrong):
		unauthorized(w)
	case err != nil:
		q.fail(err)
	default:
		w.Header().Set("Cache-Control", "no-store")
		if err := q.answer(http.StatusOK, t); err != nil {
			q.fail(err)
		}
	}
}

// pair reads both tokens of a session: the access token from the header, the refresh token from the body. It answers
// when they are not there.
func (a *API) pair(w http.ResponseWriter, r *http.Request) (access, refresh string, ok bool) {
	q := &request{API: a, w: w, r: r}
	if r.Method != http.MethodPost {
		q.fail(q.notAllowed("POST"))
		return "", "", false
	}
	scheme, access, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || access == "" {
		unauthorized(w)
		return "", "", false
	}
	b, err := httpx.ReadBody(r, nil, min(a.cfg.MaxBodyBytes, limit.FreeBytes)) // nobody has judged who asks yet
	if err != nil {
		q.fail(err)
		return "", "", false
	}
	var in struct {
		Refresh string `json:"refresh_token"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		q.fail(invalid(err))
		return "", "", false
	}
	if in.Refresh == "" {
		q.fail(invalid(errors.New("refresh_token is missing")))
		return "", "", false
	}
	return access, in.Refresh, true
}

// refresh answers POST /auth/token.
func (a *API) refresh(w http.ResponseWriter, r *http.Request) {
	if access, refresh, ok := a.pair(w, r); ok {
		tokens, err := a.cfg.Logins.Refresh(r.Context(), access, refresh, issuer(r))
		a.tokens(w, r, tokens, err)
	}
}

// logout answers POST /auth/logout.
func (a *API) logout(w http.ResponseWriter, r *http.Request) {
	access, refresh, ok := a.pair(w, r)
	if !ok {
		return
	}
	switch err := a.cfg.Logins.End(r.Context(), access, refresh); {
	case errors.Is(err, logins.ErrWrong):
		unauthorized(w)
	case err != nil:
		(&request{API: a, w: w, r: r}).fail(err)
	default:
		w.WriteHeader(http.StatusOK)
	}
}
