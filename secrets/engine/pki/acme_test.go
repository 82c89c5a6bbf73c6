package pki

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	client "golang.org/x/crypto/acme"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/enginetest"
)

// acmeDesk is a mount with a root and the role "web", behind an HTTP server as its clients see it.
func acmeDesk(t *testing.T, settings map[string]any) (d *enginetest.Desk, e *Engine, base string) {
	t.Helper()
	e = New(Config{Now: time.Now, TTLs: func() (time.Duration, time.Duration) { return time.Hour, 24 * time.Hour }})
	d = enginetest.New(t, e, "pki/")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		op := secrets.Update
		if r.Method != http.MethodPost {
			op, body = secrets.Read, nil
		}
		resp, err := d.Ask(op, strings.TrimPrefix(r.URL.Path, "/v1/pki/"), body)
		if err != nil || resp.Raw == nil {
			http.Error(w, fmt.Sprint(err), http.StatusInternalServerError)
			return
		}
		for i := 0; i < len(resp.Raw.Headers); i += 2 {
			w.Header().Add(resp.Raw.Headers[i], resp.Raw.Headers[i+1])
		}
		w.Header().Set("Content-Type", resp.Raw.ContentType)
		w.WriteHeader(max(resp.Raw.Status, 200))
		_, _ = w.Write(resp.Raw.Body)
	}))
	t.Cleanup(server.Close)
	base = server.URL + "/v1/pki"
	d.OK(secrets.Update, "root/generate/internal", map[string]any{"common_name": "root", "key_type": "ec", "ttl": "20h"})
	d.OK(secrets.Update, "roles/web", map[string]any{"allowed_domains": "localhost,acme.example",
		"allow_bare_domains": true, "key_type": "ec", "client_flag": true})
	d.Refused(errkind.Invalid, "config/cluster", secrets.Update, "config/acme", map[string]any{"enabled": true})
	d.OK(secrets.Update, "config/cluster", map[string]any{"path": base})
	settings["enabled"] = true
	d.OK(secrets.Update, "config/acme", settings)
	return d, e, base
}

// registered is a client with an account in a directory.
func registered(t *testing.T, directory string) *client.Client {
	t.Helper()
	c := &client.Client{Key: newKey(t), DirectoryURL: directory, HTTPClient: &http.Client{}}
	if _, err := c.Register(t.Context(), &client.Account{Contact: []string{"mailto:ops@example.com"}},
		client.AcceptTOS); err != nil {
		t.Fatal(err)
	}
	return c
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func csrOf(t *testing.T, key crypto.Signer, cn string, names ...string) []byte {
	t.Helper()
	r := &x509.CertificateRequest{Subject: pkix.Name{CommonName: cn}}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			r.IPAddresses = append(r.IPAddresses, ip)
		} else {
			r.DNSNames = append(r.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, r, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// met makes an order and has its challenges of a kind looked at, once put has put up what they want.
func met(t *testing.T, c *client.Client, kind string, put func(*client.Challenge),
	ids ...client.AuthzID) *client.Order {
	t.Helper()
	o, err := c.AuthorizeOrder(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range o.AuthzURLs {
		z, err := c.GetAuthorization(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(z.Challenges, func(ch *client.Challenge) bool { return ch.Type == kind })
		if i < 0 {
			t.Fatalf("%v has no %s", z.Identifier, kind)
		}
		put(z.Challenges[i])
		if _, err := c.Accept(t.Context(), z.Challenges[i]); err != nil {
			t.Fatal(err)
		}
		if _, err := c.WaitAuthorization(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// pages serves what http-01 asks for at a port that the engine looks at.
func pages(t *testing.T, e *Engine) func(c *client.Client) func(*client.Challenge) {
	t.Helper()
	content := map[string]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, content[r.URL.Path])
	}))
	t.Cleanup(s.Close)
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	e.acme.Prober.HTTPPort = at.Port()
	return func(c *client.Client) func(*client.Challenge) {
		return func(ch *client.Challenge) {
			proof, err := c.HTTP01ChallengeResponse(ch.Token)
			if err != nil {
				t.Error(err)
			}
			content[c.HTTP01ChallengePath(ch.Token)] = proof
		}
	}
}

func problemIs(t *testing.T, err error, kind string) {
	t.Helper()
	var p *client.Error
	if !errors.As(err, &p) || !strings.HasSuffix(p.ProblemType, ":"+kind) {
		t.Errorf("%v is not %s", err, kind)
	}
}

// TestACME goes the whole way with a client of another's making: proofs by a page and by a handshake, a certificate,
// its revocation, a new key of the account, its end.
func TestACME(t *testing.T) {
	d, e, base := acmeDesk(t, map[string]any{})
	c := registered(t, base+"/roles/web/acme/directory")
	put := pages(t, e)
	o := met(t, c, "http-01", put(c), client.DomainIDs("localhost")...)
	key := newKey(t)
	_, _, err := c.CreateOrderCert(t.Context(), o.FinalizeURL, csrOf(t, key, "", "localhost", "acme.example"), true)
	problemIs(t, err, "badCSR")
	chain, at, err := c.CreateOrderCert(t.Context(), o.FinalizeURL, csrOf(t, key, "localhost", "localhost"), true)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(chain[0])
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(cert.DNSNames, []string{"localhost"}) || len(chain) != 2 ||
		!slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
		t.Errorf("%v, %v, a chain of %d", cert.DNSNames, cert.ExtKeyUsage, len(chain))
	}
	if again, err := c.FetchCert(t.Context(), at, true); err != nil || !bytes.Equal(again[0], chain[0]) {
		t.Errorf("fetched again: %v", err)
	}

	other := registered(t, base+"/roles/web/acme/directory")
	problemIs(t, other.RevokeCert(t.Context(), nil, chain[0], client.CRLReasonUnspecified), "unauthorized")
	if _, err := other.GetOrder(t.Context(), o.URI); err == nil {
		t.Error("another account reads the order")
	}
	if err := c.RevokeCert(t.Context(), key, chain[0], client.CRLReasonKeyCompromise); err != nil {
		t.Error(err)
	}
	if got := d.OK(secrets.Read, "cert/"+strings.ReplaceAll(fmt.Sprintf("% x", cert.SerialNumber.Bytes()), " ", ":"),
		nil); got["revocation_time"] == 0.0 {
		t.Errorf("%v", got)
	}
	if err := c.AccountKeyRollover(t.Context(), newKey(t)); err != nil {
		t.Error(err)
	}
	if _, err := c.GetOrder(t.Context(), o.URI); err != nil {
		t.Errorf("with the new key: %v", err)
	}
	if err := c.DeactivateReg(t.Context()); err != nil {
		t.Error(err)
	}
	_, err = c.AuthorizeOrder(t.Context(), client.DomainIDs("localhost"))
	problemIs(t, err, "unauthorized")

	d.Wait(25 * time.Hour)
	d.Tend()
	for _, kind := range []string{"acme/orders/", "acme/authz/", "acme/ends/", "acme/serials/"} {
		if left, err := d.Store.List(t.Context(), kind, "", 0); err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v", kind, left, err)
		}
	}
}

// TestACMEHandshake proves an address by tls-alpn-01, in the directory without a role.
func TestACMEHandshake(t *testing.T) {
	_, e, base := acmeDesk(t, map[string]any{})
	c := registered(t, base+"/acme/directory")
	var cert tls.Certificate
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{NextProtos: []string{client.ALPNProto},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			_ = conn.(*tls.Conn).HandshakeContext(context.Background())
			_ = conn.Close()
		}
	}()
	_, e.acme.Prober.TLSPort, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	o := met(t, c, "tls-alpn-01", func(ch *client.Challenge) {
		made, err := c.TLSALPN01ChallengeCert(ch.Token, "127.0.0.1")
		if err != nil {
			t.Error(err)
		}
		cert = made
	}, client.IPIDs("127.0.0.1")...)
	if _, _, err := c.CreateOrderCert(t.Context(), o.FinalizeURL, csrOf(t, newKey(t), "", "127.0.0.1"), true); err != nil {
		t.Error(err)
	}
}

// TestACMERefuses is what clients must not get.
func TestACMERefuses(t *testing.T) {
	d, e, base := acmeDesk(t, map[string]any{"allowed_roles": "web", "allowed_issuers": "default", "max_ttl": "2h"})
	put := pages(t, e)
	c := registered(t, base+"/roles/web/acme/directory")
	for _, name := range []string{"evil_/x", "-a.example", "a..b", strings.Repeat("a", 64) + ".b", "1.2.3.4", ""} {
		_, err := c.AuthorizeOrder(t.Context(), client.DomainIDs(name))
		problemIs(t, err, "rejectedIdentifier")
	}
	_, err := c.AuthorizeOrder(t.Context(), nil)
	problemIs(t, err, "malformed")
	_, err = c.AuthorizeOrder(t.Context(), client.DomainIDs("localhost"),
		client.WithOrderNotAfter(d.Now().Add(time.Hour*3)))
	problemIs(t, err, "malformed")

	// A page that is not there, or says something else: the authorization is invalid, and so is the order.
	o, err := c.AuthorizeOrder(t.Context(), client.DomainIDs("localhost"))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = c.CreateOrderCert(t.Context(), o.FinalizeURL, csrOf(t, newKey(t), "", "localhost"), true)
	problemIs(t, err, "orderNotReady")
	z, err := c.GetAuthorization(t.Context(), o.AuthzURLs[0])
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(z.Challenges, func(ch *client.Challenge) bool { return ch.Type == "http-01" })
	ch, err := c.Accept(t.Context(), z.Challenges[i])
	if err != nil || ch.Status != client.StatusInvalid || ch.Error == nil {
		t.Errorf("%v, %v", ch, err)
	}
	if o, err = c.GetOrder(t.Context(), o.URI); err != nil || o.Status != client.StatusInvalid {
		t.Errorf("%v, %v", o, err)
	}

	// A name that is proven, and that the role does not allow.
	o = met(t, c, "http-01", put(c), client.IPIDs("127.0.0.1")...)
	d.OK(secrets.Update, "roles/web", map[string]any{"allowed_domains": "acme.example", "allow_ip_sans": false,
		"key_type": "ec"})
	_, _, err = c.CreateOrderCert(t.Context(), o.FinalizeURL, csrOf(t, newKey(t), "", "127.0.0.1"), true)
	problemIs(t, err, "badCSR")
	_, _, err = c.CreateOrderCert(t.Context(), o.FinalizeURL, csrOf(t, c.Key, "", "127.0.0.1"), true)
	problemIs(t, err, "badCSR")

	for path, status := range map[string]int{"/roles/other/acme/directory": 403, "/issuer/other/acme/directory": 403,
		"/acme/nothing": 405} {
		if got := statusOf(t, base+path); got != status {
			t.Errorf("%s: %d, not %d", path, got, status)
		}
	}
	for field, value := range map[string]any{"default_directory_policy": "role:other", "eab_policy": "sometimes",
		"dns_resolver": "nowhere", "max_ttl": "0s"} {
		d.Refused(errkind.Invalid, field, secrets.Update, "config/acme", map[string]any{field: value})
	}
	d.OK(secrets.Update, "config/acme", map[string]any{"default_directory_policy": "forbid"})
	if got := statusOf(t, base+"/acme/directory"); got != 403 {
		t.Errorf("a forbidden directory: %d", got)
	}
	d.OK(secrets.Update, "config/acme", map[string]any{"enabled": false})
	if got := statusOf(t, base+"/roles/web/acme/directory"); got != 404 {
		t.Errorf("disabled: %d", got)
	}
}

func statusOf(t *testing.T, at string) int {
	t.Helper()
	resp, err := http.Get(at)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestACMEBinding: accounts need a key of the operator's where the settings say so; it makes one account.
func TestACMEBinding(t *testing.T) {
	d, _, base := acmeDesk(t, map[string]any{"eab_policy": "always-required"})
	directory := base + "/roles/web/acme/directory"
	c := &client.Client{Key: newKey(t), DirectoryURL: directory}
	_, err := c.Register(t.Context(), &client.Account{}, client.AcceptTOS)
	problemIs(t, err, "externalAccountRequired")
	made := d.OK(secrets.Update, "roles/web/acme/new-eab", nil)
	if d.OK(secrets.List, "eab/", nil)["key_info"] == nil {
		t.Error("the list has no details")
	}
	bind := func(kid, key string) *client.Account {
		secret, err := base64.RawURLEncoding.DecodeString(key)
		if err != nil {
			t.Fatal(err)
		}
		return &client.Account{ExternalAccountBinding: &client.ExternalAccountBinding{KID: kid, Key: secret}}
	}
	_, err = c.Register(t.Context(), bind(made.Text("id"), "d3Jvbmc"), client.AcceptTOS)
	problemIs(t, err, "unauthorized")
	if _, err = c.Register(t.Context(), bind(made.Text("id"), made.Text("key")), client.AcceptTOS); err != nil {
		t.Fatal(err)
	}
	again := &client.Client{Key: newKey(t), DirectoryURL: directory}
	_, err = again.Register(t.Context(), bind(made.Text("id"), made.Text("key")), client.AcceptTOS)
	problemIs(t, err, "unauthorized")
	elsewhere := d.OK(secrets.Update, "acme/new-eab", nil)
	_, err = again.Register(t.Context(), bind(elsewhere.Text("id"), elsewhere.Text("key")), client.AcceptTOS)
	problemIs(t, err, "unauthorized")
	d.OK(secrets.Delete, "eab/"+elsewhere.Text("id"), nil)
	d.Refused(errkind.NotFound, "", secrets.List, "eab/", nil)
	if _, err := c.AuthorizeOrder(t.Context(), client.DomainIDs("localhost")); err != nil {
		t.Error(err)
	}
}
