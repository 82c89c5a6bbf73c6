//go:build unix

package fault

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/vfs"
)

func TestDormant(t *testing.T) {
	in, err := FromEnv()
	if err != nil || in.Armed() || in.Net() != nil || in.FS() != (vfs.OS{}) || in.Clock() != (clock.Real{}) {
		t.Fatalf("armed without a parent: %v, %v", in, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, in.Run(ctx))
	file, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	defer file.Close()
	fd, err := syscall.Dup(int(file.Fd())) // FromEnv closes what it is given
	must(t, err)
	for _, value := range []string{"0", "x", "-1", fmt.Sprint(fd)} {
		t.Setenv(EnvFD, value)
		if in, err := FromEnv(); err == nil || in.Armed() {
			t.Errorf("%s=%s arms the process", EnvFD, value)
		}
	}
}
