//go:build release

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// entry is one of an archive.
type entry struct {
	tar.Header
	content []byte
}

// readAPK takes an apk apart as apk does: two streams of gzip one after the other, what is told of the package and what
// it installs, of which the first has the hash.
func readAPK(t *testing.T, path string) (info map[string][]string, control, data []entry) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := bytes.NewReader(text)
	next := func() (list []entry, stream []byte) {
		begin := len(text) - r.Len()
		z, err := gzip.NewReader(r)
		if err != nil {
			t.Fatal(err)
		}
		z.Multistream(false)
		for files := tar.NewReader(z); ; {
			h, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(files)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, entry{*h, b})
		}
		if _, err := io.Copy(io.Discard, z); err != nil {
			t.Fatal(err)
		}
		return list, text[begin : len(text)-r.Len()]
	}
	control, _ = next()
	data, stream := next()
	if r.Len() > 0 {
		t.Errorf("%d bytes are behind the last stream", r.Len())
	}
	info = map[string][]string{}
	for _, e := range control {
		if e.Name != ".PKGINFO" {
			continue
		}
		for line := range strings.Lines(string(e.content)) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok && !strings.HasPrefix(key, "#") {
				info[key] = append(info[key], value)
			}
		}
	}
	if want := fmt.Sprintf("%x", sha256.Sum256(stream)); !slices.Equal(info["datahash"], []string{want}) {
		t.Errorf("datahash is %q, want %s", info["datahash"], want)
	}
	return info, control, data
}

// What apk reads of a package is there, and true.
func TestAPK(t *testing.T) {
	fmt.Fprintf(os.Stderr, "NOT RUN: %s: apk itself, which Debian does not have: its archives are judged by their form\n", t.Name())
	r := made(t, "1.2.3", "x")
	for i := range packs {
		p := &packs[i]
		info, control, data := readAPK(t, r.build(t, p.name, "apk"))
		arch := "x86_64"
		want := map[string][]string{"pkgname": {p.name}, "pkgver": {"1.2.3-r1"}, "license": {"Apache-2.0"}}
		if p.name != "corbel" {
			arch = "noarch"
			want["replaces"], want["provides"] = p.peers, p.peers[:1]
			for _, peer := range p.peers {
				want["depend"] = append(want["depend"], "!"+peer)
			}
			want["depend"] = append(want["depend"], "corbel")
		}
		want["arch"] = []string{arch}
		for key, list := range want {
			if got := slices.Sorted(slices.Values(info[key])); !slices.Equal(got, slices.Sorted(slices.Values(list))) {
				t.Errorf("%s: %s is %q, want %q", p.name, key, got, list)
			}
		}
		for _, script := range []string{".post-install", ".post-upgrade", ".pre-deinstall", ".post-deinstall"} {
			i := slices.IndexFunc(control, func(e entry) bool { return e.Name == script })
			if i < 0 || control[i].Mode&0o111 != 0o111 || !bytes.HasPrefix(control[i].content, []byte("#!/bin/sh\n")) {
				t.Errorf("%s: %s is missing, or cannot be run", p.name, script)
			}
		}
		for _, unit := range p.units {
			i := slices.IndexFunc(data, func(e entry) bool { return e.Name == "etc/init.d/"+unit })
			if i < 0 || data[i].Mode != 0o755 || !bytes.Contains(data[i].content, []byte("\nsupervisor=supervise-daemon\n")) ||
				bytes.Contains(data[i].content, []byte("@")) {
				t.Errorf("%s: no script of OpenRC for %s, or not a whole one", p.name, unit)
			}
		}
		for _, e := range data {
			if e.Typeflag != tar.TypeReg {
				continue
			}
			if sum := fmt.Sprintf("%x", sha1.Sum(e.content)); e.PAXRecords["APK-TOOLS.checksum.SHA1"] != sum || e.Uid != 0 {
				t.Errorf("%s: %s has the checksum %q, want %s", p.name, e.Name, e.PAXRecords["APK-TOOLS.checksum.SHA1"], sum)
			}
		}
	}
}

// alpine is a root with nothing but BusyBox, as Alpine has it.
type alpine struct{ *system }

// The two programs that Debian's BusyBox is built without take the options of BusyBox's own, and no others.
const (
	addgroupDouble = `#!/bin/sh
set -e
[ "$#" = 2 ] && [ "$1" = -S ] || { echo "addgroup $*: not an option of BusyBox's" >&2; exit 1; }
echo "$2:x:101:" >>/etc/group
`
	adduserDouble = `#!/bin/sh
set -e
[ "$1 $2 $3 $4" = "-S -D -H -h" ] && [ "$6 $7 $8" = "-s /sbin/nologin -G" ] && [ "$#" = 10 ] && grep -q "^$9:" /etc/group ||
	{ echo "adduser $*: not what BusyBox takes" >&2; exit 1; }
shift
echo "$9:x:100:101:Linux User,,,:$4:/sbin/nologin" >>/etc/passwd
`
)

// openrcDouble writes down what it is asked for. All services are started.
const openrcDouble = `#!/bin/sh
echo "${0##*/} $*" >>/tmp/calls
`

func newAlpine(t *testing.T) *alpine {
	t.Helper()
	box, err := exec.LookPath("busybox")
	if err != nil || os.Getuid() != 0 {
		skip(t, "root and a static BusyBox are needed: apt-get install busybox-static")
	}
	a := &alpine{&system{t, t.TempDir()}}
	for name, text := range map[string]string{"etc/passwd": "root:x:0:0::/:/bin/sh\n", "etc/group": "root:x:0:\n",
		"dev/null": "", "run/openrc/softlevel": ""} {
		a.write(name, text)
	}
	if err := os.Mkdir(filepath.Join(a.root, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	sh(t, "install", "-D", "-m", "755", box, filepath.Join(a.root, "bin/busybox"))
	if err := exec.Command("chroot", a.root, "/bin/busybox", "true").Run(); err != nil {
		skip(t, "a static BusyBox is needed (apt-get install busybox-static): "+err.Error())
	}
	sh(t, "chroot", a.root, "/bin/busybox", "--install", "-s", "/bin")
	for name, text := range map[string]string{"rc-service": openrcDouble, "rc-update": openrcDouble} {
		a.write(filepath.Join("bin", name), text)
		sh(t, "chmod", "755", filepath.Join(a.root, "bin", name))
	}
	for name, text := range map[string]string{"addgroup": addgroupDouble, "adduser": adduserDouble} {
		path := filepath.Join(a.root, "bin", name)
		if _, err := os.Lstat(path); err == nil {
			continue // this BusyBox has it
		}
		fmt.Fprintf(os.Stderr, "NOT RUN: %s: BusyBox's %s, which Debian's lacks: a double takes its options\n", t.Name(), name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// calls are what OpenRC was asked for since it was last read.
func (a *alpine) calls() string {
	a.t.Helper()
	path := filepath.Join(a.root, "tmp/calls")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		a.t.Fatal(err)
	}
	_ = os.Remove(path)
	return string(text)
}

func (a *alpine) run(args ...string) {
	a.t.Helper()
	cmd := exec.Command("chroot", append([]string{a.root}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if out, err := cmd.CombinedOutput(); err != nil {
		a.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// script runs one of a package's, with apk's arguments.
func (a *alpine) script(control []entry, name string, args ...string) {
	a.t.Helper()
	i := slices.IndexFunc(control, func(e entry) bool { return e.Name == name })
	if i < 0 {
		a.t.Fatalf("no %s", name)
	}
	path := filepath.Join(a.root, "tmp", name)
	if err := os.WriteFile(path, control[i].content, 0o755); err != nil {
		a.t.Fatal(err)
	}
	a.run(append([]string{"/tmp/" + name}, args...)...)
}

// lay puts the files of a package into the root.
func (a *alpine) lay(data []entry) {
	a.t.Helper()
	for _, e := range data {
		path := filepath.Join(a.root, filepath.FromSlash(e.Name))
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case e.Typeflag == tar.TypeDir:
			if err = os.Mkdir(path, e.FileInfo().Mode().Perm()); errors.Is(err, os.ErrExist) {
				err = nil // it stays as it was
			}
		case e.Typeflag == tar.TypeSymlink:
			_ = os.Remove(path)
			err = os.Symlink(e.Linkname, path)
		default:
			if err = os.WriteFile(path, e.content, 0o755); err == nil {
				err = os.Chmod(path, e.FileInfo().Mode().Perm())
			}
		}
		if err != nil {
			a.t.Fatal(err)
		}
	}
}

// The scripts of an apk do their work with BusyBox and OpenRC alone: the user, owners and modes; an upgrade finds both as
// they were and restarts agents, and a removal ends what runs and leaves data and configuration.
func TestLifeOfAPK(t *testing.T) {
	a := newAlpine(t)
	for i := range packs {
		p := &packs[i]
		var data []entry
		versions := []string{"1.0.0", "1.1.0"}
		for n, version := range versions {
			var control []entry
			_, control, data = readAPK(t, made(t, version, version).build(t, p.name, "apk"))
			a.lay(data)
			if n == 0 {
				a.script(control, ".post-install", version+"-r1")
			} else {
				a.script(control, ".post-upgrade", version+"-r1", versions[0]+"-r1")
			}
			users, err := os.ReadFile(filepath.Join(a.root, "etc/passwd"))
			if err != nil || strings.Count(string(users), "\n"+p.user+":") != 1 {
				t.Errorf("%s: no user %s, or two: %v\n%s", p.name, p.user, err, users)
			}
			for _, f := range p.folders {
				want := "750 0 101"
				if f.data {
					want = "700 100 101"
				}
				out, err := exec.Command("stat", "-c", "%a %u %g", filepath.Join(a.root, f.path)).CombinedOutput()
				if got := strings.TrimSpace(string(out)); err != nil || got != want {
					t.Errorf("%s: %s is %q, %v, want %q", p.name, f.path, got, err, want)
				}
				a.write(filepath.Join(f.path, "kept"), "precious\n")
			}
		}
		if want := "rc-service --ifstarted corbel-agent restart\n"; p.name == "corbel" && a.calls() != "rc-service --quiet "+
			"corbel-agent status\n"+want+"rc-service --quiet corbel-server status\n" {
			t.Errorf("%s: an upgrade does not restart the agent alone", p.name)
		}
		a.calls()
		_, control, _ := readAPK(t, made(t, versions[1], "").build(t, p.name, "apk"))
		a.script(control, ".pre-deinstall", versions[1]+"-r1")
		want := ""
		for _, unit := range p.units {
			want += "rc-service --ifstarted " + unit + " stop\nrc-update --quiet --all delete " + unit + "\n"
		}
		if got := a.calls(); got != want {
			t.Errorf("%s: a removal calls\n%swant\n%s", p.name, got, want)
		}
		for _, e := range data {
			if e.Typeflag != tar.TypeDir {
				if err := os.Remove(filepath.Join(a.root, filepath.FromSlash(e.Name))); err != nil {
					t.Error(err)
				}
			}
		}
		a.script(control, ".post-deinstall", versions[1]+"-r1")
		for _, f := range p.folders {
			if !a.has(filepath.Join(f.path, "kept")) {
				t.Errorf("%s: a removal has taken what was in %s", p.name, f.path)
			}
		}
	}
}
