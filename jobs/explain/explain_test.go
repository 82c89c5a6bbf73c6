package explain

import (
	"fmt"
	"strings"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/state"
)

func cluster(change func(n int, node *jobs.Node)) *state.State {
	e := state.Empty().Edit(1)
	for n := range 12 {
		node := &jobs.Node{ID: jobs.ID{1, byte(n)}, Name: fmt.Sprint("n", n), Datacenter: "dc1",
			Attributes: map[string]string{"arch": []string{"amd64", "arm64"}[n%2]}, Duty: jobs.Duty{Status: jobs.NodeReady},
			Drivers:  map[string]jobs.Driver{"docker": {Detected: true, Healthy: true}},
			Capacity: jobs.Capacity{Total: jobs.Vector{CPU: 1000, MemoryMB: 1000, DiskMB: 1000}}}
		if change != nil {
			change(n, node)
		}
		e.PutNode(node)
	}
	return e.Done()
}

func job(change func(*jobs.Job, *jobs.Task)) *jobs.Job {
	t := &jobs.Task{Name: "t", Driver: "docker", Resources: jobs.Resources{CPU: 100, MemoryMB: 100}}
	j := &jobs.Job{JobKey: jobs.JobKey{ID: "j"}, Groups: []*jobs.TaskGroup{{Name: "g", Count: 1, Tasks: []*jobs.Task{t}}}}
	change(j, t)
	return j
}

// TestWhy: NS-6 and NO-22, and the least that would help.
func TestWhy(t *testing.T) {
	for _, test := range []struct {
		name   string
		node   func(int, *jobs.Node)
		job    func(*jobs.Job, *jobs.Task)
		fits   int
		metric string
		change string
	}{
		{"it fits", nil, func(*jobs.Job, *jobs.Task) {}, 12, "0 filtered, 0 exhausted", ""},
		{"memory", func(n int, node *jobs.Node) { node.Capacity.Reserved.MemoryMB = int64(100 * n) },
			func(_ *jobs.Job, t *jobs.Task) { t.Resources.MemoryMB = 1050 }, 0, "0 filtered, 12 exhausted",
			"with 50 MB of memory less, one would fit on node 01000000-0000-0000-0000-000000000000 (12 like it)"},
		{"a constraint", nil, func(j *jobs.Job, _ *jobs.Task) {
			j.Constraints = []jobs.Constraint{{Left: "${attr.arch}", Operand: "=", Right: "riscv"}}
		}, 0, "12 filtered, 0 exhausted", `without "${attr.arch} = riscv", one would fit on node`},
		{"a driver", nil, func(_ *jobs.Job, t *jobs.Task) { t.Driver = "java" }, 0, "12 filtered, 0 exhausted",
			`without "missing drivers", one`},
		{"one of two", nil, func(j *jobs.Job, t *jobs.Task) {
			t.Resources.CPU = 2000
			j.Constraints = []jobs.Constraint{{Left: "${attr.arch}", Operand: "=", Right: "arm64"}}
		}, 0, "6 filtered, 6 exhausted", "with 1000 MHz of CPU less, one would fit on node 01010000-"},
		{"no node is ready", func(_ int, node *jobs.Node) { node.Duty.Ineligible = true }, func(*jobs.Job, *jobs.Task) {}, 0,
			"0 filtered, 0 exhausted", `without "node is ineligible", one`},
		{"datacenter", nil, func(j *jobs.Job, _ *jobs.Task) { j.Datacenters = []string{"dc2"} }, 0,
			"0 filtered, 0 exhausted", `without "datacenter dc1", one`},
		{"a port", func(_ int, node *jobs.Node) { node.Capacity.ReservedPorts = []int{80} }, func(j *jobs.Job, _ *jobs.Task) {
			j.Groups[0].Networks = []jobs.Network{{Reserved: []jobs.Port{{Label: "http", Value: 80}}}}
		}, 0, "0 filtered, 12 exhausted", "without its network: reserved port collision, one"},
	} {
		j := job(test.job)
		a, err := Why(cluster(test.node), j, j.Groups[0])
		if err != nil {
			t.Fatal(err)
		}
		change := ""
		if len(a.Changes) > 0 {
			change = a.Changes[0].String()
		}
		metric := fmt.Sprintf("%d filtered, %d exhausted", a.Metric.Filtered, a.Metric.Exhausted)
		if a.Fits != test.fits || metric != test.metric || !strings.HasPrefix(change, test.change) ||
			test.change == "" && change != "" {
			t.Errorf("%s: %d, %s, %s", test.name, a.Fits, metric, change)
		}
	}
}

func TestScores(t *testing.T) {
	s := cluster(func(n int, node *jobs.Node) { node.Capacity.Reserved.MemoryMB = int64(50 * n) })
	j := job(func(j *jobs.Job, _ *jobs.Task) {
		j.Affinities = []jobs.Affinity{{Constraint: jobs.Constraint{Left: "${attr.arch}", Operand: "=", Right: "arm64"},
			Weight: 100}}
	})
	list, err := Scores(s, j, j.Groups[0], 3)
	if err != nil || len(list) != 3 || list[0].Node != (jobs.ID{1, 11}) || list[0].Parts["node-affinity"] != 1 ||
		list[0].Norm < list[1].Norm {
		t.Error(list, err)
	}
}
