package procgroup

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Alone makes cmd, which must not run yet, the first of a group: a console's Ctrl-C does not reach it.
func Alone(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.CreationFlags |= windows.CREATE_NEW_PROCESS_GROUP
}

// End asks the group that pid is the first of to end, as Ctrl-Break does. What has no console hears nothing of it, and
// is ended at once.
func End(pid int) error {
	if windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(pid)) == nil {
		return nil
	}
	return Kill(pid)
}

// Kill ends pid and what descends from it, at once. Windows remembers the number of a parent, which may be another
// process's by now: a child counts only if it began after its parent.
func Kill(pid int) error {
	began, err := begin(uint32(pid))
	if err != nil {
		return os.ErrProcessDone
	}
	children, err := children()
	if err != nil {
		return err
	}
	type member struct {
		pid   uint32
		began int64
	}
	var failed error
	seen := map[uint32]bool{uint32(pid): true}
	for group := []member{{uint32(pid), began}}; len(group) > 0; group = group[1:] {
		m := group[0]
		for _, child := range children[m.pid] {
			if at, err := begin(child); err == nil && at >= m.began && !seen[child] {
				seen[child] = true
				group = append(group, member{child, at})
			}
		}
		failed = errors.Join(failed, end(m.pid))
	}
	return failed
}

// children are the processes that run now, by their parents.
func children() (map[uint32][]uint32, error) {
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPPROCESS, 0)
	if err != nil {
		return nil, os.NewSyscallError("CreateToolhelp32Snapshot", err)
	}
	defer windows.CloseHandle(snapshot)
	of := map[uint32][]uint32{}
	e := windows.ProcessEntry32{Size: uint32(unsafe.Sizeof(windows.ProcessEntry32{}))}
	for err = windows.Process32First(snapshot, &e); err == nil; err = windows.Process32Next(snapshot, &e) {
		of[e.ParentProcessID] = append(of[e.ParentProcessID], e.ProcessID)
	}
	if !errors.Is(err, windows.ERROR_NO_MORE_FILES) {
		return nil, os.NewSyscallError("Process32Next", err)
	}
	return of, nil
}

// begin is when a process began.
func begin(pid uint32) (int64, error) {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, pid)
	if err != nil {
		return 0, err
	}
	defer windows.CloseHandle(h)
	var created, exited, kernel, user windows.Filetime
	err = windows.GetProcessTimes(h, &created, &exited, &kernel, &user)
	return created.Nanoseconds(), err
}

func end(pid uint32) error {
	h, err := windows.OpenProcess(windows.PROCESS_TERMINATE, false, pid)
	if errors.Is(err, windows.ERROR_INVALID_PARAMETER) {
		return nil // it has ended by itself
	}
	if err != nil {
		return os.NewSyscallError("OpenProcess", err)
	}
	defer windows.CloseHandle(h)
	return os.NewSyscallError("TerminateProcess", windows.TerminateProcess(h, 1))
}
