package sensuapi

import (
	"crypto/x509"
	"errors"
	"net/http"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/users"
)

// TrustCertificates has agents log in by certificates that TLS has verified, as the user that the common name says
// (contract SA-8); revoked returns an error for those that do not count. It is for before the first request.
func (a *Agents) TrustCertificates(revoked func(*x509.Certificate) error) { a.revoked = revoked }

// identify finds out who asks: by the certificate where there is one that may log in, else by name and password.
// status is 0, or what is answered.
func (a *Agents) identify(r *http.Request) (who monitor.Caller, certified bool, status int, text string) {
	if a.revoked != nil && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		c := r.TLS.PeerCertificates[0]
		if err := a.revoked(c); err != nil {
			return who, false, http.StatusUnauthorized, a.uncertified(r, c, "the certificate is refused: "+err.Error())
		}
		if who, ok := a.cfg.Users.Named(c.Subject.CommonName); ok {
			return who, true, 0, ""
		}
		return who, false, http.StatusUnauthorized, a.uncertified(r, c, "the certificate's common name "+c.Subject.CommonName+
			" is no user, or one that is disabled")
	}
	name, password, ok := r.BasicAuth()
	if !ok {
		return who, false, http.StatusUnauthorized, "missing credentials"
	}
	who, err := a.cfg.Users.Login(r.Context(), address(r.RemoteAddr), name, password)
	switch {
	case errors.Is(err, users.ErrWrong):
		a.stranger(name, r.RemoteAddr)
		return who, false, http.StatusUnauthorized, "bad credentials"
	case err != nil:
		return who, false, http.StatusServiceUnavailable, err.Error()
	}
	return who, false, 0, ""
}

// uncertified tells of a certificate that logs nobody in.
func (a *Agents) uncertified(r *http.Request, c *x509.Certificate, why string) string {
	a.refused.strangers.Add(1)
	if ok, _ := a.refused.lines.Allow(address(r.RemoteAddr)); ok {
		a.cfg.Log.Warn("rejected an agent's certificate", "common_name", c.Subject.CommonName, "serial",
			c.SerialNumber.String(), "from", r.RemoteAddr, "error", why)
	}
	return why
}
