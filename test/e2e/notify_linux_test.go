package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corbel.dev/corbel/kit/polltest"
)

// managed is the service manager of a process: it reads what that says and keeps the sockets that it leaves.
type managed struct {
	t    *testing.T
	path string
	conn *net.UnixConn

	mu    sync.Mutex
	said  []string
	names []string
	files []*os.File
}

func manage(t *testing.T) *managed {
	t.Helper()
	m := &managed{t: t, path: filepath.Join(t.TempDir(), "notify")}
	var err error
	if m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for m.receive() {
		}
	}()
	t.Cleanup(func() {
		m.conn.Close()
		<-ended
		for _, f := range m.files {
			f.Close()
		}
	})
	return m
}

func (m *managed) receive() bool {
	b, beside := make([]byte, 8192), make([]byte, 256)
	n, besides, _, _, err := m.conn.ReadMsgUnix(b, beside)
	if err != nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	lines := strings.Split(string(b[:n]), "\n")
	m.said = append(m.said, lines...)
	messages, err := unix.ParseSocketControlMessage(beside[:besides])
	if err != nil || len(messages) == 0 {
		return true
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		m.t.Errorf("%d sockets in a message, %v", len(fds), err)
		return true
	}
	m.names = append(m.names, strings.TrimPrefix(lines[1], "FDNAME="))
	m.files = append(m.files, os.NewFile(uintptr(fds[0]), lines[1]))
	return true
}

func (m *managed) has(line string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.said, line)
}

func (m *managed) await(line string) {
	m.t.Helper()
	polltest.Until(m.t, func() bool { return m.has(line) }, "the process to say %s", line)
}

// start starts a process as the manager does: with what it keeps.
func (m *managed) start(args ...string) *exec.Cmd {
	m.t.Helper()
	m.mu.Lock()
	m.said = nil
	cmd := exec.Command("/bin/sh", append([]string{"-c", `LISTEN_PID=$$ exec "$@"`, "sh",
		filepath.Join(binDir, "corbel")}, args...)...)
	cmd.ExtraFiles = slices.Clone(m.files)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+m.path, "WATCHDOG_USEC=3000000", "CORBEL_KEEP_SOCKETS=1",
		fmt.Sprint("LISTEN_FDS=", len(m.files)), "LISTEN_FDNAMES="+strings.Join(m.names, ":"))
	m.mu.Unlock()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// TestServiceManager: a real process says when clients may come, reloads, is fed to the watchdog, and is restarted with
// its sockets kept while clients come, none of whom is refused.
func TestServiceManager(t *testing.T) {
	m := manage(t)
	port := func() string {
		n, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(n)
	}
	web := port()
	args := []string{"dev", "--log-level", "error", "--data-dir", t.TempDir(), "--http-port", web, "--dns-port", port(),
		"--server-port", port(), "--serf-lan-port", port(), "--hcl",
		"ports { secrets = -1 monitor = -1 monitor_agents = -1 }"}
	url := "http://127.0.0.1:" + web + "/v1/agent/self"
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func() error {
		resp, err := client.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		return err
	}

	first := m.start(args...)
	m.await("READY=1")
	if err := ask(); err != nil {
		t.Fatalf("it said READY=1: %v", err)
	}
	m.await("STATUS=ready")
	m.await("WATCHDOG=1")
	if err := first.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	m.await("RELOADING=1")
	polltest.Until(t, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.Index(m.said, "RELOADING=1") < len(m.said)-1-slices.Index(reversed(m.said), "READY=1")
	}, "READY=1 after the reload")

	stop, asked := make(chan struct{}), make(chan []string)
	go func() {
		var failed []string
		n := 0
		for {
			select {
			case <-stop:
				asked <- append(failed, fmt.Sprint(n))
				return
			default:
			}
			if err := ask(); err != nil {
				failed = append(failed, err.Error())
			}
			n++
		}
	}()
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Error(err)
	}
	if !m.has("STOPPING=1") {
		t.Error("the end was not announced")
	}
	second := m.start(args...)
	m.await("READY=1")
	close(stop)
	if got := polltest.Get(t, asked, "the requests"); len(got) > 1 {
		t.Errorf("refused over the restart: %q", got)
	}
	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(); err != nil {
		t.Error(err)
	}

	// A start that finds its port taken names who has it.
	l, err := net.Listen("tcp", "127.0.0.1:"+port())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := exec.Command(filepath.Join(binDir, "corbel"), "dev", "--http-port", "0", "--dns-port", "-1",
		"--serf-lan-port", "0", "--server-port", fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
	taken.Env = append(os.Environ(), "NOTIFY_SOCKET="+m.path)
	out, err := taken.CombinedOutput()
	if want := fmt.Sprintf("process %d (", os.Getpid()); err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%v, %s: want %q in it", err, out, want)
	}
	polltest.Until(t, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.ContainsFunc(m.said, func(s string) bool { return strings.HasPrefix(s, "STATUS=cannot start: ") })
	}, "the reason of the failed start")
}

func reversed(list []string) []string {
	out := slices.Clone(list)
	slices.Reverse(out)
	return out
}
