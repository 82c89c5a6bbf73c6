// Package jobsplane wires the jobs plane of a server: its Raft group with the state (jobs/jobstore), what its leader
// does (jobs/jobsched), what nodes call (jobs/noderpc), and the Nomad API on a port of its own.
package jobsplane

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/nomadapi"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/heartbeat"
	"corbel.dev/corbel/jobs/jobsched"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/planes/jobs/jobsnaps"
	"corbel.dev/corbel/node/planes/jobs/regions"
	"corbel.dev/corbel/telemetry"
)

// Name is the plane's, and its Raft group's.
const Name = "jobs"

// Plane is the jobs plane of a server. It fails alone: no error of its parts ends the process.
type Plane struct {
	d         *plane.Doors
	keys      *Keys
	metrics   *telemetry.Registry // in the contract's names
	store     *jobstore.Store
	group     *groupState
	sched     *jobsched.Sched
	nodes     *nodes
	port      *port // nil where it is off
	api       *nomadapi.API
	snapshots *jobsnaps.Snapshots
	regions   *regions.Regions // nil without a part in the pool of all datacenters
	began     time.Time
	failed    atomic.Pointer[error]
	ready     atomic.Bool
}

// Kind is the plane as a process lists it.
func Kind() plane.Kind {
	return plane.Kind{Name: Name, Keys: func() any { return new(Keys) }, Check: check, Open: open}
}

func open(d *plane.Doors) (plane.Plane, error) {
	keys := keysOf(d.Cfg)
	if d.Catalog == nil || !keys.Enabled {
		return nil, nil
	}
	p := &Plane{d: d, keys: keys, began: d.Clock.Now(), metrics: newMetrics(d)}
	p.store = jobstore.New(jobstore.Config{Log: d.Log, Applied: p.applied})
	p.group = newGroup(d, p.store)
	p.sched = jobsched.New(jobsched.Config{Group: p.group.raft, Store: p.store.View, Propose: p.group.here, Clock: d.Clock,
		Log: d.Log, Meters: jobsched.NewMeters(p.metrics), Workers: keys.Workers,
		History: jobsched.History{Job: keys.Keep.Jobs, Eval: keys.Keep.Evaluations, BatchEval: keys.Keep.Batch,
			Deployment: keys.Keep.Deployments, Node: keys.Keep.Nodes, Evals: keys.Keep.Count},
		Beats: heartbeat.Config{PerSecond: keys.Beats.PerSecond, Min: keys.Beats.Min, Grace: keys.Beats.Grace}})
	p.nodes = newNodes(d, p.group, p.sched, p.head)
	p.meter()
	d.Evidence(p.metrics)
	d.Fresh((&reporter{p: p, named: map[string]bool{}}).tell)
	d.Debug(p.debug)
	p.openAPI()
	if err := p.openPort(); err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	return p, nil
}

// applied tells the leader's work of changes. The group may replay its log before the rest of the plane is made.
func (p *Plane) applied(before, after *jobstore.View, changes []jobstore.Changed) {
	if p.sched != nil {
		p.sched.Applied(before, after, changes)
	}
}

// head begins a command.
func (p *Plane) head(kind string) jobstore.Head {
	return jobstore.Head{Now: p.now(), Seed: jobsched.Seed(), Kind: kind}
}

func (p *Plane) now() jobs.Time { return jobs.Time(p.d.Clock.Now().UnixNano()) }

// Run implements plane.Plane. A part that fails ends the plane's service, not the process.
func (p *Plane) Run(ctx context.Context) error {
	var parts life.Group
	add := func(name string, run func(context.Context) error) {
		parts.Add(name, func(ctx context.Context) error {
			err := run(ctx)
			if err == nil || ctx.Err() != nil {
				return nil
			}
			err = fmt.Errorf("%s: %w", name, err)
			p.failed.CompareAndSwap(nil, &err)
			p.d.Log.Error("the jobs plane has stopped; the other planes continue", "error", err)
			<-ctx.Done()
			return nil
		})
	}
	add("metrics", p.metrics.Run)
	add("raft", p.group.raft.Run)
	add("leader's work", p.sched.Run)
	add("registrations", p.nodes.registers.run)
	add("updates", p.nodes.updates.run)
	add("services", p.nodes.services.run)
	add("events of the monitor", (&troubles{p: p}).run)
	add("counts for dashboards", newMarks(p).run)
	if p.port != nil {
		add("api", p.servePort)
	}
	if err := parts.Run(ctx); err != nil {
		p.d.Log.Error("the jobs plane did not shut down cleanly", "error", err)
	}
	return nil
}

// Lacks implements plane.Plane: a server is ready once it knows a leader of the group, or the wait for one is over.
func (p *Plane) Lacks() []string {
	if p.ready.Load() || p.failed.Load() != nil || p.group.raft.LeaderAddr() != "" {
		p.ready.Store(true)
		return nil
	}
	return []string{"jobs plane: no leader yet"}
}

// Drain implements plane.Plane: leadership goes with the group's.
func (p *Plane) Drain(context.Context) {}

// Close implements plane.Plane.
func (p *Plane) Close() error {
	p.snapshots.Close()
	return nil
}

// Reload implements plane.Plane: what the section says counts from the next start.
func (p *Plane) Reload(cfg *config.Config) (func(), error) {
	fresh := keysOf(cfg)
	if fresh.Port != p.keys.Port || fresh.Address != p.keys.Address || fresh.Enabled != p.keys.Enabled {
		return nil, errors.New("jobs: enabled, port and address change only with a restart")
	}
	return nil, check(cfg)
}

// Leads reports whether this server does the leader's work.
func (p *Plane) Leads() bool { return p.sched.Leads() }

// Index is how far this server's state is.
func (p *Plane) Index() uint64 { return p.store.View().State.Index() }

// Addr is where the API answers, "" where that is off, or while the port is somebody else's.
func (p *Plane) Addr() string {
	if p.port == nil {
		return ""
	}
	server := p.port.server.Load()
	if server == nil {
		return ""
	}
	return server.Addrs()[0].String()
}
