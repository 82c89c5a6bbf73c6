package leaf

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"corbel.dev/corbel/mesh/ca"
)

// presented is what one side of a connection shows.
type presented struct {
	name string
	pair tls.Certificate
}

// peers are certificates with one mistake each, the first without.
func peers(t *testing.T, c *cluster) []presented {
	t.Helper()
	root, err := ca.Active(c.State())
	if err != nil {
		t.Fatal(err)
	}
	domain, err := ca.TrustDomainOf(c.State())
	if err != nil {
		t.Fatal(err)
	}
	stranger := newCluster(t) // the same trust domain, another authority
	strangers, err := ca.Active(stranger.State())
	if err != nil {
		t.Fatal(err)
	}
	now, ttl := time.Now(), 72*time.Hour
	web := ca.ID{Kind: ca.ServiceID, TrustDomain: domain, Datacenter: "dc1", Name: "web"}
	made := func(name string, root *ca.Root, id ca.ID, at time.Time) presented {
		key, csr, err := ca.NewRequest(id, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		signer, err := ca.NewSigner(root)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := signer.Sign(csr, ca.Grant{ID: id}, ttl, at)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair([]byte(leaf.CertPEM), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return presented{name, pair}
	}
	with := func(change func(*ca.ID)) ca.ID { id := web; change(&id); return id }
	own, err := tls.X509KeyPair([]byte(root.RootCert), []byte(root.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	good := made("good", root.Root, web, now)
	return []presented{good,
		made("expired", root.Root, web, now.Add(-ttl-time.Second)),
		made("not yet valid", root.Root, web, now.Add(time.Hour)),
		made("of another authority", strangers.Root, web, now),
		made("of another trust domain", root.Root, with(func(id *ca.ID) { id.TrustDomain = "other.consul" }), now),
		made("of another service", root.Root, with(func(id *ca.ID) { id.Name = "api" }), now),
		made("of another datacenter", root.Root, with(func(id *ca.ID) { id.Datacenter = "dc2" }), now),
		made("of an agent", root.Root, with(func(id *ca.ID) { id.Kind = ca.AgentID }), now),
		made("of a gateway", root.Root, ca.ID{Kind: ca.MeshGatewayID, TrustDomain: domain, Datacenter: "dc1"}, now),
		{"of the authority itself", own},
		{"none", tls.Certificate{}},
		{"with another key", tls.Certificate{Certificate: good.pair.Certificate, PrivateKey: own.PrivateKey}},
	}
}

// Of all that a peer may show, on either side, the one thing without a mistake is accepted.
func TestNoMistakeIsAccepted(t *testing.T) {
	c := newCluster(t)
	domain, err := ca.TrustDomainOf(c.State())
	if err != nil {
		t.Fatal(err)
	}
	root, err := ca.Active(c.State())
	if err != nil {
		t.Fatal(err)
	}
	verify := ca.VerifyPeer([]string{root.RootCert}, func() time.Time { return time.Now() }, func(id ca.ID) bool {
		return id == ca.ID{Kind: ca.ServiceID, TrustDomain: domain, Datacenter: "dc1", Name: "web"}
	})
	list := peers(t, c)
	shake := func(client, server presented) (clientSays, serverSays error) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		for _, conn := range []net.Conn{near, far} {
			if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		config := func(p presented) *tls.Config {
			cfg := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, ClientAuth: tls.RequireAnyClientCert,
				VerifyConnection: verify, SessionTicketsDisabled: true}
			if p.pair.Certificate != nil {
				cfg.Certificates = []tls.Certificate{p.pair}
			}
			return cfg
		}
		ended := make(chan error, 1)
		go func() {
			s := tls.Server(far, config(server))
			err := s.HandshakeContext(t.Context())
			if err == nil {
				_, err = s.Write([]byte("x"))
			} else {
				far.Close()
			}
			ended <- err
		}()
		cl := tls.Client(near, config(client))
		err := cl.HandshakeContext(t.Context())
		if err == nil {
			_, err = cl.Read(make([]byte, 1))
		}
		near.Close()
		return err, <-ended
	}
	for i, p := range list {
		for _, as := range []string{"client", "server"} {
			client, server := p, list[0]
			if as == "server" {
				client, server = server, client
			}
			one, other := shake(client, server)
			accepted := one == nil && other == nil
			if accepted != (i == 0) {
				t.Errorf("a certificate %s, as a %s: %v; %v", p.name, as, one, other)
			}
		}
	}
	// The roots themselves: nothing is accepted where there are none.
	if err := ca.VerifyPeer(nil, time.Now, func(ca.ID) bool {
		return true
	})(tls.ConnectionState{PeerCertificates: []*x509.Certificate{list[0].pair.Leaf}}); err == nil {
		t.Error("accepted without roots")
	}
}
