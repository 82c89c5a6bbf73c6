package hostinfo

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// AllowedMemory is how many bytes this process may use: the machine's, or the least that its control groups allow. 0:
// unknown.
func AllowedMemory() uint64 { return allowedMemory("/") }

func allowedMemory(root string) uint64 {
	var least uint64
	bound := func(text string) {
		if n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64); err == nil && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	if all, err := colonTable(filepath.Join(root, "proc/meminfo")); err == nil && len(all) > 0 {
		kib, _, _ := strings.Cut(all[0]["MemTotal"], " ")
		if n, err := strconv.ParseUint(kib, 10, 64); err == nil {
			least = n << 10
		}
	}
	b, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return least
	}
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		top, file := filepath.Join(root, "sys/fs/cgroup"), "memory.max" // version 2
		if parts[1] == "memory" {
			top, file = filepath.Join(top, "memory"), "memory.limit_in_bytes"
		} else if parts[1] != "" {
			continue
		}
		// a group is bound by those above it
		for dir := filepath.Join(top, parts[2]); strings.HasPrefix(dir, top); dir = filepath.Dir(dir) {
			if text, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				bound(string(text)) // "max" is none
			}
		}
	}
	return least
}
