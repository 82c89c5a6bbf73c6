package cert

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/ocsp"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets/engine/record"
)

// ocspRules say whether, and whom, a role asks about the certificates that log in (RFC 6960).
type ocspRules struct {
	Enabled  bool          `json:"enabled,omitempty"`
	CAs      string        `json:"ca_certificates,omitempty"` // PEM: who may answer beside the certificate's own issuer
	Servers  []string      `json:"servers,omitempty"`         // in the place of those that the certificate names
	Open     bool          `json:"fail_open,omitempty"`       // let in while nobody answers
	All      bool          `json:"query_all,omitempty"`       // all of them must answer well, not one
	MaxAge   time.Duration `json:"max_age,omitempty"`         // of an answer that names no next one; 0 is dayOld
	Attempts int           `json:"max_retries,omitempty"`
}

func (o *ocspRules) params() record.Params {
	return record.Params{{Name: "ocsp_enabled", At: &o.Enabled}, {Name: "ocsp_ca_certificates", At: &o.CAs},
		{Name: "ocsp_servers_override", At: &o.Servers},
		{Name: "ocsp_fail_open", At: &o.Open}, {Name: "ocsp_query_all_servers", At: &o.All},
		{Name: "ocsp_this_update_max_age", At: &o.MaxAge}, {Name: "ocsp_max_retries", At: &o.Attempts}}
}

func (o *ocspRules) check() error {
	for _, text := range o.Servers {
		if err := jwks.CheckURL("ocsp_servers_override", text); err != nil {
			return errkind.E(errkind.Invalid, "", err)
		}
	}
	if list, err := parse([]byte(o.CAs)); err != nil || (o.CAs != "" && len(list) == 0) {
		return errkind.New(errkind.Invalid, "field \"ocsp_ca_certificates\": must be certificates in PEM")
	}
	if o.Attempts < 0 || o.Attempts > 10 {
		return errkind.New(errkind.Invalid, "field \"ocsp_max_retries\": must be 0 to 10")
	}
	return nil
}

const (
	ocspKept    = 100 // answers that are kept where nobody says a number
	ocspBytes   = 64 << 10
	ocspSkew    = 5 * time.Minute // that a responder's clock may be ahead
	dayOld      = 24 * time.Hour
	ocspServers = 8 // that are asked about one certificate
)

// responders keeps answers of OCSP responders for as long as they say that they hold. Safe for concurrent use; the
// zero value is ready.
type responders struct {
	mu   sync.Mutex
	kept map[[32]byte]*ocsp.Response
}

var errRevoked = errkind.New(errkind.Denied, "the certificate was revoked")

// vouch reports that no responder vouches for the certificate at the beginning of the chains: an error of kind Denied
// where it was revoked or none knows it, Unavailable where none could be asked.
func (b *responders) vouch(ctx context.Context, c *config, o *ocspRules, chains [][]*x509.Certificate,
	now time.Time) error {
	if !o.Enabled {
		return nil
	}
	var err error
	for _, chain := range chains {
		if len(chain) < 2 { // trusted by itself: there is no issuer to ask
			return nil
		}
		if err = b.standing(ctx, c, o, chain[0], chain[1], now); err == nil || err == errRevoked {
			return err
		}
	}
	if errkind.Is(err, errkind.Unavailable) && o.Open {
		return nil
	}
	return err
}

func (b *responders) standing(ctx context.Context, c *config, o *ocspRules, leaf, issuer *x509.Certificate,
	now time.Time) error {
	servers := o.Servers
	if len(servers) == 0 {
		servers = leaf.OCSPServer
	}
	if len(servers) == 0 {
		return errkind.New(errkind.Unavailable,
			"the certificate names no OCSP responder, and the role has none (ocsp_servers_override)")
	}
	servers = servers[:min(len(servers), ocspServers)]
	question, err := ocsp.CreateRequest(leaf, issuer, nil)
	if err != nil {
		return errkind.E(errkind.Invalid, "ask about the certificate", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*askWithin) // whoever logs in waits for it
	defer cancel()
	good, failed := 0, error(nil)
	for _, server := range servers {
		answer, err := b.ask(ctx, c, o, server, question, leaf, issuer, now)
		switch {
		case err == nil && answer.Status == ocsp.Revoked:
			return errRevoked
		case err == nil && answer.Status == ocsp.Good:
			good++
			if !o.All {
				return nil
			}
		case err == nil:
			failed = errkind.New(errkind.Denied, "an OCSP responder does not know the certificate")
		case failed == nil:
			failed = err
		}
	}
	if good == len(servers) {
		return nil
	}
	return failed
}

// ask asks one responder, unless it has answered and that holds yet.
func (b *responders) ask(ctx context.Context, c *config, o *ocspRules, server string, question []byte, leaf,
	issuer *x509.Certificate, now time.Time) (*ocsp.Response, error) {
	name := sha256.Sum256(slices.Concat([]byte(server+"\x00"+o.CAs+"\x00"), issuer.Raw, question))
	b.mu.Lock()
	kept := b.kept[name]
	b.mu.Unlock()
	if kept != nil && o.holds(kept, now) == nil {
		return kept, nil
	}
	var err error
	for range 1 + o.Attempts {
		var q *http.Request
		if q, err = http.NewRequestWithContext(ctx, http.MethodPost, server, bytes.NewReader(question)); err != nil {
			return nil, errkind.E(errkind.Unavailable, "", err)
		}
		q.Header.Set("Content-Type", "application/ocsp-request")
		q.Header.Set("Accept", "application/ocsp-response")
		var body []byte
		if body, err = asked(q, ocspBytes); err != nil {
			continue
		}
		var answer *ocsp.Response
		if answer, err = o.read(body, leaf, issuer, now); err == nil {
			b.keep(name, answer, cmp.Or(c.OCSPCache, ocspKept))
			return answer, nil
		}
	}
	return nil, err
}

func (b *responders) keep(name [32]byte, answer *ocsp.Response, most int) {
	if answer.NextUpdate.IsZero() { // good for now alone
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept == nil || len(b.kept) >= most {
		b.kept = map[[32]byte]*ocsp.Response{}
	}
	b.kept[name] = answer
}

// read checks that an answer is about this certificate, holds now, and is of somebody who may give it: the issuer,
// whom the issuer made a responder, or one of the role's own. What fails that is no answer: its error is of kind
// Unavailable.
func (o *ocspRules) read(body []byte, leaf, issuer *x509.Certificate, now time.Time) (*ocsp.Response, error) {
	answer, err := ocsp.ParseResponseForCert(body, leaf, issuer)
	if err != nil {
		own, perr := parse([]byte(o.CAs))
		if perr != nil {
			return nil, errkind.E(errkind.Corrupt, "ocsp_ca_certificates", perr)
		}
		for _, ca := range own {
			if answer, perr = ocsp.ParseResponseForCert(body, leaf, ca); perr == nil {
				issuer, err = ca, nil
				break
			}
		}
	}
	if err != nil {
		return nil, errkind.Errorf(errkind.Unavailable, "an OCSP answer is not right: %w", err)
	}
	if by := answer.Certificate; by != nil && !bytes.Equal(by.Raw, issuer.Raw) && (!slices.Contains(by.ExtKeyUsage,
		x509.ExtKeyUsageOCSPSigning) || now.Before(by.NotBefore) || now.After(by.NotAfter)) {
		return nil, errkind.New(errkind.Unavailable,
			"an OCSP answer is signed by a certificate that is no responder's, or whose time is over")
	}
	return answer, o.holds(answer, now)
}

// holds reports why an answer does not count at this time.
func (o *ocspRules) holds(a *ocsp.Response, now time.Time) error {
	switch {
	case a.ThisUpdate.After(now.Add(ocspSkew)):
		return errkind.New(errkind.Unavailable, "an OCSP answer is of the future")
	case !a.NextUpdate.IsZero() && now.After(a.NextUpdate):
		return errkind.New(errkind.Unavailable, "an OCSP answer is out of date")
	case a.NextUpdate.IsZero() && now.Sub(a.ThisUpdate) > cmp.Or(o.MaxAge, dayOld):
		return errkind.New(errkind.Unavailable, "an OCSP answer is older than ocsp_this_update_max_age")
	}
	return nil
}
