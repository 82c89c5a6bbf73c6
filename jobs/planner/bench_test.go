package planner

import (
	"fmt"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/apply"
	"corbel.dev/corbel/jobs/feasible"
	"corbel.dev/corbel/jobs/place"
	"corbel.dev/corbel/jobs/state"
)

// fleet has 10,000 nodes in 100 racks with 170,000 allocations of 1,700 jobs.
func fleet() *state.State {
	e := state.Empty().Edit(1)
	for n := range 10_000 {
		e.PutNode(&jobs.Node{ID: number(1, n), Name: fmt.Sprintf("n%d", n), Datacenter: "dc1",
			Attributes: map[string]string{"kernel.name": "linux"}, Meta: map[string]string{"rack": fmt.Sprintf("r%d", n%100)},
			Drivers:  map[string]jobs.Driver{"docker": {Detected: true, Healthy: true}},
			Capacity: jobs.Capacity{Total: jobs.Vector{CPU: 20_000, MemoryMB: 64_000, DiskMB: 500_000}},
			Duty:     jobs.Duty{Status: jobs.NodeReady}})
	}
	for n := range 1700 {
		j := e.PutJob(bigJob(n, 100, false))
		grant := feasible.NewAsk(j.Groups[0], false).Base(nil)
		for i := range 100 {
			at := 100*n + i
			e.PutAllocation(&jobs.Allocation{ID: number(2, at), NodeID: number(1, at*7%10_000), Job: j, Group: "g",
				Index: i, Grant: grant, Desired: jobs.Desired{Status: jobs.Run}, Client: jobs.Client{Status: jobs.ClientRunning}})
		}
	}
	return e.Done()
}

func bigJob(n, count int, spread bool) *jobs.Job {
	g := &jobs.TaskGroup{Name: "g", Count: count, Disk: jobs.EphemeralDisk{SizeMB: 300}, Tasks: []*jobs.Task{{Name: "t",
		Driver: "docker", Resources: jobs.Resources{CPU: 500, MemoryMB: 50}}}}
	if spread {
		g.Spreads = []jobs.Spread{{Attribute: "${meta.rack}", Weight: 50}}
	}
	return &jobs.Job{JobKey: jobs.JobKey{Namespace: "default", ID: fmt.Sprintf("big%d", n)}, Type: jobs.Service,
		Priority: 50,
		Groups:   []*jobs.TaskGroup{g}}
}

// benchmark is one evaluation from the State to the plan.
func benchmark(b *testing.B, count int, spread bool) {
	s := fleet()
	e := s.Edit(2)
	j := e.PutJob(bigJob(9999, count, spread))
	s = e.Done()
	memory := &place.Placer{}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		out := NewPass(s, 1e18, uint64(n), memory).Evaluate(&jobs.Evaluation{ID: number(3, n), JobKey: j.JobKey,
			Type: j.Type, Priority: 50})
		if len(out.Plan.Place) != count {
			b.Fatal(len(out.Plan.Place))
		}
	}
}

func BenchmarkEvaluate1(b *testing.B)              { benchmark(b, 1, false) }
func BenchmarkEvaluate100(b *testing.B)            { benchmark(b, 100, false) }
func BenchmarkEvaluate10000(b *testing.B)          { benchmark(b, 10_000, false) }
func BenchmarkSpread1000Over100Racks(b *testing.B) { benchmark(b, 1000, true) }

// BenchmarkApply10000 applies the plan of 10,000 placements.
func BenchmarkApply10000(b *testing.B) {
	s := fleet()
	e := s.Edit(2)
	j := e.PutJob(bigJob(9999, 10_000, false))
	s = e.Done()
	out := NewPass(s, 1e18, 1, nil).Evaluate(&jobs.Evaluation{ID: number(3, 1), JobKey: j.JobKey, Type: j.Type})
	b.ReportAllocs()
	for b.Loop() {
		if _, o := apply.Plans(s, 3, 1e18, []apply.Item{{Plan: out.Plan}}); o[0].Placed != 10_000 {
			b.Fatal(o)
		}
	}
}

// BenchmarkDispatches is a pass of 500 children of one parameterized job.
func BenchmarkDispatches(b *testing.B) {
	s := fleet()
	e := s.Edit(2)
	var evals []*jobs.Evaluation
	for n := range 500 {
		j := bigJob(10_000+n, 1, false)
		j.Type = jobs.Batch
		evals = append(evals, &jobs.Evaluation{ID: number(3, n), JobKey: e.PutJob(j).JobKey, Type: j.Type, Priority: 50})
	}
	s = e.Done()
	memory := &place.Placer{}
	for _, walks := range []bool{false, true} {
		b.Run(fmt.Sprint("walks ", walks), func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				p := NewPass(s, 1e18, uint64(n), memory)
				for _, e := range evals {
					if walks { // as if each asked for something else
						memory.Forget()
					}
					if out := p.Evaluate(e); len(out.Plan.Place) != 1 {
						b.Fatal(len(out.Plan.Place))
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(500*b.N), "µs/dispatch")
		})
	}
}
