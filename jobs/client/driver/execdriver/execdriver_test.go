//go:build linux

package execdriver

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/supervisor"
	"corbel.dev/corbel/jobs/client/taskcgroup"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == supervisor.ChildCommand {
		os.Exit(supervisor.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func task(t *testing.T, script string) *driver.Task {
	t.Helper()
	dir := t.TempDir()
	d := driver.Dirs{Task: filepath.Join(dir, "web"), Shared: filepath.Join(dir, "alloc"),
		Logs: filepath.Join(dir, "alloc", "logs"), Private: filepath.Join(dir, "private")}
	for _, name := range []string{d.Task + "/local", d.Task + "/tmp", d.Shared + "/data", d.Logs} {
		if err := os.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return &driver.Task{Alloc: fmt.Sprintf("test-%d-%d", os.Getpid(), time.Now().UnixNano()), Name: "web", Dirs: d,
		Resources: driver.Resources{CPU: 100, MemoryMB: 64}, Env: map[string]string{"A": "b"},
		Config: map[string]any{"command": "sh", "args": []any{"-c", script}}}
}

func isolating(t *testing.T) *Driver {
	d := &Driver{Enabled: true, Command: supervisor.OwnCommand(), DeniedUsers: []string{"root"}}
	if f := d.Fingerprint(t.Context()); !f.Healthy {
		loud.Skip(t, "isolated processes: %s", f.Text)
	}
	return d
}

// TestIsolation: a task cannot see or change the host, nor gain rights, and is bound in memory.
func TestIsolation(t *testing.T) {
	d := isolating(t)
	for _, c := range []struct{ name, script, want string }{
		{"who", "id -un; echo $A; pwd; echo $$", "nobody\nb\n/\n1\n"},
		{"processes", "[ $(ls -d /proc/[0-9]* | wc -l) -lt 6 ] && echo few", "few\n"},
		{"host's files", "ls /root /home /var /work 2>/dev/null | wc -l | tr -d ' '", "0\n"},
		{"programs stay", "touch /usr/x 2>/dev/null || echo no", "no\n"},
		{"its folders", "echo x > /local/f && echo y > /alloc/data/f && cat /local/f /alloc/data/f", "x\ny\n"},
		{"devices", "echo z > /dev/null && head -c 4 /dev/zero | wc -c | tr -d ' '; ls /dev/sda /dev/mem 2>/dev/null | wc -l",
			"4\n0\n"},
		{"rights", "grep -E 'CapEff|NoNewPrivs' /proc/self/status | tr -d '\\t'", "CapEff:0000000000000000\nNoNewPrivs:1\n"},
	} {
		task := task(t, c.script)
		r, err := d.Start(t.Context(), task)
		if err != nil {
			t.Fatal(c.name, err)
		}
		e, err := r.Wait(t.Context())
		out, _ := os.ReadFile(filepath.Join(task.Dirs.Logs, "web.stdout.0"))
		errs, _ := os.ReadFile(filepath.Join(task.Dirs.Logs, "web.stderr.0"))
		if string(out) != c.want {
			t.Errorf("%s: %q, %+v %v %s", c.name, out, e, err, errs)
		}
		if err := r.Remove(); err != nil {
			t.Error(err)
		}
	}
	task1 := task(t, "x=$(head -c 90000000 /dev/zero | tr '\\0' x); echo survived")
	r, err := d.Start(t.Context(), task1)
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Wait(t.Context())
	if out, _ := os.ReadFile(filepath.Join(task1.Dirs.Logs, "web.stdout.0")); err != nil || strings.Contains(string(out),
		"survived") || !e.OOM {
		t.Errorf("memory without bounds: %+v %v %q", e, err, out)
	}
	if err := r.Remove(); err != nil {
		t.Error(err)
	}
}

// TestLives: an isolated task is found again, entered, measured, and ended with everything it started.
func TestLives(t *testing.T) {
	d := isolating(t)
	task := task(t, "sleep 1000 & while :; do sleep 0.05; done")
	r, err := d.Start(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	again, err := d.Recover(t.Context(), task, r.State())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	polltest.Until(t, func() bool { // exec of a world that is being built fails
		out.Reset()
		code, err := again.Exec(t.Context(), driver.Exec{Command: []string{"sh", "-c", "id -un; cat /proc/1/comm; exit 5"},
			Stdout: &out, Stderr: &out})
		return err == nil && code == 5 && out.String() == "nobody\nsh\n"
	}, "a command inside")
	out.Reset()
	code, err := again.Exec(t.Context(), driver.Exec{Command: []string{"sh", "-ic", "exit 6"}, TTY: true, Stdout: &out})
	if err != nil || code != 6 || strings.Contains(out.String(), "tty") {
		t.Error(code, err, out.String())
	}
	if u, err := again.Usage(); err != nil || u.MemoryBytes == 0 {
		t.Error(u, err)
	}
	if err := again.Stop(t.Context(), "SIGINT", 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := again.Remove(); err != nil {
		t.Error(err)
	}
	if list, _ := filepath.Glob(taskcgroup.Root + "/*/corbel/" + task.Alloc + "*"); len(list) > 0 {
		t.Error("control groups are left:", list)
	}
}

// TestRefuses: what a job may not have, it does not get.
func TestRefuses(t *testing.T) {
	d := &Driver{DeniedUsers: []string{"root"}}
	for name, edit := range map[string]func(*driver.Task){
		"user":    func(t *driver.Task) { t.User = "root" },
		"cap_add": func(t *driver.Task) { t.Config["cap_add"] = []any{"SYS_ADMIN"} },
		"unknown": func(t *driver.Task) { t.Config["privileged"] = true },
	} {
		task := task(t, "true")
		edit(task)
		if _, err := d.Start(t.Context(), task); !errkind.Is(err, errkind.Denied) && !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
