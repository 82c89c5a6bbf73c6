//go:build unix

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/cli/childcmd"
	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// holder of the lock as the fake agent has it.
func (f *fakeAgent) holder(key string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.keys[key]; k != nil {
		return k.Session
	}
	return ""
}

// TestLockPassesTheCode: the child sees the lock, its code comes out, the lock is free again.
func TestLockPassesTheCode(t *testing.T) {
	f, e, out, errOut := newAgent(t)
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"lock", "p", "echo", "held=$CORBEL_LOCK_HELD;", "exit 7"}, 7, "held=true\n"},
		{[]string{"lock", "-child-exit-code=false", "p", "exit 7"}, 1, ""},
		{[]string{"lock", "-shell=false", "p", "echo", "a b"}, 0, "a b\n"},
		{[]string{"lock", "-n", "2", "sem", "echo x"}, 0, "x\n"},
		{[]string{"lock", "-n", "3", "sem", "echo x"}, 1, "limit 2, not 3"},
		{[]string{"lock", "sem", "echo x"}, 1, "is not a lock"},
		{[]string{"lock", "p", "kill -9 $$"}, 137, ""},
	} {
		out.Reset()
		errOut.Reset()
		code := run(t.Context(), e, tt.args)
		if all := out.String() + errOut.String(); code != tt.code || !strings.Contains(all, tt.want) {
			t.Errorf("%q: code %d, want %d, printed %s", tt.args, code, tt.code, all)
		}
		if f.holder("p/.lock") != "" || len(f.sessions) != 0 {
			t.Errorf("%q left the lock or a session behind: %v", tt.args, f.sessions)
		}
	}
	if k := f.keys["sem/.lock"]; k == nil || string(k.Value) != `{"Limit":2,"Holders":{}}` {
		t.Errorf("the semaphore after all: %+v", k)
	}
}

// TestLockIsLost: when the session ends, the child is ended and the code is 1.
func TestLockIsLost(t *testing.T) {
	for _, args := range [][]string{{"lock", "p"}, {"lock", "-n", "2", "p"}} {
		f, e, _, errOut := newAgent(t)
		mark := filepath.Join(t.TempDir(), "pid")
		done := make(chan int, 1)
		go func() { done <- run(t.Context(), e, append(args, "echo $$ > "+mark+"; sleep 600")) }()
		polltest.Until(t, func() bool { _, err := os.Stat(mark); return err == nil }, "the child to start")
		f.mu.Lock()
		if args[1] == "-n" { // somebody pruned this holder
			f.keys["p/.lock"].Value = []byte(`{"Limit":2,"Holders":{}}`)
			f.keys["p/.lock"].ModifyIndex = f.index + 1
			f.bumpLocked()
		}
		f.mu.Unlock()
		if args[1] != "-n" {
			f.end("s1")
		}
		select {
		case code := <-done:
			if code != 1 || !strings.Contains(errOut.String(), "the lock was lost") {
				t.Fatalf("%v: code %d: %s", args, code, errOut)
			}
		case <-time.After(polltest.Deadline):
			t.Fatal("the child outlives its lock")
		}
	}
}

// TestLockExcludes: two contenders never run at once; -try gives up.
func TestLockExcludes(t *testing.T) {
	f, e, _, _ := newAgent(t)
	f.sessions["other"] = true
	f.keys["p/.lock"] = &fakeKey{Key: "p/.lock", Flags: childcmd.LockFlag, Session: "other", ModifyIndex: 5}
	var errOut bytes.Buffer
	e.Err = &errOut
	if code := run(t.Context(), e, []string{"lock", "-try=50ms", "p", "true"}); code != 1 ||
		!strings.Contains(errOut.String(), "did not win the lock p within 50ms") {
		t.Fatalf("%d %s", code, &errOut)
	}
	var wg sync.WaitGroup
	log := filepath.Join(t.TempDir(), "log")
	script := "echo in >> " + log + "; echo out >> " + log
	for range 3 {
		other := &command.Env{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, Getenv: e.Getenv}
		wg.Go(func() {
			if code := run(t.Context(), other, []string{"lock", "p", script}); code != 0 {
				t.Errorf("code %d: %s", code, other.Err)
			}
		})
	}
	f.end("other")
	wg.Wait()
	text, err := os.ReadFile(log)
	if err != nil || string(text) != strings.Repeat("in\nout\n", 3) {
		t.Fatalf("ran at once: %q %v", text, err)
	}
}

// TestWatch: one look, a stream of looks, a handler with input, index and exit code.
func TestWatch(t *testing.T) {
	f, e, out, errOut := newAgent(t)
	f.keys["k"] = &fakeKey{Key: "k", Value: []byte("one"), ModifyIndex: 3}
	if code := run(t.Context(), e, []string{"watch", "-type", "key", "-key", "k"}); code != 0 ||
		!strings.Contains(out.String(), `"Value": "b25l"`) {
		t.Fatalf("%d %s %s", code, out, errOut)
	}
	file := filepath.Join(t.TempDir(), "seen")
	done := make(chan int, 1)
	go func() {
		done <- run(t.Context(), e, []string{"watch", "-type=key", "-key=k", "tee -a " + file + "; echo $CORBEL_INDEX >> " +
			file + "; test $CORBEL_INDEX -lt 12 || exit 5"})
	}()
	seen := func(want string) func() bool {
		return func() bool { text, err := os.ReadFile(file); return err == nil && strings.Contains(string(text), want) }
	}
	polltest.Until(t, seen("10\n"), "the first run")
	for range 2 {
		f.mu.Lock()
		f.keys["k"].ModifyIndex = f.index + 1
		f.bumpLocked()
		f.mu.Unlock()
	}
	select {
	case code := <-done:
		if code != 5 {
			t.Fatalf("code %d: %s", code, errOut)
		}
	case <-time.After(polltest.Deadline):
		t.Fatal("the handler's failure did not end the watch")
	}
	f.answers["/v1/catalog/services"] = `{"web":[]}`
	out.Reset()
	if code := run(t.Context(), e, []string{"watch", "-type=services"}); code != 0 ||
		!strings.Contains(out.String(), `"web"`) {
		t.Fatalf("%d %s %s", code, out, errOut)
	}
}
