package jobsched

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/dispatch"
	"corbel.dev/corbel/jobs/heartbeat"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/telemetry"
)

// published is NZ-1's shape; without it the benchmark has a hundredth of it.
var published = flag.Bool("published", false, "178,000 allocations of 3,000 jobs on 10,000 nodes")

// share is how much of the published shape, in percent.
var share = flag.Int("share", 100, "percent of it")

// solo is a leader without a disk.
type solo struct {
	mu    sync.Mutex
	store *jobstore.Store
	leads chan struct{}
	bytes atomic.Int64
}

func (s *solo) LeaseHeld() bool                { return true }
func (s *solo) LeaderChanges() <-chan struct{} { return s.leads }

func (s *solo) propose(_ context.Context, c *jobstore.Command) (*jobstore.Result, error) {
	raw := c.Encode()
	s.bytes.Add(int64(len(raw)))
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.store.ApplyBatch([][]byte{raw})[0].(*jobstore.Result)
	return r, r.Err
}

// BenchmarkQueuedFirst registers jobs before any node is there, then the nodes, and ends when all runs (NZ-1).
func BenchmarkQueuedFirst(b *testing.B) {
	list, nodes, chunk := 30, 100, 100
	if *published {
		list, nodes = 3000**share/100, 10_000**share/100
	}
	for range b.N {
		s := &solo{leads: make(chan struct{})}
		var sched *Sched
		s.store = jobstore.New(jobstore.Config{Applied: func(x, y *jobstore.View, c []jobstore.Changed) {
			sched.Applied(x,
				y, c)
		}})
		sched = New(Config{Group: s, Store: s.store.View, Propose: s.propose,
			Beats: heartbeat.Config{Grace: time.Hour}, Meters: NewMeters(telemetry.New(telemetry.Config{}))})
		ctx, cancel := context.WithCancel(b.Context())
		var all sync.WaitGroup
		all.Go(func() { _ = sched.Run(ctx) })
		polltest.Within(b, time.Minute, sched.Leads, "leads")
		began := time.Now()
		want := 0
		for i := range list {
			count := []int{10, 83, 85}[i%3]
			want += count
			j := job(fmt.Sprint("job-", i), count)
			c := &jobstore.Command{Head: sched.head(jobstore.JobRegistered),
				Jobs: jobstore.JobWrites{Put: []jobstore.JobWrite{{Job: j}}}}
			j.Groups[0].Tasks[0].Resources = jobs.Resources{CPU: 200, MemoryMB: 50}
			if _, err := s.propose(ctx, c); err != nil {
				b.Fatal(err)
			}
		}
		polltest.Within(b, 10*time.Minute, func() bool { q, _ := sched.Stats(); return q.Blocked == list }, "all are blocked")
		queued := time.Since(began)
		began = time.Now()
		for i := 0; i < nodes; i += chunk {
			c := &jobstore.Command{Head: sched.head(jobstore.NodeRegistration)}
			for n := i; n < min(nodes, i+chunk); n++ {
				c.Nodes.Put = append(c.Nodes.Put, jobstore.NodeWrite{Secret: "s", Node: benchNode(n)})
			}
			if _, err := s.propose(ctx, c); err != nil {
				b.Fatal(err)
			}
		}
		polltest.Within(b, 10*time.Minute, func() bool { return s.store.View().State.AllocationCount() >= want },
			"all are placed")
		placed := time.Since(began)
		c := &jobstore.Command{Head: sched.head(jobstore.AllocationUpdated)}
		for a := range s.store.View().State.Allocations() {
			c.Allocs.Reports = append(c.Allocs.Reports, jobstore.Report{Alloc: a.ID,
				Client: jobs.Client{Status: jobs.ClientRunning}})
		}
		if _, err := s.propose(ctx, c); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(queued.Seconds(), "s-queued")
		b.ReportMetric(placed.Seconds(), "s-placed")
		b.ReportMetric(time.Since(began).Seconds(), "s-running")
		b.ReportMetric(float64(s.bytes.Load())/float64(want), "bytes/allocation")
		b.ReportMetric(float64(s.store.View().State.EvaluationCount()), "evaluations")
		b.ReportMetric(float64(sched.cfg.Meters.Rejected.Value()), "rejected")
		cancel()
		all.Wait()
	}
}

func benchNode(n int) *jobs.Node {
	return &jobs.Node{ID: nodeID(n), Name: fmt.Sprint("n", n), Datacenter: "dc1",
		Capacity:   jobs.Capacity{Total: jobs.Vector{CPU: 8000, MemoryMB: 16_000, DiskMB: 100_000}},
		Attributes: map[string]string{"kernel.name": "linux"},
		Drivers:    map[string]jobs.Driver{"mock": {Detected: true, Healthy: true}}}
}

// parameterized is a job that is dispatched.
func parameterized(id string) *jobs.Job {
	return job(id, 1, func(j *jobs.Job) {
		j.Type, j.Dispatch = jobs.Batch, &jobs.DispatchRules{Payload: dispatch.Forbidden}
		j.Groups[0].Reschedule = nil
		j.Groups[0].Tasks[0].Resources = jobs.Resources{CPU: 1, MemoryMB: 1}
	})
}

// BenchmarkDispatch has 16 clients dispatch, each time to the end: placed, run and reported. There is no disk and no
// network, so that a profile shows what the plane itself costs.
func BenchmarkDispatch(b *testing.B) {
	s := &solo{leads: make(chan struct{})}
	var sched *Sched
	s.store = jobstore.New(jobstore.Config{Applied: func(x, y *jobstore.View, c []jobstore.Changed) {
		sched.Applied(x, y, c)
	}})
	sched = New(Config{Group: s, Store: s.store.View, Propose: s.propose, Beats: heartbeat.Config{Grace: time.Hour},
		Meters: NewMeters(telemetry.New(telemetry.Config{}))})
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { _ = sched.Run(ctx) })
	polltest.Within(b, time.Minute, sched.Leads, "leads")
	c := &jobstore.Command{Head: sched.head(jobstore.NodeRegistration)}
	for n := range 200 {
		c.Nodes.Put = append(c.Nodes.Put, jobstore.NodeWrite{Secret: "s", Node: benchNode(n)})
	}
	parent := parameterized("parent")
	c.Jobs.Put = []jobstore.JobWrite{{Job: parent}}
	if _, err := s.propose(ctx, c); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var next atomic.Int64
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for next.Add(1) <= int64(b.N) {
				now := sched.now()
				child := dispatch.Child(parent, dispatch.Request{}, now, jobs.NewDice(Seed(), uint64(now)))
				if _, err := s.propose(ctx, &jobstore.Command{Head: sched.head(jobstore.JobRegistered),
					Jobs: jobstore.JobWrites{Put: []jobstore.JobWrite{{Job: child}}}}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	clients.Wait()
	polltest.Within(b, 10*time.Minute, func() bool { return s.store.View().State.AllocationCount() >= b.N },
		"all are placed")
	b.ReportMetric(float64(s.bytes.Load())/float64(b.N), "bytes/dispatch")
}
