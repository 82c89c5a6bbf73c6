//go:build unix

package agentexec

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/client/vaultagent/agentconfig"
	"corbel.dev/corbel/kit/polltest"
)

// run starts a supervisor of a shell script; it ends with the test.
func run(t *testing.T, script string, change func(e *agentconfig.Exec)) (changes chan map[string]string,
	done chan error, stop context.CancelFunc) {
	t.Helper()
	e := agentconfig.Exec{Command: []string{"/bin/sh", "-c", script}, Restart: true, StopSignal: "SIGTERM"}
	if change != nil {
		change(&e)
	}
	changes = make(chan map[string]string, 1)
	s, err := New(Config{Exec: e, Changes: changes, Environ: append(os.Environ(), "A=old")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done = make(chan error, 1)
	go func() { done <- s.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	return changes, done, stop
}

func wrote(t *testing.T, path, want string) {
	t.Helper()
	polltest.Until(t, func() bool {
		text, err := os.ReadFile(path)
		return err == nil && string(text) == want
	}, "%s holds %q", path, want)
}

// The process has the variables, starts anew with its signal when one changes, and not for nothing.
func TestRestart(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	changes, done, stop := run(t, `trap 'echo usr1 >>`+log+`; exit 0' USR1
echo "start $A" >>`+log+`; while :; do sleep 0.05; done`, func(e *agentconfig.Exec) { e.StopSignal = "SIGUSR1" })
	changes <- map[string]string{"A": "1"}
	wrote(t, log, "start 1\n")
	changes <- map[string]string{"A": "1"}
	changes <- map[string]string{"A": "2"}
	wrote(t, log, "start 1\nusr1\nstart 2\n")
	stop()
	if err := polltest.Get(t, done, "the end"); err != nil {
		t.Error(err)
	}
	wrote(t, log, "start 1\nusr1\nstart 2\nusr1\n")
}

// With restart_on_secret_changes "never" it goes on.
func TestNever(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	changes, done, _ := run(t, `echo "$A"; while ! [ -e "$0.end" ]; do sleep 0.05; done; exit 3`,
		func(e *agentconfig.Exec) {
			e.Restart, e.Stdout = false, out
			e.Command = append(e.Command, out)
		})
	changes <- map[string]string{"A": "1"}
	wrote(t, out, "1\n")
	changes <- map[string]string{"A": "2"}
	changes <- map[string]string{"A": "3"} // the one before was taken
	if err := os.WriteFile(out+".end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var exited *Exited
	if err := polltest.Get(t, done, "the end"); !errors.As(err, &exited) || exited.Code != 3 {
		t.Error(err)
	}
	wrote(t, out, "1\n")
}

// How it ends by itself is how Run ends.
func TestCodes(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -TERM $$": 143} {
		changes, done, _ := run(t, script, nil)
		changes <- map[string]string{}
		var exited *Exited
		if err := polltest.Get(t, done, "the end of %s", script); !errors.As(err, &exited) || exited.Code != want {
			t.Errorf("%s: %v, want %d", script, err, want)
		}
	}
	changes, done, _ := run(t, "", func(e *agentconfig.Exec) { e.Command = []string{"/no/such/program"} })
	changes <- map[string]string{}
	if err := polltest.Get(t, done, "the end"); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Error(err)
	}
	if _, err := New(Config{Exec: agentconfig.Exec{StopSignal: "SIGNOTHING"}}); err == nil ||
		!strings.Contains(err.Error(), "restart_stop_signal") {
		t.Error(err)
	}
}
