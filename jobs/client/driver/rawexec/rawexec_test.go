//go:build unix

package rawexec

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/supervisor"
	"corbel.dev/corbel/jobs/client/tasklog"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == supervisor.ChildCommand {
		os.Exit(supervisor.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func task(t *testing.T, command string, args ...any) *driver.Task {
	t.Helper()
	dir := t.TempDir()
	d := driver.Dirs{Task: filepath.Join(dir, "web"), Shared: filepath.Join(dir, "alloc"),
		Logs: filepath.Join(dir, "alloc", "logs"), Private: filepath.Join(dir, "private")}
	for _, name := range []string{d.Task, d.Logs} {
		if err := os.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return &driver.Task{Name: "web", Dirs: d, Config: map[string]any{"command": command, "args": args},
		Env: map[string]string{"NOMAD_TASK_NAME": "web"}}
}

func on() *Driver { return &Driver{Enabled: true, Command: supervisor.OwnCommand()} }

func logged(t *testing.T, task *driver.Task, stderr bool) string {
	text, err := os.ReadFile(filepath.Join(task.Dirs.Logs, tasklog.Name(task.Name, stderr)+".0"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEnds: a task's output and the way it ends arrive, also when the start fails.
func TestEnds(t *testing.T) {
	for _, c := range []struct {
		command string
		args    []any
		want    driver.Exit
		out     string
		kind    errkind.Kind
	}{
		{"sh", []any{"-c", "echo $NOMAD_TASK_NAME; pwd; exit 3"}, driver.Exit{Code: 3}, "web\n", 0},
		{"sh", []any{"-c", "kill -9 $$"}, driver.Exit{Code: 137, Signal: 9}, "", 0},
		{"no-such-command", nil, driver.Exit{}, "", errkind.Invalid},
		{"/", nil, driver.Exit{}, "", errkind.Invalid},
	} {
		task := task(t, c.command, c.args...)
		r, err := on().Start(t.Context(), task)
		if errkind.Is(err, c.kind) && err != nil {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.command, err)
			continue
		}
		got, err := r.Wait(t.Context())
		if err != nil || got != c.want || !strings.HasPrefix(logged(t, task, false), c.out) {
			t.Errorf("%s %v: %+v, %v, %q", c.command, c.args, got, err, logged(t, task, false))
		}
	}
	if _, err := (&Driver{}).Start(t.Context(), task(t, "true")); !errkind.Is(err, errkind.Denied) {
		t.Error("a driver that is off starts tasks:", err)
	}
	wrong := task(t, "true")
	wrong.Config["comand"] = "x"
	if _, err := on().Start(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), "comand") {
		t.Error(err)
	}
}

// TestOutlivesTheAgent: another life of the agent finds the task, its output goes on, it takes signals and commands,
// and with it everything ends that it started, even in sessions of their own.
func TestOutlivesTheAgent(t *testing.T) {
	task := task(t, "sh", "-c", "trap '' INT; trap 'echo hup >&2' HUP; setsid sleep 1000 & echo $!; "+
		"while :; do sleep 0.05; done")
	r, err := on().Start(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(r.(*Running).PID(), 0); err != nil {
		t.Fatal(err)
	}
	again, err := on().Recover(t.Context(), task, r.State())
	if err != nil {
		t.Fatal(err)
	}
	var child int
	polltest.Until(t, func() bool {
		n, _ := fmt.Sscan(logged(t, task, false), &child)
		return n == 1
	}, "output")
	if err := again.Signal("SIGHUP"); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool { return strings.Contains(logged(t, task, true), "hup\n") }, "what a signal causes")
	var out bytes.Buffer
	code, err := again.Exec(t.Context(), driver.Exec{
		Command: []string{"sh", "-c", "read x; echo $x $NOMAD_TASK_NAME; exit 4"},
		Stdin:   strings.NewReader("in\n"), Stdout: &out, Stderr: &out})
	if code != 4 || err != nil || out.String() != "in web\n" {
		t.Error(code, err, out.String())
	}
	out.Reset()
	code, err = again.Exec(t.Context(), driver.Exec{Command: []string{"sh", "-c", "test -t 0 && echo terminal"}, TTY: true,
		Stdout: &out})
	if code != 0 || err != nil || out.String() != "terminal\r\n" {
		t.Error(code, err, out.String())
	}
	if u, err := again.Usage(); err != nil || u.PIDs == 0 || u.MemoryBytes == 0 {
		t.Error(u, err)
	}
	if err := again.Stop(t.Context(), "SIGINT", 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if e, err := r.Wait(t.Context()); err != nil || e.Signal != 9 {
		t.Error(e, err)
	}
	if err := syscall.Kill(child, 0); err != syscall.ESRCH {
		t.Error("what it started in a session of its own lives:", err)
	}
	if err := again.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := on().Recover(context.Background(), task, r.State()); !errkind.Is(err, errkind.NotFound) {
		t.Error(err)
	}
}

// TestSupervisorIsKilled: then its process ends too, and says so.
func TestSupervisorIsKilled(t *testing.T) {
	r, err := on().Start(t.Context(), task(t, "sleep", "1000"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := on().Recover(t.Context(), task(t, "sleep"), r.State())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(r.(*Running).SupervisorPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e, err := again.Wait(t.Context()); err != nil || e.OK() || !strings.Contains(e.Text, "supervisor") {
		t.Error(e, err)
	}
	polltest.Until(t, func() bool { return syscall.Kill(r.(*Running).PID(), 0) == syscall.ESRCH }, "the end")
}
