package lab

import (
	"os"
	"strconv"
	"strings"
)

// cpuUse is how much CPU time this machine had used and had, in ticks, at a moment.
type cpuUse struct{ busy, all float64 }

// cpuTimes reads it; zeros where there is no /proc.
func cpuTimes() (u cpuUse) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u
	}
	line, _, _ := strings.Cut(string(b), "\n")
	for i, f := range strings.Fields(line) {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil || i > 8 { // guest time is part of user time
			continue
		}
		u.all += v
		if i != 4 && i != 5 { // idle, and waiting for disks
			u.busy += v
		}
	}
	return u
}

// busySince is which part of the CPU was in use since, from 0 to 1.
func (u cpuUse) busySince() float64 {
	now := cpuTimes()
	if now.all <= u.all {
		return 0
	}
	return (now.busy - u.busy) / (now.all - u.all)
}
