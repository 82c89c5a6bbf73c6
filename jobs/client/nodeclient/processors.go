package nodeclient

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// processors remembers what the host's processors had done when they were looked at last.
type processors struct {
	mu   sync.Mutex // guards last
	last []cpuTimes
}

type cpuTimes struct{ user, system, idle float64 } // in ticks, or in percent

// measure is what each did since the last time, in percent.
func (p *processors) measure() (shares []cpuTimes) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil
	}
	var now []cpuTimes
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 5 || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
			continue
		}
		var n [4]float64
		for i := range n {
			n[i], _ = strconv.ParseFloat(f[i+1], 64)
		}
		now = append(now, cpuTimes{user: n[0] + n[1], system: n[2], idle: n[3]})
	}
	p.mu.Lock()
	last := p.last
	p.last = now
	p.mu.Unlock()
	for i, t := range now {
		if i < len(last) {
			t = cpuTimes{t.user - last[i].user, t.system - last[i].system, t.idle - last[i].idle}
		}
		all := t.user + t.system + t.idle
		if all <= 0 {
			shares = append(shares, cpuTimes{idle: 100})
			continue
		}
		shares = append(shares, cpuTimes{100 * t.user / all, 100 * t.system / all, 100 * t.idle / all})
	}
	return shares
}

// systemState reads how much memory is available, and for how many seconds the host runs.
func systemState() (available, uptimeSeconds uint64) {
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
				kib, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
				available = kib << 10
			}
		}
	}
	if text, err := os.ReadFile("/proc/uptime"); err == nil {
		seconds, _, _ := strings.Cut(string(text), ".")
		uptimeSeconds, _ = strconv.ParseUint(seconds, 10, 64)
	}
	return available, uptimeSeconds
}
