package consulapi

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// agentHost answers with what the operating system says about this host.
func agentHost(q *request) error {
	if err := q.allow(ResOperator, "", Read); err != nil {
		return err
	}
	var failures []string
	name, err := os.Hostname()
	if err != nil {
		failures = append(failures, err.Error())
	}
	memory, err := hostMemory()
	if err != nil {
		failures = append(failures, err.Error())
	}
	disk, err := hostDisk("/")
	if err != nil {
		failures = append(failures, err.Error())
	}
	cpus := make([]map[string]any, runtime.NumCPU())
	for i := range cpus {
		cpus[i] = map[string]any{"cpu": i, "cores": 1}
	}
	return q.replyValue(map[string]any{
		"Memory": memory, "CPU": cpus, "Disk": disk,
		"Host":           map[string]any{"hostname": name, "os": runtime.GOOS, "kernelArch": runtime.GOARCH},
		"CollectionTime": q.api.cfg.Clock.Now().UnixNano(), "Errors": failures,
	})
}

// hostMemory reads the kernel's table; sizes in bytes.
func hostMemory() (map[string]uint64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names := map[string]string{"MemTotal": "total", "MemFree": "free", "MemAvailable": "available", "Buffers": "buffers", "Cached": "cached"}
	out := map[string]uint64{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, rest, _ := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(rest)
		if name := names[key]; name != "" && len(fields) > 0 {
			if n, err := strconv.ParseUint(fields[0], 10, 64); err == nil {
				out[name] = n << 10
			}
		}
	}
	out["used"] = out["total"] - min(out["available"], out["total"])
	return out, nil
}

func hostDisk(path string) (map[string]any, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return nil, err
	}
	size := uint64(st.Bsize)
	return map[string]any{"path": path, "total": st.Blocks * size, "free": st.Bavail * size, "used": (st.Blocks - st.Bfree) * size}, nil
}
