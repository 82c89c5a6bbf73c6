package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

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

func newQuota() (*quota, error) {
	const root = "/sys/fs/cgroup"
	q, parent := &quota{}, filepath.Join(root, "cpu")
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		q.unified, parent = true, root
		// on already, or set fails below and says so
		_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+cpu"), 0)
	}
	var err error
	if q.dir, err = os.MkdirTemp(parent, "corbel-lab-"); err != nil {
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

// removeTime is how long remove waits for what the processes of a group had started, which ends by itself.
const removeTime = 5 * time.Second

// remove ends the group; its processes must have ended.
func (q *quota) remove() {
	_ = q.set(8) // what is left of them may be throttled
	for deadline := time.Now().Add(removeTime); errors.Is(os.Remove(q.dir), unix.EBUSY) && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
}

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
