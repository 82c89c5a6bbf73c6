package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of what its descendants leave behind.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// startOf is when a process began, in ticks since boot; 0 when it is gone.
func startOf(pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name is in brackets and may have some itself; the start time is the 20th field after it.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return 0
	}
	n, _ := strconv.ParseUint(string(fields[19]), 10, 64)
	return n
}

// killOrphans kills and reaps the children that are left, round by round: each may leave its own.
func killOrphans() {
	for {
		left := false
		files, _ := filepath.Glob("/proc/self/task/*/children")
		for _, name := range files {
			text, _ := os.ReadFile(name)
			for _, word := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(word); err == nil {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
		for {
			var status syscall.WaitStatus
			_, err := syscall.Wait4(-1, &status, 0, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			left = err == nil
			break
		}
		if !left {
			return
		}
	}
}
