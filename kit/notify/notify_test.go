//go:build unix

package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// manager listens as the service manager does.
func manager(t *testing.T) (*net.UnixConn, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, path
}

// receive reads one message, with a file that came with it.
func receive(t *testing.T, c *net.UnixConn) (lines []string, file *os.File) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b, beside := make([]byte, 4096), make([]byte, 128)
	n, besides, _, _, err := c.ReadMsgUnix(b, beside)
	if err != nil {
		t.Fatal(err)
	}
	if messages, err := unix.ParseSocketControlMessage(beside[:besides]); err == nil && len(messages) == 1 {
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil || len(fds) != 1 {
			t.Fatalf("%v, %v", fds, err)
		}
		file = os.NewFile(uintptr(fds[0]), "passed")
	}
	return strings.Split(string(b[:n]), "\n"), file
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// Each step is what is said at a time, in seconds, after a probe.
func TestState(t *testing.T) {
	waits := func(done, of uint64) Health { return Health{Lacks: []string{"no leader"}, Replayed: done, Entries: of} }
	var s state
	began := time.Unix(1000, 0)
	for _, step := range []struct {
		at   int
		h    Health
		want string
	}{
		{0, Health{Lacks: []string{"a", "b"}}, "EXTEND_TIMEOUT_USEC=60000000 WATCHDOG=1 STATUS=not ready: a; b"},
		{1, Health{Lacks: []string{"a", "b"}}, ""},
		{15, waits(81, 100), "EXTEND_TIMEOUT_USEC=60000000 WATCHDOG=1 " +
			"STATUS=replayed 81 % of the log; not ready: no leader"},
		{20, waits(81, 100), ""},
		{25, waits(82, 100), "WATCHDOG=1 STATUS=replayed 82 % of the log; not ready: no leader"},
		{30, waits(82, 100), "EXTEND_TIMEOUT_USEC=60000000"},
		{324, waits(82, 100), "EXTEND_TIMEOUT_USEC=60000000 WATCHDOG=1"},
		{340, waits(82, 100), "WATCHDOG=1"}, // not one entry in five minutes: no more time
		{350, waits(83, 100), "EXTEND_TIMEOUT_USEC=60000000 WATCHDOG=1 " +
			"STATUS=replayed 83 % of the log; not ready: no leader"},
		{900, waits(100, 100), "EXTEND_TIMEOUT_USEC=60000000 WATCHDOG=1 STATUS=not ready: no leader"},
		{901, Health{}, "READY=1 STATUS=ready"},
		{910, waits(100, 100), "WATCHDOG=1 STATUS=not ready: no leader"}, // said, and nobody is restarted for it
		{911, Health{}, "STATUS=ready"},
	} {
		got := strings.Join(s.probed(began.Add(time.Duration(step.at)*time.Second), step.h, 30*time.Second), " ")
		if got != step.want {
			t.Errorf("at %d s: %q, want %q", step.at, got, step.want)
		}
	}
}

// A reload and an end, and what is not said where it would be wrong.
func TestPhases(t *testing.T) {
	var s state
	if got := s.reloads(time.Second); got != nil {
		t.Errorf("a process that starts says %q", got)
	}
	s.probed(time.Unix(9, 0), Health{}, 0)
	for i, step := range []struct {
		got  []string
		want string
	}{
		{s.reloads(1500 * time.Millisecond), "RELOADING=1 MONOTONIC_USEC=1500000 STATUS=reloads its configuration"},
		{s.probed(time.Unix(10, 0), Health{}, 0), ""},
		{s.reloaded(errors.New("a\nREADY=0")), "READY=1 STATUS=ready; " +
			"not reloaded, the former configuration stays: a READY=0"},
		{s.stops(90 * time.Second), "STOPPING=1 STATUS=drains and ends EXTEND_TIMEOUT_USEC=90000000"},
		{s.stops(90 * time.Second), ""},
		{s.probed(time.Unix(30, 0), Health{Lacks: []string{"the process ends"}}, 9*time.Second), "WATCHDOG=1"},
	} {
		if got := strings.Join(step.got, " "); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}

// A probe that hangs feeds no watchdog; once it answers, it is fed again.
func TestHungProbe(t *testing.T) {
	c, path := manager(t)
	s, err := New(Config{Getenv: env("NOTIFY_SOCKET", path, "WATCHDOG_USEC", "3000", "WATCHDOG_PID", "7"), PID: 7})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls, hang := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx, func() Health {
			select {
			case calls <- struct{}{}:
			case <-ctx.Done():
			}
			<-hang
			return Health{}
		})
	}()
	polltest.Get(t, calls, "the first probe")
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 100)); err == nil {
		t.Fatalf("%d bytes were said while the probe hangs", n)
	}
	close(hang)
	if got, _ := receive(t, c); !slices.Contains(got, "READY=1") || !slices.Contains(got, "WATCHDOG=1") {
		t.Errorf("%q", got)
	}
	go func() { // not each probe feeds: two may come within a moment
		for {
			select {
			case <-calls:
			case <-ctx.Done():
				return
			}
		}
	}()
	if got, _ := receive(t, c); !slices.Equal(got, []string{"WATCHDOG=1"}) {
		t.Errorf("%q", got)
	}
	cancel()
	polltest.Get(t, ended, "the end")
}

// A socket is left with the manager, and the next process gets it back with the client that came meanwhile.
func TestSockets(t *testing.T) {
	c, path := manager(t)
	before, err := Inherited(env("NOTIFY_SOCKET", path, KeepVariable, "1"), 1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := before.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	lines, file := receive(t, c)
	want := []string{"FDSTORE=1", "FDNAME=tcp-" + strings.ReplaceAll(addr, ":", "-")}
	if !slices.Equal(lines, want) || file == nil {
		t.Fatalf("%q, file %v", lines, file)
	}
	if err := l.Close(); err != nil { // the process has ended
		t.Fatal(err)
	}
	client, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatalf("refused between two processes: %v", err)
	}
	defer client.Close()

	at, err := boundTo(file)
	if err != nil {
		t.Fatal(err)
	}
	next := &Sockets{to: before.to, store: true, held: []held{{want[1][len("FDNAME="):], at, file}}}
	l, err = next.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	if served.RemoteAddr().String() != client.LocalAddr().String() {
		t.Errorf("served %s, the client is %s", served.RemoteAddr(), client.LocalAddr())
	}
	next.Rest() // nothing is left
}

// What the configuration does not want any more is taken out of the store.
func TestRest(t *testing.T) {
	c, path := manager(t)
	s, err := Inherited(env("NOTIFY_SOCKET", path, "FDSTORE", "16"), 1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, file := receive(t, c)
	at, err := boundTo(file)
	if err != nil {
		t.Fatal(err)
	}
	s.held = []held{{nameOf(l.Addr()), at, file}}
	if _, ok := s.take(fmt.Sprintf("127.0.0.1:%d", at.Port()+1)); ok {
		t.Error("the socket of another port was taken")
	}
	s.Rest()
	if lines, _ := receive(t, c); !slices.Equal(lines, []string{"FDSTOREREMOVE=1", "FDNAME=" + nameOf(l.Addr())}) {
		t.Errorf("%q", lines)
	}
}

func TestEnvironment(t *testing.T) {
	for _, bad := range []string{"relative", "@", "/"} {
		if _, err := New(Config{Getenv: env("NOTIFY_SOCKET", bad)}); !errors.Is(err, errAddress) {
			t.Errorf("NOTIFY_SOCKET=%s: %v", bad, err)
		}
	}
	if _, err := passed(env("LISTEN_PID", "5", "LISTEN_FDS", "100000"), 5); err == nil {
		t.Error("100000 sockets are believed")
	}
	if names, err := passed(env("LISTEN_PID", "4", "LISTEN_FDS", "2"), 5); err != nil || names != nil {
		t.Errorf("another process's sockets: %q, %v", names, err)
	}
	for usec, want := range map[string]time.Duration{"": 0, "x": 0, "-1": 0, "9000000": 9 * time.Second,
		strconv.Itoa(1 << 62): 0} {
		if got := watchdog(env("WATCHDOG_USEC", usec), 5); got != want {
			t.Errorf("WATCHDOG_USEC=%s: %s, want %s", usec, got, want)
		}
	}
	var none *Service // without a manager
	if err := none.Reload(func() error { return nil }); err != nil {
		t.Error(err)
	}
	none.Status("x")
	none.Run(t.Context(), nil)
}

func FuzzEnvironment(f *testing.F) {
	f.Add("5", "2", "a:b", "1000")
	f.Fuzz(func(t *testing.T, pid, fds, names, usec string) {
		get := env("LISTEN_PID", pid, "LISTEN_FDS", fds, "LISTEN_FDNAMES", names, "WATCHDOG_USEC", usec)
		if list, err := passed(get, 5); err != nil && list != nil || len(list) > maxSockets {
			t.Fatalf("%d names, %v", len(list), err)
		}
		if d := watchdog(get, 5); d < 0 || d > maxWatchdog {
			t.Fatal(d)
		}
		if strings.ContainsAny(oneLine(names), "\n\r\x00") {
			t.Fatalf("%q", oneLine(names))
		}
	})
}
