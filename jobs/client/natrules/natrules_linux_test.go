package natrules

import (
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corbel.dev/corbel/kit/fault/netns"
	"corbel.dev/corbel/kit/loud"
)

// TestRules: what nft shows of the table, in a namespace of the test's own.
func TestRules(t *testing.T) {
	if err := netns.Available(); err != nil {
		loud.Skip(t, "%v", err)
	}
	runtime.LockOSThread() // the thread ends with the test, and the namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort
	r := New("nomad", netip.MustParsePrefix("172.26.64.0/20"))
	if err := r.Drop(); err != nil {
		t.Fatal("a table that is not there:", err)
	}
	web := Published{Host: at("192.0.2.2:8080"), Inside: at("172.26.64.2:80")}
	if err := r.Replace([]Published{web}); err != nil {
		t.Fatal(err)
	}
	list := func() string {
		t.Helper()
		out, err := exec.Command("nft", "-n", "list", "ruleset").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	for _, want := range []string{"192.0.2.2 . 6 . 8080 : 172.26.64.2 . 80", "192.0.2.2 . 17 . 8080 : 172.26.64.2 . 80",
		`iifname "nomad" ip daddr 127.0.0.0/8 drop`, "dnat", "map @published",
		"ip saddr 172.26.64.0/20 ip daddr 172.26.64.0/20 ct status 0x20 masquerade",
		`ip saddr 127.0.0.0/8 oifname "nomad" masquerade`,
		`ip saddr 172.26.64.0/20 ip daddr != 172.26.64.0/20 ip daddr != 224.0.0.0/4 oifname != "nomad" masquerade`} {
		if text := list(); !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	var many []Published
	for i := range 3 * batch {
		many = append(many, Published{Host: netip.AddrPortFrom(web.Host.Addr(), uint16(20000+i)),
			Inside: netip.AddrPortFrom(web.Inside.Addr(), uint16(i))})
	}
	if err := r.Add(many); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(list(), " : 172.26.64.2 . "); n != 2*(1+len(many)) {
		t.Errorf("%d elements", n)
	}
	if err := r.Remove(many); err != nil {
		t.Fatal(err)
	}
	if err := r.Remove(many[:2]); err != nil {
		t.Fatal("what is gone was removed again:", err)
	}
	if n := strings.Count(list(), " : 172.26.64.2 . "); n != 2 {
		t.Errorf("%d elements are left", n)
	}
	if err := r.Replace(nil); err != nil {
		t.Fatal(err)
	}
	if text := list(); strings.Contains(text, "192.0.2.2") || !strings.Contains(text, "masquerade") {
		t.Error(text)
	}
	if err := r.Drop(); err != nil || strings.TrimSpace(list()) != "" {
		t.Error(err, list())
	}
}
