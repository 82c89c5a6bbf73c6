package place

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/feasible"
	"corbel.dev/corbel/jobs/score"
	"corbel.dev/corbel/jobs/state"
)

func id(kind, n int) (id jobs.ID) {
	id[0], id[1], id[14], id[15] = byte(kind), byte(n>>16), byte(n>>8), byte(n)
	return id
}

func node(n, rack int) *jobs.Node {
	return &jobs.Node{
		ID: id(1, n), Name: fmt.Sprintf("node-%d", n), Datacenter: "dc1", Class: "plain",
		Attributes: map[string]string{"kernel.name": "linux", "unique.hostname": fmt.Sprintf("node-%d", n)},
		Meta:       map[string]string{"rack": fmt.Sprintf("r%d", rack)},
		Capacity:   jobs.Capacity{Total: jobs.Vector{CPU: 20_000, MemoryMB: 64_000, DiskMB: 500_000}},
		Drivers:    map[string]jobs.Driver{"docker": {Detected: true, Healthy: true}},
		Duty:       jobs.Duty{Status: jobs.NodeReady},
	}
}

func job(name string, count int) *jobs.Job {
	g := &jobs.TaskGroup{Name: "g", Count: count, Disk: jobs.EphemeralDisk{SizeMB: 300}, Tasks: []*jobs.Task{{
		Name: "t", Driver: "docker", Resources: jobs.Resources{CPU: 500, MemoryMB: 50}}}}
	return &jobs.Job{JobKey: jobs.JobKey{Namespace: "default", ID: name}, Type: jobs.Service, Priority: 50,
		Groups: []*jobs.TaskGroup{g}}
}

func cluster(nodes, racks, allocs int) *state.State {
	e := state.Empty().Edit(1)
	for i := range nodes {
		e.PutNode(node(i, i%racks))
	}
	old := job("old", allocs)
	grant := feasible.NewAsk(old.Groups[0], false).Base(nil)
	for i := range allocs {
		e.PutAllocation(&jobs.Allocation{ID: id(2, i), NodeID: id(1, i%nodes), Job: old, Group: "g", Index: i,
			Grant: grant, Desired: jobs.Desired{Status: jobs.Run}, Client: jobs.Client{Status: jobs.ClientRunning}})
	}
	return e.Done()
}

func begin(t testing.TB, p *Placer, v *View, j *jobs.Job) *Group {
	t.Helper()
	program, err := feasible.New(j, j.Groups[0], v.State.Config())
	if err != nil {
		t.Fatal(err)
	}
	return p.Begin(v, j, j.Groups[0], program, nil, jobs.NewDice(1, 2))
}

// TestNS14To17 places on random clusters and compares each choice with the formulas over all nodes.
func TestNS14To17(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := cluster(20, 4, 0)
		e := s.Edit(2)
		for i := range 60 {
			g := &jobs.Grant{Vector: jobs.Vector{CPU: r.Int64N(3000), MemoryMB: r.Int64N(9000)}}
			e.PutAllocation(&jobs.Allocation{ID: id(2, i), NodeID: id(1, r.IntN(20)), Job: job("old", 1), Group: "g",
				Grant: g})
		}
		if seed%2 == 1 {
			e.SetConfig(jobs.Config{Algorithm: jobs.SpreadFit})
		}
		v := NewView(e.Done())
		j := job("new", 40)
		j.Affinities = []jobs.Affinity{
			{Constraint: jobs.Constraint{Left: "${meta.rack}", Operand: "=", Right: "r1"}, Weight: 50},
			{Constraint: jobs.Constraint{Left: "${attr.unique.hostname}", Operand: "=", Right: "node-7"}, Weight: -100}}
		g := begin(t, &Placer{}, v, j)
		own := map[jobs.ID]int{}
		for range 40 {
			best := math.Inf(-1)
			scores := map[jobs.ID]float64{}
			for u := range v.State.Uses() {
				u = v.Use(u)
				if u.Room.Free.CPU < 500 || u.Room.Free.MemoryMB < 50 {
					continue
				}
				scores[u.Node.ID] = naive(u, own[u.Node.ID], 40, seed%2 == 1)
				best = max(best, scores[u.Node.ID])
			}
			u, _ := g.Next(Request{})
			if u == nil {
				if !math.IsInf(best, -1) {
					t.Fatalf("seed %d: nothing placed, a node of %v is free", seed, best)
				}
				break
			}
			if math.Abs(scores[u.Node.ID]-best) > 1e-9 {
				t.Fatalf("seed %d: placed at %v, the best is %v", seed, scores[u.Node.ID], best)
			}
			own[u.Node.ID]++
		}
	}
}

// naive is NS-14, NS-15 and NS-17 as the contract writes them.
func naive(u *state.Use, collisions, count int, spread bool) float64 {
	cpu := float64(u.Room.Free.CPU-500) / float64(u.Node.Capacity.Total.CPU)
	mem := float64(u.Room.Free.MemoryMB-50) / float64(u.Node.Capacity.Total.MemoryMB)
	total := math.Pow(10, cpu) + math.Pow(10, mem)
	fit := 20 - total
	if spread {
		fit = total - 2
	}
	list := []float64{math.Min(math.Max(fit, 0), 18) / 18}
	if collisions > 0 {
		list = append(list, -float64(collisions+1)/float64(count))
	}
	affinity := 0.0
	if u.Node.Meta["rack"] == "r1" {
		affinity += 50.0 / 150
	}
	if u.Node.Name == "node-7" {
		affinity -= 100.0 / 150
	}
	if affinity != 0 {
		list = append(list, affinity)
	}
	sum := 0.0
	for _, x := range list {
		sum += x
	}
	return sum / float64(len(list))
}

// TestSpreadExact: NS-16 and §7.3: the error of a spread is at most one allocation per value, however full racks are.
func TestSpreadExact(t *testing.T) {
	for _, count := range []int{1, 7, 100, 333, 1000, 1200} {
		for _, racks := range []int{1, 3, 100} {
			v := NewView(cluster(1000, racks, 5000))
			for n := range 300 { // some racks are fuller than others
				v.Take(v.Node(id(1, n*3)), &jobs.Grant{Vector: jobs.Vector{CPU: int64(n) * 30}})
			}
			j := job("new", count)
			j.Spreads = []jobs.Spread{{Attribute: "${meta.rack}", Weight: 50}}
			g := begin(t, &Placer{}, v, j)
			per := map[string]int{}
			for range count {
				u, _ := g.Next(Request{})
				if u == nil {
					t.Fatal("no place")
				}
				per[u.Node.Meta["rack"]]++
			}
			low, high := count, 0
			for r := range racks {
				n := per[fmt.Sprintf("r%d", r)]
				low, high = min(low, n), max(high, n)
			}
			if high-low > 1 {
				t.Errorf("count %d over %d racks: from %d to %d", count, racks, low, high)
			}
		}
	}
}

func TestSpreadTargets(t *testing.T) {
	v := NewView(cluster(300, 3, 0))
	j := job("new", 100)
	j.Spreads = []jobs.Spread{{Attribute: "${meta.rack}", Weight: 100,
		Targets: []jobs.SpreadTarget{{Value: "r0", Percent: 70}, {Value: "r1", Percent: 20}}}}
	g := begin(t, &Placer{}, v, j)
	per := map[string]int{}
	for range 100 {
		u, _ := g.Next(Request{})
		per[u.Node.Meta["rack"]]++
	}
	if per["r0"] != 70 || per["r1"] != 20 || per["r2"] != 10 {
		t.Error(per)
	}
}

// TestNS12: distinct_hosts and distinct_property hold, and the metric says why no more was placed.
func TestNS12(t *testing.T) {
	v := NewView(cluster(30, 3, 0))
	j := job("new", 100)
	j.Constraints = []jobs.Constraint{{Operand: "distinct_hosts"},
		{Left: "${meta.rack}", Operand: "distinct_property", Right: "4"}}
	g := begin(t, &Placer{}, v, j)
	hosts, racks := map[jobs.ID]int{}, map[string]int{}
	for {
		u, _ := g.Next(Request{})
		if u == nil {
			break
		}
		hosts[u.Node.ID]++
		racks[u.Node.Meta["rack"]]++
	}
	if len(hosts) != 12 || racks["r0"] != 4 || racks["r1"] != 4 || racks["r2"] != 4 {
		t.Error(len(hosts), racks)
	}
	m := g.Metric()
	if m.Filtered != 30 || m.ConstraintFiltered["distinct_property: ${meta.rack}"] != 18 ||
		m.ConstraintFiltered["distinct_hosts"] != 12 {
		t.Errorf("%+v", m)
	}
}

// TestPenalty: NS-15: where it failed before is the last choice.
func TestPenalty(t *testing.T) {
	v := NewView(cluster(3, 1, 0))
	g := begin(t, &Placer{}, v, job("new", 10))
	first, _ := g.Next(Request{})
	for range 4 {
		u, _ := g.Next(Request{Penalty: []jobs.ID{first.Node.ID}})
		if u.Node.ID == first.Node.ID {
			t.Error("placed where it failed before")
		}
	}
	u, _ := g.Next(Request{Prefer: first.Node.ID})
	if u.Node.ID != first.Node.ID {
		t.Error("a sticky disk moved")
	}
}

// TestPorts: trap 8: static ports do not meet within one plan, dynamic ones neither.
func TestPorts(t *testing.T) {
	v := NewView(cluster(3, 1, 0))
	j := job("new", 10)
	j.Groups[0].Networks = []jobs.Network{{Reserved: []jobs.Port{{Label: "http", Value: 8080}},
		Dynamic: []jobs.Port{{Label: "admin"}, {Label: "debug", To: -1}}}}
	g := begin(t, &Placer{}, v, j)
	for range 3 {
		u, grant := g.Next(Request{})
		if u == nil || len(grant.Ports) != 3 || grant.Ports[1].Value == grant.Ports[2].Value ||
			grant.Ports[2].To != grant.Ports[2].Value {
			t.Fatal(u, grant)
		}
	}
	if u, _ := g.Next(Request{}); u != nil {
		t.Error("a static port was given twice")
	}
	if m := g.Metric(); m.DimensionExhausted["network: reserved port collision"] != 3 {
		t.Errorf("%+v", m)
	}
}

func TestScoreEven(t *testing.T) {
	s := score.NewSpreading(jobs.Spread{Attribute: "x", Weight: 50}, 10, 50)
	a, b := s.Value("a"), s.Value("b")
	check := func(at int, want float64) {
		t.Helper()
		if got := s.Boost(at); math.Abs(got-want) > 1e-12 {
			t.Errorf("boost %v, want %v", got, want)
		}
	}
	check(a, 0) // nothing placed
	s.Add(a, 2)
	check(score.Missing, -1)
	check(a, -1) // min = max
	check(b, 1)  // (2-0)/2
	s.Add(b, 3)
	check(a, 0.5)  // (max-min)/min
	check(b, -0.5) // (min-current)/min
}

func benchmark(b *testing.B, count int, racks int, spread bool) {
	s := cluster(10_000, racks, 170_000)
	p := &Placer{}
	j := job("new", count)
	if spread {
		j.Spreads = []jobs.Spread{{Attribute: "${meta.rack}", Weight: 50}}
	}
	b.ReportAllocs()
	for b.Loop() {
		g := begin(b, p, NewView(s), j)
		for range count {
			if u, _ := g.Next(Request{}); u == nil {
				b.Fatal("no place")
			}
		}
	}
}

func BenchmarkPlace1(b *testing.B)            { benchmark(b, 1, 100, false) }
func BenchmarkPlace100(b *testing.B)          { benchmark(b, 100, 100, false) }
func BenchmarkPlace10000(b *testing.B)        { benchmark(b, 10_000, 100, false) }
func BenchmarkSpread1000Over100(b *testing.B) { benchmark(b, 1000, 100, true) }
