package nodeclient

import (
	"context"
	"strconv"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/fingerprint"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/kit/hostinfo"
	"corbel.dev/corbel/telemetry"
)

// hostGauges are what dashboards show of a node: the host, what is given away of it, and what runs.
type hostGauges struct {
	c      *Client
	labels []string // of all
	all    map[string]*telemetry.Gauge
	// cpu is its own: who asks for the host's statistics has another interval.
	cpu processors
}

// set sets the gauge nomad.client.NAME.
func (g *hostGauges) set(name string, v float64, more ...string) {
	key := name
	for _, text := range more {
		key += "\x00" + text
	}
	if g.all[key] == nil {
		g.all[key] = g.c.cfg.Metrics.Gauge("nomad.client."+name, append(g.labels[:len(g.labels):len(g.labels)], more...)...)
	}
	g.all[key].Set(v)
}

func newHostGauges(c *Client) *hostGauges {
	return &hostGauges{c: c, all: map[string]*telemetry.Gauge{},
		labels: []string{"node_id", c.cfg.Node.ID.String(), "datacenter", c.cfg.Node.Datacenter}}
}

// run measures the host until ctx ends; not that of simulated nodes, which have none of their own.
func (g *hostGauges) run(ctx context.Context) {
	if g.c.cfg.AllocDir == "" || g.c.cfg.Metrics == nil {
		return
	}
	for {
		g.host()
		g.given()
		if !g.c.pause(ctx, publishEvery) {
			return
		}
	}
}

// host is what the host has and uses.
func (g *hostGauges) host() {
	total := hostinfo.AllowedMemory()
	available, uptime := systemState()
	g.set("host.memory.total", float64(total))
	g.set("host.memory.available", float64(available))
	g.set("host.memory.used", float64(total-min(total, available)))
	g.set("host.memory.free", float64(available))
	g.set("uptime", float64(uptime))
	dir := g.c.cfg.AllocDir
	size, free := fingerprint.Disk(dir)
	g.set("host.disk.size", float64(size), "disk", dir)
	g.set("host.disk.available", float64(free), "disk", dir)
	g.set("host.disk.used", float64(size-free), "disk", dir)
	g.set("host.disk.used_percent", fingerprint.DiskUse(dir), "disk", dir)
	for i, busy := range g.cpu.measure() {
		cpu := []string{"cpu", "cpu" + strconv.Itoa(i)}
		g.set("host.cpu.user", busy.user, cpu...)
		g.set("host.cpu.system", busy.system, cpu...)
		g.set("host.cpu.idle", busy.idle, cpu...)
		g.set("host.cpu.total_percent", 100-busy.idle, cpu...)
	}
}

// given is what allocations have of the node, and how many are in which state.
func (g *hostGauges) given() {
	var used jobs.Vector
	states := map[string]int{}
	for _, a := range g.c.snapshot() {
		if a.Done() {
			continue
		}
		load := a.Workload()
		used = used.Plus(load.Grant.Vector)
		switch {
		case load.Desired.Migrate:
			states["migrating"]++
		case !begun(a.States()):
			states["pending"]++
		}
	}
	left := g.c.node.Load().Capacity.Total.Minus(g.c.node.Load().Capacity.Reserved).Minus(used)
	for name, v := range map[string]jobs.Vector{"allocated": used, "unallocated": left} {
		g.set(name+".cpu", float64(v.CPU))
		g.set(name+".memory", float64(v.MemoryMB))
		g.set(name+".disk", float64(v.DiskMB))
	}
	g.set("allocations.migrating", float64(states["migrating"]))
	g.set("allocations.pending", float64(states["pending"]))
}

// begun reports whether one of the tasks was running once.
func begun(tasks map[string]jobwire.TaskState) bool {
	for _, t := range tasks {
		if !t.StartedAt.IsZero() {
			return true
		}
	}
	return false
}
