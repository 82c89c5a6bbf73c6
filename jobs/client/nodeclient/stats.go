package nodeclient

import (
	"context"
	"encoding/json"
	"runtime"
	"strconv"

	"corbel.dev/corbel/jobs/client/allocnet"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/fingerprint"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/hostinfo"
)

// resourceUsage is the contract's, of a task or of all.
type resourceUsage struct {
	MemoryStats memoryStats
	CpuStats    cpuStats
	DeviceStats []any
}

type memoryStats struct {
	RSS, Cache, Swap, Usage, MaxUsage, KernelUsage, KernelMaxUsage uint64
	Measured                                                       []string
}

type cpuStats struct {
	SystemMode, UserMode, TotalTicks, Percent float64
	ThrottledPeriods, ThrottledTime           uint64
	Measured                                  []string
}

type taskUsage struct {
	ResourceUsage resourceUsage
	Timestamp     int64
	Pids          map[string]any
}

func usage(u driver.Usage) resourceUsage {
	return resourceUsage{MemoryStats: memoryStats{RSS: u.MemoryBytes, Usage: u.MemoryBytes,
		Measured: []string{"RSS", "Usage"}}, CpuStats: cpuStats{SystemMode: u.SysPercent, UserMode: u.UserPercent,
		TotalTicks: u.CPUTicks, Percent: u.CPUPercent, Measured: []string{"System Mode", "User Mode", "Percent"}},
		DeviceStats: []any{}}
}

// stats is what an allocation uses.
func (c answers) stats(_ context.Context, req []byte) ([]byte, error) {
	ask, a, err := c.task(req)
	if err != nil {
		return nil, err
	}
	if ask.Task != "" && !a.Has(ask.Task) {
		return nil, errkind.Errorf(errkind.NotFound, "Task %q not found in allocation", ask.Task)
	}
	var total driver.Usage
	out := struct {
		ResourceUsage resourceUsage
		Tasks         map[string]*taskUsage
		// NetworkStats are the counters of a network of its own; Nomad has none.
		NetworkStats *allocnet.Counters `json:",omitempty"`
		Timestamp    int64
	}{Tasks: map[string]*taskUsage{}, Timestamp: c.cfg.Clock.Now().UnixNano()}
	for name, u := range a.Usage() {
		if ask.Task != "" && name != ask.Task {
			continue
		}
		out.Tasks[name] = &taskUsage{ResourceUsage: usage(u), Timestamp: u.At.UnixNano(), Pids: map[string]any{}}
		total.MemoryBytes += u.MemoryBytes
		total.CPUPercent += u.CPUPercent
		total.CPUTicks += u.CPUTicks
		total.UserPercent += u.UserPercent
		total.SysPercent += u.SysPercent
	}
	out.ResourceUsage = usage(total)
	if n, ok := a.Counters(); ok {
		out.NetworkStats = &n
	}
	return json.Marshal(out)
}

// hostStats is what the host uses.
func (c answers) hostStats(context.Context, []byte) ([]byte, error) {
	now := c.cfg.Clock.Now()
	total := hostinfo.AllowedMemory()
	available, uptime := systemState()
	type disk struct {
		Device, Mountpoint    string
		Size, Used, Available uint64
		UsedPercent           float64
	}
	size, free := fingerprint.Disk(c.cfg.AllocDir)
	d := disk{Device: c.cfg.AllocDir, Mountpoint: c.cfg.AllocDir, Size: uint64(size), Available: uint64(free),
		Used: uint64(size - free), UsedPercent: fingerprint.DiskUse(c.cfg.AllocDir)}
	var cpus []map[string]any
	for i, busy := range c.processors.measure() {
		cpus = append(cpus, map[string]any{"CPU": "cpu" + strconv.Itoa(i), "User": busy.user, "System": busy.system,
			"Idle": busy.idle, "Total": 100 - busy.idle})
	}
	ticks := 0.0
	for _, cpu := range cpus {
		ticks += cpu["Total"].(float64) / 100 * float64(c.node.Load().Capacity.Total.CPU) / float64(runtime.NumCPU())
	}
	return json.Marshal(map[string]any{"Memory": map[string]uint64{"Total": total, "Available": available,
		"Used": total - min(total, available), "Free": available}, "CPU": cpus, "DiskStats": []disk{d}, "AllocDirStats": d,
		"DeviceStats": []any{}, "Uptime": uptime, "CPUTicksConsumed": ticks,
		"Timestamp": now.UnixNano()})
}

// checks are those of the allocation's native services.
func (c answers) checks(_ context.Context, req []byte) ([]byte, error) {
	ask, err := noderpc.Read[noderpc.TaskAsk](req)
	if err != nil {
		return nil, err
	}
	if _, err := c.find(ask.Alloc); err != nil {
		return nil, err
	}
	if s, ok := c.cfg.Services.(interface{ Status(id [16]byte) any }); ok {
		return json.Marshal(s.Status(ask.Alloc))
	}
	return []byte("{}"), nil
}
