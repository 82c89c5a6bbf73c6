package supervisor

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// enterCommand makes a child what runs a command in the namespaces of a process.
const enterCommand = "enter"

// enter is such a child: args are the process, the folder of its spec, and the command.
func enter(args []string) int {
	if len(args) < 3 {
		return 2
	}
	runtime.LockOSThread()
	code, err := runInside(args[0], args[1], args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "corbel:", err)
		return 126
	}
	return code
}

func runInside(process, dir string, command []string) (int, error) {
	pid, err := strconv.Atoi(process)
	if err != nil {
		return 0, err
	}
	spec, err := ReadSpec(dir)
	if err != nil {
		return 0, err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, err
	}
	for _, join := range spec.Isolate.Joins {
		if err := os.WriteFile(join, []byte("0"), 0); err != nil {
			return 0, err
		}
	}
	var who *syscall.Credential
	if spec.User != "" {
		if who, err = credential(spec.User); err != nil {
			return 0, err
		}
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread alone may change its mounts
		return 0, err
	}
	if err := unix.Setns(fd, kindsOf(spec)); err != nil {
		return 0, fmt.Errorf("enter the task: %w", err)
	}
	path, err := find(command[0], spec.Dir, spec.Env)
	if err != nil {
		return 0, err
	}
	if err := limitRights(spec.Isolate.Caps, nil); err != nil {
		return 0, err
	}
	attr := &syscall.SysProcAttr{Credential: who}
	if _, err := unix.IoctlGetTermios(0, unix.TCGETS); err == nil {
		attr.Setsid, attr.Setctty = true, true
	}
	p, err := os.StartProcess(path, command, &os.ProcAttr{Dir: spec.Dir, Env: spec.Env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attr})
	if err != nil {
		return 0, err
	}
	state, err := p.Wait()
	if err != nil {
		return 0, err
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	if code := state.ExitCode(); code >= 0 {
		return code, nil
	}
	return 0, errors.New("the command did not end")
}

// kindsOf are the namespaces that a process of spec has of its own.
func kindsOf(spec *Spec) int {
	kinds := unix.CLONE_NEWNS
	if !spec.Isolate.HostIPC {
		kinds |= unix.CLONE_NEWIPC
	}
	if !spec.Isolate.HostPID {
		kinds |= unix.CLONE_NEWPID
	}
	if n := spec.Network; n != nil {
		kinds |= unix.CLONE_NEWNET
		if n.Hostname != "" {
			kinds |= unix.CLONE_NEWUTS
		}
	}
	return kinds
}
