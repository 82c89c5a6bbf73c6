// Package ssorows answers what a browser and `sensuctl login oidc` ask to log in at an OpenID provider: below
// /api/enterprise/authentication/v2/oidc.
//
//	POST authorize  provider, callback, client_nonce -> auth_url: where the browser goes to
//	GET  callback   where the provider sends it back to; it is sent on to the callback
//	POST token      state, code, client_nonce -> the tokens of a session, as GET /auth gives them
//
// Whoever asks has no session yet: bodies are small, and what waits is bounded (monitor/sso). What went wrong is
// answered as in the rest of the API: a message and a code.
package ssorows

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/monitor/sso"
)

// Below is the beginning of the paths.
const Below = "/api/enterprise/authentication/v2/oidc/"

// answerTime bounds a request: the provider is asked three times at most.
const answerTime = 20 * time.Second

type rows struct {
	sso *sso.SSO
	log *slog.Logger
}

// New makes the handler.
func New(s *sso.SSO, log *slog.Logger) http.Handler {
	a := &rows{s, log}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Below+"authorize", a.authorize)
	mux.HandleFunc("GET "+Below+"callback", a.callback)
	mux.HandleFunc("POST "+Below+"token", a.token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTime)
		defer cancel()
		w.Header().Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (a *rows) authorize(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Provider string `json:"provider"`
		Callback string `json:"callback"`
		Nonce    string `json:"client_nonce"`
	}
	if !a.read(w, r, &in) {
		return
	}
	if in.Callback == sso.Page { // the web UI begins its own
		a.fail(w, r, errkind.New(errkind.Invalid, "callback must be an address of the person's own machine"))
		return
	}
	visit := &sso.Visit{Provider: in.Provider, Callback: in.Callback, Nonce: in.Nonce}
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		visit.From = from.Addr()
	}
	address, _, err := a.sso.Begin(r.Context(), visit)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	answer(w, r, http.StatusOK, map[string]string{"auth_url": address})
}

// callback sends a browser on. Nothing of its address is shown: whoever made a link to here chose it.
func (a *rows) callback(w http.ResponseWriter, r *http.Request) {
	to, ok := a.sso.Onward(r.URL.Query())
	if !ok {
		a.fail(w, r, errkind.New(errkind.Denied, "the login's state is not known at this server, or has expired: begin "+
			"it again"))
		return
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, to, http.StatusFound)
}

func (a *rows) token(w http.ResponseWriter, r *http.Request) {
	var in struct {
		State string `json:"state"`
		Code  string `json:"code"`
		Nonce string `json:"client_nonce"`
	}
	if !a.read(w, r, &in) {
		return
	}
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	tokens, who, err := a.sso.End(r.Context(), in.State, in.Code, in.Nonce, scheme+r.Host)
	if err != nil {
		a.log.Warn("a login at a provider was refused", "user", who.User, "from", r.RemoteAddr, "error", err)
		a.fail(w, r, err)
		return
	}
	answer(w, r, http.StatusOK, tokens)
}

// read decodes a small body, or answers what is wrong with it.
func (a *rows) read(w http.ResponseWriter, r *http.Request, into any) bool {
	b, err := httpx.ReadBody(r, nil, limit.FreeBytes)
	if err == nil {
		if err = json.Unmarshal(b, into); err != nil {
			err = errkind.Errorf(errkind.Invalid, "body: %w", err)
		}
	}
	if err != nil {
		a.fail(w, r, err)
	}
	return err == nil
}

// fail answers by the error's kind, with the codes of the contract.
func (a *rows) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, code := http.StatusInternalServerError, 0
	switch errkind.Of(err) {
	case errkind.Invalid:
		status, code = http.StatusBadRequest, 1
	case errkind.TooLarge:
		status, code = http.StatusRequestEntityTooLarge, 1
	case errkind.NotFound:
		status, code = http.StatusNotFound, 2
	case errkind.Denied:
		status, code = http.StatusForbidden, 4
	case errkind.Unavailable, errkind.Overloaded:
		status = http.StatusServiceUnavailable
	}
	answer(w, r, status, map[string]any{"message": errkind.Text(err), "code": code})
}

func answer(w http.ResponseWriter, r *http.Request, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	httpx.Write(w, r, status, httpx.JSONType, append(text, '\n'))
}
