package monitorload

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"corbel.dev/corbel/kit/spawn"
)

// Usage is processor time, memory and what was written, by kind of process.
type usage struct {
	Servers, players, database float64 // seconds
	rss                        int64   // of servers
	written                    float64 // bytes that servers, and their database, had written to disks
}

func (p *Plane) Usage() (u usage) {
	for _, s := range p.cluster.Started() {
		u.Servers += s.CPU()
		u.rss += s.RSS()
		u.written += writtenBytes(s.PID())
	}
	for _, c := range p.players {
		u.players += c.Proc.CPU()
	}
	if p.database != nil {
		for _, pid := range children(p.database.PID()) {
			u.database += spawn.CPUOf(pid)
			u.written += writtenBytes(pid)
		}
	}
	return u
}

// children are the processes that a process started and that live: PostgreSQL has one for each connection.
func children(parent int) (list []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is sound
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		var state string
		var of int
		_, rest, _ := strings.Cut(string(data), ") ")
		if _, err := fmt.Sscan(rest, &state, &of); err != nil || of != parent {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			list = append(list, pid)
		}
	}
	return list
}

// writtenBytes is what a process had the kernel write to disks so far; zero where the system does not tell.
func writtenBytes(pid int) float64 {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "io"))
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if text, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			v, _ := strconv.ParseFloat(text, 64)
			return v
		}
	}
	return 0
}
