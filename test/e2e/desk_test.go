package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

const (
	blockTime = 30 * time.Second // for one block, and for what stays until it is ready
	pageTime  = 80 * time.Second // for a page
)

// desk is where a page is tried: hosts with the addresses 10.0.0.5, 10.0.0.6 and so on, of which the first one has
// the terminal. All that it started ends with its first process.
type desk struct {
	*testing.T
	dir, home string
	hosts     int
	terminal  io.Writer
	ended     chan error
	noise     *bytes.Buffer // of the terminal itself; read after ended
	end       time.Time
	pasted    int
	running   string // the file that says that the last process of Corbel ended
}

// unshare is the command that gives a process the namespaces of a host.
func unshare(args ...string) []string {
	all := []string{"unshare", "--net", "--mount", "--uts"}
	if os.Geteuid() != 0 {
		all = append(all, "--user", "--map-root-user")
	}
	return append(all, args...)
}

// namespaces says why there can be no desk here, or nil.
func namespaces() error {
	for _, tool := range []string{"unshare", "nsenter", "ip", "bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("the command %s is missing", tool)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	try := unshare("--pid", "--fork", "--mount-proc", "bash", "-c",
		"ip link set lo up && ip link add b0 type bridge && mount -t tmpfs none /var/lib")
	if out, err := exec.CommandContext(ctx, try[0], try[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("namespaces of the network and of mounts cannot be had here: %w: %s", err, out)
	}
	return nil
}

// hostSetup makes a host of the namespaces that a shell is in: loopback, and /etc and /var/lib that are its own.
const hostSetup = `set -e
hostname $HOST
ip link set lo up
mkdir -p $DIR/$HOST && cp -r --no-preserve=ownership /etc $DIR/$HOST/etc 2>/dev/null || true
mount --bind $DIR/$HOST/etc /etc
mount -t tmpfs none /var/lib
`

// deskSetup lays the cables.
const deskSetup = `
ip link add desk type bridge
ip addr add 10.0.0.5/24 dev desk
ip link set desk up
for n in $MORE; do
	HOST=host$n unshare --net --mount --uts bash -c "$SETUP"'touch $DIR/$HOST/up; exec sleep infinity' & pid=$!
	until [ -e $DIR/host$n/up ]; do read -t 0.05 _ <> <(:) || true; done
	ip link add to$n type veth peer name eth0 netns $pid
	ip link set to$n master desk up
	nsenter -t $pid --net ip addr add 10.0.0.$n/24 dev eth0
	nsenter -t $pid --net ip link set eth0 up
	echo $pid > $DIR/host$n/pid
done
set +e -E
FAILED=$DIR/failed
trap 'echo "exit $?: $BASH_COMMAND" >> $FAILED' ERR
cd
touch $DIR/up
`

// sshScript and scpScript are ssh and scp between the hosts.
const (
	sshScript = `#!/bin/bash
host=$1; shift
n=${host##*.}
[ $n = 5 ] && exec bash -c "$*"
exec nsenter -t $(cat $DIR/host$n/pid) --net --mount --uts bash -c "$*"
`
	scpScript = `#!/bin/bash
host=${2%%:*}
exec ssh $host "cat > ${2#*:}" < $1
`
)

func newDesk(t *testing.T, bin string, hosts int) *desk {
	t.Helper()
	d := &desk{T: t, dir: t.TempDir(), hosts: hosts, noise: &bytes.Buffer{}}
	d.ended, d.end = make(chan error, 1), time.Now().Add(pageTime)
	d.home = filepath.Join(d.dir, "home")
	if err := os.Mkdir(d.home, 0o700); err != nil {
		t.Fatal(err)
	}
	more := ""
	for n := 1; n < hosts; n++ {
		more += fmt.Sprintf(" %d", 5+n)
	}
	shell := unshare("--pid", "--fork", "--kill-child", "--mount-proc", "bash", "--noprofile", "--norc")
	cmd := exec.Command(shell[0], shell[1:]...)
	cmd.Env = []string{"HOME=" + d.home, "PATH=" + bin + ":/usr/bin:/bin:/usr/sbin:/sbin", "TERM=dumb", "LANG=C.UTF-8",
		"DIR=" + d.dir, "HOST=laptop", "SETUP=" + hostSetup, "MORE=" + more}
	cmd.Dir = d.home
	cmd.Stdout, cmd.Stderr = d.noise, d.noise
	terminal, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-d.ended
		if t.Failed() {
			t.Logf("the terminal: %s", d.noise)
		}
	})
	d.terminal = terminal
	for name, text := range map[string]string{"ssh": sshScript, "scp": scpScript} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o700); hosts > 1 && err != nil {
			t.Fatal(err)
		}
	}
	d.typed(hostSetup + deskSetup)
	d.await("the hosts", func() error { _, err := os.Stat(filepath.Join(d.dir, "up")); return err })
	return d
}

// host is a host's name.
func (d *desk) host(n int) string {
	if n == 0 {
		return "laptop"
	}
	return fmt.Sprintf("host%d", 5+n)
}

func (d *desk) typed(text string) {
	d.Helper()
	if _, err := io.WriteString(d.terminal, text); err != nil {
		d.Fatal(err)
	}
}

// await waits for f, while there is time for the page.
func (d *desk) await(what string, f func() error) {
	d.Helper()
	polltest.NoError(d, min(blockTime, time.Until(d.end)), f, "%s", what)
}

// write makes a file of the page, on all hosts where it is one of the whole machine.
func (d *desk) write(name, text string) {
	d.Helper()
	all := []string{filepath.Join(d.home, strings.TrimPrefix(name, "~/"))}
	if filepath.IsAbs(name) {
		all = nil
		for n := range d.hosts {
			all = append(all, filepath.Join(d.dir, d.host(n), name))
		}
	}
	for _, name := range all {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			d.Fatal(err)
		}
	}
}

// paste runs a block and says how many commands it has.
func (d *desk) paste(b snippet) int {
	d.Helper()
	d.pasted++
	typed, want := b.script()
	at := func(kind string) string { return filepath.Join(d.dir, fmt.Sprintf("%s-%d", kind, d.pasted)) }
	if err := os.WriteFile(at("block"), []byte(typed), 0o600); err != nil {
		d.Fatal(err)
	}
	output := func() string { out, _ := os.ReadFile(at("out")); return string(out) }
	begun := time.Now()
	if b.stay() {
		d.typed(fmt.Sprintf("(env -i HOME=$HOME PATH=$PATH DIR=$DIR bash --norc %s </dev/null >%s 2>&1; echo $? >%s) &\n",
			at("block"), at("out"), at("done")))
		d.await(fmt.Sprintf("line %d, %s", b.line, typed), func() error {
			if code, err := os.ReadFile(at("done")); err == nil && len(code) > 0 {
				d.Fatalf("line %d: %s ended: %s%s", b.line, typed, code, output())
			}
			return d.ready(typed, at("ready"), output(), begun)
		})
		if stayers.MatchString(typed) {
			d.running = at("done")
		}
		d.Logf("line %d: %v for %s", b.line, time.Since(begun).Round(time.Millisecond), strings.TrimSpace(typed))
		return commands(typed)
	}
	d.typed(fmt.Sprintf("FAILED=%s; . %s </dev/null >%s 2>&1; touch %s\n",
		at("failed"), at("block"), at("out"), at("done")))
	polltest.NoError(d, min(blockTime, time.Until(d.end)), func() error {
		if _, err := os.Stat(at("done")); err != nil {
			return fmt.Errorf("%w\n%s", err, output())
		}
		return nil
	}, "line %d: the end of\n%s", b.line, typed)
	if failed, err := os.ReadFile(at("failed")); err == nil {
		d.Errorf("line %d: %s%s", b.line, failed, output())
	}
	if strings.Contains(typed, "corbel leave") {
		d.await("the end of what left", func() error { _, err := os.Stat(d.running); return err })
	}
	if err := alike(want, output()); err != nil {
		d.Errorf("line %d: %v, and what comes is\n%s", b.line, err, output())
	}
	d.Logf("line %d: %v for %d commands", b.line, time.Since(begun).Round(time.Millisecond), commands(typed))
	return commands(typed)
}

// stayers are those commands that stay and answer over HTTP.
var stayers = regexp.MustCompile(`^corbel (dev|agent|server)`)

// ready says why a reader would still wait for what stays in its terminal.
func (d *desk) ready(command, file, output string, begun time.Time) error {
	probe := ""
	switch m := regexp.MustCompile(`--admin-bind (\S+)`).FindStringSubmatch(command); {
	case stayers.MatchString(command):
		probe = "curl -sSf --max-time 2 http://127.0.0.1:8500/v1/agent/health/ready"
	case m != nil:
		probe = fmt.Sprintf("curl -sSf --max-time 2 http://%s/ready", m[1])
	case output == "" && time.Since(begun) < time.Second:
		return errors.New("it says nothing") // some have nothing to say; what is wrong ends before
	default:
		return nil
	}
	_ = os.Remove(file)
	d.typed(fmt.Sprintf("(%s && echo yes) </dev/null >%s.new 2>&1; mv %s.new %s\n", probe, file, file, file))
	var answer []byte
	d.await("an answer to "+probe, func() (err error) { answer, err = os.ReadFile(file); return err })
	if !bytes.HasSuffix(answer, []byte("yes\n")) {
		return fmt.Errorf("%s: %s\n%s", probe, answer, output)
	}
	return nil
}
