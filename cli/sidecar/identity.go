package sidecar

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/meshcert"
)

// identity is who the proxy is and whom it believes. Safe for concurrent use.
type identity struct {
	leaf  atomic.Pointer[tls.Certificate]
	trust atomic.Pointer[trust]

	hasLeaf, hasTrust   chan struct{} // closed when there is a first one
	onceLeaf, onceTrust *sync.Once
}

// trust are the roots of the mesh.
type trust struct {
	domain string
	roots  *x509.CertPool
}

func newIdentity() identity {
	return identity{hasLeaf: make(chan struct{}), hasTrust: make(chan struct{}), onceLeaf: new(sync.Once),
		onceTrust: new(sync.Once)}
}

func (id *identity) setLeaf(certPEM, keyPEM string) error {
	c, err := tls.X509KeyPair([]byte(certPEM), []byte(keyPEM))
	if err != nil {
		return err
	}
	id.leaf.Store(&c)
	id.onceLeaf.Do(func() { close(id.hasLeaf) })
	return nil
}

func (id *identity) setTrust(domain string, roots []string) error {
	t := &trust{domain: domain, roots: x509.NewCertPool()}
	for _, text := range roots {
		if !t.roots.AppendCertsFromPEM([]byte(text)) {
			return errors.New("a root of the mesh holds no certificate")
		}
	}
	id.trust.Store(t)
	id.onceTrust.Do(func() { close(id.hasTrust) })
	return nil
}

// await waits until both are there.
func (id *identity) await(ctx context.Context) error {
	for _, c := range []chan struct{}{id.hasLeaf, id.hasTrust} {
		select {
		case <-c:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// server is the TLS of one inbound connection: any service of the mesh may show itself.
func (id *identity) server() *tls.Config {
	t := id.trust.Load()
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*id.leaf.Load()},
		ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := meshcert.Verify(t.roots, time.Now(), s.PeerCertificates)
			return err
		}}
}

// client is the TLS of one connection to an instance of a service, which must prove to be one.
// Names of hosts mean nothing in the mesh: the certificate's URI is compared instead.
func (id *identity) client(service, datacenter string) *tls.Config {
	t := id.trust.Load()
	want := fmt.Sprintf("spiffe://%s/ns/default/dc/%s/svc/%s", t.domain, datacenter, service)
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*id.leaf.Load()},
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			uri, err := meshcert.Verify(t.roots, time.Now(), s.PeerCertificates)
			if err == nil && !strings.EqualFold(uri.String(), want) {
				err = fmt.Errorf("the peer is %s and not %s", uri, want)
			}
			return err
		}}
}

// serialOf is a serial number as the agent takes it.
func serialOf(c *x509.Certificate) string {
	text := fmt.Sprintf("% x", c.SerialNumber.Bytes())
	return strings.ReplaceAll(text, " ", ":")
}
