//go:build unix

package redirect

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/fault/netns"
	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
)

func TestScript(t *testing.T) {
	r := Rules{ProxyUID: 1234, InboundPort: 20000, OutboundPort: 15001, ExcludeUIDs: []uint32{9, 1234},
		ExcludeInboundPorts:  []uint16{8080, 22, 22},
		ExcludeOutboundPorts: []uint16{5432}, ExcludeOutboundCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/8"),
			netip.MustParsePrefix("fd00::/8")},
		DNS: netip.MustParseAddrPort("127.0.0.1:8600")}
	got, err := r.Script()
	want := `table ip corbel_redirect {}
delete table ip corbel_redirect
table ip corbel_redirect {
	chain outbound {
		type nat hook output priority -100; policy accept;
		meta skuid { 9, 1234 } return
		meta l4proto { tcp, udp } th dport 53 dnat to 127.0.0.1:8600
		ip daddr 127.0.0.0/8 return
		tcp dport { 5432 } return
		ip daddr 10.0.0.0/8 return
		meta l4proto tcp redirect to :15001
	}
	chain inbound {
		type nat hook prerouting priority -100; policy accept;
		tcp dport { 22, 8080 } return
		meta l4proto tcp redirect to :20000
	}
}
`
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
	for _, wrong := range []Rules{{ProxyUID: 1}, {OutboundPort: 1, DNS: netip.MustParseAddrPort("[::1]:53")}} {
		if got, err := wrong.Script(); err == nil {
			t.Errorf("%+v: %s", wrong, got)
		}
	}
}

const roleVar = "CORBEL_TEST_REDIRECT" // what this binary does inside of a namespace

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		if err := play(role, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// play is a server that answers with its name (serve NETWORK ADDRESS NAME), or who asks as some user (ask UID NETWORK
// ADDRESS).
func play(role string, args []string) error {
	if role == "ask" {
		var uid int
		if _, err := fmt.Sscan(args[0], &uid); err != nil {
			return err
		}
		if err := syscall.Setuid(uid); err != nil {
			return err
		}
		c, err := net.DialTimeout(args[1], args[2], 5*time.Second)
		if err != nil {
			return err
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Write([]byte("?")); err != nil {
			return err
		}
		buf := make([]byte, 64)
		n, err := c.Read(buf)
		fmt.Print(string(buf[:n]))
		return err
	}
	if args[0] == "udp" {
		l, err := net.ListenPacket("udp", args[1])
		if err != nil {
			return err
		}
		for buf := make([]byte, 64); ; {
			_, from, err := l.ReadFrom(buf)
			if err != nil {
				return err
			}
			_, _ = l.WriteTo([]byte(args[2]), from)
		}
	}
	l, err := net.Listen("tcp", args[1])
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		_, _ = io.WriteString(c, args[2])
		_ = c.Close()
	}
}

// TestTrafficGoesThroughTheProxy redirects the traffic of a host that is a namespace of its own.
func TestTrafficGoesThroughTheProxy(t *testing.T) {
	if err := netns.Available(); err != nil {
		loud.Skip(t, "redirected traffic: %v", err)
	}
	const workload, near, far = 0, 1, 2
	n, err := netns.New(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	// Virtual addresses need a way out, as every host has one.
	if out, err := n.Command(t.Context(), workload, "ip", "route", "add", "default", "via",
		n.IP(near)).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	command := func(host int, role string, args ...string) *exec.Cmd {
		c := n.Command(t.Context(), host, os.Args[0], args...)
		c.Env = append(os.Environ(), roleVar+"="+role, "GORACE=atexit_sleep_ms=0") // else each takes a second to end
		return c
	}
	serve := func(host int, network, address, name string) {
		c := command(host, "serve", network, address, name)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
	}
	ask := func(host int, uid, network, address string) string {
		out, err := command(host, "ask", uid, network, address).CombinedOutput()
		if err != nil {
			return strings.TrimSpace(string(out)) + " " + err.Error()
		}
		return string(out)
	}
	const user, proxyUser, other = "1001", "1234", "1300"
	serve(workload, "tcp", "127.0.0.1:15001", "outbound listener")
	serve(workload, "tcp", "0.0.0.0:20000", "public listener")
	serve(workload, "tcp", "0.0.0.0:80", "application")
	serve(workload, "tcp", "0.0.0.0:8080", "metrics")
	serve(workload, "udp", "127.0.0.1:8600", "agent's DNS")
	serve(near, "tcp", "0.0.0.0:9000", "near")
	serve(near, "tcp", "0.0.0.0:5432", "database")
	serve(far, "tcp", "0.0.0.0:9000", "far")
	for host, port := range map[int]string{workload: "8080", near: "5432", far: "9000"} {
		polltest.Until(t, func() bool { return !strings.Contains(ask(near, user, "tcp", n.IP(host)+":"+port), "refused") },
			"the servers")
	}
	rules := Rules{ProxyUID: 1234, InboundPort: 20000, OutboundPort: 15001, ExcludeUIDs: []uint32{1300},
		ExcludeInboundPorts: []uint16{8080}, ExcludeOutboundPorts: []uint16{5432},
		ExcludeOutboundCIDRs: []netip.Prefix{netip.MustParsePrefix(n.IP(far) + "/32")},
		DNS:                  netip.MustParseAddrPort("127.0.0.1:8600")}
	script, err := rules.Script()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time replaces the first
		if err := Apply(t.Context(), script, "/var/run/netns/"+n.Namespace(workload)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		host                        int
		uid, network, address, want string
	}{
		{workload, user, "tcp", n.IP(near) + ":9000", "outbound listener"},
		{workload, user, "tcp", "240.0.0.1:80", "outbound listener"}, // a virtual address, which no host has
		{workload, proxyUser, "tcp", n.IP(near) + ":9000", "near"},
		{workload, other, "tcp", n.IP(near) + ":9000", "near"},
		{workload, user, "tcp", n.IP(near) + ":5432", "database"},
		{workload, user, "tcp", n.IP(far) + ":9000", "far"},
		{workload, user, "tcp", "127.0.0.1:80", "application"},
		{workload, user, "udp", n.IP(near) + ":53", "agent's DNS"},
		{near, user, "tcp", n.IP(workload) + ":80", "public listener"},
		{near, user, "tcp", n.IP(workload) + ":8080", "metrics"},
	} {
		if got := ask(c.host, c.uid, c.network, c.address); got != c.want {
			t.Errorf("host %d, user %s, %s: %q, want %q", c.host, c.uid, c.address, got, c.want)
		}
	}
}
