package probe

import (
	"strings"
	"time"

	"corbel.dev/corbel/telemetry"
)

// Host is the machine's side of the evidence. Its zero values are the machine that this process runs on; tests and
// the fault lab give other folders and counters. Sample is called by one goroutine.
type Host struct {
	// Proc and Sys are where the kernel shows itself, /proc and /sys.
	Proc, Sys string
	// Dir is the folder whose disk is counted; "" counts none.
	Dir string
	// Ports are those that this process listens on and dials: sockets with other ports are not its.
	Ports func() []int
	// Peer names who is at an address, "" when it is nobody known.
	Peer func(ip string, port int) string
	// Services are those of this host, by port: connections of theirs are counted together.
	Services func() map[uint16]string
	// Cards gives the counters that the drivers of network cards keep, by card; where it is nil, or gives none, the
	// drivers are asked.
	Cards func() map[string]map[string]uint64

	before   map[string]float64 // counters as they were last seen
	seen     map[string]bool    // by this sample
	cpu      [3]float64         // busy, all, and waited for disks
	slow     time.Time          // when what is expensive is looked at next
	slowGaps []string           // what the last such look could not see
	envoys   []group
	quotas   time.Time       // when control groups were looked at
	limited  map[string]bool // whose those were
}

// slowEvery is how often processes are listed and sockets are asked.
const slowEvery = 10 * time.Second

// topPeers is how many peers keep series of their own; those that lose most come first.
const topPeers = 32

// group is a control group and whom it belongs to.
type group struct {
	who, path string
}

// add counts what a kernel counter grew by since it was last seen; the first sight and a counter that fell count
// nothing.
func (h *Host) add(r *telemetry.Registry, now float64, name string, labels ...string) {
	key := name + "\x00" + strings.Join(labels, "\x00")
	before, known := h.before[key]
	h.before[key], h.seen[key] = now, true
	c := r.Counter(name, labels...)
	if known && now > before {
		c.Add(uint64(now - before))
	}
}

// grew is what a counter grew by, without a series of its own.
func (h *Host) grew(key string, now float64) (float64, bool) {
	before, known := h.before[key]
	h.before[key], h.seen[key] = now, true
	return now - before, known && now >= before
}

// Sample reads the machine into r and says what could not be read.
func (h *Host) Sample(r *telemetry.Registry, now time.Time) (gaps []string) {
	if h.before == nil {
		h.before = map[string]float64{}
	}
	if h.Proc == "" {
		h.Proc = "/proc"
	}
	if h.Sys == "" {
		h.Sys = "/sys"
	}
	h.seen = map[string]bool{}
	whole := !now.Before(h.slow) // it looks at everything
	gaps = h.sample(r, now)
	for key := range h.before {
		if whole && !h.seen[key] {
			delete(h.before, key) // a peer or a card that is gone
		}
	}
	return gaps
}
