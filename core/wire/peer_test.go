package wire

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"os"
	"testing"
)

// peerAt connects client to a listener of server that takes anybody, and returns whom the server sees.
func peerAt(t *testing.T, server, client *Wire) *Peer {
	t.Helper()
	l := server.Listen(ProtoRPC, 9, Anyone)
	defer l.Close()
	conn, err := client.Dial(t.Context(), server.Addr().String(), ProtoRPC, 9)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p := PeerOf(accept(t, l))
	if p == nil {
		t.Fatal("nobody is at the other end of an accepted connection")
	}
	return p
}

// TestRolesOfCertificates: what a certificate makes of its holder.
func TestRolesOfCertificates(t *testing.T) {
	ca, other := newCA(t, "ca"), newCA(t, "other")
	server := ca.identity(t, leaf{name: "server.dc1.consul"})
	server.Guests = &Guests{}
	server.Lesser = func(c *x509.Certificate) bool { return c.Subject.CommonName == "marked" }
	w, _ := runWire(t, Config{TLS: server})
	for name, c := range map[string]struct {
		shows *TLS
		want  Role
	}{
		"a server":                            {ca.identity(t, leaf{name: "server.dc1.consul"}), Server},
		"an agent":                            {ca.identity(t, leaf{name: "client.dc1.consul"}), Agent},
		"a server of another datacenter":      {ca.identity(t, leaf{name: "server.dc2.consul"}), Remote},
		"of another domain":                   {ca.identity(t, leaf{name: "server.dc2.example"}), Agent},
		"with more labels":                    {ca.identity(t, leaf{name: "server.a.dc1.consul"}), Agent},
		"a guest":                             {mixed(other.identity(t, leaf{name: "web"}), server), Guest},
		"a guest with a server's name":        {mixed(other.identity(t, leaf{name: "server.dc1.consul"}), server), Guest},
		"one that servers gave, of this root": {ca.identity(t, leaf{name: "marked"}), Guest},
		"without a certificate":               {bare(server), Stranger},
	} {
		client, _ := runWire(t, Config{TLS: c.shows})
		p := peerAt(t, w, client)
		if p.Role() != c.want || p.May(Servers) != (c.want == Server) || p.Why == "" {
			t.Errorf("%s: %s", name, p)
		}
	}
	if (*Peer)(nil).May(Federation) || !(*Peer)(nil).May(Anyone) {
		t.Error("a connection of no wire is more than a stranger's")
	}
}

// TestListenersTakeTheirRolesAlone: whoever is not of a role is cut before the listener's owner hears of it.
func TestListenersTakeTheirRolesAlone(t *testing.T) {
	ca := newCA(t, "ca")
	w, _ := runWire(t, Config{TLS: ca.identity(t, leaf{name: "server.dc1.consul"})})
	for i, roles := range []Roles{Servers, Members, Federation, Anyone} {
		echo(t, w.Listen(ProtoRPC, uint8(i), roles), "rpc")
		for role, name := range map[Role]string{Server: "server.dc1.consul", Agent: "client.dc1.consul",
			Remote: "server.dc2.consul"} {
			client, _ := runWire(t, Config{TLS: ca.identity(t, leaf{name: name})})
			err := say(t.Context(), client, w.Addr().String(), ProtoRPC, uint8(i), "rpc")
			if want := roles&Roles(role) != 0; (err == nil) != want {
				t.Errorf("%s at a listener for %s: %v", role, roles, err)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a listener for nobody was made")
		}
	}()
	w.Listen(ProtoRPC, 99, 0)
}

// TestPlainPeers: a local process is known by its user; a network proves nothing, and its servers are known by their
// addresses of now.
func TestPlainPeers(t *testing.T) {
	w, _ := runWire(t, Config{})
	client, _ := runWire(t, Config{})
	if p := peerAt(t, w, client); p.Role() != Server || p.UID != int64(os.Geteuid()) {
		t.Errorf("a process of the same user: %s", p)
	}
	far := &Peer{role: Agent, network: netip.MustParseAddr("10.0.0.7"), wire: w}
	if far.Role() != Agent || far.May(Servers) || !far.May(Members) {
		t.Errorf("an address that nobody knows: %s", far)
	}
	known := Server
	w.KnowServers(func(a netip.Addr, _ Protocol) Role {
		if a == far.network {
			return known
		}
		return 0
	})
	if far.Role() != Server || !far.May(Servers) {
		t.Errorf("the address of a server: %s", far)
	}
	if known = Remote; far.Role() != Remote || far.May(Servers) || !far.May(AllServers) || !far.May(Members) {
		t.Errorf("the address of another datacenter's server: %s", far)
	}
	if known = 0; far.Role() != Agent || far.May(Servers) || far.May(AllServers) {
		t.Errorf("the address of a former server: %s", far)
	}
}

// TestDialServer: only a server's certificate will do, also where other dials check no name.
func TestDialServer(t *testing.T) {
	ca := newCA(t, "ca")
	here, _ := runWire(t, Config{TLS: ca.identity(t, leaf{name: "server.dc1.consul"})})
	for name, want := range map[string]bool{"server.dc1.consul": true, "client.dc1.consul": false,
		"server.dc2.consul": false} {
		there, _ := runWire(t, Config{TLS: ca.identity(t, leaf{name: name})})
		l := there.Listen(ProtoRaft, 0, Anyone)
		for _, c := range []struct {
			how  string
			dial func(context.Context, string, Protocol, uint8) (net.Conn, error)
			ok   bool
		}{{"Dial", here.Dial, true}, {"DialServer", func(ctx context.Context, addr string, proto Protocol,
			group uint8) (net.Conn, error) {
			return here.DialServer(ctx, addr, "server.dc1.consul", proto, group)
		}, want}} {
			conn, err := c.dial(t.Context(), there.Addr().String(), ProtoRaft, 0)
			if (err == nil) != c.ok {
				t.Errorf("%s to %s: %v", c.how, name, err)
			}
			if err == nil {
				if p := PeerOf(conn); (p.Role() == Server) != want {
					t.Errorf("%s to %s: it is %s", c.how, name, p)
				}
				conn.Close()
			}
		}
		l.Close()
	}
	plain, _ := runWire(t, Config{})
	other, _ := runWire(t, Config{})
	echo(t, plain.Listen(ProtoRaft, 0, Servers), "raft")
	conn, err := other.DialServer(t.Context(), plain.Addr().String(), "server.dc1.consul", ProtoRaft, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if p := PeerOf(conn); p.Role() != Server {
		t.Errorf("a local process of the same user: %s", p)
	}
}
