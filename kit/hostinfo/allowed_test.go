package hostinfo

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAllowedMemoryIsTheLeast reads the machine's memory and the limits of control groups of both versions.
func TestAllowedMemoryIsTheLeast(t *testing.T) {
	const mib = 1 << 20
	for _, test := range []struct {
		name  string
		files map[string]string
		want  uint64
	}{
		{"nothing", nil, 0},
		{"machine", map[string]string{"proc/meminfo": "MemTotal:       1024 kB\n"}, mib},
		{"group without a limit", map[string]string{"proc/meminfo": "MemTotal: 4096 kB\n", "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n"}, 4 * mib},
		{"group", map[string]string{"proc/meminfo": "MemTotal: 4096 kB\n", "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "2097152\n"}, 2 * mib},
		{"group above", map[string]string{"proc/meminfo": "MemTotal: 4096 kB\n", "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "2097152\n", "sys/fs/cgroup/a/memory.max": "1048576\n"}, mib},
		{"container", map[string]string{"proc/meminfo": "MemTotal: 4096 kB\n", "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "1048576\n"}, mib},
		{"version 1", map[string]string{"proc/meminfo": "MemTotal: 4096 kB\n",
			"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/y\n",
			"sys/fs/cgroup/memory/y/memory.limit_in_bytes": "1048576\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712\n"}, mib},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range test.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := allowedMemory(root); got != test.want {
				t.Errorf("%d bytes, want %d", got, test.want)
			}
		})
	}
}
