package shell

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		command Command
		status  int
		output  string
		dropped int64
	}{
		"output and error": {Command{Line: "echo a; echo b >&2; exit 1"}, 1, "a\nb\n", 0},
		"input":            {Command{Line: "cat", Stdin: []byte("hello")}, 0, "hello", 0},
		"unread input":     {Command{Line: "exit 0", Stdin: []byte(strings.Repeat("x", 1<<20))}, 0, "", 0},
		"environment":      {Command{Line: "echo $A", Env: []string{"A=b"}}, 0, "b\n", 0},
		"too much":         {Command{Line: "echo 123456789", OutputBytes: 4}, 0, "1234", 6},
		"a signal":         {Command{Line: "kill -9 $$"}, 137, "", 0},
		"no such command":  {Command{Line: "corbel-has-no-such-command 2>/dev/null"}, 127, "", 0},
		"in time":          {Command{Line: "exit 3", Timeout: time.Minute}, 3, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := Run(t.Context(), c.command)
			if r.Status != c.status || string(r.Output) != c.output || r.Dropped != c.dropped || r.Err != nil || r.TimedOut {
				t.Errorf("%+v, output %q", r, r.Output)
			}
		})
	}
	if r := Run(t.Context(), Command{Line: "x" + strings.Repeat("y", 4<<20)}); r.Status != StatusFailed || r.Err == nil {
		t.Errorf("a line that is too long for the system: %d, %v", r.Status, r.Err)
	}
}

// TestTheWholeGroupEnds looks for a grandchild after the time is up.
func TestTheWholeGroupEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	r := Run(t.Context(), Command{Line: "(sleep 600 & echo $! > " + file + "; wait); echo unreachable",
		Timeout: 500 * time.Millisecond})
	if r.Status != StatusTimedOut || !r.TimedOut || strings.Contains(string(r.Output), "unreachable") {
		t.Fatalf("%+v", r)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return gone(pid) || err == nil && strings.Contains(string(stat), ") Z ")
	}, "the end of process %d", pid)
}

// gone says that there is no such process.
func gone(pid int) bool {
	p, err := os.FindProcess(pid)
	return err != nil || p.Signal(syscall.Signal(0)) != nil
}

func TestTheCallerStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := Run(ctx, Command{Line: "sleep 600"}); !errors.Is(r.Err, context.Canceled) || r.Status != StatusFailed {
		t.Fatalf("%+v", r)
	}
}

// TestWhatIsLeftInTheBackgroundIsNotWaitedFor would take ten minutes otherwise.
func TestWhatIsLeftInTheBackgroundIsNotWaitedFor(t *testing.T) {
	r := Run(t.Context(), Command{Line: "sleep 600 & echo $!; exit 1"})
	if pid, err := strconv.Atoi(strings.TrimSpace(string(r.Output))); err == nil {
		if p, err := os.FindProcess(pid); err == nil {
			defer func() { _ = p.Kill() }()
		}
	}
	if r.Status != 1 || r.Err != nil || r.TimedOut {
		t.Fatalf("%+v", r)
	}
}
