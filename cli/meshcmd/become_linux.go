package meshcmd

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"corbel.dev/corbel/cli/command"
)

// become makes this process Envoy: who started the command, signals it or kills it has Envoy itself before it, as with
// Consul. It returns only where that cannot be: streams that are not the process's own, or a kernel without files in
// memory. The configuration is in such a file, which is in no folder; processes of the same user can read it all the
// same (/proc/PID/fd), as they can what Envoy keeps in memory.
func become(e *command.Env, path string, args []string, text []byte) error {
	if e.In != os.Stdin || e.Err != os.Stderr {
		return nil
	}
	fd, err := unix.MemfdCreate("envoy-bootstrap", 0) // it is to stay open
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), "envoy-bootstrap")
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		return err
	}
	argv := append([]string{path}, envoyArguments(fmt.Sprintf("/dev/fd/%d", fd), args)...)
	if err := syscall.Exec(path, argv, os.Environ()); err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}
