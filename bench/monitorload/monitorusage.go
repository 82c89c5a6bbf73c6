package monitorload

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"corbel.dev/corbel/bench"
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
		u.written += float64(bench.WrittenBytes(s.PID()))
	}
	for _, c := range p.players {
		u.players += c.Proc.CPU()
	}
	if p.database != nil {
		for _, pid := range children(p.database.PID()) {
			u.database += spawn.CPUOf(pid)
			u.written += float64(bench.WrittenBytes(pid))
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
