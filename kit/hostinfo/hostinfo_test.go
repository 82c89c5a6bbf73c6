package hostinfo

import (
	"os"
	"runtime"
	"testing"
)

func TestReadFacts(t *testing.T) {
	f := ReadFacts(true)
	if name, _ := os.Hostname(); f.Hostname != name || f.OS != runtime.GOOS || f.Arch != runtime.GOARCH {
		t.Errorf("%+v", f)
	}
	if runtime.GOOS == "linux" && (f.Platform == "" || f.Family == "" || f.LibC == "") {
		t.Errorf("a Linux without platform, family or libc: %+v", f)
	}
	loopback := false
	for _, i := range f.Interfaces {
		for _, a := range i.Addresses {
			loopback = loopback || a == "127.0.0.1/8"
		}
	}
	if !loopback {
		t.Errorf("no loopback address: %+v", f.Interfaces)
	}
	if f := ReadFacts(false); f.Interfaces != nil {
		t.Error("interfaces that were not asked for")
	}
}

func TestFamily(t *testing.T) {
	for _, c := range []struct{ id, like, want string }{
		{"debian", "", "debian"}, {"ubuntu", "debian", "debian"}, {"rocky", "rhel centos fedora", "rhel"},
		{"pop", "ubuntu debian", "debian"},
		{"opensuse-leap", "suse opensuse", "suse"}, {"haiku", "", "haiku"}, {"x", "y z", "x"},
	} {
		if got := family(c.id, c.like); got != c.want {
			t.Errorf("%s (%s): %s", c.id, c.like, got)
		}
	}
}
