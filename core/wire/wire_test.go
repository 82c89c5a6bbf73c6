package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/polltest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// runWire runs a Wire on loopback until the test ends or stop is called.
func runWire(tb testing.TB, cfg Config) (w *Wire, stop func()) {
	tb.Helper()
	if cfg.Bind == "" && cfg.Listener == nil {
		cfg.Bind = "127.0.0.1:0"
	}
	w, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				tb.Errorf("Run: %v", err)
			}
		})
	}
	tb.Cleanup(stop)
	return w, stop
}

// echo answers each connection of l with name and what it says.
func echo(tb testing.TB, l net.Listener, name string) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				io.WriteString(conn, name)
				io.Copy(conn, conn)
			})
		}
	})
	tb.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
}

// say dials, expects the name and an echo, and closes.
func say(ctx context.Context, w *Wire, addr string, proto Protocol, group uint8, name string) error {
	conn, err := w.Dial(ctx, addr, proto, group)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		return err
	}
	got := make([]byte, len(name)+5)
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != name+"hello" {
		return errors.New("got " + string(got))
	}
	return nil
}

func TestConnectionsAreSorted(t *testing.T) {
	server, _ := runWire(t, Config{})
	echo(t, server.Listen(ProtoRaft, 0, Anyone), "raft0")
	echo(t, server.Listen(ProtoRaft, 7, Anyone), "raft7")
	echo(t, server.Listen(ProtoRPC, 0, Anyone), "rpc")
	client, _ := runWire(t, Config{})
	addr := server.Addr().String()
	for _, c := range []struct {
		proto Protocol
		group uint8
		name  string
	}{{ProtoRaft, 0, "raft0"}, {ProtoRaft, 7, "raft7"}, {ProtoRPC, 0, "rpc"}} {
		if err := say(t.Context(), client, addr, c.proto, c.group, c.name); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := say(t.Context(), client, addr, ProtoRPC, 9, ""); err == nil {
		t.Error("a group that nobody listens for was served")
	}
	polltest.Until(t, func() bool { s := server.Stats(); return s.Accepted == 3 && s.Rejected == 1 && s.Pending == 0 },
		"three accepted, one rejected")
	server.Listen(ProtoFeed, 0, Anyone)
	conn, err := client.Dial(t.Context(), addr, ProtoFeed, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, bare := conn.(*net.TCPConn); !bare {
		t.Errorf("a plain connection without faults is a %T", conn)
	}
}

func TestSilentPeersAreBoundedAndCut(t *testing.T) {
	server, _ := runWire(t, Config{MaxPending: 8, HeaderTimeout: 300 * time.Millisecond})
	echo(t, server.Listen(ProtoRPC, 0, Anyone), "rpc")
	addr := server.Addr().String()
	var conns []net.Conn
	for range 6 {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	// A quarter of eight may wait per source: the others are closed at once.
	polltest.Until(t, func() bool { return server.Stats().ShedPending == 4 }, "four to be shed")
	polltest.Until(t, func() bool { return server.Stats().Rejected == 2 }, "two to time out")
	for _, conn := range conns {
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, syscall.ETIMEDOUT) {
			t.Errorf("a silent connection was kept: %v", err)
		}
	}
	if err := say(t.Context(), server, addr, ProtoRPC, 0, "rpc"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestListenerThatDoesNotAcceptSheds(t *testing.T) {
	server, _ := runWire(t, Config{Backlog: 2})
	l := server.Listen(ProtoRPC, 0, Anyone)
	for range 5 {
		conn, err := server.Dial(t.Context(), server.Addr().String(), ProtoRPC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	polltest.Until(t, func() bool { return server.Stats().ShedBacklog == 3 }, "three to be shed")
	for range 2 {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
	server.Listen(ProtoRPC, 0, Anyone).Close() // the route is free again
}

func TestStopClosesWhatWaits(t *testing.T) {
	server, stop := runWire(t, Config{HeaderTimeout: time.Hour})
	l := server.Listen(ProtoRPC, 0, Anyone)
	conn, err := net.Dial("tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	polltest.Until(t, func() bool { return server.Stats().Pending == 1 }, "the connection to wait")
	stop()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after the stop: %v", err)
	}
	if _, err := server.Listen(ProtoRPC, 1, Anyone).Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("listening after the stop: %v", err)
	}
	if err := say(t.Context(), server, server.Addr().String(), ProtoRPC, 0, ""); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("dialling after the stop: %v", err)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestTLS(t *testing.T) {
	ca, other := newCA(t, "ca"), newCA(t, "other")
	const serverName, clientName = "server.dc1.consul", "client.dc1.consul"
	good := ca.identity(t, leaf{name: serverName})
	named := func(id *TLS) *TLS {
		return &TLS{OwnName: serverName, Server: id.Server, Client: id.Client, ServerName: serverName}
	}
	cases := []struct {
		name           string
		server, client *TLS
		proto          Protocol
		ok             bool
		log            string // of the server
	}{
		{"same CA", good, good, ProtoRPC, true, ""},
		{"same CA, names checked", named(good), named(good), ProtoRaft, true, ""},
		{"client's certificate speaks RPC", named(good), named(ca.identity(t, leaf{name: clientName})), ProtoRPC, true, ""},
		{"client's certificate speaks Raft", named(good), named(ca.identity(t, leaf{name: clientName})), ProtoRaft, false,
			"Raft is for servers, and the peer is an agent"},
		{"server has a client's name", named(ca.identity(t, leaf{name: clientName})), named(good), ProtoRPC, false, ""},
		{"wrong CA here", good, other.identity(t, leaf{name: serverName}), ProtoRPC, false, ""},
		{"client of a wrong CA that trusts ours", good, mixed(other.identity(t, leaf{name: serverName}), good), ProtoRPC,
			false, "unknown authority"},
		{"client without a certificate", good, bare(good), ProtoRPC, false, "certificate"},
		{"expired server", ca.identity(t, leaf{name: serverName, expired: true}), good, ProtoRPC, false, ""},
		{"expired client", good, ca.identity(t, leaf{name: serverName, expired: true}), ProtoRPC, false, "expired"},
		{"not yet valid client", good, ca.identity(t, leaf{name: serverName, future: true}), ProtoRPC, false,
			"not yet valid"},
		{"plain client", good, nil, ProtoRPC, false, "speaks plain TCP"},
		{"plain server", nil, good, ProtoRPC, false, "speaks TLS"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var log lockedBuffer
			server, _ := runWire(t, Config{TLS: c.server, Log: slog.New(slog.NewTextHandler(&log, nil))})
			echo(t, server.Listen(ProtoRPC, 0, Anyone), "rpc")
			echo(t, server.Listen(ProtoRaft, 0, Servers), "rpc")
			client, _ := runWire(t, Config{TLS: c.client, DialTimeout: 3 * time.Second})
			err := say(t.Context(), client, server.Addr().String(), c.proto, 0, "rpc")
			if (err == nil) != c.ok {
				t.Fatalf("err = %v, want ok = %v", err, c.ok)
			}
			if c.log != "" {
				polltest.Until(t, func() bool { return strings.Contains(log.String(), c.log) }, "the log to say %q, it says %s",
					c.log, &log)
			}
			if !c.ok && c.name != "plain server" && server.Stats().Accepted != 0 {
				t.Error("the connection was handed over")
			}
		})
	}
}

// A server of another datacenter shows that datacenter's name, and no other will do.
func TestDialNamed(t *testing.T) {
	ca := newCA(t, "ca")
	of := func(dc string) *TLS {
		id := ca.identity(t, leaf{name: "server." + dc + ".consul"})
		id.ServerName = "server." + dc + ".consul"
		return id
	}
	there, _ := runWire(t, Config{TLS: of("dc2")})
	echo(t, there.Listen(ProtoRPC, 0, Anyone), "rpc")
	here, _ := runWire(t, Config{TLS: of("dc1")})
	for name, ok := range map[string]bool{"": false, "server.dc1.consul": false, "server.dc2.consul": true,
		"server.dc3.consul": false} {
		conn, err := here.DialNamed(t.Context(), there.Addr().String(), name, ProtoRPC, 0)
		if (err == nil) != ok || !ok && !errkind.Is(err, errkind.Denied) {
			t.Errorf("name %q: %v", name, err)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
	loose, _ := runWire(t, Config{TLS: ca.identity(t, leaf{name: "anybody"})}) // checks no names
	conn, err := loose.DialNamed(t.Context(), there.Addr().String(), "server.dc3.consul", ProtoRPC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// A server that checks servers' names still reaches agents, whose certificates have none and are often for clients
// alone; it takes them for servers nowhere else, and strangers never.
func TestDialMember(t *testing.T) {
	ca, other := newCA(t, "ca"), newCA(t, "other")
	id := ca.identity(t, leaf{name: "server.dc1.consul"})
	id.ServerName = "server.dc1.consul"
	here, _ := runWire(t, Config{TLS: id})
	for _, c := range []struct {
		ca     *authority
		name   string
		member bool
	}{{ca, "client.dc1.consul", true}, {ca, "server.dc1.consul", true}, {other, "client.dc1.consul", false},
		{other, "server.dc1.consul", false}} {
		their := c.ca.identity(t, leaf{name: c.name})
		their.Server.ClientCAs = id.Server.ClientCAs
		there, _ := runWire(t, Config{TLS: their})
		echo(t, there.Listen(ProtoRPC, 0, Anyone), "rpc")
		for kind, dial := range map[string]func() (net.Conn, error){
			"member": func() (net.Conn, error) { return here.DialMember(t.Context(), there.Addr().String(), ProtoRPC, 0) },
			"server": func() (net.Conn, error) { return here.Dial(t.Context(), there.Addr().String(), ProtoRPC, 0) },
		} {
			want := c.member && (kind == "member" || c.name == "server.dc1.consul")
			conn, err := dial()
			if (err == nil) != want {
				t.Errorf("%s, of the authority: %v, as a %s: %v", c.name, c.ca == ca, kind, err)
			}
			if err == nil {
				_ = conn.Close()
			}
		}
	}
}

func TestReloadTakesNewCertificates(t *testing.T) {
	ca := newCA(t, "ca")
	server, _ := runWire(t, Config{TLS: ca.identity(t, leaf{name: "a", expired: true})})
	echo(t, server.Listen(ProtoRPC, 0, Anyone), "rpc")
	client, _ := runWire(t, Config{TLS: ca.identity(t, leaf{name: "b"})})
	addr := server.Addr().String()
	if err := say(t.Context(), client, addr, ProtoRPC, 0, "rpc"); !errkind.Is(err, errkind.Denied) {
		t.Fatalf("expired: %v", err)
	}
	if err := server.Reload(ca.identity(t, leaf{name: "a"})); err != nil {
		t.Fatal(err)
	}
	if err := say(t.Context(), client, addr, ProtoRPC, 0, "rpc"); err != nil {
		t.Errorf("after the reload: %v", err)
	}
	if err := server.Reload(nil); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("TLS switched off: %v", err)
	}
	if err := server.Reload(&TLS{}); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("TLS without configs: %v", err)
	}
}

func TestWrongConfig(t *testing.T) {
	for want, cfg := range map[string]Config{
		"bind address is empty":         {},
		"source address":                {Bind: "127.0.0.1:0", Source: "x"},
		"server and a client config":    {Bind: "127.0.0.1:0", TLS: &TLS{}},
		"the server has no certificate": {Bind: "127.0.0.1:0", TLS: &TLS{Server: &tls.Config{}, Client: &tls.Config{}}},
	} {
		if _, err := New(cfg); !errkind.Is(err, errkind.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	w, err := New(Config{Bind: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := New(Config{Bind: w.Addr().String()}); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("taken port: %v", err)
	}
}

func TestFaultHook(t *testing.T) {
	var verdict atomic.Pointer[func(op string) (time.Duration, error)]
	hook := func(op, peer string) (time.Duration, error) {
		if f := verdict.Load(); f != nil {
			return (*f)(op)
		}
		return 0, nil
	}
	set := func(f func(op string) (time.Duration, error)) { verdict.Store(&f) }
	server, _ := runWire(t, Config{})
	echo(t, server.Listen(ProtoRPC, 0, Anyone), "rpc")
	client, _ := runWire(t, Config{Faults: hook, DialTimeout: 200 * time.Millisecond})
	addr := server.Addr().String()
	if err := say(t.Context(), client, addr, ProtoRPC, 0, "rpc"); err != nil {
		t.Fatal(err)
	}
	conn, err := client.Dial(t.Context(), addr, ProtoRPC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	broken := errors.New("cut")
	set(func(op string) (time.Duration, error) {
		if op == OpDial {
			return 0, broken
		}
		return 0, nil
	})
	if _, err := client.Dial(t.Context(), addr, ProtoRPC, 0); !errors.Is(err, broken) {
		t.Errorf("cut dial: %v", err)
	}
	set(func(string) (time.Duration, error) { return -1, nil })
	if _, err := client.Dial(t.Context(), addr, ProtoRPC, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stalled dial: %v", err)
	}
	// A stalled read passes its deadline, and loses nothing.
	conn.SetDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := conn.Read(make([]byte, 8)); !isTimeout(err) {
		t.Errorf("stalled read: %v", err)
	}
	if _, err := conn.Write([]byte("x")); !isTimeout(err) {
		t.Errorf("stalled write: %v", err)
	}
	set(func(string) (time.Duration, error) { return time.Millisecond, nil })
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	got := make([]byte, 3)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "rpc" {
		t.Errorf("after the stall: %q, %v", got, err)
	}
	// Closing frees a stalled reader.
	set(func(string) (time.Duration, error) { return -1, nil })
	done := make(chan error, 1)
	go func() {
		_, err := conn.Write([]byte("x"))
		done <- err
	}()
	conn.Close()
	if err := polltest.Get(t, done, "the stalled write"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write on a closed connection: %v", err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte{1, 0})
	f.Add([]byte{22, 3, 1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		proto, group, err := readHeader(r)
		if (err == nil) != (len(b) >= headerBytes) {
			t.Fatalf("%d bytes: %v", len(b), err)
		}
		if err == nil && (byte(proto) != b[0] || group != b[1] || r.Len() != len(b)-headerBytes) {
			t.Fatalf("%v became %d %d with %d left", b, proto, group, r.Len())
		}
	})
}

// TestConnectionsOfAnAddressAreBounded closes one beyond the bound, and takes one again when another has ended.
func TestConnectionsOfAnAddressAreBounded(t *testing.T) {
	conns := limit.NewConns(2, 0, nil)
	server, _ := runWire(t, Config{Conns: conns})
	echo(t, server.Listen(ProtoRPC, 0, Anyone), "rpc")
	client, _ := runWire(t, Config{})
	addr := server.Addr().String()
	open := func() int { n, _ := conns.Open(netip.MustParseAddr("127.0.0.1")); return n }
	var held []net.Conn
	for range 2 {
		conn, err := client.Dial(t.Context(), addr, ProtoRPC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		held = append(held, conn)
	}
	polltest.Until(t, func() bool { return open() == 2 }, "both to be counted")
	if err := say(t.Context(), client, addr, ProtoRPC, 0, "rpc"); err == nil {
		t.Error("a third connection was taken")
	}
	_ = held[0].Close()
	polltest.Until(t, func() bool { return open() == 1 }, "its end to be noticed")
	if err := say(t.Context(), client, addr, ProtoRPC, 0, "rpc"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
