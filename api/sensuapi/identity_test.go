package sensuapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/users"
	"github.com/gorilla/websocket"
)

// certificate makes a certificate for a name, signed by parent, or by itself.
func certificate(t *testing.T, name string, serial int64, parent *tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true, IsCA: parent == nil,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	signer, signed := any(key), tmpl
	if parent != nil {
		signer, signed = parent.PrivateKey, parent.Leaf
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, signed, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// The common name of a certificate that TLS verified is the agent's user: no password is needed, and one does not
// help a certificate that is refused.
func TestAgentsByCertificate(t *testing.T) {
	b := newBackend(t)
	ca := certificate(t, "ca", 1, nil)
	s := httptest.NewUnstartedServer(b.Agents)
	pool := x509.NewCertPool()
	pool.AddCert(ca.Leaf)
	s.TLS = &tls.Config{ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven}
	s.StartTLS()
	defer s.Close()
	defer b.Close()
	url := "wss" + strings.TrimPrefix(s.URL, "https")
	dial := func(h http.Header, certs ...tls.Certificate) int {
		t.Helper()
		d := websocket.Dialer{
			TLSClientConfig: &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs},
		}
		if len(certs) > 0 { // also one that the server does not ask for
			d.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &certs[0], nil
			}
		}
		c, answer, err := d.DialContext(t.Context(), url, h)
		if err == nil {
			next(t, c)
			_ = c.Close()
		}
		if answer == nil {
			return 0
		}
		return answer.StatusCode
	}
	plain := func(name string) http.Header {
		h := header(name, "", "")
		h.Del("Authorization")
		h.Del("Sensu-User")
		return h
	}
	good, bad, nobody := certificate(t, "agent", 2, &ca), certificate(t, "agent", 3, &ca), certificate(t, "nobody", 4, &ca)
	other := certificate(t, "agent", 1, nil)
	if code := dial(plain("a"), good); code != 401 {
		t.Error("a certificate logs in although nobody said so:", code)
	}
	b.TrustCertificates(func(c *x509.Certificate) error {
		if c.SerialNumber.Int64() == 3 {
			return errors.New("it was revoked")
		}
		return nil
	})
	if code := dial(plain("a"), good); code != 101 {
		t.Error("a certificate:", code)
	}
	if code := dial(header("b", "agent", users.AgentPassword)); code != 101 {
		t.Error("a password without a certificate:", code)
	}
	password := header("c", "agent", users.AgentPassword)
	for name, code := range map[string]int{"revoked": dial(password, bad), "no user": dial(password, nobody),
		"neither": dial(plain("d"))} {
		if code != 401 {
			t.Errorf("%s: %d", name, code)
		}
	}
	if code := dial(password, other); code != 0 {
		t.Error("another authority's certificate:", code)
	}
	user := *b.resources.View().Get("users", "", "agent").Object().(*monitor.User)
	user.Disabled = true
	if err := b.resources.Write(t.Context(), objects.Op{Verb: objects.Put, Type: "users", Name: "agent",
		Encoded: tagproto.Append(nil, &user)}); err != nil {
		t.Fatal(err)
	}
	if code := dial(plain("a"), good); code != 401 {
		t.Error("a disabled user:", code)
	}
}
