package jobsplane

import (
	"time"

	"corbel.dev/corbel/jobs/rooms"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/telemetry"
)

// newMetrics makes a registry whose names are as dashboards for Nomad know them (section 6).
func newMetrics(d *plane.Doors) *telemetry.Registry {
	return telemetry.New(telemetry.Config{Settings: telemetry.Settings{MetricsPrefix: "nomad.nomad",
		PrometheusRetentionTime: 24 * time.Hour, DisableHostname: true, DisableDoctor: d.Cfg.Telemetry.DisableDoctor},
		Clock: d.Clock, Logger: d.Log, Traces: d.Metrics.Traces()})
}

// meter exports what the plane counts.
func (p *Plane) meter() {
	stat := func(name, help string, f func() float64) {
		p.metrics.Declare(telemetry.KindGauge, name, help)
		p.metrics.GaugeFunc(name, f)
	}
	queue := func(pick func(ready, unacked, pending, waiting, blocked, escaped int) int) func() float64 {
		return func() float64 {
			q, _ := p.sched.Stats()
			return float64(pick(q.Ready, q.Unacked, q.Pending, q.Waiting, q.Blocked, q.Escaped))
		}
	}
	stat("broker.total_ready", "Evaluations that wait for a scheduler.",
		queue(func(n, _, _, _, _, _ int) int { return n }))
	stat("broker.total_unacked", "Evaluations that are at a scheduler.", queue(func(_, n, _, _, _,
		_ int) int {
		return n
	}))
	stat("broker.total_pending", "Evaluations behind another one of their job.",
		queue(func(_, _, n, _, _, _ int) int { return n }))
	stat("broker.total_waiting", "Evaluations whose time has not come.", queue(func(_, _, _, n, _,
		_ int) int {
		return n
	}))
	stat("blocked_evals.total_blocked", "Jobs that wait for room.", queue(func(_, _, _, _, n, _ int) int { return n }))
	stat("blocked_evals.total_escaped", "Of these, jobs that any node might serve.",
		queue(func(_, _, _, _, _, n int) int { return n }))
	stat("blocked_evals.cpu", "MHz that what waits for room asks for.", func() float64 {
		return float64(p.sched.Needs().CPU)
	})
	stat("blocked_evals.memory", "MB that what waits for room asks for.", func() float64 {
		return float64(p.sched.Needs().MemoryMB)
	})
	stat("heartbeat.active", "Nodes that are expected to beat.", func() float64 {
		_, n := p.sched.Stats()
		return float64(n)
	})
	stat("state.allocations", "Allocations that are kept.",
		func() float64 { return float64(p.store.View().State.AllocationCount()) })
	stat("state.evaluations", "Evaluations that are kept.",
		func() float64 { return float64(p.store.View().State.EvaluationCount()) })
	stat("state.nodes", "Nodes.", func() float64 { return float64(p.store.View().State.Nodes()) })
}

// Rooms tells what is free and used, as this server knows it. Rights are its caller's matter.
func (p *Plane) Rooms() rooms.Rooms {
	out := rooms.Of(p.store.View().State.Uses())
	q, _ := p.sched.Stats()
	out.Waiting = q.Blocked
	return out
}

// NodeRooms tells it of each node, by its name. Rights are its caller's matter.
func (p *Plane) NodeRooms() map[string]rooms.NodeRoom {
	return rooms.ByName(p.store.View().State.Uses())
}

// debug is the plane's part of the debug archive.
func (p *Plane) debug() any {
	v := p.store.View()
	q, watched := p.sched.Stats()
	return map[string]any{"index": v.State.Index(), "leads": p.sched.Leads(), "queue": q, "nodes": v.State.Nodes(),
		"nodes_watched": watched, "allocations": v.State.AllocationCount(), "evaluations": v.State.EvaluationCount()}
}
