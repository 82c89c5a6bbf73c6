package probe

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"corbel.dev/corbel/telemetry"
)

// sample reads the machine.
func (h *Host) sample(r *telemetry.Registry, now time.Time) (gaps []string) {
	gap := func(what string, err error) {
		if err != nil {
			gaps = append(gaps, what+": "+err.Error())
		}
	}
	gap("host CPU", h.busy(r))
	gap("disk", h.disk(r))
	gap("pressure (PSI)", h.pressure(r))
	gap("listen queues", h.listenQueues(r))
	gap("softnet", h.softnet(r))
	gap("descriptors", h.descriptors(r))
	h.conntrack(r)
	h.collector(r)
	if !now.Before(h.slow) {
		h.slow = now.Add(slowEvery)
		before := len(gaps)
		h.envoys = h.proxies()
		gap("network cards", h.cards(r))
		gap("TCP peers", h.peers(r))
		gap("TCP services", h.services(r))
		gaps, h.slowGaps = gaps[:before], slices.Clone(gaps[before:])
	}
	gaps = append(gaps, h.slowGaps...)
	gap("control group", h.throttled(r, now))
	return gaps
}

// busy is the part of the CPU time of this machine that was used.
func (h *Host) busy(r *telemetry.Registry) error {
	b, err := os.ReadFile(h.Proc + "/stat")
	if err != nil {
		return err
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) < 6 || fields[0] != "cpu" {
		return fmt.Errorf("%s/stat begins with %q", h.Proc, line)
	}
	var all, idle, waited float64
	for i, f := range fields[1:min(len(fields), 9)] { // guest time is part of user time
		v, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return fmt.Errorf("%s/stat: %w", h.Proc, err)
		}
		all += v
		if i == 3 || i == 4 {
			idle += v
		}
		if i == 4 {
			waited = v
		}
	}
	if was := h.cpu; was[1] > 0 && all > was[1] {
		r.Gauge("host.cpu.busy").Set(max(0, all-idle-was[0]) / (all - was[1]))
		r.Gauge("host.cpu.iowait").Set(min(max(0, waited-was[2])/(all-was[1]), 1)) // a core that moves on takes some back
	}
	h.cpu = [3]float64{all - idle, all, waited}
	return nil
}

// pressure is the share of the last ten seconds in which work waited, in percent.
func (h *Host) pressure(r *telemetry.Registry) error {
	for _, resource := range []string{"cpu", "io", "memory"} {
		b, err := os.ReadFile(filepath.Join(h.Proc, "pressure", resource))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(b)) {
			kind, rest, _ := strings.Cut(line, " ")
			for _, f := range strings.Fields(rest) {
				if v, ok := strings.CutPrefix(f, "avg10="); ok {
					if percent, err := strconv.ParseFloat(v, 64); err == nil {
						r.Gauge("host.psi", "resource", resource, "kind", kind).Set(percent)
					}
				}
			}
		}
	}
	return nil
}

// pairs reads a file of /proc/net in which a line of names stands above a line of values, and calls f for each.
func pairs(file string, f func(section, name string, v float64)) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := strings.Split(string(b), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		if len(names) == 0 || len(names) != len(values) || names[0] != values[0] {
			continue
		}
		for j := 1; j < len(names); j++ {
			if v, err := strconv.ParseFloat(values[j], 64); err == nil {
				f(strings.TrimSuffix(names[0], ":"), names[j], v)
			}
		}
	}
	return nil
}

func (h *Host) listenQueues(r *telemetry.Registry) error {
	return pairs(h.Proc+"/net/netstat", func(section, name string, v float64) {
		if section == "TcpExt" && name == "ListenOverflows" {
			h.add(r, v, "host.net.listen_overflows")
		}
	})
}

// softnet sums packets that the kernel dropped because its backlog was full: the second column, in hex, a line for
// each core.
func (h *Host) softnet(r *telemetry.Registry) error {
	b, err := os.ReadFile(h.Proc + "/net/softnet_stat")
	if err != nil {
		return err
	}
	var dropped uint64
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 {
			if v, err := strconv.ParseUint(f[1], 16, 64); err == nil {
				dropped += v
			}
		}
	}
	h.add(r, float64(dropped), "host.softnet.dropped")
	return nil
}

// descriptors is which part of this process's limit is in use.
func (h *Host) descriptors(r *telemetry.Registry) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	// The size of the folder is the number of open descriptors since Linux 6.2; before, it is 0 and they are listed.
	info, err := os.Stat("/proc/self/fd")
	if err != nil {
		return err
	}
	open := info.Size()
	if open == 0 {
		d, err := os.Open("/proc/self/fd")
		if err != nil {
			return err
		}
		names, err := d.Readdirnames(-1)
		_ = d.Close()
		if err != nil {
			return err
		}
		open = int64(len(names)) - 1
	}
	r.Gauge("host.fd.used").Set(float64(open) / float64(max(limit.Cur, 1)))
	return nil
}

// conntrack is which part of the kernel's table of connections is in use; a kernel without the table has no gap.
func (h *Host) conntrack(r *telemetry.Registry) {
	count, err1 := number(h.Proc + "/sys/net/netfilter/nf_conntrack_count")
	most, err2 := number(h.Proc + "/sys/net/netfilter/nf_conntrack_max")
	if err1 == nil && err2 == nil && most > 0 {
		r.Gauge("host.conntrack.used").Set(count / most)
	}
}

func number(file string) (float64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(string(b)), 64)
}

// collector is which part of this process's CPU time went into collecting garbage.
func (h *Host) collector(r *telemetry.Registry) {
	samples := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/idle:cpu-seconds"},
		{Name: "/cpu/classes/total:cpu-seconds"}}
	metrics.Read(samples)
	gc, ok1 := h.grew("cpu.gc", samples[0].Value.Float64())
	idle, _ := h.grew("cpu.idle", samples[1].Value.Float64())
	all, ok2 := h.grew("cpu.all", samples[2].Value.Float64())
	// The runtime brings these up to date at each collection; between two there is nothing new.
	if ok1 && ok2 && all-idle > 0.05 {
		r.Gauge("runtime.gc_cpu").Set(min(gc/(all-idle), 1))
	}
}
