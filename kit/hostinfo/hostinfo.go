// Package hostinfo tells what the operating system says about this host, under the
// names that operators' tools know. What it does not say is left out.
//
// Functions read a few small files each time and keep nothing.
package hostinfo

import (
	"bufio"
	"io"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// colonTable reads lines of "key : value", one table for each block between empty lines.
func colonTable(path string) ([]map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []map[string]string
	block := map[string]string{}
	lines := bufio.NewScanner(io.LimitReader(f, 4<<20))
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), ":")
		switch {
		case ok:
			block[strings.TrimSpace(key)] = strings.TrimSpace(value)
		case len(block) > 0:
			all, block = append(all, block), map[string]string{}
		}
	}
	if len(block) > 0 {
		all = append(all, block)
	}
	return all, lines.Err()
}

// Memory reads the kernel's table; sizes in bytes.
func Memory() (map[string]any, error) {
	all, err := colonTable("/proc/meminfo")
	if err != nil || len(all) == 0 {
		return nil, err
	}
	size := func(name string) uint64 {
		text, _, _ := strings.Cut(all[0][name], " ")
		n, _ := strconv.ParseUint(text, 10, 64) // absent on old kernels: 0
		return n << 10
	}
	total, available := size("MemTotal"), size("MemAvailable")
	used := total - min(available, total)
	return map[string]any{
		"total": total, "available": available, "used": used, "usedPercent": percent(used, total),
		"free": size("MemFree"), "active": size("Active"), "inactive": size("Inactive"), "buffers": size("Buffers"),
		"cached": size("Cached"), "writeBack": size("Writeback"), "dirty": size("Dirty"), "shared": size("Shmem"),
		"slab": size("Slab"), "mapped": size("Mapped"), "swapCached": size("SwapCached"), "swapTotal": size("SwapTotal"),
		"swapFree": size("SwapFree"), "commitLimit": size("CommitLimit"), "committedAS": size("Committed_AS"),
	}, nil
}

func percent(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole) * 100
}

// CPUs is one entry for each processor that the kernel lists.
func CPUs() ([]map[string]any, error) {
	all, err := colonTable("/proc/cpuinfo")
	cpus := []map[string]any{}
	for i, c := range all {
		mhz, _ := strconv.ParseFloat(c["cpu MHz"], 64) // not told on all architectures
		stepping, _ := strconv.Atoi(c["stepping"])
		cache, _, _ := strings.Cut(c["cache size"], " ")
		cacheSize, _ := strconv.Atoi(cache)
		cpus = append(cpus, map[string]any{
			"cpu": i, "vendorId": c["vendor_id"], "family": c["cpu family"], "model": c["model"], "stepping": stepping,
			"physicalId": c["physical id"], "coreId": c["core id"], "cores": 1, "modelName": c["model name"], "mhz": mhz,
			"cacheSize": cacheSize, "flags": strings.Fields(c["flags"]), "microcode": c["microcode"],
		})
	}
	for i := len(cpus); i < runtime.NumCPU(); i++ { // some architectures list no blocks
		cpus = append(cpus, map[string]any{"cpu": i, "cores": 1})
	}
	return cpus, err
}

// Host is what the system calls itself.
func Host(now time.Time) (map[string]any, error) {
	name, err := os.Hostname()
	host := map[string]any{"hostname": name, "os": runtime.GOOS, "kernelArch": runtime.GOARCH,
		"kernelVersion": firstLine("/proc/sys/kernel/osrelease"), "hostId": firstLine("/etc/machine-id")}
	up, _, _ := strings.Cut(firstLine("/proc/uptime"), " ")
	if seconds, err := strconv.ParseFloat(up, 64); err == nil {
		host["uptime"] = uint64(seconds)
		host["bootTime"] = uint64(now.Unix()) - uint64(math.Min(seconds, float64(now.Unix())))
	}
	release := osRelease()
	host["platform"], host["platformFamily"], host["platformVersion"] = release["ID"], release["ID_LIKE"],
		release["VERSION_ID"]
	if procs, err := os.ReadDir("/proc"); err == nil {
		count := 0
		for _, p := range procs {
			if _, err := strconv.Atoi(p.Name()); err == nil {
				count++
			}
		}
		host["procs"] = count
	}
	return host, err
}

// readSmall is a small file's text, empty where there is none.
func readSmall(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 64<<10)) // what was read is what there is
	return string(b)
}

func firstLine(path string) string {
	line, _, _ := strings.Cut(readSmall(path), "\n")
	return line
}
