package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent ends servers with the lab, so that none outlives a killed run.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// asUser runs a child as another user.
func asUser(attr *syscall.SysProcAttr, uid, gid int) *syscall.SysProcAttr {
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr
}

// leaveDescriptors lowers a process's limit so that it may open just so many more.
func leaveDescriptors(pid, spare int) error {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return err
	}
	most := uint64(len(open) + spare)
	return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: most}, nil)
}

// quotaPeriod is the scheduler's period of a quota, in microseconds.
const quotaPeriod = 100_000

// quota is a CPU control group of the lab's own, in whichever version is mounted.
type quota struct {
	dir     string
	unified bool
}

func newQuota(name string) (*quota, error) {
	const root = "/sys/fs/cgroup"
	q := &quota{dir: filepath.Join(root, "cpu", name)}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		q.dir, q.unified = filepath.Join(root, name), true
		_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+cpu"), 0) // on already, or set fails below and says so
	}
	if err := os.Mkdir(q.dir, 0o755); err != nil {
		return nil, fmt.Errorf("a CPU control group cannot be made here: %w", err)
	}
	return q, nil
}

// set gives the group a part of one CPU.
func (q *quota) set(part float64) error {
	most := strconv.Itoa(int(part * quotaPeriod))
	if q.unified {
		return os.WriteFile(filepath.Join(q.dir, "cpu.max"), []byte(most+" "+strconv.Itoa(quotaPeriod)), 0)
	}
	if err := os.WriteFile(filepath.Join(q.dir, "cpu.cfs_period_us"), []byte(strconv.Itoa(quotaPeriod)), 0); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(q.dir, "cpu.cfs_quota_us"), []byte(most), 0)
}

func (q *quota) add(pid int) error {
	return os.WriteFile(filepath.Join(q.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// remove ends the group; its processes must have ended.
func (q *quota) remove() { _ = os.Remove(q.dir) }

// childrenOf are the arguments of the processes that a process started.
func childrenOf(pid int) (out [][]string, err error) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		b, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for child := range strings.FieldsSeq(string(b)) {
			if line, err := os.ReadFile(filepath.Join("/proc", child, "cmdline")); err == nil {
				out = append(out, strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"))
			}
		}
	}
	return out, nil
}
