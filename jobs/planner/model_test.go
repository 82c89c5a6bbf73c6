package planner

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/apply"
	"corbel.dev/corbel/jobs/feasible"
	"corbel.dev/corbel/jobs/place"
	"corbel.dev/corbel/jobs/state"
)

var seeds = flag.Int("seeds", 2000, "how many random clusters the model judges")

// world is a random cluster that lives through random events.
type world struct {
	t    *testing.T
	r    *rand.Rand
	seed uint64
	s    *state.State
	now  jobs.Time
	keys []jobs.JobKey
	fed  int
}

func number(kind byte, n int) (id jobs.ID) {
	id[0], id[13], id[14], id[15] = kind, byte(n>>16), byte(n>>8), byte(n)
	return id
}

func (w *world) edit(change func(*state.Edit)) {
	e := w.s.Edit(w.s.Index() + 1)
	change(e)
	w.s = e.Done()
}

func (w *world) node(n int) *jobs.Node {
	rack := w.r.IntN(3)
	return &jobs.Node{
		ID: number(1, n), Name: fmt.Sprintf("n%d", n), Datacenter: fmt.Sprintf("dc%d", w.r.IntN(2)),
		Attributes: map[string]string{"size": strconv.Itoa(rack), "unique.n": strconv.Itoa(n)},
		Meta:       map[string]string{"rack": fmt.Sprintf("r%d", rack)},
		Capacity: jobs.Capacity{Total: jobs.Vector{CPU: 500 * int64(1+w.r.IntN(8)), MemoryMB: 256 * int64(1+w.r.IntN(8)),
			DiskMB: 10_000}},
		Drivers: map[string]jobs.Driver{"docker": {Detected: true, Healthy: w.r.IntN(8) > 0}},
		Duty:    jobs.Duty{Status: jobs.NodeReady},
	}
}

func (w *world) job(n int, version uint64) *jobs.Job {
	g := &jobs.TaskGroup{Name: "g", Count: w.r.IntN(9), Tasks: []*jobs.Task{{Name: "t", Driver: "docker",
		Config: strconv.Itoa(w.r.IntN(2)), Resources: jobs.Resources{CPU: int64(100 * (1 + w.r.IntN(5))),
			MemoryMB: int64(50 * (1 + w.r.IntN(5)))}}},
		Reschedule: &jobs.ReschedulePolicy{Unlimited: true, Delay: 5e9, Function: "constant"}}
	j := &jobs.Job{JobKey: jobs.JobKey{Namespace: "default", ID: fmt.Sprintf("j%d", n)}, Type: jobs.Service,
		Priority: 10 * (1 + w.r.IntN(9)), Groups: []*jobs.TaskGroup{g}, Revision: jobs.Revision{Version: version}}
	switch n % 5 {
	case 1:
		j.Type = jobs.Batch
	case 2:
		j.Type, g.Count = jobs.System, 1
	}
	if w.r.IntN(3) == 0 && j.Type == jobs.Service {
		g.Update = &jobs.UpdatePolicy{MaxParallel: 1 + w.r.IntN(2), Canary: w.r.IntN(2), AutoPromote: true,
			ProgressDeadline: 600e9}
	}
	if w.r.IntN(4) == 0 {
		j.Constraints = append(j.Constraints, jobs.Constraint{Left: "${attr.size}", Operand: ">=", Right: "1"})
	}
	if w.r.IntN(6) == 0 {
		g.Constraints = append(g.Constraints, jobs.Constraint{Left: "${attr.unique.n}", Operand: "!=", Right: "1"})
	}
	if w.r.IntN(6) == 0 {
		g.Constraints = append(g.Constraints, jobs.Constraint{Operand: "distinct_hosts"})
	}
	if w.r.IntN(6) == 0 {
		j.Datacenters = []string{"dc0"}
	}
	if w.r.IntN(4) == 0 {
		g.Networks = []jobs.Network{{Reserved: []jobs.Port{{Label: "a", Value: 8000 + w.r.IntN(2)}},
			Dynamic: []jobs.Port{{Label: "b"}}}}
	}
	if w.r.IntN(3) == 0 {
		j.Spreads = []jobs.Spread{{Attribute: "${meta.rack}", Weight: 50}}
	}
	return j
}

// event changes the world in one way.
func (w *world) event() {
	var nodes []*jobs.Node
	for u := range w.s.Uses() {
		nodes = append(nodes, u.Node)
	}
	n := *nodes[w.r.IntN(len(nodes))]
	var allocs []*jobs.Allocation
	for a := range w.s.Allocations() {
		allocs = append(allocs, a)
	}
	w.edit(func(e *state.Edit) {
		switch w.r.IntN(8) {
		case 0, 1:
			at := w.r.IntN(8)
			key := jobs.JobKey{Namespace: "default", ID: fmt.Sprintf("j%d", at)}
			version := uint64(0)
			if old := w.s.Job(key); old != nil {
				version = old.Version + 1
			} else {
				w.keys = append(w.keys, key)
			}
			e.PutJob(w.job(at, version))
		case 2:
			n.Duty = jobs.Duty{Status: jobs.NodeDown}
			e.PutNode(&n)
		case 3:
			n.Duty = jobs.Duty{Status: jobs.NodeReady}
			e.PutNode(&n)
		case 4:
			n.Duty.Drain = &jobs.Drain{}
			e.PutNode(&n)
			for a := range w.s.OnNode(n.ID) {
				if !a.Terminal() {
					next := *a
					next.Desired.Migrate = true
					e.PutAllocation(&next)
				}
			}
		case 5:
			if j := w.s.Job(jobs.JobKey{Namespace: "default", ID: fmt.Sprintf("j%d", w.r.IntN(8))}); j != nil {
				next := *j
				next.Stop, next.Version = true, j.Version+1
				e.PutJob(&next)
			}
		default:
			w.report(e, allocs)
		}
	})
}

// report lets nodes say things of their allocations.
func (w *world) report(e *state.Edit, allocs []*jobs.Allocation) {
	var list []apply.Report
	for _, a := range allocs {
		r := apply.Report{Alloc: a.ID, Client: a.Client}
		switch {
		case a.ClientTerminal():
			continue
		case a.ServerTerminal():
			r.Client.Status = jobs.ClientComplete
		case w.r.IntN(6) == 0:
			r.Client.Status, r.Client.FinishedAt = jobs.ClientFailed, w.now
		case w.r.IntN(8) == 0 && a.Job.Type == jobs.Batch:
			r.Client.Status = jobs.ClientComplete
		default:
			r.Client.Status, r.Health = jobs.ClientRunning, jobs.Healthy
		}
		list = append(list, r)
	}
	for _, id := range apply.Reports(e, w.now, list).Deployments {
		if w.r.IntN(2) == 0 {
			apply.Promote(e, id, nil, w.now)
		}
	}
}

// settle evaluates jobs: all in one pass, or each in its own.
func (w *world) settle() {
	together := w.r.IntN(2) == 0
	var items []apply.Item
	pass := NewPass(w.s, w.now, w.seed, nil)
	for _, key := range w.keys {
		j := w.s.Job(key)
		w.fed++
		e := &jobs.Evaluation{ID: number(3, w.fed), JobKey: key, Type: j.Type, Priority: j.Priority, Status: jobs.EvalPending}
		if !together {
			pass = NewPass(w.s, w.now, w.seed, nil)
		}
		out := pass.Evaluate(e)
		if !together || len(items) == 0 {
			if again := NewPass(w.s, w.now, w.seed, &place.Placer{}).Evaluate(e); !reflect.DeepEqual(out, again) {
				w.t.Fatalf("seed %d: the same evaluation gives two plans:\n%+v\n%+v", w.seed, out.Plan, again.Plan)
			}
		}
		items = append(items, apply.Item{Plan: out.Plan, Eval: out.Eval, New: out.New})
		if !together {
			w.apply(items)
			w.complete(out)
			w.even(out)
			items = nil
		}
	}
	if together {
		w.apply(items)
	}
}

func (w *world) apply(items []apply.Item) {
	before := w.s
	next, outcomes := apply.Plans(w.s, w.s.Index()+1, w.now, items)
	w.s = next
	for i, o := range outcomes {
		if o.Rejected > 0 {
			w.t.Fatalf("seed %d: %s: %d placements of a plan of the newest state are rejected", w.seed,
				items[i].Plan.Job.ID, o.Rejected)
		}
		for _, a := range items[i].Plan.Place {
			if before.Allocation(a.ID) == nil {
				w.placed(a)
			}
		}
	}
	w.check()
	again, _ := apply.Plans(w.s, w.s.Index()+1, w.now, items)
	if count(again) != count(w.s) {
		w.t.Fatalf("seed %d: a plan applied twice places twice", w.seed)
	}
}

func count(s *state.State) (n int) {
	for range s.Allocations() {
		n++
	}
	return n
}

// placed judges a new allocation by a plain statement of the rules.
func (w *world) placed(a *jobs.Allocation) {
	u := w.s.Node(a.NodeID)
	if u == nil || !kind(u.Node, a.Job) || u.Node.Duty.Status != jobs.NodeReady || u.Node.Duty.Drain != nil {
		w.t.Fatalf("seed %d: %s is on a node that does not serve", w.seed, a.Name())
	}
}

// kind is the naive statement of which nodes serve a job of this test.
func kind(n *jobs.Node, j *jobs.Job) bool {
	for _, c := range slices.Concat(j.Constraints, j.Groups[0].Constraints) {
		if c.Left == "${attr.size}" && n.Attributes["size"] == "0" || c.Left == "${attr.unique.n}" && n.Name == "n1" {
			return false
		}
	}
	return n.Drivers["docker"].Healthy && (len(j.Datacenters) == 0 || n.Datacenter == "dc0")
}

func distinct(j *jobs.Job) bool {
	return slices.ContainsFunc(j.Groups[0].Constraints, func(c jobs.Constraint) bool {
		return c.Operand == "distinct_hosts"
	})
}

// check scans everything.
func (w *world) check() {
	type port struct {
		node jobs.ID
		port int
	}
	type slot struct {
		job   string
		index int
		node  jobs.ID
	}
	ports, slots, hosts := map[port]string{}, map[slot]string{}, map[slot]string{}
	used := map[jobs.ID]jobs.Vector{}
	room := map[jobs.ID]feasible.Room{}
	for a := range w.s.Allocations() {
		u := w.s.Node(a.NodeID)
		if a.Counts() {
			r, ok := room[a.NodeID]
			if !ok {
				r = feasible.NewRoom(u.Node)
			}
			r.Take(a.Grant)
			room[a.NodeID] = r
		}
		if a.Terminal() {
			continue
		}
		used[a.NodeID] = used[a.NodeID].Plus(a.Grant.Vector)
		for _, p := range a.Grant.Ports {
			if other, taken := ports[port{a.NodeID, p.Value}]; taken {
				w.t.Fatalf("seed %d: %s and %s share port %d", w.seed, other, a.Name(), p.Value)
			}
			ports[port{a.NodeID, p.Value}] = a.Name()
		}
		s := slot{job: a.Job.ID, index: a.Index}
		if a.Job.PerNode() {
			s.node = a.NodeID
		}
		if other, taken := slots[s]; taken && !a.Rollout.Canary && !canaryOf(w.s, a) {
			w.t.Fatalf("seed %d: %s runs twice (%s)", w.seed, a.Name(), other)
		}
		slots[s] = a.Name()
		h := slot{job: a.Job.ID, node: a.NodeID}
		if distinct(a.Job) { // what a rolling update has not reached yet may still be beside it
			if other, taken := hosts[h]; taken {
				w.t.Fatalf("seed %d: %s and %s share a host", w.seed, a.Name(), other)
			}
			hosts[h] = a.Name()
		}
	}
	for u := range w.s.Uses() {
		if v := used[u.Node.ID]; v.CPU > u.Room.Usable.CPU || v.MemoryMB > u.Room.Usable.MemoryMB {
			w.t.Fatalf("seed %d: %s has more than it holds: %+v", w.seed, u.Node.Name, v)
		}
		if want, ok := room[u.Node.ID]; ok && !reflect.DeepEqual(want.Free, u.Room.Free) || len(want.Ports) != 0 &&
			!slices.Equal(want.Ports, u.Room.Ports) {
			w.t.Fatalf("seed %d: the room of %s is %+v, summed up it is %+v", w.seed, u.Node.Name, u.Room, want)
		}
	}
}

// canaryOf reports whether another allocation at a's index is, or was until its promotion, a canary.
func canaryOf(s *state.State, a *jobs.Allocation) bool {
	for b := range s.OfJob(a.Job.JobKey) {
		if d := s.Deployment(b.Rollout.Deployment); d != nil && d.Groups["g"].DesiredCanaries > 0 {
			return true
		}
	}
	return false
}

// complete judges what was left out: no node may have room for what is queued.
func (w *world) complete(out Result) {
	j := out.Plan.Job
	if j.Stop || out.Eval.Outcome.Queued["g"] == 0 || j.PerNode() {
		return
	}
	g := j.Groups[0]
	ask := feasible.NewAsk(g, false)
	held := map[jobs.ID]bool{}
	for a := range w.s.OfJob(j.JobKey) {
		held[a.NodeID] = held[a.NodeID] || !a.Terminal()
		if a.Job.Version != j.Version && (!a.ServerTerminal() || a.ModifyIndex == w.s.Index()) {
			return // replacements may have to keep to the rules of the former version
		}
	}
	for u := range w.s.Uses() {
		if !u.Ready || !kind(u.Node, j) || distinct(j) && held[u.Node.ID] {
			continue
		}
		if u.Room.Lacks(u.Node, ask.Base(u.Node)) == "" {
			w.t.Fatalf("seed %d: %d of %s are queued, and %s has room: %+v", w.seed, out.Eval.Outcome.Queued["g"], j.ID,
				u.Node.Name, out.Eval.Outcome.Failed["g"])
		}
	}
}

// even judges the spread of a job that was placed whole by one plan: no value is two behind another while a
// node of it has room.
func (w *world) even(out Result) {
	j := out.Plan.Job
	if j.Stop || len(j.Spreads) == 0 || j.PerNode() {
		return
	}
	per, held := map[string]int{}, map[jobs.ID]bool{}
	for a := range w.s.OfJob(j.JobKey) {
		if a.Terminal() {
			continue
		}
		if a.CreateIndex != w.s.Index() || a.Job != j {
			return
		}
		per[w.s.Node(a.NodeID).Node.Meta["rack"]]++
		held[a.NodeID] = true
	}
	high := 0
	for _, n := range per {
		high = max(high, n)
	}
	ask := feasible.NewAsk(j.Groups[0], false)
	for u := range w.s.Uses() {
		if !u.Ready || !kind(u.Node, j) || distinct(j) && held[u.Node.ID] || per[u.Node.Meta["rack"]] >= high-1 {
			continue
		}
		if u.Room.Lacks(u.Node, ask.Base(u.Node)) == "" {
			w.t.Fatalf("seed %d: %s is spread %v, and %s of %s has room", w.seed, j.ID, per, u.Node.Name, u.Node.Meta["rack"])
		}
	}
}

// TestModel lets random clusters live and judges each step by scanning everything.
func TestModel(t *testing.T) {
	for seed := range uint64(*seeds) {
		w := &world{t: t, r: rand.New(rand.NewPCG(seed, 7)), seed: seed, s: state.Empty(), now: 1e18}
		w.edit(func(e *state.Edit) {
			for i := range 2 + w.r.IntN(12) {
				e.PutNode(w.node(i))
			}
			if w.r.IntN(2) == 0 {
				e.SetConfig(jobs.Config{Algorithm: jobs.SpreadFit, Preempt: map[string]bool{jobs.Service: true}})
			}
		})
		for range 14 {
			w.event()
			w.settle()
			w.now += jobs.Time(w.r.Int64N(20e9))
		}
	}
}
