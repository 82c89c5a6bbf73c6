//go:build unix

package procgroup

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"testing"
)

// A shell and the child that it waits for end with the context: the child held the pipe, which closes with it.
func TestApart(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", "sh -c 'echo begun; exec sleep 600' & wait")
	Apart(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); line != "begun\n" {
		t.Fatalf("%q, %v", line, err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Error(err)
	}
	if cmd.Wait() == nil {
		t.Error("a killed command says that it succeeded")
	}
}
