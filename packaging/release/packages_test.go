//go:build release

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// made is a release of a small program in the binary's place: what packages do does not depend on it.
func made(t *testing.T, version, says string) *release {
	t.Helper()
	return madeOf(t, version, []byte("#!/bin/sh\necho "+says+"\n"))
}

// madeOf is a release of a program, hardly compressed.
func madeOf(t *testing.T, version string, program []byte) *release {
	t.Helper()
	r := &release{source: "../..", out: t.TempDir(), version: version, date: time.Unix(1_700_000_000, 0).UTC(),
		targets: []target{{"linux", "amd64"}}, quick: true}
	if err := os.WriteFile(filepath.Join(r.out, r.targets[0].file(version)), program, 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *release) build(t *testing.T, name, format string) string {
	t.Helper()
	i := slices.IndexFunc(packs, func(p pack) bool { return p.name == name })
	path, err := r.pack(&packs[i], format, "amd64", filepath.Join(r.out, r.targets[0].file(r.version)))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Two builds are equal, byte by byte.
func TestSamePackages(t *testing.T) {
	for i := range packs {
		for _, format := range formats {
			var built [2][]byte
			for n := range built {
				r := made(t, "1.2.3", "x")
				r.quick = false
				path := r.build(t, packs[i].name, format)
				var err error
				if built[n], err = os.ReadFile(path); err != nil {
					t.Fatal(err)
				}
			}
			if len(built[0]) == 0 || !bytes.Equal(built[0], built[1]) {
				t.Errorf("%s, %s: two builds differ", packs[i].name, format)
			}
		}
	}
}

// system is the root of a system with dpkg.
type system struct {
	t    *testing.T
	root string
}

func newSystem(t *testing.T) *system {
	if _, err := exec.LookPath("dpkg"); err != nil || os.Getuid() != 0 {
		skip(t, "dpkg as root is needed")
	}
	s := &system{t, t.TempDir()}
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "etc", "usr/bin"} {
		if err := os.MkdirAll(filepath.Join(s.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"var/lib/dpkg/status": "", "etc/passwd": "root:x:0:0::/:/bin/sh\n",
		"etc/group": "root:x:0:\n"} {
		s.write(name, text)
	}
	return s
}

func (s *system) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s *system) dpkg(args ...string) string {
	s.t.Helper()
	cmd := exec.Command("dpkg", append([]string{"--root=" + s.root, "--force-script-chrootless", "--no-triggers"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("dpkg %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (s *system) has(name string) bool {
	_, err := os.Lstat(filepath.Join(s.root, name))
	return err == nil
}

func (s *system) runs(program, want string) {
	s.t.Helper()
	path, err := filepath.EvalSymlinks(filepath.Join(s.root, "usr/bin", program))
	if err != nil {
		s.t.Fatal(err)
	}
	if out, err := exec.Command(path).CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != want {
		s.t.Errorf("%s says %q, %v, want %q", program, out, err, want)
	}
}

// A package is installed, upgraded, removed and purged; data and configuration go with the purge alone.
func TestLife(t *testing.T) {
	s := newSystem(t)
	s.dpkg("-i", made(t, "1.0.0", "one").build(t, "corbel", "deb"))
	s.runs("corbel", "one")
	s.write("etc/corbel.d/server.hcl", "server = true\n")
	s.write("var/lib/corbel/state", "precious\n")
	users, err := os.ReadFile(filepath.Join(s.root, "etc/passwd"))
	if err != nil || !strings.Contains(string(users), "\ncorbel:") {
		t.Errorf("no user corbel: %v\n%s", err, users)
	}
	out, err := exec.Command("stat", "-c", "%a %u", filepath.Join(s.root, "var/lib/corbel")).Output()
	if want := "700 "; err != nil || !strings.HasPrefix(string(out), want) || strings.HasPrefix(string(out), "700 0\n") {
		t.Errorf("the data folder is %q, %v: its mode is to be 700 and its owner corbel", out, err)
	}
	for _, unit := range []string{"corbel-server", "corbel-agent"} {
		if !s.has("usr/lib/systemd/system/" + unit + ".service") {
			t.Errorf("no unit %s", unit)
		}
	}
	s.dpkg("-i", made(t, "1.1.0", "two").build(t, "corbel", "deb"))
	s.runs("corbel", "two")
	if !s.has("var/lib/corbel/state") || !s.has("etc/corbel.d/server.hcl") {
		t.Error("an upgrade has taken data or configuration")
	}
	s.dpkg("-i", "--force-downgrade", made(t, "1.0.0", "one").build(t, "corbel", "deb"))
	s.runs("corbel", "one")
	s.dpkg("-r", "corbel")
	if s.has("usr/bin/corbel") || !s.has("var/lib/corbel/state") || !s.has("etc/corbel.d/server.hcl") {
		t.Error("a removal takes the program, and neither data nor configuration")
	}
	s.dpkg("--purge", "corbel")
	if s.has("var/lib/corbel") || s.has("etc/corbel.d") {
		t.Error("a purge leaves data or configuration")
	}
}

// Packages of peers take the place of what they are named for, whose configuration and data stay.
func TestPeers(t *testing.T) {
	s := newSystem(t)
	s.dpkg("-i", foreign(t, "consul", "1.21.4", "foreign"))
	s.runs("consul", "foreign")
	s.write("opt/consul/raft/raft.db", "theirs\n")
	r := made(t, "1.0.0", "corbel")
	s.dpkg("-i", r.build(t, "corbel", "deb"))
	s.dpkg("-i", r.build(t, "corbel-consul", "deb"))
	s.runs("consul", "corbel")
	for _, name := range []string{"etc/consul.d/consul.hcl", "opt/consul/raft/raft.db", "usr/lib/systemd/system/consul.service"} {
		if !s.has(name) {
			t.Errorf("%s is gone", name)
		}
	}
	if list := s.dpkg("-l"); !strings.Contains(list, "ii  corbel-consul") || strings.Contains(list, "ii  consul ") {
		t.Errorf("installed are\n%s", list)
	}
	for _, name := range []string{"corbel-vault", "corbel-nomad", "corbel-sensu"} {
		s.dpkg("-i", r.build(t, name, "deb"))
	}
	for _, name := range []string{"vault", "bao", "nomad", "sensu-agent", "sensu-backend"} {
		s.runs(name, "corbel")
	}
	s.dpkg("--purge", "corbel-consul")
	if s.has("usr/bin/consul") || !s.has("opt/consul/raft/raft.db") {
		t.Error("a purge takes the link, and not the data that another has left")
	}
}

// foreign is a package of another's, made by dpkg's own tools.
func foreign(t *testing.T, name, version, says string) string {
	t.Helper()
	s := &system{t, filepath.Join(t.TempDir(), "tree")}
	s.write("DEBIAN/control", "Package: "+name+"\nVersion: "+version+"\nArchitecture: all\nMaintainer: x <x@example.org>\n"+
		"Description: x\n")
	s.write("DEBIAN/conffiles", "/etc/consul.d/consul.hcl\n")
	s.write("etc/consul.d/consul.hcl", "data_dir = \"/opt/consul\"\n")
	s.write("usr/bin/"+name, "#!/bin/sh\necho "+says+"\n")
	if err := os.Chmod(filepath.Join(s.root, "usr/bin", name), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name+".deb")
	if out, err := exec.Command("dpkg-deb", "--build", "--root-owner-group", s.root, path).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}
