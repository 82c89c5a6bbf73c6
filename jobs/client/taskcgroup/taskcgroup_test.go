package taskcgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/jobs/client/driver"
)

// fake makes the files of a hierarchy, as the kernel does in new folders.
func fake(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestLimits: both versions get the bounds in their own words.
func TestLimits(t *testing.T) {
	r := &driver.Resources{CPU: 500, MemoryMB: 100, MemoryMaxMB: 200, Cores: []uint16{1, 3}}
	for version, c := range map[string]struct{ files, want map[string]string }{
		"2": {map[string]string{"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "",
			"corbel/t/memory.max": "max",
			"corbel/t/cpu.weight": "100", "corbel/t/cpuset.cpus": "", "corbel/t/memory.events": "oom 1\noom_kill 1\n",
			"corbel/t/memory.current": "4096\n", "corbel/t/cpu.stat": "usage_usec 1500\nuser_usec 1\n"},
			map[string]string{"corbel/t/memory.max": "209715200", "corbel/t/cpu.weight": "19",
				"corbel/t/cpuset.cpus": "1,3"}},
		"1": {map[string]string{"memory/x": "", "cpuset/cpuset.cpus": "0-3\n", "cpuset/cpuset.mems": "0\n",
			"cpuset/corbel/cpuset.cpus": "", "cpuset/corbel/cpuset.mems": "", "cpuset/corbel/t/cpuset.cpus": "",
			"cpuset/corbel/t/cpuset.mems": "", "memory/corbel/t/memory.limit_in_bytes": "", "cpu/corbel/t/cpu.shares": "",
			"memory/corbel/t/memory.oom_control":    "under_oom 0\noom_kill 2\n",
			"memory/corbel/t/memory.usage_in_bytes": "4096\n", "cpuacct/corbel/t/cpuacct.usage": "1500000\n"},
			map[string]string{"memory/corbel/t/memory.limit_in_bytes": "209715200", "cpu/corbel/t/cpu.shares": "500",
				"cpuset/corbel/t/cpuset.cpus": "1,3", "cpuset/corbel/t/cpuset.mems": "0", "cpuset/corbel/cpuset.cpus": "0-3"}},
	} {
		root := fake(t, c.files)
		g, err := Make(root, "t", r)
		if err != nil || g.V2 != (version == "2") {
			t.Fatal(version, err)
		}
		for name, want := range c.want {
			if text, err := os.ReadFile(filepath.Join(root, name)); err != nil || !strings.HasPrefix(string(text), want) {
				t.Errorf("version %s: %s: %q, %v, want %q", version, name, text, err, want)
			}
		}
		if memory, cpu, ok := g.Usage(); !g.OOMKilled() || memory != 4096 || cpu.Microseconds() != 1500 || !ok {
			t.Error(version, g.OOMKilled(), memory, cpu)
		}
	}
	if _, err := Make(fake(t, nil)+"/none/\x00", "t", r); err == nil {
		t.Error("limits without control groups")
	}
}
