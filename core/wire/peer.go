package wire

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/sockets"
)

// Role is what the other end of a connection is, as far as it proved.
type Role uint8

// The roles. They are no ladder: a registration names each role that it lets in.
const (
	// Stranger is who nobody vouches for: without a certificate, or a local process of another user on a plain port.
	Stranger Role = 1 << iota
	// Guest is an agent whose certificate auto_encrypt or auto_config gave it.
	Guest
	// Agent has a certificate of the operator's authority that names no server. On a plain network it is whoever is
	// no server: nothing was proven, so that its token alone decides.
	Agent
	// Remote is a server of another datacenter.
	Remote
	// Server is a server of this datacenter.
	Server
)

func (r Role) String() string {
	switch r {
	case Guest:
		return "an agent that was enrolled"
	case Agent:
		return "an agent"
	case Remote:
		return "a server of another datacenter"
	case Server:
		return "a server"
	}
	return "a stranger"
}

// Roles is a set of roles: whom a registration lets in.
type Roles uint8

// The sets that registrations name.
const (
	// Servers is for what is between the servers of one datacenter.
	Servers = Roles(Server)
	// AllServers is for what the servers of all datacenters share.
	AllServers = Servers | Roles(Remote)
	// Members is for what agents ask of servers, and servers of agents. A token decides what it may do.
	Members = Servers | Roles(Agent) | Roles(Guest)
	// Federation is Members and the servers of other datacenters.
	Federation = Members | Roles(Remote)
	// Anyone is for what has to come before any proof.
	Anyone = Federation | Roles(Stranger)
)

func (r Roles) String() string {
	switch r {
	case Servers:
		return "servers"
	case AllServers:
		return "servers of all datacenters"
	case Members:
		return "servers and agents"
	case Federation:
		return "servers and agents, and servers of other datacenters"
	case Anyone:
		return "anyone"
	}
	return fmt.Sprintf("roles %#x", uint8(r))
}

// Peer is the other end of a connection. It is worked out once for each; asking it costs a comparison.
type Peer struct {
	// Addr is where it comes from.
	Addr string
	// Name is the first name in its certificate; "" without one.
	Name string
	// UID is the user of a local process on a plain connection; -1 elsewhere.
	UID int64
	// Why says what it showed, for people.
	Why string

	role Role
	// network is its address on a plain network, where servers are known by their addresses as they are now.
	network netip.Addr
	wire    *Wire
}

// Role is what the peer is at this moment. nil is a stranger.
func (p *Peer) Role() Role {
	if p == nil {
		return Stranger
	}
	if p.role == Agent && p.network.IsValid() {
		if known := p.wire.knownAs(p.network, ProtoRPC); known != 0 {
			return known
		}
	}
	return p.role
}

// May says whether the peer is of one of the roles.
func (p *Peer) May(roles Roles) bool {
	if p == nil {
		return roles&Roles(Stranger) != 0
	}
	return roles&Roles(p.role) != 0 || p.known(roles, ProtoRPC)
}

// known says whether the peer's address on a plain network is that of a server of one of the roles.
func (p *Peer) known(roles Roles, proto Protocol) bool {
	return p.network.IsValid() && roles&AllServers != 0 && roles&Roles(p.wire.knownAs(p.network, proto)) != 0
}

// may is May for a protocol: a member may know other addresses as those of Raft's servers.
func (p *Peer) may(roles Roles, proto Protocol) bool {
	return p.May(roles) || p.known(roles, proto)
}

func (p *Peer) String() string {
	if p == nil {
		return "a stranger"
	}
	return fmt.Sprintf("%s is %s: %s", p.Addr, p.Role(), p.Why)
}

// PeerOf is who is at the other end of a connection of RPC, Raft or enrolment that was accepted, or dialled; nil,
// which is a stranger, for every other connection.
func PeerOf(conn net.Conn) *Peer {
	if c, ok := conn.(interface{ Peer() *Peer }); ok {
		return c.Peer()
	}
	return nil
}

// KnowServers says which addresses of a plain network are those of servers, for a protocol: Server, Remote, or 0 for
// none. A member of the cluster knows them by its Raft configuration. Without it no address is. It is asked at each
// call that is for servers alone.
func (w *Wire) KnowServers(known func(addr netip.Addr, proto Protocol) Role) { w.servers.Store(&known) }

func (w *Wire) knownAs(addr netip.Addr, proto Protocol) Role {
	if known := w.servers.Load(); known != nil {
		return (*known)(addr, proto)
	}
	return 0
}

// plainPeer works out who is at the other end of a connection without TLS. A local process is known by its user, as the
// kernel tells it: that of the socket which dialled us, or of the listener that we dialled. Nothing proves who is at
// the other end of a network.
func (w *Wire) plainPeer(raw net.Conn, dialled bool) *Peer {
	p := &Peer{Addr: raw.RemoteAddr().String(), UID: -1, role: Stranger, wire: w}
	if _, inMemory := raw.RemoteAddr().(memoryAddr); inMemory {
		p.role, p.Why = Server, "it is in this very process"
		return p
	}
	remote, local := addrPort(raw.RemoteAddr()), addrPort(raw.LocalAddr())
	if !remote.IsValid() || !local.IsValid() {
		p.Why = "it comes from no address"
		return p
	}
	ask := func() (uint32, bool, error) { return sockets.Owner(remote, local) }
	if dialled {
		ask = func() (uint32, bool, error) { return sockets.Listener(remote) }
	}
	uid, found, err := ask()
	switch {
	case found && (uid == 0 || int(uid) == os.Geteuid()):
		p.role, p.UID, p.Why = Server, int64(uid), "it is a local process of the same user or of root"
	case found:
		p.UID, p.Why = int64(uid),
			fmt.Sprintf("it is a local process of user %d, this one is of user %d; run it as the same user, or use TLS", uid,
				os.Geteuid())
	case err == nil && !dialled && ownAddress(remote.Addr(), local.Addr()):
		p.Why = "it was a local process that is gone"
	case err != nil && remote.Addr().IsLoopback():
		p.network, p.role = remote.Addr(), Agent
		p.Why = "the system does not tell whose local process it is: " + err.Error()
	default:
		p.network, p.role, p.Why = remote.Addr(), Agent,
			"it comes over a network without TLS, from an address that is no server's"
	}
	return p
}

func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// ownAddress tells whether an address is one of this machine.
func ownAddress(addr, local netip.Addr) bool {
	if addr.IsLoopback() || addr.WithZone("") == local.WithZone("") {
		return true
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		return true // nobody gains by that
	}
	return slices.ContainsFunc(list, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(addr.AsSlice())
	})
}

// peer works out who is at the other end of a secured connection, which the handshake has let in.
func (id *identity) peer(raw net.Conn, s *tls.ConnectionState) *Peer {
	p := &Peer{Addr: raw.RemoteAddr().String(), UID: -1}
	p.role, p.Why = id.now.Load().roleOf(s)
	if len(s.PeerCertificates) > 0 {
		p.Name = firstName(s.PeerCertificates[0])
	}
	return p
}

func firstName(c *x509.Certificate) string {
	switch {
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	case len(c.URIs) > 0:
		return c.URIs[0].String()
	}
	return c.Subject.CommonName
}

func (now *identityNow) roleOf(s *tls.ConnectionState) (Role, string) {
	if len(s.PeerCertificates) == 0 {
		return Stranger, "it shows no certificate"
	}
	leaf := s.PeerCertificates[0]
	vouched := len(s.VerifiedChains) > 0 || now.clientCAs != nil && verifyChain(s, now.clientCAs,
		x509.ExtKeyUsageClientAuth) == nil
	if !vouched || now.lesser != nil && now.lesser(leaf) {
		if now.guests == nil {
			return Stranger, "its certificate is none of the servers' authority"
		}
		if verify := now.guests.Verify; verify != nil {
			if err := verify(*s); err != nil {
				return Stranger, err.Error()
			}
		}
		return Guest, "its certificate is one that servers gave to an agent"
	}
	switch {
	case now.allServers:
		return Server, "the authority signs for servers alone"
	case leaf.VerifyHostname(now.ownName) == nil:
		return Server, "its certificate names " + now.ownName
	case now.domain != "" && slices.ContainsFunc(leaf.DNSNames, now.isRemote):
		return Remote, "its certificate is that of a server of another datacenter"
	}
	return Agent, fmt.Sprintf("its certificate does not name %s, as a server's does", now.ownName)
}

// isRemote recognises the server name of any datacenter.
func (now *identityNow) isRemote(name string) bool {
	rest, ok := strings.CutPrefix(name, "server.")
	dc, ok2 := strings.CutSuffix(rest, "."+now.domain)
	return ok && ok2 && dc != "" && !strings.Contains(dc, ".")
}

// admitted is a connection whose owner can ask who is at its other end, and whose end resets counts.
type admitted struct {
	counted
	peer *Peer
	ask  func() *Peer // of a connection that was dialled: worked out when somebody asks
	once sync.Once

	grant *grant      // of a connection that was accepted by a certificate
	place limit.Place // of a connection that was accepted, among those of its address
	left  sync.Once
}

// leave gives the place back.
func (c *admitted) leave() { c.left.Do(c.place.Release) }

// Close implements net.Conn.
func (c *admitted) Close() error {
	c.leave()
	c.grant.end()
	return c.Conn.Close()
}

// Peer is what PeerOf returns.
func (c *admitted) Peer() *Peer {
	if c.ask != nil {
		c.once.Do(func() { c.peer = c.ask() })
	}
	return c.peer
}
