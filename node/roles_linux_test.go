package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/coordinates"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/core/wire/wiretest"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	catalogplane "corbel.dev/corbel/node/planes/catalog"
	doctorplane "corbel.dev/corbel/node/planes/doctor"
	monitorplane "corbel.dev/corbel/node/planes/monitor"
)

// nobody is a user that the tests' own processes are not of.
const nobodyUID = 65534

// withCertificate connects as somebody with a certificate, or without one (nil).
func withCertificate(a *wiretest.Authority, c *tls.Certificate) wiretest.Opener {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		d := tls.Dialer{Config: &tls.Config{RootCAs: a.Pool(), ServerName: goodName, GetClientCertificate: show(c)}}
		return d.DialContext(ctx, "tcp", addr)
	}
}

// asUser connects as a process of that user would: the kernel knows a socket by the user of the thread that made it.
func asUser(uid int) wiretest.Opener {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		at, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			return nil, err
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if uid != os.Getuid() {
			if err := unix.Setfsuid(uid); err != nil {
				return nil, err
			}
			defer func() { _ = unix.Setfsuid(os.Getuid()) }()
		}
		return net.DialTCP("tcp", nil, at)
	}
}

// listenAs listens as a process of that user would.
func listenAs(t *testing.T, uid int) net.Listener {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setfsuid(uid); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setfsuid(os.Getuid()) }()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// callerAs is a client whose connections are opened so.
func callerAs(t *testing.T, open wiretest.Opener, proto wire.Protocol) *rpc.Client {
	t.Helper()
	c := rpc.NewClient(rpc.ClientConfig{Timeout: 30 * time.Second,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := open(ctx, addr)
			if err != nil {
				return nil, errkind.E(errkind.Unavailable, "dial", err)
			}
			_, err = conn.Write([]byte{byte(proto), 0})
			return conn, errkind.E(errkind.Unavailable, "dial", err)
		}})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// monitorOverTLS is a server with the monitor plane whose RPC port demands certificates of a. verify_server_hostname
// is as given.
func monitorOverTLS(t *testing.T, a *wiretest.Authority, verifyNames bool) *testMember {
	t.Helper()
	m := startServer(t, "mon", monitorOn+`
bootstrap = true`+a.RPCBlock(a.Issue(goodName, -time.Minute, time.Hour),
		fmt.Sprint("verify_server_hostname = ", verifyNames)))
	polltest.Until(t, func() bool { return len(m.monitor().Unready()) == 0 }, "the monitor plane to be ready")
	return m
}

// makeAdmin asks the plane's leader, as another server would, to write an administrator.
func makeAdmin(c *rpc.Client, m *testMember, name string) error {
	u := &monitor.User{Username: name, Groups: []string{"cluster-admins"}}
	cmd := objects.AppendCommand(nil, []objects.Op{{Verb: objects.Create, Type: "users", Name: name,
		Encoded: tagproto.Append(nil, u)}})
	_, err := c.Call(context.Background(), m.RPCAddr(), monitorplane.MethodPropose, cmd)
	return err
}

// refusedAdmin fails when the caller made an administrator of the monitor plane, whose handlers run commands on its
// servers.
func refusedAdmin(t *testing.T, c *rpc.Client, m *testMember, who string) {
	t.Helper()
	err := makeAdmin(c, m, "mallory")
	if err == nil {
		t.Errorf("%s made an administrator", who)
	}
	if m.monitor().Group.Resources.View().Get("users", "", "mallory") != nil {
		t.Errorf("%s: the administrator is there (%v)", who, err)
	}
	if strings.Contains(fmt.Sprint(err), "precondition") {
		t.Errorf("%s: the command was looked at: %v", who, err)
	}
}

// TestAgentCertificateMakesNoAdministrator: what servers ask of each other is not for agents, whatever
// verify_server_hostname says. A certificate that was good for agents alone made a monitor administrator, and so ran
// commands as the server's user.
func TestAgentCertificateMakesNoAdministrator(t *testing.T) {
	t.Parallel()
	for _, verifyNames := range []bool{true, false} {
		t.Run(fmt.Sprint("verify_server_hostname=", verifyNames), func(t *testing.T) {
			a := wiretest.NewAuthority(t)
			m := monitorOverTLS(t, a, verifyNames)
			for _, name := range []string{"client.dc1.consul", "server.dc2.consul"} {
				cert := a.Issue(name, -time.Minute, time.Hour)
				c := callerAs(t, withCertificate(a, &cert), wire.ProtoRPC)
				refusedAdmin(t, c, m, name)
				if err := makeAdmin(c, m, "other"); !errkind.Is(err, errkind.Denied) ||
					!strings.Contains(err.Error(), monitorplane.MethodPropose+" is for servers") {
					t.Errorf("%s: the refusal says %v", name, err)
				}
			}
			cert := a.Issue(goodName, -time.Minute, time.Hour)
			if err := makeAdmin(callerAs(t, withCertificate(a, &cert), wire.ProtoRPC), m, "other"); err != nil {
				t.Errorf("a server: %v", err)
			}
		})
	}
}

// TestAnotherUserMakesNoAdministrator: on a plain loopback port, processes of other users are strangers.
func TestAnotherUserMakesNoAdministrator(t *testing.T) {
	t.Parallel()
	m := startServer(t, "mon", monitorOn+"bootstrap = true")
	polltest.Until(t, func() bool { return len(m.monitor().Unready()) == 0 }, "the monitor plane to be ready")
	if os.Getuid() == 0 {
		refusedAdmin(t, callerAs(t, asUser(nobodyUID), wire.ProtoRPC), m, "a process of another user")
		l := listenAs(t, nobodyUID)
		if conn, err := m.raft.DialServer(t.Context(), l.Addr().String()); !errkind.Is(err, errkind.Denied) {
			t.Errorf("a process of another user is asked as a server: %v, %v", conn, err)
		}
	} else {
		t.Log("NOT RUN: a process of another user: that needs root")
	}
	if err := makeAdmin(callerAs(t, asUser(os.Getuid()), wire.ProtoRPC), m, "other"); err != nil {
		t.Errorf("a process of the same user: %v", err)
	}
}

// TestInternalMethodsJudgeTokens: a method that agents may call does what the call's token allows, and no constant
// stands in its place.
func TestInternalMethodsJudgeTokens(t *testing.T) {
	t.Parallel()
	const root = "11111111-1111-1111-1111-111111111111"
	m := startServer(t, "judge", fmt.Sprintf(`
bootstrap = true
acl { enabled = true, default_policy = "deny", tokens { initial_management = %[1]q, agent = %[1]q } }`, root))
	polltest.Until(t, func() bool { _, err := m.access.tokens.Grant(t.Context(), root); return err == nil }, "the token")
	c := callerAs(t, asUser(os.Getuid()), wire.ProtoRPC)
	servers := &catalogplane.Servers{Client: c, Own: func() catalogplane.Applier { return nil },
		Target: func() (string, error) { return m.RPCAddr(), nil }}
	svc := &catalog.Service{ID: "db-1", Name: "db", Node: "n1", Port: 5432}
	check := &catalog.Check{Node: "n1", ID: "db", Name: "db", ServiceID: "db-1", ServiceName: "db",
		Status: catalog.Passing, Output: "a password, perhaps"}
	reg := &catalog.Register{Node: catalog.Node{Name: "n1", Address: "10.0.0.9"}, Service: svc,
		Checks: []*catalog.Check{check}}
	polltest.NoError(t, time.Minute, func() error { return servers.Register(t.Context(), root, reg) }, "a registration")
	for token, want := range map[string]int{"": 0, root: 1} {
		list, err := servers.NodeServices(t.Context(), token, "n1")
		checks, err2 := servers.NodeChecks(t.Context(), token, "n1")
		if err != nil || err2 != nil || len(list) != want || len(checks) != want {
			t.Errorf("token %q sees %d services and %d checks of a node: %v, %v", token, len(list), len(checks), err, err2)
		}
	}
	if n, err := servers.NodeInfo(t.Context(), "", "n1"); err != nil || n != nil {
		t.Errorf("without a token a node is told: %v, %v", n, err)
	}
	evidence := []byte(`{"Member":"judge"}`)
	for _, q := range []struct {
		method string
		req    func(token string) []byte
	}{
		{coordinates.MethodUpdate,
			func(token string) []byte { return coordinates.Update(token, "n1", m.Pool.Coordinate()) }},
		{doctorplane.MethodTell, func(token string) []byte { return pack.Bytes(pack.String(nil, token), evidence) }},
	} {
		for _, token := range []string{"", "\x00server"} {
			if _, err := c.Call(t.Context(), m.RPCAddr(), q.method, q.req(token)); err == nil ||
				!strings.Contains(err.Error(), "ermission denied") && !strings.Contains(err.Error(), "ACL not found") {
				t.Errorf("%s with token %q: %v", q.method, token, err)
			}
		}
		_, err := c.Call(t.Context(), m.RPCAddr(), q.method, q.req(root))
		if q.method == doctorplane.MethodTell && err != nil && strings.Contains(err.Error(), "is no agent of this cluster") {
			err = nil // the right was there
		}
		if err != nil {
			t.Errorf("%s with a right: %v", q.method, err)
		}
	}
}
