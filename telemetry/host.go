package telemetry

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// hostEvery is how often the host's figures are read.
const hostEvery = 10 * time.Second

// hostSampler turns /proc and the data folder's file system into the host.* gauges:
// host.memory.*, host.cpu.*{cpu} in percent of the time since the last sample,
// host.disk.*{path} and host.uptime in seconds. Where there is no /proc it reports nothing.
type hostSampler struct {
	r      *Registry
	proc   string // "/proc"; tests have their own
	path   string // the data folder, "" for none
	next   time.Time
	before map[string]cpuTimes
}

// cpuTimes are one line of /proc/stat in ticks.
type cpuTimes struct{ user, system, idle, iowait, total uint64 }

func newHostSampler(r *Registry) *hostSampler {
	return &hostSampler{r: r, proc: "/proc", path: r.cfg.DataDir, before: make(map[string]cpuTimes)}
}

// sample reads the host if it is time and the settings want it.
func (h *hostSampler) sample(now time.Time) {
	if !h.r.Settings().EnableHostMetrics || now.Before(h.next) {
		return
	}
	h.next = now.Add(hostEvery)
	h.memory()
	h.cpu()
	h.disk()
	if b, err := os.ReadFile(h.proc + "/uptime"); err == nil {
		if fields := bytes.Fields(b); len(fields) > 0 {
			if seconds, err := strconv.ParseFloat(string(fields[0]), 64); err == nil {
				h.r.Gauge("host.uptime").Set(seconds)
			}
		}
	}
}

func (h *hostSampler) memory() {
	b, err := os.ReadFile(h.proc + "/meminfo")
	if err != nil {
		return
	}
	m := parseMeminfo(b)
	total, available, free := m["MemTotal"], m["MemAvailable"], m["MemFree"]
	used := total - min(total, available)
	h.r.Gauge("host.memory.total").Set(float64(total))
	h.r.Gauge("host.memory.available").Set(float64(available))
	h.r.Gauge("host.memory.free").Set(float64(free))
	h.r.Gauge("host.memory.used").Set(float64(used))
	if total > 0 {
		h.r.Gauge("host.memory.used_percent").Set(100 * float64(used) / float64(total))
	}
}

// parseMeminfo reads "Name: 123 kB" lines as bytes.
func parseMeminfo(b []byte) map[string]uint64 {
	out := make(map[string]uint64)
	for line := range bytes.Lines(b) {
		name, rest, ok := bytes.Cut(line, []byte(":"))
		fields := bytes.Fields(rest)
		if !ok || len(fields) == 0 {
			continue
		}
		n, err := strconv.ParseUint(string(fields[0]), 10, 64)
		if err != nil {
			continue
		}
		if len(fields) > 1 && string(fields[1]) == "kB" {
			n <<= 10
		}
		out[string(name)] = n
	}
	return out
}

func (h *hostSampler) cpu() {
	b, err := os.ReadFile(h.proc + "/stat")
	if err != nil {
		return
	}
	now := parseStat(b)
	for cpu, t := range now {
		last, seen := h.before[cpu]
		ticks := t.total - last.total
		if !seen || t.total <= last.total {
			continue
		}
		for _, part := range [...]struct {
			name      string
			now, last uint64
		}{{"user", t.user, last.user}, {"system", t.system, last.system}, {"idle", t.idle, last.idle},
			{"iowait", t.iowait, last.iowait}} {
			h.r.Gauge("host.cpu."+part.name, "cpu", cpu).Set(100 * float64(part.now-min(part.now, part.last)) / float64(ticks))
		}
		h.r.Gauge("host.cpu.total", "cpu", cpu).Set(100 * float64(ticks-min(ticks,
			t.idle-min(t.idle, last.idle))) / float64(ticks))
	}
	h.before = now
}

// parseStat reads the lines of single processors: cpu0, cpu1 ...
func parseStat(b []byte) map[string]cpuTimes {
	out := make(map[string]cpuTimes)
	for line := range bytes.Lines(b) {
		fields := bytes.Fields(line)
		if len(fields) < 6 || len(fields[0]) < 4 || !bytes.HasPrefix(fields[0], []byte("cpu")) {
			continue
		}
		var values [8]uint64 // user nice system idle iowait irq softirq steal; guest time is in user
		t := cpuTimes{}
		for i := range values {
			if i+1 >= len(fields) {
				break
			}
			n, err := strconv.ParseUint(string(fields[i+1]), 10, 64)
			if err != nil {
				break
			}
			values[i] = n
			t.total += n
		}
		t.user, t.system, t.idle, t.iowait = values[0]+values[1], values[2], values[3], values[4]
		out[string(fields[0])] = t
	}
	return out
}
