package clouds

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// internet answers for every host, as a proxy with an authority of its own: what the libraries send is what they would
// send to the cloud, TLS and names included.
type internet struct {
	url, authority string // the proxy's, and the file of the certificate that signs all hosts'
	handler        http.Handler

	key  *ecdsa.PrivateKey
	root *x509.Certificate

	mu    sync.Mutex
	asked []string // method, host and path
}

func newInternet(t *testing.T, handler http.Handler) *internet {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true,
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	n := &internet{handler: handler, key: key, authority: filepath.Join(t.TempDir(), "root.pem")}
	if n.root, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(n.authority, text, 0o600); err != nil {
		t.Fatal(err)
	}
	// A tunnel leads to a server with TLS.
	inner := httptest.NewUnstartedServer(http.HandlerFunc(n.answer))
	inner.TLS = &tls.Config{GetCertificate: n.certificate, MinVersion: tls.VersionTLS12}
	inner.StartTLS()
	t.Cleanup(inner.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			n.answer(w, r) // plain HTTP, as to a cloud's metadata
			return
		}
		tunnel(w, inner.Listener.Addr().String())
	}))
	t.Cleanup(proxy.Close)
	n.url = proxy.URL
	return n
}

func (n *internet) answer(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	n.asked = append(n.asked, fmt.Sprintf("%s %s%s", r.Method, r.Host, r.URL.Path))
	n.mu.Unlock()
	n.handler.ServeHTTP(w, r)
}

// certificate makes one for the host that is asked for.
func (n *internet) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{hello.ServerName},
		NotAfter: n.root.NotAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, n.root, &n.key.PublicKey, n.key)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: n.key}, err
}

// tunnel passes the bytes of a connection on, until either side ends it.
func tunnel(w http.ResponseWriter, to string) {
	far, err := net.Dial("tcp", to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer far.Close()
	w.WriteHeader(http.StatusOK)
	near, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = buffered.WriteTo(far)
		_ = far.(*net.TCPConn).CloseWrite()
	}()
	_, _ = far.(*net.TCPConn).WriteTo(near)
	_ = near.Close()
	<-done
}
