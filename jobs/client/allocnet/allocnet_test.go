package allocnet

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPool: no address has two owners, the gateway and the broadcast address have none, and a full pool says so.
func TestPool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.IntRange(24, 30).Draw(t, "bits")
		p, err := NewPool(netip.PrefixFrom(netip.MustParseAddr("172.26.64.0"), bits))
		if err != nil {
			t.Fatal(err)
		}
		room := 1<<(32-bits) - 3
		owners := map[netip.Addr]string{}
		for n := range rapid.IntRange(1, 600).Draw(t, "steps") {
			if len(owners) > 0 && rapid.Bool().Draw(t, "give") {
				for a := range owners {
					p.Give(a)
					delete(owners, a)
					break
				}
				continue
			}
			alloc := fmt.Sprint("alloc", n)
			a, err := p.Take(alloc)
			if (err != nil) != (len(owners) == room) {
				t.Fatalf("%d of %d are taken: %v", len(owners), room, err)
			}
			if err != nil {
				continue
			}
			if owners[a] != "" || !p.Subnet().Contains(a) || a == p.Gateway() || a == p.broadcast() || a == p.Subnet().Addr() {
				t.Fatalf("%s is given to %s, and was %q's", a, alloc, owners[a])
			}
			owners[a] = alloc
		}
	})
}

// TestKeep: what former lives gave is not given again, and a lie of a file is refused.
func TestKeep(t *testing.T) {
	p, err := NewPool(netip.MustParsePrefix("172.26.64.0/29"))
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddr
	again := p.Keep("a", at("172.26.64.2"))
	if !again || !p.Keep("a", at("172.26.64.2")) || p.Keep("b", at("172.26.64.2")) ||
		p.Keep("b", at("172.26.64.1")) || p.Keep("b", at("172.26.64.7")) || p.Keep("b", at("10.0.0.1")) ||
		p.Keep("b", netip.Addr{}) {
		t.Error("addresses are kept for those that do not have them")
	}
	if a, err := p.Take("c"); err != nil || a != at("172.26.64.3") {
		t.Error(a, err)
	}
	p.Give(at("172.26.64.2"))
	for _, want := range []string{"172.26.64.4", "172.26.64.5", "172.26.64.6", "172.26.64.2"} {
		if a, err := p.Take("d"); err != nil || a != at(want) {
			t.Error("what was given back comes last", a, err)
		}
	}
	for _, bad := range []string{"172.26.64.0/31", "10.0.0.0/4", "fd00::/64"} {
		if _, err := NewPool(netip.MustParsePrefix(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// TestFiles: what tasks see of names.
func TestFiles(t *testing.T) {
	m := &Made{Want: Want{Alloc: "0123456789abcdef", Hostname: "web"}, Address: netip.MustParseAddr("172.26.64.2")}
	if got := HostsFile(m); !strings.Contains(got, "172.26.64.2 web\n") || !strings.Contains(got, "127.0.0.1 localhost") {
		t.Error(got)
	}
	if got := HostsFile(&Made{Want: Want{Alloc: "0123456789abcdef"}}); !strings.Contains(got, "127.0.1.1 0123456789ab\n") {
		t.Error(got)
	}
	host := "# made by hand\nnameserver 10.0.0.1\nnameserver\nsearch corp example\noptions ndots:2\n"
	if got := ResolvFile(DNS{}, host); got != "nameserver 10.0.0.1\nsearch corp example\noptions ndots:2\n" {
		t.Error(got)
	}
	d := DNS{Servers: []string{"1.1.1.1", "8.8.8.8"}, Searches: []string{"a", "b"}, Options: []string{"rotate"}}
	if got := ResolvFile(d, host); got != "nameserver 1.1.1.1\nnameserver 8.8.8.8\nsearch a b\noptions rotate\n" {
		t.Error(got)
	}
	for text, want := range map[string]bool{"nameserver 127.0.0.53\n": true, "": false, host: false,
		"nameserver 127.0.0.53\nnameserver 10.0.0.1\n": false} {
		if Loopback(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
	if n := OutsideName("0b7b1f2e-8a3c-11d0-4d1f-3c6a91f0c0de"); len(n) > 15 || n == OutsideName("x") {
		t.Error(n)
	}
}
