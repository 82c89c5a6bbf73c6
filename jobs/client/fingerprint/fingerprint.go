// Package fingerprint finds out what a host is: attributes by the contract's names, and how much it has. It reads
// files of the system and asks nobody.
package fingerprint

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/hostinfo"
	"corbel.dev/corbel/kit/version"
)

// Contract is the version of the contract that clients read.
const Contract = "1.6.5"

// Options are what the operator says instead.
type Options struct {
	AllocDir   string // whose disk counts
	Address    string // of the network
	TotalCPU   int64  // MHz; 0 measures
	MemoryMB   int64  // 0 measures
	DiskMB     int64  // 0 measures
	MinPort    int
	MaxPort    int
	Reserved   jobs.Vector
	Ports      []int // reserved
	Datacenter string
}

// Host is what was found.
type Host struct {
	Attributes map[string]string
	Capacity   jobs.Capacity
}

// Read looks at the host. root is "/", but for tests.
func Read(root string, o *Options) *Host {
	h := &Host{Attributes: map[string]string{}}
	set := func(name, value string) {
		if value != "" {
			h.Attributes[name] = value
		}
	}
	name, _ := os.Hostname()
	set("unique.hostname", name)
	set("unique.network.ip-address", o.Address)
	set("nomad.version", Contract)
	set("nomad.revision", version.Of().Revision)
	set("corbel.version", version.Number)
	set("consul.version", version.Contract)
	set("consul.datacenter", o.Datacenter)
	set("kernel.name", runtime.GOOS)
	set("kernel.arch", kernelArch())
	set("kernel.version", first(filepath.Join(root, "proc/sys/kernel/osrelease")))
	set("os.signals", "SIGABRT,SIGALRM,SIGBUS,SIGFPE,SIGHUP,SIGILL,SIGINT,SIGKILL,SIGPIPE,SIGQUIT,SIGSEGV,SIGTERM,SIGTRAP")
	release := pairs(filepath.Join(root, "etc/os-release"))
	set("os.version", release["VERSION_ID"])
	if set("os.name", release["ID"]); release["ID"] == "" {
		set("os.name", runtime.GOOS)
	}
	h.cpu(root, o, set)
	h.memory(o, set)
	h.disk(o, set)
	if _, err := os.Stat(filepath.Join(root, "sys/fs/cgroup/cgroup.controllers")); err == nil {
		set("unique.cgroup.version", "v2")
		set("os.cgroups.version", "2")
		set("unique.cgroup.mountpoint", "/sys/fs/cgroup")
	} else if _, err := os.Stat(filepath.Join(root, "sys/fs/cgroup/memory")); err == nil {
		set("unique.cgroup.version", "v1")
		set("os.cgroups.version", "1")
		set("unique.cgroup.mountpoint", "/sys/fs/cgroup")
	}
	h.Capacity.Reserved, h.Capacity.ReservedPorts = o.Reserved, o.Ports
	h.Capacity.MinPort, h.Capacity.MaxPort = o.MinPort, o.MaxPort
	h.Capacity.Networks = []jobs.HostNetwork{{Name: "default", Address: o.Address}}
	return h
}

func kernelArch() string {
	switch runtime.GOARCH {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return runtime.GOARCH
}

// fallbackMHz is what a core counts for where nothing says how fast it is.
const fallbackMHz = 1000

func (h *Host) cpu(root string, o *Options, set func(name, value string)) {
	cores, mhz := runtime.NumCPU(), 0.0
	if text, err := os.ReadFile(filepath.Join(root, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")); err == nil {
		khz, _ := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		mhz = khz / 1000
	}
	model := ""
	if text, err := os.ReadFile(filepath.Join(root, "proc/cpuinfo")); err == nil {
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(line, ":")
			value = strings.TrimSpace(value)
			switch strings.TrimSpace(key) {
			case "model name":
				model = value
			case "cpu MHz":
				if n, err := strconv.ParseFloat(value, 64); err == nil && mhz < n {
					mhz = n
				}
			}
		}
	}
	if mhz < 1 {
		mhz = fallbackMHz
	}
	total := int64(mhz) * int64(cores)
	if o.TotalCPU > 0 {
		total = o.TotalCPU
	}
	set("cpu.arch", runtime.GOARCH)
	set("cpu.modelname", model)
	set("cpu.numcores", strconv.Itoa(cores))
	set("cpu.frequency", strconv.Itoa(int(mhz)))
	set("cpu.totalcompute", strconv.FormatInt(total, 10))
	set("cpu.usablecompute", strconv.FormatInt(total-o.Reserved.CPU, 10))
	set("cpu.reservablecores", strconv.Itoa(cores))
	h.Capacity.Total.CPU, h.Capacity.TotalCores = total, cores
	for i := range cores {
		h.Capacity.Cores = append(h.Capacity.Cores, uint16(i))
	}
}

func (h *Host) memory(o *Options, set func(name, value string)) {
	n := int64(hostinfo.AllowedMemory())
	if o.MemoryMB > 0 {
		n = o.MemoryMB << 20
	}
	set("memory.totalbytes", strconv.FormatInt(n, 10))
	h.Capacity.Total.MemoryMB = n >> 20
}

func (h *Host) disk(o *Options, set func(name, value string)) {
	total, free := Disk(o.AllocDir)
	set("unique.storage.volume", o.AllocDir)
	set("unique.storage.bytestotal", strconv.FormatInt(total, 10))
	set("unique.storage.bytesfree", strconv.FormatInt(free, 10))
	h.Capacity.Total.DiskMB = free >> 20
	if o.DiskMB > 0 {
		h.Capacity.Total.DiskMB = o.DiskMB
	}
}

func first(name string) string {
	text, _ := os.ReadFile(name)
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}

// pairs reads NAME="value" lines.
func pairs(name string) map[string]string {
	all := map[string]string{}
	text, _ := os.ReadFile(name)
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			all[key] = strings.Trim(value, `"'`)
		}
	}
	return all
}

// Disk is the size of the disk of dir, and its room; 0 where that is not known.
func Disk(dir string) (total, free int64) {
	if dir == "" {
		return 0, 0
	}
	s, err := hostinfo.SpaceOf(dir)
	if err != nil {
		return 0, 0
	}
	return int64(s.Total), int64(s.Free)
}

// DiskUse is the share of the disk of dir that is used, in percent; 0 where it is not known.
func DiskUse(dir string) float64 {
	total, free := Disk(dir)
	if total <= 0 {
		return 0
	}
	return 100 * float64(total-free) / float64(total)
}
