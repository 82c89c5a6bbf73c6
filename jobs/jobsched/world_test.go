package jobsched

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobstore"
)

// pass lets time of the bubble pass.
func pass(d time.Duration) { <-time.NewTimer(d).C }

// world is one server with nodes that do what they are told at once, as the mock driver does.
type world struct {
	*Sched
	t     *testing.T
	store *jobstore.Store
	mu    sync.Mutex // one command at a time, as the group's
	leads chan struct{}
	held  atomic.Bool
	mute  locked[map[jobs.ID]bool] // nodes that do nothing
	// health is what nodes say of an allocation that is part of a deployment.
	health func(a *jobs.Allocation) jobs.Health
	// end is the client status that an allocation comes to.
	end func(a *jobs.Allocation) string
	log [][]byte // all commands
}

func (w *world) LeaseHeld() bool                { return w.held.Load() }
func (w *world) LeaderChanges() <-chan struct{} { return w.leads }

// propose commits as the group does: encoded, and visible before it returns.
func (w *world) propose(ctx context.Context, c *jobstore.Command) (*jobstore.Result, error) {
	pass(2 * time.Millisecond) // a disk, in the bubble's time
	w.mu.Lock()
	defer w.mu.Unlock()
	raw := c.Encode()
	w.log = append(w.log, raw)
	r := w.store.ApplyBatch([][]byte{raw})[0].(*jobstore.Result)
	if r.Err != nil {
		return nil, r.Err
	}
	return r, ctx.Err()
}

// inWorld runs a test in a bubble of time.
func inWorld(t *testing.T, nodes int, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, leads: make(chan struct{}), mute: locked[map[jobs.ID]bool]{v: map[jobs.ID]bool{}},
			health: func(*jobs.Allocation) jobs.Health { return jobs.Healthy },
			end: func(a *jobs.Allocation) string {
				if a.Job.RunsOnce() {
					return jobs.ClientComplete
				}
				return jobs.ClientRunning
			}}
		w.held.Store(true)
		w.store = jobstore.New(jobstore.Config{Applied: func(a, b *jobstore.View, c []jobstore.Changed) {
			w.Applied(a, b,
				c)
		}})
		w.Sched = New(Config{Group: w, Store: w.store.View, Propose: w.propose,
			History: History{Job: 10 * time.Minute, Every: time.Minute}})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _ = w.Run(ctx) })
		all.Go(func() { w.live(ctx) })
		pass(time.Second)
		w.addNodes(0, nodes)
		test(w)
		cancel()
		all.Wait()
	})
}

func nodeID(n int) (id jobs.ID) { id[0], id[1], id[15] = byte(n), byte(n>>8), 7; return id }

func (w *world) addNodes(from, to int) {
	c := &jobstore.Command{Head: w.head(jobstore.NodeRegistration)}
	for i := from; i < to; i++ {
		c.Nodes.Put = append(c.Nodes.Put, jobstore.NodeWrite{Secret: "s", Node: &jobs.Node{ID: nodeID(i),
			Name:       fmt.Sprint("n", i),
			Datacenter: "dc1", Capacity: jobs.Capacity{Total: jobs.Vector{CPU: 4000, MemoryMB: 8000, DiskMB: 100_000}},
			Attributes: map[string]string{"kernel.name": "linux"}, Drivers: map[string]jobs.Driver{"mock": {Detected: true,
				Healthy: true}}}})
	}
	w.do(c)
}

func (w *world) do(c *jobstore.Command) *jobstore.Result {
	w.t.Helper()
	r, err := w.propose(w.t.Context(), c)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// live is what the nodes do: they beat, and report what they run.
func (w *world) live(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		pass(100 * time.Millisecond)
		v := w.store.View()
		c := &jobstore.Command{Head: w.head(jobstore.AllocationUpdated)}
		for u := range v.State.Uses() {
			id := u.Node.ID
			if w.muted(id) {
				continue
			}
			if i%20 == 0 {
				if _, unknown, ok := w.Beat([]jobs.ID{id}); ok && len(unknown) > 0 {
					again := *u.Node
					c.Nodes.Put = append(c.Nodes.Put, jobstore.NodeWrite{Secret: "s", Node: &again})
				}
			}
			for a := range v.State.OnNode(id) {
				if r, ok := w.report(a); ok {
					c.Allocs.Reports = append(c.Allocs.Reports, r)
				}
			}
		}
		if len(c.Allocs.Reports)+len(c.Nodes.Put) > 0 {
			_, _ = w.propose(ctx, c)
		}
	}
}

func (w *world) muted(id jobs.ID) bool {
	w.mute.Lock()
	defer w.mute.Unlock()
	return w.mute.v[id]
}

func (w *world) setMute(id jobs.ID, mute bool) {
	w.mute.Lock()
	defer w.mute.Unlock()
	w.mute.v[id] = mute
}

func (w *world) report(a *jobs.Allocation) (jobstore.Report, bool) {
	r := jobstore.Report{Alloc: a.ID, Client: a.Client}
	switch {
	case a.ClientTerminal():
		return r, false
	case a.ServerTerminal():
		r.Client.Status, r.Client.FinishedAt = jobs.ClientComplete, w.now()
		return r, true
	case a.Client.Status == jobs.ClientPending:
		r.Client.StartedAt, r.Client.Status = w.now(), w.end(a)
		if r.Client.Status != jobs.ClientRunning {
			r.Client.FinishedAt = w.now()
		}
	}
	if !a.Rollout.Deployment.IsZero() && a.Rollout.Health == jobs.Undecided {
		r.Health = w.health(a)
	}
	return r, r.Client.Status != a.Client.Status || r.Health != jobs.Undecided
}

// job is a service of one group.
func job(id string, count int, change ...func(*jobs.Job)) *jobs.Job {
	j := &jobs.Job{JobKey: jobs.JobKey{Namespace: "default", ID: id}, Name: id, Type: jobs.Service, Priority: 50,
		Groups: []*jobs.TaskGroup{{Name: "g", Count: count, Disk: jobs.EphemeralDisk{SizeMB: 10},
			Reschedule: &jobs.ReschedulePolicy{Unlimited: true, Delay: 5 * time.Second, MaxDelay: time.Minute,
				Function: "constant"},
			Tasks: []*jobs.Task{{Name: "t", Driver: "mock", Resources: jobs.Resources{CPU: 500, MemoryMB: 100}}}}}}
	for _, c := range change {
		c(j)
	}
	return j
}

func (w *world) register(j *jobs.Job) *jobstore.Result {
	w.t.Helper()
	return w.do(&jobstore.Command{Head: w.head(jobstore.JobRegistered),
		Jobs: jobstore.JobWrites{Put: []jobstore.JobWrite{{Job: j}}}})
}

// running counts a job's allocations that run as they are to, by version.
func (w *world) running(id string) (n int, versions map[uint64]int) {
	versions = map[uint64]int{}
	for a := range w.store.View().State.OfJob(jobs.JobKey{Namespace: "default", ID: id}) {
		if !a.Terminal() && a.Client.Status == jobs.ClientRunning {
			n++
			versions[a.Job.Version]++
		}
	}
	return n, versions
}

// within waits until ok, in the bubble's time.
func (w *world) within(d time.Duration, what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(d); !ok(); pass(50 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("after %v: %s\n%s", d, what, w.story())
		}
	}
}

func (w *world) wantRunning(d time.Duration, id string, n int) {
	w.t.Helper()
	w.within(d, fmt.Sprint(id, " does not run ", n, " times"), func() bool { got, _ := w.running(id); return got == n })
}

// story is what there is, for who reads a failure.
func (w *world) story() string {
	var b bytes.Buffer
	s := w.store.View().State
	for e := range s.Evaluations() {
		fmt.Fprintf(&b, "eval %s %s %s %s queued %v %s\n", e.ID, e.JobKey.ID, e.Trigger, e.Status, e.Outcome.Queued,
			e.Description)
	}
	for a := range s.Allocations() {
		fmt.Fprintf(&b, "alloc %s v%d %s/%s health %d canary %v on %s\n", a.Name(), a.Job.Version, a.Desired.Status,
			a.Client.Status,
			a.Rollout.Health, a.Rollout.Canary, a.NodeID)
	}
	for d := range s.Deployments() {
		fmt.Fprintf(&b, "deployment %s v%d %s %s %+v\n", d.JobKey.ID, d.JobVersion, d.Status, d.Description, *d.Groups["g"])
	}
	return b.String()
}
