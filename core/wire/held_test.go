package wire

import (
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// TestRightsEnd: a connection is cut within 5 s of when the certificate that it was let in by is taken away, though
// something goes over it each 10 ms and never a pause; whose certificate stays keeps its connection (row C12).
func TestRightsEnd(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(t *testing.T, s *rightsSite){
		"it ends":                   func(*testing.T, *rightsSite) {}, // by itself, 3 s after the start
		"its authority is replaced": func(t *testing.T, s *rightsSite) { s.trust(t, s.staying) },
		"the roots of guests go":    func(_ *testing.T, s *rightsSite) { s.gone.Store(true) },
	} {
		for _, proto := range []Protocol{ProtoRPC, ProtoRaft, ProtoFeed, ProtoSecrets} {
			t.Run(name+" "+proto.String(), func(t *testing.T) {
				t.Parallel()
				s := newRightsSite(t)
				going := leaf{name: "client.dc1.consul"}
				by := s.going
				switch name {
				case "it ends":
					going.until = 3 * time.Second
				case "the roots of guests go":
					by = s.guests
				}
				stays := s.connect(t, proto, s.staying, leaf{name: "client.dc1.consul"})
				goes := s.connect(t, proto, by, going)
				echoes(t, goes, stays, 20)
				take(t, s)
				for deadline := time.Now().Add(15 * time.Second); echoed(goes) == nil; <-time.After(10 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatal("the connection goes on")
					}
				}
				echoes(t, stays, stays, 150) // it was looked at meanwhile
				if n := len(s.server.held.list()); n != 1 {
					t.Errorf("%d connections are held", n)
				}
				stays.Close()
			})
		}
	}
}

// rightsSite is a server that trusts two authorities, and one of guests until that is gone.
type rightsSite struct {
	server                 *Wire
	going, staying, guests *authority
	gone                   atomic.Bool
}

func newRightsSite(t *testing.T) *rightsSite {
	s := &rightsSite{going: newCA(t, "going"), staying: newCA(t, "staying"), guests: newCA(t, "guests")}
	s.server, _ = runWire(t, Config{TLS: s.identity(t, s.staying, s.going)})
	for _, proto := range []Protocol{ProtoRPC, ProtoRaft, ProtoFeed, ProtoSecrets} {
		echo(t, s.server.Listen(proto, 0, Members), "")
	}
	return s
}

// identity is the server's, for clients of these authorities and guests.
func (s *rightsSite) identity(t *testing.T, of ...*authority) *TLS {
	id := s.staying.identity(t, leaf{name: "server.dc1.consul"})
	id.Server.ClientCAs = id.Server.ClientCAs.Clone()
	for _, a := range of {
		id.Server.ClientCAs.AddCert(a.cert)
	}
	id.Guests = &Guests{Verify: func(c tls.ConnectionState) error {
		if s.gone.Load() || c.PeerCertificates[0].CheckSignatureFrom(s.guests.cert) != nil {
			return errors.New("it is no guest")
		}
		return nil
	}, Epoch: func() uint64 {
		if s.gone.Load() {
			return 2
		}
		return 1
	}}
	return id
}

func (s *rightsSite) trust(t *testing.T, a *authority) {
	if err := s.server.Reload(s.identity(t, a)); err != nil {
		t.Fatal(err)
	}
}

// connect opens a connection with a certificate of an authority.
func (s *rightsSite) connect(t *testing.T, proto Protocol, by *authority, l leaf) net.Conn {
	id := by.identity(t, l)
	shown := id.Client.Certificates[0]
	id.Client.RootCAs = s.staying.pool
	// crypto/tls would rather show nothing than what the server's hints exclude.
	id.Client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
	client, _ := runWire(t, Config{TLS: id})
	conn, err := client.Dial(t.Context(), s.server.Addr().String(), proto, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// echoed sends a byte and reads it again.
func echoed(conn net.Conn) error {
	b := []byte{'x'}
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := conn.Write(b); err != nil {
		return err
	}
	_, err := conn.Read(b)
	return err
}

// echoes sends over both, n times.
func echoes(t *testing.T, a, b net.Conn, n int) {
	t.Helper()
	for range n {
		if err := errors.Join(echoed(a), echoed(b)); err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * time.Millisecond)
	}
}
