package nodeclient

import (
	"context"
	"time"

	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/telemetry"
)

// publishEvery is how often what allocations use is measured for metrics.
const publishEvery = 10 * time.Second

// allocGauges are the gauges of allocations, which go with them.
type allocGauges struct {
	sets   map[string]*telemetry.GaugeSet
	points map[string][]telemetry.Point
}

// gaugeNames are all of them: of each task, and with network of each allocation that has one of its own.
var gaugeNames = []string{"cpu.total_percent", "cpu.user", "cpu.system", "cpu.total_ticks",
	"memory.rss", "memory.usage",
	"network.rx_bytes", "network.rx_packets", "network.rx_errors", "network.rx_dropped",
	"network.tx_bytes", "network.tx_packets", "network.tx_errors", "network.tx_dropped"}

func newAllocGauges(r *telemetry.Registry) *allocGauges {
	g := &allocGauges{sets: map[string]*telemetry.GaugeSet{}, points: map[string][]telemetry.Point{}}
	for _, name := range gaugeNames {
		g.sets[name] = r.GaugeSet("nomad.client.allocs." + name)
	}
	return g
}

func (g *allocGauges) add(name string, labels []string, v float64) {
	g.points[name] = append(g.points[name], telemetry.Point{Labels: labels, Value: v})
}

// flush shows what was added, and nothing else.
func (g *allocGauges) flush() {
	for name, set := range g.sets {
		set.Replace(g.points[name])
		g.points[name] = nil
	}
}

// publishAtTimes measures all allocations until ctx ends, where the operator wants that.
func (c *Client) publishAtTimes(ctx context.Context) {
	if !c.cfg.PublishAllocs {
		return
	}
	g := newAllocGauges(c.cfg.Metrics)
	for c.pause(ctx, publishEvery) {
		for id, a := range c.snapshot() {
			load := a.Workload()
			labels := []string{"alloc_id", id.String(), "job", jobwire.Get(load.Job.ID), "namespace",
				jobwire.Get(load.Job.Namespace), "task_group", load.Alloc.Group}
			for name, u := range a.Usage() {
				of := append(labels[:len(labels):len(labels)], "task", name)
				g.add("cpu.total_percent", of, u.CPUPercent)
				g.add("cpu.user", of, u.UserPercent)
				g.add("cpu.system", of, u.SysPercent)
				g.add("cpu.total_ticks", of, u.CPUTicks)
				g.add("memory.rss", of, float64(u.MemoryBytes))
				g.add("memory.usage", of, float64(u.MemoryBytes))
			}
			n, ok := a.Counters()
			if !ok {
				continue
			}
			for name, v := range map[string]uint64{"rx_bytes": n.RxBytes, "rx_packets": n.RxPackets, "rx_errors": n.RxErrors,
				"rx_dropped": n.RxDropped, "tx_bytes": n.TxBytes, "tx_packets": n.TxPackets, "tx_errors": n.TxErrors,
				"tx_dropped": n.TxDropped} {
				g.add("network."+name, labels, float64(v))
			}
		}
		g.flush()
	}
}
