package keeper

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/task"
)

// signer is an authority for tests.
type signer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	last int64
}

func pemOf(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func newSigner(t *testing.T, now time.Time) *signer {
	s := &signer{t: t}
	s.key = s.newKey()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &s.key.PublicKey, s.key)
	if err == nil {
		s.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *signer) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	return key
}

// leaf makes a client's certificate.
func (s *signer) leaf(change func(c *x509.Certificate)) *x509.Certificate {
	s.t.Helper()
	s.last++
	c := &x509.Certificate{SerialNumber: big.NewInt(100 + s.last), Subject: pkix.Name{CommonName: "web.example",
		OrganizationalUnit: []string{"ops"}}, DNSNames: []string{"web.example"},
		NotBefore: s.cert.NotBefore, NotAfter: s.cert.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth,
			x509.ExtKeyUsageServerAuth}, SubjectKeyId: []byte{1, byte(s.last)}}
	if change != nil {
		change(c)
	}
	key := s.newKey()
	der, err := x509.CreateCertificate(rand.Reader, c, s.cert, &key.PublicKey, s.key)
	if err == nil {
		c, err = x509.ParseCertificate(der)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (h *house) shows(token string, c *x509.Certificate, path, body string) (*task.Reply, error) {
	q := &secrets.Request{Op: secrets.Update, Path: path, Body: []byte(body), Caller: secrets.Caller{Token: token}}
	if c != nil {
		q.Certificates = [][]byte{c.Raw}
	}
	return h.Handle(h.t.Context(), q)
}

func TestCert(t *testing.T) {
	h := newHouse(t)
	ca, other := newSigner(t, h.now), newSigner(t, h.now)
	h.ok(secrets.Update, "sys/auth/cert", `{"type":"cert"}`)
	h.ok(secrets.Update, "auth/cert/certs/web", text(t, map[string]any{"certificate": pemOf(ca.cert.Raw),
		"allowed_common_names": "web.*", "allowed_organizational_units": "ops", "token_policies": "app", "token_ttl": "1h"}))
	good := ca.leaf(nil)
	r, err := h.shows("", good, "auth/cert/login", "")
	if err != nil {
		t.Fatal(err)
	}
	if m := r.Token.Meta; m["cert_name"] != "web" || m["common_name"] != "web.example" || m["subject_key_id"] != "01:01" ||
		r.Token.DisplayName != "cert-web" || r.Token.Entity == "" {
		t.Errorf("the login gave %+v", r.Token.Token)
	}
	for what, c := range map[string]*x509.Certificate{
		"none": nil, "another authority's": other.leaf(nil),
		"another name": ca.leaf(func(c *x509.Certificate) { c.Subject.CommonName = "db" }),
		"another unit": ca.leaf(func(c *x509.Certificate) { c.Subject.OrganizationalUnit = []string{"dev"} }),
		"expired":      ca.leaf(func(c *x509.Certificate) { c.NotAfter = h.now.Add(-time.Minute) }),
		"not yet":      ca.leaf(func(c *x509.Certificate) { c.NotBefore = h.now.Add(time.Minute) }),
		"a server's": ca.leaf(func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}),
		"the authority's own": ca.cert,
	} {
		if _, err := h.shows("", c, "auth/cert/login", `{"name":"web"}`); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := h.shows("", good, "auth/cert/login", `{"name":"none"}`); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("a role that is not there: %v", err)
	}
	for what, c := range map[string]*x509.Certificate{"without": nil, "another": ca.leaf(nil)} {
		if _, err := h.shows(r.Token.ID, c, "auth/token/renew-self", ""); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("renewed %s: %v", what, err)
		}
	}
	if _, err := h.shows(r.Token.ID, good, "auth/token/renew-self", ""); err != nil {
		t.Errorf("a renewal: %v", err)
	}
	crl, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: h.now,
		NextUpdate:                h.now.Add(time.Hour),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: good.SerialNumber, RevocationTime: h.now}}},
		ca.cert, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	h.ok(secrets.Update, "auth/cert/crls/one", text(t,
		map[string]string{"crl": string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: crl}))}))
	for _, path := range []string{"auth/cert/login", "auth/token/renew-self"} {
		if _, err := h.shows(r.Token.ID, good, path, ""); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s with a revoked certificate: %v", path, err)
		}
	}
	h.ok(secrets.Delete, "auth/cert/crls/one", "")
	h.ok(secrets.Update, "auth/cert/config", `{"disable_binding":true}`)
	if _, err := h.shows(r.Token.ID, nil, "auth/token/renew-self", ""); err != nil {
		t.Errorf("a renewal without binding: %v", err)
	}
	pinned := other.leaf(nil)
	h.ok(secrets.Update, "auth/cert/certs/pinned", text(t, map[string]any{"certificate": pemOf(pinned.Raw)}))
	if r, err := h.shows("", pinned, "auth/cert/login", ""); err != nil || r.Token.Meta["cert_name"] != "pinned" {
		t.Errorf("a certificate that is named itself: %v", err)
	}
	if _, err := h.shows("", other.leaf(nil), "auth/cert/login", ""); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("another of its authority: %v", err)
	}
}

func TestCertRefuses(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/auth/cert", `{"type":"cert"}`)
	good := strings.ReplaceAll(pemOf(newSigner(t, h.now).cert.Raw), "\n", `\n`)
	for body, names := range map[string]string{
		`{}`: "certificate", `{"certificate":"x"}`: "certificate",
		`{"certificate":"` + good + `","required_extensions":"x"}`:                       "required_extensions",
		`{"certificate":"` + good + `","allowed_metadata_extensions":1}`:                 "allowed_metadata_extensions",
		`{"trust_mesh_roots":true}`:                                                      "allowed_uri_sans",
		`{"trust_mesh_roots":true,"allowed_uri_sans":"*"}`:                               "allowed_uri_sans",
		`{"trust_mesh_roots":true,"allowed_uri_sans":"spiffe://*","token_type":"batch"}`: "token_type",
	} {
		if _, err := h.as(h.root, secrets.Update, "auth/cert/certs/r", body); !errkind.Is(err, errkind.Invalid) ||
			!strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v", body, err)
		}
	}
	for path, body := range map[string]string{"auth/cert/crls/x": `{"crl":"x"}`, "auth/cert/crls/y": `{"url":"http://x"}`,
		"auth/cert/config": `{"mesh_address":"x"}`} {
		h.refused(errkind.Invalid, h.root, secrets.Update, path, body)
	}
}

// TestWorkload logs a workload in by its mesh certificate. When the mesh knows no instance of it any more, its tokens
// and leases end.
func TestWorkload(t *testing.T) {
	h, leases := leaseHouse(t)
	ca := newSigner(t, h.now)
	var registered, down atomic.Bool
	registered.Store(true)
	mesh := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		services := map[string][]string{"consul": {}}
		if registered.Load() {
			services["web"] = nil
		}
		switch {
		case down.Load() || r.Header.Get("X-Consul-Token") != "let-me":
			http.Error(w, "Permission denied", http.StatusForbidden)
		case r.URL.Path == "/v1/connect/ca/roots":
			_ = json.NewEncoder(w).Encode(map[string]any{"TrustDomain": "td.consul",
				"Roots": []any{map[string]any{"RootCert": pemOf(ca.cert.Raw), "Active": true}}})
		case r.URL.Path == "/v1/catalog/services" && r.URL.Query().Get("dc") == "dc1":
			_ = json.NewEncoder(w).Encode(services)
		default:
			http.NotFound(w, r)
		}
	}))
	defer mesh.Close()
	named := func(uri string) *x509.Certificate {
		u, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		return ca.leaf(func(c *x509.Certificate) { c.URIs, c.Subject, c.DNSNames = []*url.URL{u}, pkix.Name{}, nil })
	}
	web := named("spiffe://td.consul/ns/default/dc/dc1/svc/web")
	h.ok(secrets.Update, "sys/auth/cert", `{"type":"cert"}`)
	h.ok(secrets.Update, "auth/cert/certs/mesh",
		`{"trust_mesh_roots":true,"allowed_uri_sans":"spiffe://td.consul/ns/default/dc/dc1/svc/*,spiffe://other/*",`+
			`"token_policies":"app","token_ttl":"24h"}`)
	if _, err := h.shows("", web, "auth/cert/login", `{"name":"mesh"}`); !errkind.Is(err, errkind.Invalid) ||
		!strings.Contains(err.Error(), "mesh_address") {
		t.Errorf("without the mesh's address: %v", err)
	}
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/cert/config",
		`{"mesh_address":"`+mesh.URL+`","mesh_token":"wrong"}`)
	h.ok(secrets.Update, "auth/cert/config", `{"mesh_address":"`+mesh.URL+`","mesh_token":"let-me"}`)
	for what, c := range map[string]*x509.Certificate{
		"not registered": named("spiffe://td.consul/ns/default/dc/dc1/svc/db"),
		"another domain": named("spiffe://other/ns/default/dc/dc1/svc/web"),
		"an agent":       named("spiffe://td.consul/agent/client/dc/dc1/id/n1"), "no name": ca.leaf(nil),
		"another authority's": newSigner(t, h.now).leaf(nil)} {
		if _, err := h.shows("", c, "auth/cert/login", ""); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	login := func() *task.Issued {
		r, err := h.shows("", web, "auth/cert/login", "")
		if err != nil {
			t.Fatal(err)
		}
		return r.Token
	}
	first, second := login(), login()
	if first.Entity != second.Entity || first.Entity == "" {
		t.Errorf("entities %q, %q", first.Entity, second.Entity)
	}
	if _, err := h.as(first.ID, secrets.Read, "db/creds", ""); err != nil {
		t.Fatal(err)
	}
	sweep := func(want int) {
		t.Helper()
		h.wait(10*time.Second + time.Millisecond)
		if n, err := h.tokens.EndWorkloads(t.Context()); n != want || (err != nil) != down.Load() {
			t.Errorf("%d tokens ended, want %d: %v", n, want, err)
		}
	}
	sweep(0)
	if _, err := h.shows(first.ID, nil, "auth/token/renew-self", ""); err != nil {
		t.Errorf("a renewal: %v", err)
	}
	registered.Store(false)
	sweep(0)
	if _, err := h.shows(first.ID, web, "auth/token/renew-self", ""); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("a renewal of one that is away: %v", err)
	}
	sweep(0)
	registered.Store(true) // a restart is no end
	sweep(0)
	registered.Store(false)
	sweep(0)
	down.Store(true) // and no answer is none either
	for range 5 {
		sweep(0)
	}
	down.Store(false)
	registered.Store(true)
	sweep(0)
	h.refused(errkind.NotFound, first.ID, secrets.Read, "cubbyhole/x", "")
	registered.Store(false)
	for range 3 {
		sweep(0)
	}
	sweep(2)
	for _, tok := range []*task.Issued{first, second} {
		h.refused(errkind.Denied, tok.ID, secrets.Read, "cubbyhole/x", "")
	}
	if h.expireLeases(); leases.count() != 0 {
		t.Errorf("%d leases are left", leases.count())
	}
	if left := h.keysBelow("sys/token/workload/"); len(left) != 0 {
		t.Errorf("left in the index: %q", left)
	}
	registered.Store(true)
	h.wait(11 * time.Second)
	login()
	h.ok(secrets.Delete, "sys/auth/cert", "")
}
