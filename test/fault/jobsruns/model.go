package jobsruns

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/spawn"
)

// work is a job as it was acknowledged last. It has one writer, who repeats what got no answer.
type work struct {
	id    string
	kind  string // service, batch or system
	count int    // of allocations; 0 while it is stopped
	rev   int    // a change of it replaces all
	port  int    // one that each allocation has for itself on its node; 0 is none
	// still is never changed: where its allocations are is where they stay.
	still bool
}

// allocation is one as lists have it.
type allocation struct {
	ID, Name, JobID, NodeID, DesiredStatus, ClientStatus, ClientDescription string
	JobVersion, CreateIndex, ModifyIndex                                    uint64
}

// live reports whether it is to run, and may.
func (a *allocation) live() bool {
	return a.DesiredStatus == "run" && (a.ClientStatus == "running" || a.ClientStatus == "pending")
}

// spec is the job as it is sent.
func (w *work) spec() any {
	type object = map[string]any
	group := object{"Name": "g", "Count": w.count, "EphemeralDisk": object{"SizeMB": taskDiskMB},
		"Tasks": []object{{"Name": "t", "Driver": "mock_driver", "Config": object{},
			"Env":       object{"REV": fmt.Sprint(w.rev)},
			"LogConfig": object{"MaxFiles": 1, "MaxFileSizeMB": 1},
			"Resources": object{"CPU": taskCPU, "MemoryMB": taskMemoryMB}}}}
	if w.kind == "service" { // healthy soon, so that updates do not take the run's time
		group["Update"] = object{"MaxParallel": 5, "HealthCheck": "task_states", "MinHealthyTime": 50_000_000}
	}
	if w.kind == "system" {
		group["Count"] = 1
	}
	if w.port != 0 {
		group["Networks"] = []object{{"ReservedPorts": []object{{"Label": "p", "Value": w.port}}}}
	}
	return object{"Job": object{"ID": w.id, "Name": w.id, "Type": w.kind, "Datacenters": []string{"*"},
		"TaskGroups": []object{group}}}
}

// put registers the job, or stops it when its count is 0.
func (w *work) put(ctx context.Context, a *anywhere) error {
	if w.count == 0 {
		return a.do(ctx, "DELETE", "/v1/job/"+w.id, nil, nil)
	}
	return a.do(ctx, "PUT", "/v1/jobs", w.spec(), nil)
}

// ledger is what was acknowledged and seen.
type ledger struct {
	f    *fleet
	jobs []*work

	mu   sync.Mutex // guards what follows
	seen map[string]*allocation
	// children are the jobs of dispatches, by token.
	children map[string]string
}

func newLedger(f *fleet) *ledger {
	return &ledger{f: f, seen: map[string]*allocation{}, children: map[string]string{}}
}

// see notes allocations that a server showed: they were committed, so they stay, each on its node.
func (l *ledger) see(list []allocation) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list {
		a := &list[i]
		if was := l.seen[a.ID]; was == nil {
			l.seen[a.ID] = a
		} else if was.NodeID != a.NodeID || was.Name != a.Name {
			return fmt.Errorf("allocation %s is %s on %s, and was %s on %s", a.ID, a.Name, a.NodeID, was.Name, was.NodeID)
		}
	}
	return nil
}

// watch looks at the jobs, on whichever server, until ctx ends: no name may run twice at any moment.
func (l *ledger) watch(seed uint64) func(context.Context) error {
	return func(ctx context.Context) error {
		a := l.f.anywhere(seed, 0x7a7c)
		defer a.client.Close()
		for ctx.Err() == nil {
			w := l.jobs[a.rng.IntN(len(l.jobs))]
			var list []allocation
			err := a.do(ctx, "GET", "/v1/job/"+url.PathEscape(w.id)+"/allocations?stale", nil, &list)
			if ctx.Err() != nil {
				return nil
			}
			if err == nil {
				err = errors.Join(l.see(list), once(w, list))
			}
			if err != nil {
				return err
			}
			_ = spawn.Sleep(ctx, 50*time.Millisecond)
		}
		return nil
	}
}

// once says whether a name, or a node of a system job, has two that live.
func once(w *work, list []allocation) error {
	live := map[string]string{}
	for i := range list {
		a := &list[i]
		if !a.live() {
			continue
		}
		key := a.Name
		if w.kind == "system" {
			key += " on " + a.NodeID
		}
		if other := live[key]; other != "" {
			return fmt.Errorf("%s runs twice: %s and %s", key, other, a.ID)
		}
		live[key] = a.ID
	}
	return nil
}

// exact waits until precisely what was acknowledged runs: by the servers' word, and on the nodes. All allocations are
// looked at once the jobs' summaries say so: with 200,000 of them a look keeps both sides busy for seconds.
func (l *ledger) exact(ctx context.Context) error {
	return until(ctx, "exactly what was acknowledged runs", func() error {
		if err := l.summed(ctx); err != nil {
			return err
		}
		return l.compare(ctx)
	})
}

// summed compares how many run of each job.
func (l *ledger) summed(ctx context.Context) error {
	jobs, err := l.f.summaries(ctx)
	if err != nil {
		return err
	}
	for _, w := range l.jobs {
		want := w.count
		if w.kind == "system" && want > 0 {
			want = len(l.f.alive)
		}
		if s := jobs[w.id]; s.Running != want || s.Starting > 0 {
			return fmt.Errorf("%s has %d allocations that run and %d that start, not %d", w.id, s.Running, s.Starting, want)
		}
	}
	return nil
}

func (l *ledger) compare(ctx context.Context) error {
	l.mu.Lock()
	before := maps.Clone(l.seen) // what is placed and seen while the list is on its way is not in it
	l.mu.Unlock()
	var list []allocation
	if err := l.f.read(ctx, "/v1/allocations?task_states=false", &list); err != nil {
		return err
	}
	if err := l.see(list); err != nil {
		return spawn.Hopeless(err)
	}
	byJob, known := map[string][]allocation{}, map[string]bool{}
	for i := range list {
		known[list[i].ID] = true
		byJob[list[i].JobID] = append(byJob[list[i].JobID], list[i])
	}
	for id, a := range before {
		if !known[id] {
			return spawn.Hopeless(fmt.Errorf("allocation %s, %s on %s, is forgotten", id, a.Name, a.NodeID))
		}
	}
	want := map[string]string{} // node and name, by allocation
	for _, w := range l.jobs {
		if err := once(w, byJob[w.id]); err != nil {
			return spawn.Hopeless(err)
		}
		if err := l.job(w, byJob[w.id], want); err != nil {
			return err
		}
	}
	if err := l.dispatched(byJob); err != nil {
		return err
	}
	return l.onNodes(ctx, want, list)
}

// job compares one, and adds its allocations to want.
func (l *ledger) job(w *work, list []allocation, want map[string]string) error {
	names, nodes, n := map[string]bool{}, map[int]int{}, 0
	for i := range list {
		a := &list[i]
		if !a.live() {
			continue
		}
		if a.ClientStatus != "running" {
			return fmt.Errorf("%s (%s) is %s", a.Name, a.ID, a.ClientStatus)
		}
		number := numberOf(a.NodeID)
		if !l.f.alive[number] {
			return fmt.Errorf("%s (%s) runs on node %d, which is gone", a.Name, a.ID, number)
		}
		n++
		names[a.Name] = true
		nodes[number]++
		want[a.ID] = fmt.Sprintf("%d %s", number, a.Name)
	}
	switch {
	case w.kind == "system" && w.count > 0:
		if n != len(l.f.alive) || len(nodes) != n {
			return fmt.Errorf("%s has %d allocations on %d of %d nodes", w.id, n, len(nodes), len(l.f.alive))
		}
		return nil
	case n != w.count:
		return fmt.Errorf("%s has %d allocations, not %d", w.id, n, w.count)
	case w.port != 0 && len(nodes) != n:
		return spawn.Hopeless(fmt.Errorf("%s has a port of its own, and %d allocations on %d nodes", w.id, n, len(nodes)))
	}
	for i := range w.count {
		if name := fmt.Sprintf("%s.g[%d]", w.id, i); !names[name] {
			return fmt.Errorf("%s does not run; these do: %v", name, slices.Sorted(maps.Keys(names)))
		}
	}
	return nil
}

// dispatched compares the children: one for each token, whose task ended well once.
func (l *ledger) dispatched(byJob map[string][]allocation) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := map[string]string{}
	for token, id := range l.children {
		if other := of[id]; other != "" {
			return spawn.Hopeless(fmt.Errorf("tokens %s and %s made one job, %s", token, other, id))
		}
		of[id] = token
		done := 0
		for _, a := range byJob[id] {
			switch {
			case a.ClientStatus == "complete":
				done++
			case a.ClientStatus == "failed" || a.ClientStatus == "lost":
				return spawn.Hopeless(fmt.Errorf("%s of the dispatch %s is %s", a.ID, id, a.ClientStatus))
			default:
				return fmt.Errorf("%s of the dispatch %s is %s", a.ID, id, a.ClientStatus)
			}
		}
		if done > 1 {
			return spawn.Hopeless(fmt.Errorf("the dispatch %s ran %d times", id, done))
		}
		if done == 0 {
			return fmt.Errorf("the dispatch %s did not run", id)
		}
	}
	for id := range byJob {
		if strings.HasPrefix(id, dispatcher+"/") && of[id] == "" {
			return spawn.Hopeless(fmt.Errorf("nobody dispatched %s: a token made two", id))
		}
	}
	return nil
}

// onNodes compares what runs on the nodes with what is to.
func (l *ledger) onNodes(ctx context.Context, want map[string]string, list []allocation) error {
	var nodes map[int]map[string]string
	if err := l.f.ask(ctx, "running", nil, &nodes); err != nil {
		return spawn.Hopeless(err)
	}
	n := 0
	for number, running := range nodes {
		if len(running) > places {
			return spawn.Hopeless(fmt.Errorf("node %d has room for %d and runs %d", number, places, len(running)))
		}
		for id, name := range running {
			if got := fmt.Sprintf("%d %s", number, name); want[id] != got {
				known := allocation{}
				if at := slices.IndexFunc(list, func(a allocation) bool { return a.ID == id }); at >= 0 {
					known = list[at]
				}
				return fmt.Errorf("%s runs on a node, and the servers want %q; they know it as %+v", got, want[id], known)
			}
			n++
		}
	}
	if n != len(want) {
		return fmt.Errorf("%d allocations run on nodes, and %d are to", n, len(want))
	}
	return nil
}

// places are where the allocations of the jobs that are never changed run.
func (l *ledger) stillAt(ctx context.Context) (map[string]string, error) {
	at := map[string]string{}
	for _, w := range l.jobs {
		if !w.still {
			continue
		}
		var list []allocation
		if err := l.f.read(ctx, "/v1/job/"+w.id+"/allocations", &list); err != nil {
			return nil, err
		}
		for i := range list {
			if list[i].live() {
				at[list[i].ID] = list[i].NodeID
			}
		}
	}
	return at, nil
}

// moved says what of the jobs that are never changed is not where it was.
func moved(before, now map[string]string) error {
	for id, node := range before {
		if now[id] != node {
			return fmt.Errorf("allocation %s was moved without need: it ran on %s, and now on %q", id, node, now[id])
		}
	}
	if len(now) != len(before) {
		return fmt.Errorf("%d allocations run of jobs that nobody changed, and there were %d", len(now), len(before))
	}
	return nil
}
