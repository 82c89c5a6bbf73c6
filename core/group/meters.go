package group

import (
	"sync/atomic"
	"time"

	"corbel.dev/corbel/core/logstore"
	"corbel.dev/corbel/telemetry"
)

// meters are the group's metrics, each with the label group.
type meters struct {
	registry *telemetry.Registry
	name     string
	timings
	proposals, entries, bytes, shed    *telemetry.Counter
	unknown, stalls, fails, reconnects *telemetry.Counter
	// scrubs are complete readings of everything on disk, rotten what they found damaged.
	scrubs, rotten *telemetry.Counter
}

// timings are where a proposal spends its time.
type timings struct {
	// queue: from Propose to hand-over; append: one StoreLogs with its fsync;
	// replicate: from hand-over to committed and applied; apply: one batch in the machine.
	queue, append, replicate, apply *telemetry.Timing
}

func newMeters(r *telemetry.Registry, name string) meters {
	timing := func(stage string) *telemetry.Timing { return r.Timing("group."+stage, "group", name) }
	counter := func(what string) *telemetry.Counter { return r.Counter("group."+what, "group", name) }
	return meters{registry: r, name: name,
		timings: timings{
			queue: timing("queue"), append: timing("append"), replicate: timing("replicate"), apply: timing("apply"),
		},
		proposals: counter("proposals"), entries: counter("entries"), bytes: counter("bytes"), shed: counter("shed"),
		unknown: counter("unknown"), stalls: counter("stalls"), fails: counter("failures"), reconnects: counter("reconnects"),
		scrubs: counter("scrubs"), rotten: counter("scrub.damaged"),
	}
}

// bind exports what the store counts; an instance that is gone counts nothing more.
func (m meters) bind(g *Group) {
	export := func(name string, pick func(logstore.Stats) uint64) {
		m.registry.GaugeFunc("storage."+name, func() float64 {
			if in := g.current.Load(); in != nil && in.stores.Disk != nil {
				return float64(pick(in.stores.Disk.Stats()))
			}
			return 0
		}, "group", m.name)
	}
	export("appends", func(s logstore.Stats) uint64 { return s.Appends })
	export("bytes", func(s logstore.Stats) uint64 { return s.Bytes })
	export("fsyncs", func(s logstore.Stats) uint64 { return s.Fsyncs })
	export("reads", func(s logstore.Stats) uint64 { return s.Reads })
	m.registry.GaugeFunc("group.queue.depth", func() float64 { return float64(g.batch.depth()) }, "group", m.name)
	m.registry.GaugeFunc("group.write.inflight_ms", func() float64 {
		if in := g.current.Load(); in != nil && in.stores.Disk != nil {
			return float64(in.stores.Disk.InFlight().Milliseconds())
		}
		return 0
	}, "group", m.name)
	m.registry.GaugeFunc("group.leader", func() float64 {
		if g.IsLeader() {
			return 1
		}
		return 0
	}, "group", m.name)
	// The last moment at which a reader of this gauge found a leader known, in nanoseconds since now; it is as exact as
	// it is read often.
	var led atomic.Int64
	begun := time.Now()
	m.registry.GaugeFunc("group.leaderless_ms", func() float64 {
		now := int64(time.Since(begun))
		in := g.current.Load()
		if _, addr := g.Leader(); addr != "" || in == nil || in.raft.LastIndex() == 0 { // nobody has founded or joined it yet
			led.Store(now)
			return 0
		}
		return float64(now-led.Load()) / float64(time.Millisecond)
	}, "group", m.name)
}

// stall publishes a stall of the group's disk as a fact.
func (m meters) stall(s logstore.Stall) {
	if s.Ended {
		m.registry.Publish(telemetry.StallEnded{Disk: m.name, For: s.For})
		return
	}
	m.stalls.Add(1)
	m.registry.Publish(telemetry.StallBegan{Disk: m.name, For: s.For})
}

// Fsyncs counts the fsyncs of the log since it was opened; 0 without a disk.
func (g *Group) Fsyncs() uint64 {
	if in := g.current.Load(); in != nil && in.stores.Disk != nil {
		return in.stores.Disk.Stats().Fsyncs
	}
	return 0
}
