package fingerprint

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"corbel.dev/corbel/jobs"
)

// TestRead: a host by its files, and what its operator says instead.
func TestRead(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"etc/os-release": "ID=\"debian\"\nVERSION_ID=12\n",
		"proc/sys/kernel/osrelease": "6.1.0\n", "sys/fs/cgroup/cgroup.controllers": "cpu",
		"proc/cpuinfo": "model name\t: Fast\ncpu MHz\t\t: 1999.5\nprocessor: 1\ncpu MHz\t\t: 2400.9\n"} {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h := Read(root, &Options{AllocDir: root, Address: "10.0.0.1", Datacenter: "dc1", MinPort: 1, MaxPort: 2,
		Reserved: jobs.Vector{CPU: 100}, Ports: []int{22}})
	for name, want := range map[string]string{"os.name": "debian", "os.version": "12", "kernel.version": "6.1.0",
		"cpu.modelname": "Fast", "cpu.frequency": "2400", "unique.cgroup.version": "v2", "consul.datacenter": "dc1",
		"unique.network.ip-address": "10.0.0.1", "nomad.version": Contract} {
		if h.Attributes[name] != want {
			t.Errorf("%s: %q, want %q", name, h.Attributes[name], want)
		}
	}
	total, _ := strconv.ParseInt(h.Attributes["cpu.totalcompute"], 10, 64)
	c := h.Capacity
	if total != int64(c.TotalCores)*2400 || c.Total.CPU != total || c.Total.MemoryMB == 0 || c.Total.DiskMB == 0 ||
		len(c.Cores) != c.TotalCores || c.Reserved.CPU != 100 || c.MaxPort != 2 || c.Networks[0].Address != "10.0.0.1" {
		t.Errorf("%+v", c)
	}
	h = Read(root, &Options{TotalCPU: 5000, MemoryMB: 7, DiskMB: 9})
	if got := h.Capacity.Total; got != (jobs.Vector{CPU: 5000, MemoryMB: 7, DiskMB: 9}) {
		t.Errorf("%+v", got)
	}
}
