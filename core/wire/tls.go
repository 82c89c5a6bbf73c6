package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"corbel.dev/corbel/kit/errkind"
)

// TLS is the identity of a process and what it demands of its peers.
//
// Versions below 1.2 are never spoken. The peers' chains are checked against
// RootCAs (dialling) and ClientCAs (accepting); a Server config with ClientCAs
// and the zero ClientAuth demands a certificate.
type TLS struct {
	// Server is used for accepted connections, Client for dialled ones. Both are
	// needed; they are not changed after they were handed over: see Reload.
	Server, Client *tls.Config
	// ServerName, when set (server.<datacenter>.<domain>), must be among the names
	// of every server that is dialled. When empty the chain is checked and the name is not.
	ServerName string
	// OwnName (server.<datacenter>.<domain>) is what makes the certificate of a peer that dialled us
	// a server's, whatever ServerName demands of those whom we dial. Domain tells those of other datacenters.
	OwnName, Domain string
	// AllServers is in the place of OwnName where the authority signs for servers alone.
	AllServers bool
	// Lesser recognises certificates that are never a server's, whoever signed them: those that servers
	// gave to agents and services. nil recognises none.
	Lesser func(*x509.Certificate) bool
	// Guests lets in peers for whom ClientCAs do not vouch; nil lets in none.
	Guests *Guests
	// Peers tells whether servers of other clusters may connect at this moment, who show no certificate and get no
	// further than ProtoPeering; nil lets in none.
	Peers func() bool
}

// peeringALPN is what a client offers that dials as a server of another cluster, so that it alone is not asked for a
// certificate.
const peeringALPN = "corbel-peering"

// Guests are peers with certificates of another authority than the servers', and
// peers without one: strangers, whom ProtoEnroll alone lets in.
type Guests struct {
	// Verify is asked about a peer for whose certificate ClientCAs do not vouch; nil lets it in.
	Verify func(tls.ConnectionState) error
	// Epoch changes with what Verify goes by, as its roots do: then guests are verified again. nil: it never changes.
	Epoch func() uint64
}

// GuestsOf are those that now holds, once it holds any; until then nobody is let in, for the reason given.
func GuestsOf(now *atomic.Pointer[Guests], until error) *Guests {
	return &Guests{Verify: func(s tls.ConnectionState) error {
		if g := now.Load(); g != nil {
			return g.Verify(s)
		}
		return until
	}, Epoch: func() uint64 {
		if g := now.Load(); g != nil {
			return g.Epoch()
		}
		return 0
	}}
}

func (t *TLS) check() error {
	if t.Server == nil || t.Client == nil {
		return errors.New("tls needs a server and a client config")
	}
	if len(t.Server.Certificates) == 0 && t.Server.GetCertificate == nil && t.Server.GetConfigForClient == nil {
		return errors.New("tls: the server has no certificate")
	}
	if t.OwnName == "" && !t.AllServers {
		return errors.New("tls: nothing says which certificates are servers'")
	}
	return nil
}

// identity is the TLS in force, replaced whole by Reload.
type identity struct{ now atomic.Pointer[identityNow] }

type identityNow struct {
	serverTLS, clientTLS *tls.Config
	serverName           string
	ownName, domain      string
	allServers           bool
	lesser               func(*x509.Certificate) bool
	clientCAs            *x509.CertPool
	guests               *Guests
}

func newIdentity(t *TLS) *identity {
	id := &identity{}
	id.set(t)
	return id
}

func (id *identity) set(t *TLS) {
	server, client := t.Server.Clone(), t.Client.Clone()
	server.MinVersion = max(server.MinVersion, tls.VersionTLS12)
	client.MinVersion = max(client.MinVersion, tls.VersionTLS12)
	if server.ClientCAs != nil && server.ClientAuth == tls.NoClientCert {
		server.ClientAuth = tls.RequireAndVerifyClientCert
	}
	switch {
	case t.ServerName != "":
		client.ServerName = t.ServerName
	case client.ServerName == "":
		// Peers are reached by address and need not carry it in their
		// certificate: the chain is checked here, the name is not.
		roots := client.RootCAs
		client.InsecureSkipVerify = true
		client.VerifyConnection = func(s tls.ConnectionState) error {
			return verifyChain(&s, roots, x509.ExtKeyUsageServerAuth)
		}
	}
	if t.Guests != nil {
		roots, guests := server.ClientCAs, t.Guests
		server.ClientAuth = tls.RequestClientCert
		server.VerifyConnection = func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || verifyChain(&s, roots, x509.ExtKeyUsageClientAuth) == nil {
				return nil
			}
			if guests.Verify == nil {
				return nil
			}
			return guests.Verify(s)
		}
	}
	if t.Peers != nil {
		letPeersIn(server, t.Peers)
	}
	id.now.Store(&identityNow{server, client, t.ServerName, t.OwnName, t.Domain, t.AllServers, t.Lesser,
		server.ClientCAs, t.Guests})
}

// letPeersIn has a listener ask for no certificate of a client that says it is of another cluster, while allowed says
// so. Whoever says so and shows none is a stranger.
func letPeersIn(server *tls.Config, allowed func() bool) {
	open := server.Clone()
	open.ClientAuth, open.ClientCAs, open.VerifyConnection = tls.NoClientCert, nil, nil
	open.NextProtos, open.SessionTicketsDisabled = []string{peeringALPN}, true
	server.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(hello.SupportedProtos, peeringALPN) && allowed() {
			return open, nil
		}
		return nil, nil
	}
}

func verifyChain(s *tls.ConnectionState, roots *x509.CertPool, usage x509.ExtKeyUsage) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the peer has no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between,
		KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// client is the config to dial with. A name replaces the one that is checked, where one is.
func (id *identity) client(serverName string) *tls.Config {
	now := id.now.Load()
	if serverName == "" || now.serverName == "" || serverName == now.serverName {
		return now.clientTLS
	}
	c := now.clientTLS.Clone()
	c.ServerName = serverName
	return c
}

// anyMember is the config to dial a peer with that has any certificate of a member.
func (id *identity) anyMember() *tls.Config {
	now := id.now.Load()
	c := now.clientTLS.Clone()
	roots := c.RootCAs
	c.ServerName, c.InsecureSkipVerify = "", true // verified below
	c.VerifyConnection = func(s tls.ConnectionState) error {
		err := verifyChain(&s, roots, x509.ExtKeyUsageAny) // an agent's is often for clients alone
		if err != nil && now.guests != nil && now.guests.Verify != nil && now.guests.Verify(s) == nil {
			return nil
		}
		return err
	}
	return c
}

// strict is the config to dial a peer with that must show a name, also where names are not checked else.
func (id *identity) strict(serverName string) *tls.Config {
	c := id.now.Load().clientTLS.Clone()
	roots := c.RootCAs
	c.ServerName, c.InsecureSkipVerify = serverName, true // verified below
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if err := verifyChain(&s, roots, x509.ExtKeyUsageServerAuth); err != nil {
			return err
		}
		return s.PeerCertificates[0].VerifyHostname(serverName)
	}
	return c
}

// clientFor is client for a protocol. Who asks for a certificate shows none: the one it has may have ended, or be of
// a root that is trusted no more, and would be refused.
func (id *identity) clientFor(proto Protocol, serverName string) *tls.Config {
	c := id.client(serverName)
	if proto == ProtoEnroll {
		c = c.Clone()
		c.Certificates = nil
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &tls.Certificate{}, nil
		}
	}
	return c
}

// Reload replaces the identity for connections made from now on. A plain Wire
// stays plain, a secured one secured: the other change needs a restart.
func (w *Wire) Reload(t *TLS) error {
	if (t == nil) != (w.tls == nil) {
		return errkind.New(errkind.Invalid, "wire: TLS cannot be switched on or off while running")
	}
	if t == nil {
		return nil
	}
	if err := t.check(); err != nil {
		return errkind.E(errkind.Invalid, "wire", err)
	}
	w.tls.set(t)
	return nil
}

var (
	errSpeaksPlain = errors.New("the peer speaks plain TCP but TLS is demanded here")
	errTooMany     = errors.New("its address has as many connections as limits.max_conns_per_client allows")
	errSpeaksTLS   = errors.New("the peer speaks TLS but this listener is plain")
)

// explainHandshake puts the mismatch that operators meet most into words.
func explainHandshake(err error) error {
	var record tls.RecordHeaderError
	if errors.As(err, &record) {
		return fmt.Errorf("%w (%v)", errSpeaksPlain, err)
	}
	return fmt.Errorf("TLS handshake: %w", err)
}

// handshakeKind tells a peer that is not acceptable from one that went away.
func handshakeKind(err error) errkind.Kind {
	var record tls.RecordHeaderError
	var cert *tls.CertificateVerificationError
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var alert tls.AlertError
	switch {
	case errors.As(err, &record), errors.As(err, &cert), errors.As(err, &invalid), errors.As(err, &unknown),
		errors.As(err, &name), errors.As(err, &alert):
		return errkind.Denied
	}
	return errkind.Unavailable
}

// reason is the rate limit's key of a rejected connection.
func reason(err error) string {
	switch {
	case errors.Is(err, errSpeaksPlain):
		return "plain"
	case errors.Is(err, errSpeaksTLS):
		return "tls"
	case errors.Is(err, errTooMany):
		return "conns"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "eof"
	}
	return "rejected"
}
