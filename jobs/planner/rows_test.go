package planner

import (
	"testing"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/apply"
	"corbel.dev/corbel/jobs/reconcile"
	"corbel.dev/corbel/jobs/state"
)

// stage is a small cluster in which one thing after the other happens.
type stage struct {
	t   *testing.T
	s   *state.State
	n   int
	now jobs.Time
}

func newStage(t *testing.T, nodes int, change func(n int, node *jobs.Node)) *stage {
	g := &stage{t: t, s: state.Empty(), now: 1e18}
	g.edit(func(e *state.Edit) {
		for n := range nodes {
			node := &jobs.Node{ID: number(1, n), Name: "n", Datacenter: "dc1", Duty: jobs.Duty{Status: jobs.NodeReady},
				Drivers:  map[string]jobs.Driver{"docker": {Detected: true, Healthy: true}},
				Capacity: jobs.Capacity{Total: jobs.Vector{CPU: 1000, MemoryMB: 1000, DiskMB: 1000}}}
			if change != nil {
				change(n, node)
			}
			e.PutNode(node)
		}
	})
	return g
}

func (g *stage) edit(change func(*state.Edit)) {
	e := g.s.Edit(g.s.Index() + 1)
	change(e)
	g.s = e.Done()
}

func (g *stage) put(j *jobs.Job) {
	g.edit(func(e *state.Edit) { e.PutJob(j) })
}

func stageJob(name, jobType string, count int, cpu int64) *jobs.Job {
	return &jobs.Job{JobKey: jobs.JobKey{Namespace: "default", ID: name}, Type: jobType, Priority: 50,
		Groups: []*jobs.TaskGroup{{Name: "g", Count: count, Tasks: []*jobs.Task{{Name: "t", Driver: "docker",
			Resources: jobs.Resources{CPU: cpu, MemoryMB: 10}}}}}}
}

// evaluate decides and applies, and returns both.
func (g *stage) evaluate(name string) (Result, apply.Outcome) {
	g.n++
	key := jobs.JobKey{Namespace: "default", ID: name}
	e := &jobs.Evaluation{ID: number(3, g.n), JobKey: key, Priority: 50, Status: jobs.EvalPending}
	if j := g.s.Job(key); j != nil {
		e.Type, e.Priority = j.Type, j.Priority
	}
	out := NewPass(g.s, g.now, 1, nil).Evaluate(e)
	next, outcomes := apply.Plans(g.s, g.s.Index()+1, g.now, []apply.Item{{Plan: out.Plan, Eval: out.Eval, New: out.New}})
	g.s = next
	return out, outcomes[0]
}

// live counts the allocations of a job that are to run.
func (g *stage) live(name string) (n int) {
	for a := range g.s.OfJob(jobs.JobKey{Namespace: "default", ID: name}) {
		if !a.Terminal() {
			n++
		}
	}
	return n
}

func (g *stage) want(what string, got, want int) {
	g.t.Helper()
	if got != want {
		g.t.Errorf("%s: %d, want %d", what, got, want)
	}
}

// report lets the nodes say the same of all allocations of a job that are to run.
func (g *stage) report(name, status string, health jobs.Health) apply.Effects {
	var list []apply.Report
	for a := range g.s.OfJob(jobs.JobKey{Namespace: "default", ID: name}) {
		if !a.Terminal() {
			list = append(list, apply.Report{Alloc: a.ID, Health: health,
				Client: jobs.Client{Status: status, FinishedAt: g.now}})
		}
	}
	var out apply.Effects
	g.edit(func(e *state.Edit) { out = apply.Reports(e, g.now, list) })
	return out
}

// TestNS6: what fits is placed, the rest is blocked with the reason, and fills up when a node joins (NZ-1).
func TestNS6(t *testing.T) {
	g := newStage(t, 1, nil)
	g.put(stageJob("a", jobs.Service, 5, 400))
	out, _ := g.evaluate("a")
	g.want("placed", len(out.Plan.Place), 2)
	g.want("queued", out.Eval.Outcome.Queued["g"], 3)
	g.want("new evaluations", len(out.New), 1)
	b := g.s.Evaluation(out.New[0].ID)
	if b == nil || b.Status != jobs.EvalBlocked || b.Trigger != jobs.TriggerQueued || b.Chain.Previous != out.Eval.ID ||
		out.Eval.Chain.Blocked != b.ID || b.Outcome.Escaped {
		t.Errorf("%+v", b)
	}
	if out.Least != (jobs.Vector{CPU: 400, MemoryMB: 10}) || out.All != (jobs.Vector{CPU: 1200, MemoryMB: 30}) {
		t.Error(out.Least, out.All)
	}
	m := out.Eval.Outcome.Failed["g"]
	g.want("cpu exhausted", m.DimensionExhausted["cpu"], 1)
	g.want("coalesced", m.Coalesced, 2)
	if ok, seen := b.Outcome.Classes[g.s.Node(number(1, 0)).Class]; !ok || !seen {
		t.Error("NS-7: the class serves, it only has no room")
	}
	g.edit(func(e *state.Edit) {
		node := *g.s.Node(number(1, 0)).Node
		node.ID = number(1, 1)
		e.PutNode(&node)
	})
	g.evaluate("a")
	g.want("after a node joined", g.live("a"), 4)
}

// TestNS20: all at once or nothing.
func TestNS20(t *testing.T) {
	g := newStage(t, 1, nil)
	j := stageJob("a", jobs.Batch, 5, 400)
	j.AllAtOnce = true
	g.put(j)
	out, _ := g.evaluate("a")
	g.want("placed", len(out.Plan.Place), 0)
	g.want("queued", out.Eval.Outcome.Queued["g"], 5)
}

// TestNS22: a plan that meets another one keeps what fits, and the rest is tried again.
func TestNS22(t *testing.T) {
	g := newStage(t, 2, nil)
	g.put(stageJob("a", jobs.Service, 2, 600))
	g.put(stageJob("b", jobs.Service, 2, 600))
	eval := func(n int, name string) apply.Item {
		out := NewPass(g.s, g.now, uint64(n), nil).Evaluate(&jobs.Evaluation{ID: number(3, 100+n), Type: jobs.Service,
			JobKey: jobs.JobKey{Namespace: "default", ID: name}})
		return apply.Item{Plan: out.Plan, Eval: out.Eval, New: out.New}
	}
	items := []apply.Item{eval(1, "a"), eval(2, "b")}
	next, outcomes := apply.Plans(g.s, g.s.Index()+1, g.now, items)
	g.s = next
	g.want("a", outcomes[0].Placed, 2)
	g.want("b", outcomes[1].Placed, 0)
	if outcomes[1].Refresh != g.s.Index() || len(outcomes[1].Nodes) != 2 || g.s.Evaluation(items[1].Eval.ID) != nil {
		t.Errorf("%+v", outcomes[1])
	}
	failed, blocked := GiveUp(items[1].Eval, g.s.Index(), g.now, number(3, 200))
	if failed.Status != jobs.EvalFailed || blocked.Trigger != jobs.TriggerMaxPlans || !blocked.Outcome.Escaped ||
		Attempts(jobs.Service) != 5 || Attempts(jobs.Batch) != 2 {
		t.Error("NS-21", failed, blocked)
	}
}

// TestNS23: what a plan may do on nodes that changed meanwhile.
func TestNS23(t *testing.T) {
	for name, change := range map[string]func(*jobs.Node){
		"down":       func(n *jobs.Node) { n.Duty.Status = jobs.NodeDown },
		"ineligible": func(n *jobs.Node) { n.Duty.Ineligible = true },
		"draining":   func(n *jobs.Node) { n.Duty.Drain = &jobs.Drain{} },
		"smaller":    func(n *jobs.Node) { n.Capacity.Total.CPU = 10 },
		"gone":       nil,
	} {
		g := newStage(t, 1, nil)
		g.put(stageJob("a", jobs.Service, 1, 400))
		g.evaluate("a")
		old := *stageJob("a", jobs.Service, 1, 500)
		old.Version = 1
		g.put(&old)
		out := NewPass(g.s, g.now, 1, nil).Evaluate(&jobs.Evaluation{ID: number(3, 9), JobKey: old.JobKey, Type: old.Type})
		g.want(name+": planned", len(out.Plan.Place), 1)
		g.edit(func(e *state.Edit) {
			if change == nil {
				e.DeleteNode(number(1, 0))
				return
			}
			node := *g.s.Node(number(1, 0)).Node
			change(&node)
			e.PutNode(&node)
		})
		next, o := apply.Plans(g.s, g.s.Index()+1, g.now, []apply.Item{{Plan: out.Plan}})
		g.s = next
		g.want(name+": rejected", o[0].Rejected, 1)
		g.want(name+": the old one goes on", g.live("a"), 1)
		stop := &jobs.Plan{Stop: out.Plan.Stop}
		g.s, _ = apply.Plans(g.s, g.s.Index()+1, g.now, []apply.Item{{Plan: stop}})
		g.want(name+": a stop passes", g.live("a"), 0)
	}
}

// TestNS19: one on each feasible node, on those that join too; traps 7 and 9.
func TestNS19(t *testing.T) {
	g := newStage(t, 4, func(n int, node *jobs.Node) {
		if n == 3 {
			node.Drivers = nil
		}
	})
	g.put(stageJob("sys", jobs.System, 1, 100))
	g.put(stageJob("once", jobs.SysBatch, 1, 100))
	counted := func(name string, want reconcile.Counts) {
		t.Helper()
		if out, _ := g.evaluate(name); out.Counts["g"] != want {
			t.Errorf("%s: %+v, want %+v", name, out.Counts["g"], want)
		}
	}
	counted("sys", reconcile.Counts{Place: 3})
	counted("once", reconcile.Counts{Place: 3})
	counted("sys", reconcile.Counts{Ignore: 3})
	g.want("system", g.live("sys"), 3)
	g.want("sysbatch", g.live("once"), 3)
	duty := func(n int, d jobs.Duty) {
		g.edit(func(e *state.Edit) {
			node := *g.s.Node(number(1, n)).Node
			node.Duty = d
			e.PutNode(&node)
		})
	}
	duty(0, jobs.Duty{Status: jobs.NodeReady, Ineligible: true})
	duty(1, jobs.Duty{Status: jobs.NodeDown})
	counted("sys", reconcile.Counts{Ignore: 2, Stop: 1})
	g.want("an ineligible node keeps its own, one that is down loses it", g.live("sys"), 2)
	duty(1, jobs.Duty{Status: jobs.NodeReady})
	g.evaluate("sys")
	g.want("back", g.live("sys"), 3)
	if freed := g.report("once", jobs.ClientComplete, 0).Freed; len(freed) != 1 || freed[0].Free.CPU != 300 {
		t.Error("NS-9", freed)
	}
	g.report("sys", jobs.ClientFailed, 0)
	g.evaluate("once")
	g.evaluate("sys")
	g.want("sysbatch is done", g.live("once"), 0)
	g.want("system runs again where it may", g.live("sys"), 2)
	next := *g.s.Job(jobs.JobKey{Namespace: "default", ID: "sys"})
	next.Stop = true
	g.put(&next)
	g.evaluate("sys")
	g.want("stopped", g.live("sys"), 0)
	if use := g.s.Node(number(1, 1)); use.Room.Free.CPU >= 1000 {
		t.Error("trap 9: the room is free before the node has confirmed")
	}
}

// TestNS34: lower priorities go when they must, and only for who is allowed to.
func TestNS34(t *testing.T) {
	for _, test := range []struct {
		priority, placed, preempted int
		on                          bool
	}{{90, 1, 1, true}, {90, 0, 0, false}, {25, 0, 0, true}} {
		g := newStage(t, 2, nil)
		g.edit(func(e *state.Edit) { e.SetConfig(jobs.Config{Preempt: map[string]bool{jobs.Service: test.on}}) })
		low, lower := stageJob("low", jobs.Service, 1, 900), stageJob("lower", jobs.Service, 1, 900)
		low.Priority, lower.Priority = 40, 20
		g.put(low)
		g.put(lower)
		g.evaluate("low")
		g.evaluate("lower")
		high := stageJob("high", jobs.Service, 1, 500)
		high.Priority = test.priority
		g.put(high)
		out, _ := g.evaluate("high")
		g.want("placed", len(out.Plan.Place), test.placed)
		g.want("preempted", len(out.Plan.Preempt), test.preempted)
		for _, s := range out.Plan.Preempt {
			a := g.s.Allocation(s.Alloc)
			if a.Job.ID != "lower" || a.Desired.Status != jobs.Evict || a.Lineage.PreemptedBy != out.Plan.Place[0].ID {
				t.Errorf("%+v", a)
			}
		}
	}
}

// TestNS27And28 rolls a version out with a canary, to a stable version.
func TestNS27And28(t *testing.T) {
	g := newStage(t, 10, nil)
	with := func(version uint64, cpu int64) *jobs.Job {
		j := stageJob("web", jobs.Service, 4, cpu)
		j.Version = version
		j.Groups[0].Update = &jobs.UpdatePolicy{MaxParallel: 2, Canary: 1, ProgressDeadline: time.Minute}
		return j
	}
	g.put(with(0, 100))
	g.evaluate("web")
	g.report("web", jobs.ClientRunning, jobs.Healthy)
	g.evaluate("web")
	key := jobs.JobKey{Namespace: "default", ID: "web"}
	if d := g.s.LatestDeployment(key); d.Status != jobs.DeploySuccessful || !g.s.Job(key).Stable {
		t.Fatalf("%+v", d)
	}
	g.put(with(1, 200))
	g.evaluate("web")
	g.want("with the canary", g.live("web"), 5)
	effects := g.report("web", jobs.ClientRunning, jobs.Healthy)
	d := g.s.LatestDeployment(key)
	g.want("deployments to judge", len(effects.Deployments), 1)
	g.want("healthy", d.Groups["g"].Healthy, 1)
	g.want("canaries", len(d.Groups["g"].Canaries), 1)
	g.edit(func(e *state.Edit) { apply.Promote(e, d.ID, nil, g.now) })
	for range 4 {
		g.evaluate("web")
		g.report("web", jobs.ClientRunning, jobs.Healthy)
	}
	g.evaluate("web")
	g.want("at the end", g.live("web"), 4)
	for a := range g.s.OfJob(key) {
		if !a.Terminal() && (a.Job.Version != 1 || a.Grant.CPU != 200) {
			t.Error(a.Name(), "runs the old version")
		}
	}
	if d := g.s.LatestDeployment(key); d.Status != jobs.DeploySuccessful || !g.s.Job(key).Stable {
		t.Errorf("%+v", d)
	}
}

// TestPlacedInPlace: an update in place counts as placed by its deployment, once.
func TestPlacedInPlace(t *testing.T) {
	g := newStage(t, 4, nil)
	with := func(version uint64, meta string) *jobs.Job {
		j := stageJob("web", jobs.Service, 3, 100)
		j.Version = version
		j.Groups[0].Update = &jobs.UpdatePolicy{MaxParallel: 3, ProgressDeadline: time.Minute}
		j.Groups[0].Parts = map[string]string{"Services": meta}
		return j
	}
	for version, part := range []string{"a", "b"} {
		g.put(with(uint64(version), part))
		g.evaluate("web")
		g.evaluate("web")
		d := g.s.LatestDeployment(jobs.JobKey{Namespace: "default", ID: "web"})
		g.want("placed", d.Groups["g"].Placed, 3)
		g.report("web", jobs.ClientRunning, jobs.Healthy)
		g.evaluate("web")
	}
	g.want("allocations", g.live("web"), 3)
	for a := range g.s.OfJob(jobs.JobKey{Namespace: "default", ID: "web"}) {
		if a.Job.Version != 1 {
			t.Error(a.Name(), "was not updated in place")
		}
	}
}

// TestNK2: six versions stay, and the newest stable one.
func TestNK2(t *testing.T) {
	g := newStage(t, 1, nil)
	key := jobs.JobKey{Namespace: "default", ID: "a"}
	for v := range uint64(12) {
		j := stageJob("a", jobs.Service, 1, 1)
		j.Version = v
		g.put(j)
		if v == 2 {
			g.edit(func(e *state.Edit) { e.SetStable(key, 2, true) })
		}
	}
	var kept []uint64
	for j := range g.s.Versions(key) {
		kept = append(kept, j.Version)
	}
	if len(kept) != 7 || kept[0] != 2 || kept[1] != 6 {
		t.Error(kept)
	}
	g.edit(func(e *state.Edit) { e.DeleteJob(key) })
	for j := range g.s.Versions(key) {
		t.Error("kept", j.Version)
	}
}

// TestDistinctOverGroups: what keeps a job's allocations apart counts the groups that the same plan has placed.
func TestDistinctOverGroups(t *testing.T) {
	g := newStage(t, 5, nil)
	j := stageJob("a", jobs.Service, 2, 10)
	j.Constraints = []jobs.Constraint{{Operand: "distinct_hosts"}}
	other := *j.Groups[0]
	other.Name = "h"
	j.Groups = append(j.Groups, &other)
	g.put(j)
	out, _ := g.evaluate("a")
	hosts := map[jobs.ID]bool{}
	for _, a := range out.Plan.Place {
		hosts[a.NodeID] = true
	}
	g.want("hosts", len(hosts), 4)
}

// TestNS18: the algorithm is the cluster's, or the pool's.
func TestNS18(t *testing.T) {
	for _, test := range []struct {
		config jobs.Config
		hosts  int
	}{{jobs.Config{}, 1}, {jobs.Config{Algorithm: jobs.SpreadFit}, 4},
		{jobs.Config{Algorithm: jobs.SpreadFit, PoolAlgorithm: map[string]string{"default": jobs.Binpack}}, 1}} {
		g := newStage(t, 4, nil)
		g.edit(func(e *state.Edit) { e.SetConfig(test.config) })
		hosts := map[jobs.ID]bool{}
		for n := range 4 { // four jobs: within a job anti-affinity would part them
			name := string(rune('a' + n))
			g.put(stageJob(name, jobs.Service, 1, 100))
			out, _ := g.evaluate(name)
			hosts[out.Plan.Place[0].NodeID] = true
		}
		g.want("hosts", len(hosts), test.hosts)
	}
}
