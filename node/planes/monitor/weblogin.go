package monitorplane

import (
	"net/http"
	"net/netip"

	"corbel.dev/corbel/monitor/sso"
)

// Providers are the names of the OpenID providers that people log in at.
func (w *Web) Providers() []string { return w.sso.Names() }

// BeginAt begins a login at a provider for the page of an origin; nonce is known to the browser of who asks. It gives
// the address that the browser goes to, and the state that it comes back with.
func (w *Web) BeginAt(r *http.Request, provider, origin, nonce string) (address, state string, err error) {
	v := &sso.Visit{Provider: provider, Callback: sso.Page, Origin: origin, Nonce: nonce}
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		v.From = at.Addr()
	}
	return w.sso.Begin(r.Context(), v)
}

// EndAt ends a login that BeginAt has begun, and gives a session as Login does, and whose it is.
func (w *Web) EndAt(r *http.Request, state, code, nonce string) (session, user string, err error) {
	t, who, err := w.sso.End(r.Context(), state, code, nonce, "")
	return t.Access, who.User, err
}
