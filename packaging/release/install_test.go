//go:build release

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// host is one of the page's machines: a network namespace with its address, and a Debian system of its own, an overlay
// over this one whose changes end with it. Its processes end with it too.
type host struct {
	t       *testing.T
	address string
	init    *exec.Cmd
}

// site is what the hosts share: the bridge, and a folder with each host's /etc/corbel.d, through which scp copies.
type site struct {
	folder, prefix string
}

func sh(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// The two commands that a test cannot have as they are: scp goes to the folder of the other host; systemctl writes down
// what it is asked for, starts what the unit's ExecStart says as the unit's user, and waits for the end of what it stops.
const (
	scpStub = `#!/bin/sh
set -e
for last; do :; done
host=${last%%:*}; path=${last#*:/etc/corbel.d}
while [ $# -gt 1 ]; do cp "$1" "/mnt/hosts/$host/$path"; shift; done
`
	systemctlStub = `#!/bin/sh
set -e
echo "$*" >>/var/log/systemctl.calls
now= verb= names=
for word; do
	case "$word" in
	--now) now=1 ;;
	-*) ;;
	*) [ -n "$verb" ] && names="$names ${word%.service}" || verb=$word ;;
	esac
done
said() { sed -n "s/^$2=//p" "/usr/lib/systemd/system/$1.service"; }
runs() { [ -e "/run/$1.pid" ] && [ -e "/proc/$(cat "/run/$1.pid")/exe" ]; } # what has ended has no program
start() {
	! runs "$1" || return 0
	user=$(said "$1" User) state=$(said "$1" StateDirectory)
	[ -z "$state" ] || install -d -m 700 -o "${user:-root}" "/var/lib/$state"
	cd /
	setsid setpriv --reuid="${user:-root}" --regid="${user:-root}" --init-groups $(said "$1" ExecStart) </dev/null \
		>>"/var/log/$1.log" 2>&1 &
	echo $! >"/run/$1.pid"
	while :; do # until it is the program
		case "$(readlink "/proc/$!/exe")" in
		*/sh | */dash | */setsid | */setpriv) sleep 0.05 ;;
		*) break ;;
		esac
	done
}
stop() {
	runs "$1" || return 0
	kill "$(cat "/run/$1.pid")"
	for n in $(seq 600); do
		runs "$1" || return 0
		sleep 0.1
	done
	echo "$1 does not end" >&2
	exit 1
}
for name in $names; do
	[ -e "/usr/lib/systemd/system/$name.service" ] || { echo "Unit $name.service not found." >&2; exit 5; }
	case "$verb" in
	enable) [ -z "$now" ] || start "$name" ;;
	disable) [ -z "$now" ] || stop "$name" ;;
	start) start "$name" ;;
	stop) stop "$name" ;;
	restart) stop "$name"; start "$name" ;;
	try-restart) runs "$name" || continue; stop "$name"; start "$name" ;;
	is-active) runs "$name" || exit 3 ;;
	*) echo "systemctl $verb is not known here" >&2; exit 1 ;;
	esac
done
`
	initScript = `set -e
base=$1; shared=$2; address=$3
mount --make-rprivate /
hostname "host-${address##*.}"
mount -t tmpfs -o size=1g tmpfs "$base"
mkdir "$base/upper" "$base/work" "$base/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$base/root"
root=$base/root
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$root/etc/corbel.d" "$root/mnt/hosts" "$root/srv/install" "$root/run/systemd/system"
mount --bind "$shared/hosts/$address" "$root/etc/corbel.d"
mount --bind "$shared/hosts" "$root/mnt/hosts"
for file in "$shared"/*.deb; do
	[ ! -e "$file" ] || cp "$file" "$root/srv/install/"
done
install -m 755 "$shared/scp" "$shared/systemctl" "$root/usr/bin/" # rpm's scripts look nowhere else
exec chroot "$root" sleep 3600
`
)

func newSite(t *testing.T, addresses []string) *site {
	t.Helper()
	s := &site{folder: t.TempDir(), prefix: fmt.Sprintf("corbelinst%d", os.Getpid())}
	for name, text := range map[string]string{"scp": scpStub, "systemctl": systemctlStub, "init": initScript} {
		if err := os.WriteFile(filepath.Join(s.folder, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	hub := s.prefix + "hub"
	sh(t, "ip", "netns", "add", hub)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", hub).Run() })
	sh(t, "ip", "-n", hub, "link", "add", "br0", "type", "bridge")
	sh(t, "ip", "-n", hub, "link", "set", "br0", "up")
	for i, address := range addresses {
		ns, port := fmt.Sprintf("%s-%d", s.prefix, i), fmt.Sprintf("port%d", i)
		sh(t, "ip", "netns", "add", ns)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
		for _, args := range []string{"-n " + hub + " link add " + port + " type veth peer name eth0 netns " + ns,
			"-n " + hub + " link set " + port + " master br0 up", "-n " + ns + " addr add " + address + "/24 dev eth0",
			"-n " + ns + " link set eth0 up", "-n " + ns + " link set lo up"} {
			sh(t, "ip", strings.Fields(args)...)
		}
		for _, folder := range []string{"hosts/" + address, "base/" + address} {
			if err := os.MkdirAll(filepath.Join(s.folder, folder), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

// start boots a host: what it mounts, and what runs on it, is in namespaces of its own.
func (s *site) start(t *testing.T, i int, address string) *host {
	t.Helper()
	h := &host{t: t, address: address, init: exec.Command("ip", "netns", "exec", fmt.Sprintf("%s-%d", s.prefix, i),
		"unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "sh", filepath.Join(s.folder, "init"),
		filepath.Join(s.folder, "base", address), s.folder, address)}
	var said bytes.Buffer
	h.init.Stdout, h.init.Stderr = &said, &said
	if err := h.init.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.init.Process.Kill()
		_ = h.init.Wait()
	})
	for deadline := time.Now().Add(time.Minute); ; {
		// Until its root is its own, a command would run on this system.
		root := filepath.Join(s.folder, "base", address, "root")
		if own, err := os.Readlink("/proc/" + h.first() + "/root"); err == nil && own == root {
			return h
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s did not start: %s", address, said.String())
		}
		<-time.After(20 * time.Millisecond)
	}
}

// first is the host's first process, "" where there is none: the child of unshare, which has forked.
func (h *host) first() string {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", h.init.Process.Pid, h.init.Process.Pid))
	if list := strings.Fields(string(children)); err == nil && len(list) > 0 {
		return list[0]
	}
	return ""
}

// run runs commands on the host, as root, in the folder of the packages.
func (h *host) run(script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	first := h.first()
	if first == "" {
		return "", errors.New(h.address + " has ended")
	}
	cmd := exec.CommandContext(ctx, "nsenter", "--target", first, "--mount", "--net",
		"--pid", "--uts", "--root", "--wd", "sh", "-c", "cd /srv/install\n"+script)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/srv/install", "LANG=C.UTF-8"}
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (h *host) must(script string) string {
	h.t.Helper()
	out, err := h.run(script)
	if err != nil {
		h.t.Fatalf("%s on %s: %v\n%s", script, h.address, err, out)
	}
	return out
}

var numbered = regexp.MustCompile(`^ ?([0-9]+)  (.*)$`)

// tenCommands are the commands of docs/install.md, by their numbers less one.
func tenCommands(t *testing.T) (list []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "in ten commands\n")
	_, rest, inside := strings.Cut(rest, "```text\n")
	block, _, ended := strings.Cut(rest, "```")
	if !ok || !inside || !ended {
		t.Fatal("docs/install.md has no block of ten commands")
	}
	for line := range strings.Lines(block) {
		line = strings.TrimSuffix(line, "\n")
		if m := numbered.FindStringSubmatch(line); m != nil {
			if list = append(list, m[2]); m[1] != fmt.Sprint(len(list)) {
				t.Fatalf("command %s follows %d", m[1], len(list)-1)
			}
		} else if len(list) > 0 {
			list[len(list)-1] += "\n" + strings.TrimPrefix(line, "    ")
		}
	}
	return list
}

// The page's commands are ten, and each has the form that the test below runs.
func TestTenCommandsRead(t *testing.T) {
	list := tenCommands(t)
	if len(list) != 10 {
		t.Fatalf("%d commands", len(list))
	}
	for i, begin := range []string{"apt-get install ./corbel_", "corbel self-test", "corbel tls ca create", "KEY=", "cat > common",
		"cat common.hcl", "for n in 0 1 2", "(cat common.hcl", "chgrp corbel", "export CORBEL_HTTP_TOKEN=$TOKEN; until"} {
		if !strings.HasPrefix(list[i], begin) {
			t.Errorf("command %d is %q", i+1, list[i])
		}
	}
}

// Three servers and two agents, each a Debian system in a network namespace of its own, come from the package to a
// cluster with TLS by the page's ten commands, as they stand there.
func TestTenCommands(t *testing.T) {
	binary := os.Getenv("CORBEL_BINARY")
	for _, tool := range []string{"ip", "unshare", "nsenter", "setpriv", "dpkg", "apt-get"} {
		if _, err := exec.LookPath(tool); err != nil || os.Getuid() != 0 || binary == "" {
			skip(t, "root on Debian with "+tool+", and CORBEL_BINARY with the path of a binary, are needed")
		}
	}
	list := tenCommands(t)
	version, err := versionIn("../..")
	if err != nil {
		t.Fatal(err)
	}
	deb := os.Getenv("CORBEL_DEB") // of the same binary
	if deb == "" {
		text, err := os.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		deb = madeOf(t, version, text).build(t, "corbel", "deb")
	}
	if !strings.Contains(list[0], filepath.Base(deb)) {
		t.Errorf("the page installs %s, and the package is %s", list[0], filepath.Base(deb))
	}
	addresses := []string{"10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8", "10.0.0.9"}
	s := newSite(t, addresses)
	sh(t, "cp", deb, s.folder)
	var hosts []*host
	for i, address := range addresses {
		h := s.start(t, i, address)
		h.must(list[0])
		hosts = append(hosts, h)
	}
	if out, err := hosts[0].run(list[1]); err != nil { // it judges this machine, which may be a poor one
		t.Logf("%s: %v\n%s", list[1], err, out)
		if !strings.Contains(out, "fsync") {
			t.Error("the self-test has looked at nothing")
		}
	}
	first := hosts[0]
	first.must("set -e\n" + strings.Join(list[2:8], "\n") + "\necho \"$TOKEN\" > token; echo \"$AGENT\" > agent")
	for i, h := range hosts {
		start := list[8]
		if i > 2 {
			start = strings.ReplaceAll(start, "corbel-server", "corbel-agent")
		}
		h.must("set -e\n" + start)
	}
	last := ""
	for deadline := time.Now().Add(3 * time.Minute); strings.Count(last, "alive") != len(hosts); {
		if time.Now().After(deadline) {
			log, _ := first.run("tail -n 30 /var/log/corbel-server.log")
			other, _ := hosts[4].run("tail -n 30 /var/log/corbel-agent.log")
			t.Fatalf("members are\n%s\nthe log of %s\n%s\nof %s\n%s", last, first.address, log, hosts[4].address, other)
		}
		<-time.After(250 * time.Millisecond)
		last, _ = first.run("TOKEN=$(cat token) AGENT=$(cat agent)\n" + list[9])
	}
	// It works: what an agent writes, another reads. Servers take no connection without a certificate (verify_incoming),
	// so agents have got theirs.
	token := "CORBEL_HTTP_TOKEN=" + strings.TrimSpace(first.must("cat token")) + " timeout 20 corbel "
	hosts[4].must("until " + token + "kv put tried yes; do sleep 1; done")
	if out := hosts[3].must(token + "kv get tried"); strings.TrimSpace(out) != "yes" {
		t.Errorf("another agent reads %q", out)
	}
}
