package ca

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

const cluster = "11111111-2222-3333-4444-555555555555"

var (
	now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	web = ID{Kind: ServiceID, TrustDomain: cluster + ".consul", Datacenter: "dc1", Name: "web"}
)

func mustConfig(t *testing.T, config string) *Config {
	t.Helper()
	c, err := ParseConfig([]byte(`{"Provider":"consul","Config":` + config + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustRoot(t *testing.T, c *Config) *Root {
	t.Helper()
	r, err := NewRoot(c, cluster, now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustSign(t *testing.T, r *Root, id ID, ttl time.Duration) *Leaf {
	t.Helper()
	_, csr, err := NewRequest(id, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSigner(r)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := s.Sign(csr, Grant{ID: id}, ttl, now)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// verify checks a leaf and its chain as a proxy that trusts only the one root does.
func verify(t *testing.T, leaf *Leaf, trusted *Root, at time.Time) (*x509.Certificate, error) {
	t.Helper()
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(trusted.RootCert))
	cert, err := parseCert(leaf.CertPEM)
	if err != nil {
		t.Fatal(err)
	}
	block, rest := pem.Decode([]byte(leaf.CertPEM))
	if block == nil {
		t.Fatal("no certificate")
	}
	between.AppendCertsFromPEM(rest)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: at,
			KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			return cert, err
		}
	}
	return cert, nil
}

func TestDefaultConfig(t *testing.T) {
	raw, err := DefaultConfig().Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"Provider":"consul","Config":{"IntermediateCertTTL":"8760h","LeafCertTTL":"72h","RootCertTTL":"87600h"},` +
		`"ForceWithoutCrossSigning":false}`
	if string(raw) != want {
		t.Errorf("fresh configuration\n%s\nwant\n%s", raw, want)
	}
	c, err := ParseConfig(raw)
	if err != nil || c.LeafTTL != 72*time.Hour || c.IntermediateTTL != 8760*time.Hour || c.RootTTL != 87600*time.Hour ||
		c.CSRPerSecond != 50 {
		t.Errorf("read again: %+v, %v", c, err)
	}
}

func TestConfigValues(t *testing.T) {
	c := mustConfig(t, `{"LeafCertTTL":"2h","IntermediateCertTTL":36000000000000,"RootCertTTL":"",`+
		`"CSRMaxPerSecond":"7.5","CSRMaxConcurrent":3,"Other":[1],"test_state":{"foo":"bar"}}`)
	if c.LeafTTL != 2*time.Hour || c.IntermediateTTL != 10*time.Hour || c.RootTTL != DefaultRootTTL ||
		c.CSRPerSecond != 7.5 || c.CSRConcurrent != 3 || c.State["foo"] != "bar" || c.Raw["Other"] == nil {
		t.Errorf("read as %+v", c)
	}
	for config, field := range map[string]string{
		`{"LeafCertTTL":"59m"}`:                                  "LeafCertTTL",
		`{"LeafCertTTL":"8761h","IntermediateCertTTL":"30000h"}`: "LeafCertTTL",
		`{"LeafCertTTL":"soon"}`:                                 "LeafCertTTL",
		`{"LeafCertTTL":true}`:                                   "LeafCertTTL",
		`{"LeafCertTTL":-1}`:                                     "LeafCertTTL",
		`{"IntermediateCertTTL":"215h"}`:                         "IntermediateCertTTL",
		`{"RootCertTTL":"8759h"}`:                                "RootCertTTL",
		`{"PrivateKeyType":"dsa"}`:                               "PrivateKeyType",
		`{"PrivateKeyType":"rsa","PrivateKeyBits":1024}`:         "PrivateKeyBits",
		`{"PrivateKeyBits":"many"}`:                              "PrivateKeyBits",
		`{"CSRMaxPerSecond":-1}`:                                 "CSRMaxPerSecond",
		`{"PrivateKey":"x"}`:                                     "PrivateKey",
		`{"PrivateKey":5}`:                                       "PrivateKey",
		`{"RootCert":"x"}`:                                       "PrivateKey",
		`{"test_state":{"a":1}}`:                                 "test_state.a",
		`{"LeafCertTTL":"1m","CSRMaxConcurrent":-2,"PrivateKeyType":"x"}`: "CSRMaxConcurrent",
	} {
		_, err := ParseConfig([]byte(`{"Provider":"consul","Config":` + config + `}`))
		if !errkind.Is(err, errkind.Invalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: error %v does not name %s", config, err, field)
		}
	}
	for _, raw := range []string{`{"Provider":"vault"}`, `{}`, `null`} { // an empty body must not reset everything
		if _, err := ParseConfig([]byte(raw)); !errkind.Is(err, errkind.Invalid) ||
			!strings.Contains(err.Error(), "Provider") {
			t.Errorf("%s: %v", raw, err)
		}
	}
	for _, raw := range []string{``, `{`, `[]`, `{"Provider":"consul","Config":7}`} {
		if _, err := ParseConfig([]byte(raw)); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestIDs(t *testing.T) {
	td := cluster + ".consul"
	for want, id := range map[string]ID{
		"spiffe://" + td + "/ns/default/dc/dc1/svc/web": web,
		"spiffe://" + td + "/agent/client/dc/dc1/id/n1": {AgentID, td, "dc1", "n1"},
		"spiffe://" + td + "/agent/server/dc/dc1":       {ServerID, td, "dc1", ""},
		"spiffe://" + td + "/gateway/mesh/dc/dc1":       {MeshGatewayID, td, "dc1", ""},
		"spiffe://" + td: {SigningID, td, "", ""},
		"spiffe://" + td + "/ns/default/dc/dc1/svc/a%2Fb%20c": {ServiceID, td, "dc1", "a/b c"},
	} {
		if got := id.URI().String(); got != want {
			t.Errorf("%+v is written %s, want %s", id, got, want)
		}
		u, err := url.Parse(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseID(u); err != nil || got != id {
			t.Errorf("%s is read %+v, %v", want, got, err)
		}
	}
	for _, bad := range []string{"https://x/ns/default/dc/dc1/svc/web", "spiffe:///agent/server/dc/dc1",
		"spiffe://x/ns/default/dc/dc1/svc/", "spiffe://x/ns/team/dc/dc1/svc/web",
		"spiffe://x/ns/default/dc/dc1/svc/web/more", "spiffe://x/agent/server/dc/dc1?a=b", "spiffe://u@x/agent/server/dc/dc1",
		"spiffe://x/"} {
		u, err := url.Parse(bad)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := ParseID(u); err == nil {
			t.Errorf("%s is read %+v", bad, id)
		}
	}
}

func TestIssue(t *testing.T) {
	for _, config := range []string{`{}`, `{"PrivateKeyBits":384}`, `{"PrivateKeyType":"rsa"}`} {
		root := mustRoot(t, mustConfig(t, config))
		leaf := mustSign(t, root, web, 2*time.Hour)
		cert, err := verify(t, leaf, root, now.Add(time.Hour))
		if err != nil {
			t.Errorf("%s: %v", config, err)
		}
		if len(cert.URIs) != 1 || cert.URIs[0].String() != web.URI().String() || cert.IsCA || cert.Subject.CommonName != "" {
			t.Errorf("%s: issued %v, authority %v, subject %v", config, cert.URIs, cert.IsCA, cert.Subject)
		}
		if leaf.SerialNumber != colons(cert.SerialNumber.Bytes()) || leaf.RootID != root.ID ||
			!leaf.ValidBefore.Equal(now.Add(2*time.Hour)) {
			t.Errorf("%s: leaf %+v", config, leaf)
		}
		if _, err := verify(t, leaf, root, now.Add(3*time.Hour)); err == nil {
			t.Errorf("%s: valid after its end", config)
		}
		if root.SerialNumber == 0 || root.SerialNumber > 1<<53 {
			t.Errorf("serial number %d is more than a JSON number holds", root.SerialNumber)
		}
	}
}

func TestLeafEndsWithItsRoot(t *testing.T) {
	root := mustRoot(t, mustConfig(t, `{"LeafCertTTL":"1h","IntermediateCertTTL":"3h","RootCertTTL":"3h"}`))
	if leaf := mustSign(t, root, web, 72*time.Hour); !leaf.ValidBefore.Equal(root.NotAfter) {
		t.Errorf("leaf ends %v, root %v", leaf.ValidBefore, root.NotAfter)
	}
	_, csr, _ := NewRequest(web, nil, nil)
	s, err := NewSigner(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sign(csr, Grant{ID: web}, time.Hour, now.Add(4*time.Hour)); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("an expired root signs: %v", err)
	}
}

func TestRequestsBeyondTheGrant(t *testing.T) {
	root := mustRoot(t, DefaultConfig())
	s, err := NewSigner(root)
	if err != nil {
		t.Fatal(err)
	}
	db, elsewhere, foreign := web, web, web
	db.Name, elsewhere.Datacenter, foreign.TrustDomain = "db", "dc2", "other.consul"
	grant := Grant{ID: web, DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}
	for name, c := range map[string]struct {
		id   ID
		dns  []string
		ips  []net.IP
		kind errkind.Kind
	}{
		"another service":    {id: db, kind: errkind.Denied},
		"another datacenter": {id: elsewhere, kind: errkind.Denied},
		"another mesh":       {id: foreign, kind: errkind.Denied},
		"an authority":       {id: ID{Kind: SigningID, TrustDomain: web.TrustDomain}, kind: errkind.Invalid},
		"another name":       {id: web, dns: []string{"localhost", "bank.example"}, kind: errkind.Denied},
		"another address":    {id: web, ips: []net.IP{net.IPv4(10, 0, 0, 1)}, kind: errkind.Denied},
	} {
		_, csr, err := NewRequest(c.id, c.dns, c.ips)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sign(csr, grant, time.Hour, now); !errkind.Is(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, csr, _ := NewRequest(web, []string{"LOCALHOST"}, grant.IPs)
	leaf, err := s.Sign(csr, grant, time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err := verify(t, leaf, root, now); err != nil || len(cert.DNSNames) != 1 || len(cert.IPAddresses) != 1 {
		t.Errorf("granted names: %v, %v, %v", cert.DNSNames, cert.IPAddresses, err)
	}
}

func TestMalformedRequests(t *testing.T) {
	key, _, err := NewKey(keyEC, 256)
	if err != nil {
		t.Fatal(err)
	}
	request := func(c x509.CertificateRequest) string {
		der, err := x509.CreateCertificateRequest(rand.Reader, &c, key)
		if err != nil {
			t.Fatal(err)
		}
		return encodePEM("CERTIFICATE REQUEST", der)
	}
	_, good, _ := NewRequest(web, nil, nil)
	block, _ := pem.Decode([]byte(good))
	forged := append([]byte(nil), block.Bytes...)
	forged[len(forged)-1] ^= 1
	for name, text := range map[string]string{
		"nothing": "", "noise": "x", "too long": strings.Repeat("x", maxCSRBytes+1),
		"a certificate": mustRoot(t, DefaultConfig()).RootCert,
		"no URI":        request(x509.CertificateRequest{Subject: pkix.Name{CommonName: "web"}}),
		"two URIs":      request(x509.CertificateRequest{URIs: []*url.URL{web.URI(), web.URI()}}),
		"e-mail":        request(x509.CertificateRequest{URIs: []*url.URL{web.URI()}, EmailAddresses: []string{"a@b"}}),
		"forged":        encodePEM("CERTIFICATE REQUEST", forged),
	} {
		if _, _, err := ParseRequest(text); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRotation(t *testing.T) {
	first := mustRoot(t, DefaultConfig())
	before := mustSign(t, first, web, time.Hour)
	for _, config := range []string{`{"PrivateKeyType":"rsa"}`, `{"PrivateKeyBits":521}`} {
		c := mustConfig(t, config)
		if yes, err := NeedsRotation(c, first); err != nil || !yes {
			t.Fatalf("%s: rotation %v, %v", config, yes, err)
		}
		next, old, err := Rotate(c, first, cluster, now)
		if err != nil {
			t.Fatal(err)
		}
		if !next.Active || old.Active || next.ID == old.ID || old.ID != first.ID || !first.Active ||
			len(next.IntermediateCerts) != 1 {
			t.Fatalf("%s: next %+v, old %+v", config, next, old)
		}
		after := mustSign(t, next, web, time.Hour)
		for name, c := range map[string]struct {
			leaf    *Leaf
			trusted *Root
		}{"new by new": {after, next}, "new by old, over the cross-signed": {after, old}, "old by old": {before, old}} {
			if _, err := verify(t, c.leaf, c.trusted, now); err != nil {
				t.Errorf("%s: %s: %v", config, name, err)
			}
		}
		if _, err := verify(t, before, next, now); err == nil {
			t.Errorf("%s: the new root vouches for the old one's certificates", config)
		}
		if old.Expired(time.Hour, now.Add(time.Hour)) || !old.Expired(time.Hour, now.Add(3*time.Hour)) ||
			next.Expired(time.Hour, now.Add(1000*time.Hour)) {
			t.Errorf("%s: roots are dropped at the wrong time", config)
		}
		if yes, err := NeedsRotation(c, next); err != nil || yes {
			t.Errorf("%s: asked again: rotation %v, %v", config, yes, err)
		}
	}
	rsa := mustRoot(t, mustConfig(t, `{"PrivateKeyType":"rsa"}`))
	if yes, err := NeedsRotation(DefaultConfig(), rsa); err != nil || yes {
		t.Errorf("a configuration without a word about keys rotates: %v, %v", yes, err)
	}
	if yes, err := NeedsRotation(mustConfig(t, `{"LeafCertTTL":"2h"}`), first); err != nil || yes {
		t.Errorf("another lifetime rotates: %v, %v", yes, err)
	}
}

func configOf(t *testing.T, key, cert string) string {
	t.Helper()
	b, err := json.Marshal(map[string]string{"PrivateKey": key, "RootCert": cert})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestOperatorsOwn(t *testing.T) {
	active := mustRoot(t, DefaultConfig())
	signer, key, err := NewKey(keyEC, 256)
	if err != nil {
		t.Fatal(err)
	}
	rootOf := func(ca bool, depth int) string {
		template := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "Example Root"},
			BasicConstraintsValid: true, IsCA: ca,
			MaxPathLenZero: depth == 0, KeyUsage: x509.KeyUsageCertSign, NotBefore: now.Add(-time.Hour),
			NotAfter: now.Add(1000 * time.Hour)}
		if !ca {
			template.MaxPathLenZero = false
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public().(*ecdsa.PublicKey), signer)
		if err != nil {
			t.Fatal(err)
		}
		return certPEM(der)
	}
	own := mustConfig(t, configOf(t, key, rootOf(true, 1)))
	next, old, err := Rotate(own, active, cluster, now)
	if err != nil {
		t.Fatal(err)
	}
	leaf := mustSign(t, next, web, time.Hour)
	for _, trusted := range []*Root{next, old} {
		if _, err := verify(t, leaf, trusted, now); err != nil {
			t.Errorf("own root: %v", err)
		}
	}
	if yes, err := NeedsRotation(own, next); err != nil || yes {
		t.Errorf("the same again rotates: %v, %v", yes, err)
	}
	if yes, err := NeedsRotation(mustConfig(t, configOf(t, key, "")), next); err != nil || yes {
		t.Errorf("the same key without certificate rotates: %v, %v", yes, err)
	}
	for name, config := range map[string]string{"no authority": configOf(t, key, rootOf(false, 0)),
		"another key": configOf(t, active.PrivateKey, rootOf(true, 1))} {
		if _, err := ParseConfig([]byte(`{"Provider":"consul","Config":` + config + `}`)); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A root that allows no authority below it can be rotated out only by force.
	narrow := mustRoot(t, mustConfig(t, configOf(t, key, rootOf(true, 0))))
	c := mustConfig(t, `{"PrivateKeyBits":384}`)
	if _, _, err := Rotate(c, narrow, cluster, now); !errkind.Is(err, errkind.Invalid) ||
		!strings.Contains(err.Error(), "ForceWithoutCrossSigning") {
		t.Errorf("cross-signed by a root with pathlen:0: %v", err)
	}
	c.ForceWithoutCrossSigning = true
	if next, _, err := Rotate(c, narrow, cluster, now); err != nil || len(next.IntermediateCerts) != 0 {
		t.Errorf("by force: %+v, %v", next, err)
	}
	if _, err := NewRoot(own, cluster, now.Add(2000*time.Hour)); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("an expired root is taken: %v", err)
	}
}
