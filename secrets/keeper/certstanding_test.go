package keeper

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// responder answers about certificates as OCSP responders do (RFC 6960).
type responder struct {
	*httptest.Server
	t      *testing.T
	asked  atomic.Int32
	status int // 500: it is broken
	answer ocsp.Response
	issuer *x509.Certificate
	by     *x509.Certificate
	key    *ecdsa.PrivateKey
}

func newResponder(h *house, ca *signer) *responder {
	r := &responder{t: h.t.(*testing.T), status: 200, issuer: ca.cert, by: ca.cert, key: ca.key,
		answer: ocsp.Response{Status: ocsp.Good, ThisUpdate: h.now, NextUpdate: h.now.Add(time.Hour)}}
	r.Server = httptest.NewServer(r)
	h.t.Cleanup(r.Close)
	return r
}

// ServeHTTP implements http.Handler.
func (r *responder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.asked.Add(1)
	body, err := io.ReadAll(q.Body)
	question, qerr := ocsp.ParseRequest(body)
	if err != nil || qerr != nil || q.Header.Get("Content-Type") != "application/ocsp-request" || r.status != 200 {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	a := r.answer
	if a.SerialNumber == nil {
		a.SerialNumber = question.SerialNumber
	}
	if !bytes.Equal(r.by.Raw, r.issuer.Raw) {
		a.Certificate = r.by
	}
	der, err := ocsp.CreateResponse(r.issuer, r.by, a, r.key)
	if err != nil {
		r.t.Error(err)
	}
	_, _ = w.Write(der)
}

// named makes a certificate that names a responder.
func (s *signer) named(server string) *x509.Certificate {
	return s.leaf(func(c *x509.Certificate) { c.OCSPServer = []string{server} })
}

func ocspHouse(t *testing.T, more map[string]any) (*house, *signer) {
	h := newHouse(t)
	ca := newSigner(t, h.now)
	h.ok(secrets.Update, "sys/auth/cert", `{"type":"cert"}`)
	role := map[string]any{"certificate": pemOf(ca.cert.Raw), "token_policies": "app", "token_ttl": "1h",
		"ocsp_enabled": true}
	for name, v := range more {
		role[name] = v
	}
	h.ok(secrets.Update, "auth/cert/certs/web", text(t, role))
	return h, ca
}

func (h *house) certLogin(c *x509.Certificate) error {
	_, err := h.shows("", c, "auth/cert/login", `{"name":"web"}`)
	return err
}

func TestCertOCSP(t *testing.T) {
	h, ca := ocspHouse(t, nil)
	one := newResponder(h, ca)
	leaf := ca.named(one.URL)
	r, err := h.shows("", leaf, "auth/cert/login", `{"name":"web"}`)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.certLogin(leaf); err != nil || one.asked.Load() != 1 {
		t.Errorf("an answer that holds is not kept: asked %d times, %v", one.asked.Load(), err)
	}
	one.answer.Status = ocsp.Revoked
	h.wait(2 * time.Hour)
	if err := h.certLogin(leaf); err == nil {
		t.Error("an answer counts past its time")
	}
	one.answer.ThisUpdate, one.answer.NextUpdate = h.now, h.now.Add(time.Hour)
	if err := h.certLogin(leaf); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("a revoked certificate: %v", err)
	}
	if _, err := h.shows(r.Token.ID, leaf, "auth/token/renew-self", ""); err == nil {
		t.Error("a token is renewed by a revoked certificate")
	}
	other := ca.named(one.URL)
	one.answer.Status = ocsp.Unknown
	if err := h.certLogin(other); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("one that the responder does not know: %v", err)
	}
	one.status = 500
	if err := h.certLogin(ca.named(one.URL)); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("a responder that is broken: %v", err)
	}
	if err := h.certLogin(ca.leaf(nil)); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("a certificate that names none: %v", err)
	}
	h.ok(secrets.Update, "auth/cert/certs/web", `{"ocsp_fail_open":true,"ocsp_max_retries":1}`)
	before := one.asked.Load()
	if err := h.certLogin(ca.named(one.URL)); err != nil || one.asked.Load() != before+2 {
		t.Errorf("with ocsp_fail_open: asked %d times, %v", one.asked.Load()-before, err)
	}
	one.status, one.answer.Status = 200, ocsp.Revoked
	if err := h.certLogin(ca.named(one.URL)); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("with ocsp_fail_open a revoked one: %v", err)
	}
	role := string(h.ok(secrets.Read, "auth/cert/certs/web", "").Data)
	if !strings.Contains(role, `"ocsp_enabled":true`) || !strings.Contains(role, `"ocsp_fail_open":true`) ||
		!strings.Contains(role, `"ocsp_max_retries":1`) {
		t.Errorf("the role reads %s", role)
	}
}

// CVE-2024-2660: with several responders an answer was believed that should not have been. What is not signed by who
// may answer, about this certificate, and of now, is no answer, and what one responder calls revoked another does not
// save.
func TestCVE_2024_2660_AnswersOfRespondersAreChecked(t *testing.T) {
	h, ca := ocspHouse(t, nil)
	evil := newSigner(t, h.now)
	for what, spoil := range map[string]func(r *responder){
		"another authority's": func(r *responder) { r.issuer, r.by, r.key = evil.cert, evil.cert, evil.key },
		"of another":          func(r *responder) { r.answer.SerialNumber = big.NewInt(7) },
		"out of date": func(r *responder) {
			r.answer.ThisUpdate, r.answer.NextUpdate = h.now.Add(-2*time.Hour), h.now.Add(-time.Hour)
		},
		"of the future": func(r *responder) {
			r.answer.ThisUpdate, r.answer.NextUpdate = h.now.Add(time.Hour), h.now.Add(2*time.Hour)
		},
		"old and without next": func(r *responder) {
			r.answer.ThisUpdate, r.answer.NextUpdate = h.now.Add(-48*time.Hour),
				time.Time{}
		},
		"of a plain certificate of the authority": func(r *responder) {
			r.key = ca.newKey()
			r.by = ca.leafOf(r.key, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth})
		},
	} {
		r := newResponder(h, ca)
		spoil(r)
		if err := h.certLogin(ca.named(r.URL)); !errkind.Is(err, errkind.Unavailable) {
			t.Errorf("an answer %s: %v", what, err)
		}
	}
	made := newResponder(h, ca)
	made.key = ca.newKey()
	made.by = ca.leafOf(made.key, []x509.ExtKeyUsage{x509.ExtKeyUsageOCSPSigning})
	if err := h.certLogin(ca.named(made.URL)); err != nil {
		t.Errorf("a responder that the authority made: %v", err)
	}
	good, revoked, broken := newResponder(h, ca), newResponder(h, ca), newResponder(h, ca)
	revoked.answer.Status, broken.status = ocsp.Revoked, 500
	for _, all := range []bool{true, false} {
		for what, c := range map[string]struct {
			servers []string
			in      bool
		}{"good, revoked": {[]string{good.URL, revoked.URL}, !all}, "revoked, good": {[]string{revoked.URL, good.URL}, false},
			"broken, revoked": {[]string{broken.URL, revoked.URL}, false},
			"broken, good":    {[]string{broken.URL, good.URL}, !all}, "good, good": {[]string{good.URL, good.URL + "/2"}, true},
			"broken": {[]string{broken.URL}, false}} {
			h.ok(secrets.Update, "auth/cert/certs/web", text(t, map[string]any{"ocsp_servers_override": c.servers,
				"ocsp_query_all_servers": all}))
			if err := h.certLogin(ca.leaf(nil)); (err == nil) != c.in {
				t.Errorf("%s, all=%t: %v", what, all, err)
			}
		}
	}
	foreign := newResponder(h, evil)
	h.ok(secrets.Update, "auth/cert/certs/web", text(t, map[string]any{"ocsp_servers_override": foreign.URL,
		"ocsp_ca_certificates": pemOf(evil.cert.Raw)}))
	if err := h.certLogin(ca.leaf(nil)); err != nil {
		t.Errorf("a responder of the role's own authority: %v", err)
	}
}

// leafOf makes a certificate of a key of one's own.
func (s *signer) leafOf(key *ecdsa.PrivateKey, uses []x509.ExtKeyUsage) *x509.Certificate {
	s.last++
	c := &x509.Certificate{SerialNumber: big.NewInt(100 + s.last), Subject: s.cert.Subject, NotBefore: s.cert.NotBefore,
		NotAfter: s.cert.NotAfter, ExtKeyUsage: uses}
	der, err := x509.CreateCertificate(rand.Reader, c, s.cert, &key.PublicKey, s.key)
	if err == nil {
		c, err = x509.ParseCertificate(der)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// A list that is fetched is fetched again in time, must be signed by a role's authority, and counts on while it
// cannot be had.
func TestCertListsAreFetched(t *testing.T) {
	h := newHouse(t)
	ca, evil := newSigner(t, h.now), newSigner(t, h.now)
	h.ok(secrets.Update, "sys/auth/cert", `{"type":"cert"}`)
	h.ok(secrets.Update, "auth/cert/certs/web", text(t, map[string]any{"certificate": pemOf(ca.cert.Raw)}))
	var list atomic.Pointer[[]byte]
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if der := list.Load(); der != nil {
			_, _ = w.Write(*der)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer srv.Close()
	serve := func(by *signer, revoked ...*x509.Certificate) {
		t.Helper()
		l := &x509.RevocationList{Number: big.NewInt(h.now.Unix()), ThisUpdate: h.now,
			NextUpdate: h.now.Add(10 * time.Minute)}
		for _, c := range revoked {
			l.RevokedCertificateEntries = append(l.RevokedCertificateEntries,
				x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: h.now})
		}
		der, err := x509.CreateRevocationList(rand.Reader, l, by.cert, by.key)
		if err != nil {
			t.Fatal(err)
		}
		list.Store(&der)
	}
	body := text(t, map[string]string{"url": srv.URL})
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/cert/crls/one", body)
	serve(evil)
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/cert/crls/one", body)
	leaf, next := ca.leaf(nil), ca.leaf(nil)
	serve(ca, leaf)
	h.ok(secrets.Update, "auth/cert/crls/one", body)
	if err := h.certLogin(leaf); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("a revoked certificate logged in: %v", err)
	}
	h.wait(10 * time.Minute)
	serve(ca, leaf, next)
	if _, err := h.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.certLogin(next); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("the list was not fetched again: %v", err)
	}
	h.wait(10 * time.Minute)
	serve(evil)
	if _, err := h.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := h.ok(secrets.Read, "auth/cert/crls/one", ""); !strings.Contains(string(r.Data), "signed by no authority") {
		t.Errorf("the list does not say what is wrong: %s", r.Data)
	}
	if err := h.certLogin(next); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("a list that another signed took the place of the one before: %v", err)
	}
	if err := h.certLogin(ca.leaf(nil)); err != nil {
		t.Error(err)
	}
}
