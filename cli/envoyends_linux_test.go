package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/kit/polltest"
)

// TestEnvoyEndsWithItsCommand: the process of the command is Envoy itself, with its configuration, and where it cannot
// be, Envoy ends with it. Nothing is left of either when the command is killed.
func TestEnvoyEndsWithItsCommand(t *testing.T) {
	if how := os.Getenv("CORBEL_TEST_ENVOY"); how != "" {
		runEnvoy(how)
	}
	s := httptest.NewServer(&recorder{answers: map[string]string{"GET /v1/agent/service/p": sidecar}})
	defer s.Close()
	dir := t.TempDir()
	fake, alive := filepath.Join(dir, "envoy"), filepath.Join(dir, "alive")
	script := fmt.Sprintf("#!/bin/sh\nexec 9>%s\necho $$ \"$(head -c 1 \"$2\")\" $3 >&9\nexec sleep 600\n", alive)
	if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"self", "child"} {
		_ = os.Remove(alive) // none is there at first
		if out, err := exec.Command("mkfifo", alive).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestEnvoyEndsWithItsCommand$")
		cmd.Env = append(os.Environ(), "CORBEL_TEST_ENVOY="+how, "CORBEL_TEST_AGENT="+s.URL, "CORBEL_TEST_BINARY="+fake)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stderr, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said, ended := make(chan string, 1), make(chan error, 1)
		go func() {
			f, err := os.Open(alive) // until Envoy opens it
			if err != nil {
				ended <- err
				return
			}
			defer f.Close()
			r := bufio.NewReader(f)
			line, _ := r.ReadString('\n')
			said <- line
			_, err = io.Copy(io.Discard, r) // until it is gone
			ended <- err
		}()
		want := fmt.Sprintf("%d { --disable-hot-restart\n", cmd.Process.Pid)
		line := polltest.Get(t, said, "%s: Envoy runs", how)
		if how == "child" {
			_, rest, _ := strings.Cut(line, " ")
			_, wanted, _ := strings.Cut(want, " ")
			line, want = rest, wanted
		}
		if line != want {
			t.Errorf("%s: %q, not %q", how, line, want)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
		if err := polltest.Get(t, ended, "%s: Envoy has ended", how); err != nil {
			t.Error(err)
		}
	}
}

// runEnvoy is the command in a process of its own; as a child where a stream is not the process's.
func runEnvoy(how string) {
	e := &command.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: func(string) string { return "" }}
	if how == "child" {
		e.In = strings.NewReader("")
	}
	binary := os.Getenv("CORBEL_TEST_BINARY")
	os.Exit(dispatch(context.Background(), e, []string{"consul", "connect", "envoy", "-http-addr",
		os.Getenv("CORBEL_TEST_AGENT"), "-proxy-id=p", "-grpc-addr=127.0.0.1:1", "-envoy-binary", binary}))
}
