package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// usage is processor time, memory and what was written, by kind of process.
type usage struct {
	servers, players, database float64 // seconds
	rss                        int64   // of servers
	written                    float64 // bytes that servers, and their database, had written to disks
}

func (p *plane) usage() (u usage) {
	if p.cluster != nil {
		for _, s := range p.cluster.servers {
			u.servers += s.proc.cpuSeconds()
			u.rss += s.proc.rssBytes()
			u.written += s.proc.writtenBytes()
		}
	}
	for _, c := range p.players {
		u.players += c.proc.cpuSeconds()
	}
	if p.database != nil {
		for _, c := range p.database.children() {
			u.database += c.cpuSeconds()
			u.written += c.writtenBytes()
		}
	}
	return u
}

// children are the processes that a process started and that live: PostgreSQL has one for each connection.
func (p *process) children() (list []*process) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is sound
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		var state string
		var parent int
		_, rest, _ := strings.Cut(string(data), ") ")
		if _, err := fmt.Sscan(rest, &state, &parent); err != nil || parent != p.cmd.Process.Pid {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			if child, err := os.FindProcess(pid); err == nil {
				one := newProcess("", nil, "", nil)
				one.cmd.Process = child
				list = append(list, one)
			}
		}
	}
	return list
}

// writtenBytes is what the process had the kernel write to disks so far; zero where the system does not tell.
func (p *process) writtenBytes() float64 {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "io"))
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
