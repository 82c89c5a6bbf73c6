package fleet

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/monitor"
)

func TestPlan(t *testing.T) {
	gossip := Check{ID: gossipCheck}
	web := []Instance{{"web-1", "web"}, {"web-2", "web"}, {"db", "db"}}
	service := func(name string) monitor.Binding { return monitor.Binding{Service: name} }
	ours := func(id, service string, s Health) Check {
		return Check{ID: Prefix + id, Name: `Monitoring check "c"`, Service: service, Status: s, Output: "out"}
	}
	for _, c := range []struct {
		name   string
		node   Node
		result []Result
		want   []Write
		lacks  bool
	}{
		{name: "nothing"},
		{name: "an instance by its ID", node: Node{Name: "n", Instances: web},
			result: []Result{{"c", service("web-2"), 2, "out"}}, want: []Write{{Node: "n", Check: ours("c", "web-2", 2)}}},
		{name: "the one instance of a service, without regard to case", node: Node{Name: "n", Instances: web},
			result: []Result{{"c", service("DB"), 1, "out"}}, want: []Write{{Node: "n", Check: ours("c", "db", 1)}}},
		{name: "no such instance by another case of its ID", node: Node{Name: "n", Instances: web},
			result: []Result{{"c", service("WEB-1"), 1, "out"}}, lacks: true},
		{name: "all instances of a service", node: Node{Name: "n", Instances: web},
			result: []Result{{"c", service("web"), 127, "out"}},
			want:   []Write{{Node: "n", Check: ours("c/web-1", "web-1", 2)}, {Node: "n", Check: ours("c/web-2", "web-2", 2)}}},
		{name: "one of them left", node: Node{Name: "n", Instances: web[:1], Checks: []Check{ours("c/web-1", "web-1", 2),
			gossip}}, result: []Result{{"c", service("web"), 2, "out"}},
			want: []Write{{Node: "n", Check: ours("c", "web-1", 2)}, {Node: "n", Check: Check{ID: "monitor:c/web-1"},
				Remove: true}}},
		{name: "the node", node: Node{Name: "n", Checks: []Check{gossip}},
			result: []Result{{"c", monitor.Binding{Node: true}, 0, "out"}}, want: []Write{{Node: "n", Check: ours("c", "", 0)}}},
		{name: "the node and a service", node: Node{Name: "n", Instances: web},
			result: []Result{{"c", monitor.Binding{Node: true, Service: "db"}, 2, "out"}},
			want:   []Write{{Node: "n", Check: ours("c", "", 2)}, {Node: "n", Check: ours("c/db", "db", 2)}}},
		{name: "a keepalive where gossip speaks", node: Node{Name: "n", Checks: []Check{gossip}},
			result: []Result{{"c", monitor.Binding{Stray: true}, 2, "out"}}},
		{name: "a keepalive where it does not", node: Node{Name: "n"},
			result: []Result{{"c", monitor.Binding{Stray: true}, 2, "out"}},
			want:   []Write{{Node: "n", Check: ours("c", "", 2)}}},
		{name: "gossip came", node: Node{Name: "n", Checks: []Check{gossip, ours("c", "", 0)}},
			result: []Result{{"c", monitor.Binding{Stray: true}, 2, "out"}},
			want:   []Write{{Node: "n", Check: Check{ID: "monitor:c"}, Remove: true}}},
		{name: "another output alone", node: Node{Name: "n", Checks: []Check{ours("c", "", 2)}},
			result: []Result{{"c", monitor.Binding{Node: true}, 3, "other"}}},
		{name: "the event is gone; others' checks stay",
			node: Node{Name: "n", Checks: []Check{gossip, {ID: "disk"}, ours("c", "", 2)}},
			want: []Write{{Node: "n", Check: Check{ID: "monitor:c"}, Remove: true}}},
	} {
		got, lacks := Plan(c.node, c.result)
		if !reflect.DeepEqual(got, c.want) && len(got)+len(c.want) > 0 || lacks != c.lacks {
			t.Errorf("%s: %+v, %v", c.name, got, lacks)
		}
	}
}

// TestPlanConverges: whatever a node has and results say, doing what the plan says leaves nothing to do, and touches
// nothing of others.
func TestPlanConverges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(s ...string) string { return s[rng.IntN(len(s))] }
	for round := range 20000 {
		n := Node{Name: "n"}
		for i := range rng.IntN(4) {
			n.Instances = append(n.Instances, Instance{ID: fmt.Sprint("i", i), Service: pick("web", "db", "i1")})
		}
		for range rng.IntN(4) {
			c := Check{ID: pick("monitor:a", "monitor:b", "monitor:a/i1", "other", gossipCheck), Status: Health(rng.IntN(3))}
			if !slices.ContainsFunc(n.Checks, func(x Check) bool { return x.ID == c.ID }) {
				n.Checks = append(n.Checks, c)
			}
		}
		var results []Result
		for _, check := range []string{"a", "b"}[:rng.IntN(3)] {
			results = append(results, Result{check, monitor.Binding{Service: pick("", "web", "db", "i1", "none"),
				Node: rng.IntN(2) == 0, Stray: rng.IntN(3) == 0}, rng.Uint32N(5), "x"})
		}
		writes, _ := Plan(n, results)
		for _, w := range writes {
			if w.ID[:len(Prefix)] != Prefix {
				t.Fatalf("round %d touches %q", round, w.ID)
			}
			n.Checks = slices.DeleteFunc(n.Checks, func(c Check) bool { return c.ID == w.ID })
			if !w.Remove {
				n.Checks = append(n.Checks, w.Check)
			}
		}
		if again, _ := Plan(n, results); len(again) > 0 {
			t.Fatalf("round %d: node %+v, results %+v: still to do: %+v", round, n, results, again)
		}
	}
}

func TestDue(t *testing.T) {
	for _, c := range []struct {
		now    Health
		stored uint32
		age    time.Duration
		want   bool
	}{
		{0, 0, time.Hour, false}, {2, 0, 0, true}, {0, 2, 0, true}, {1, 2, 0, true}, {2, 2, time.Second, false},
		{2, 2, time.Minute, true},
		{2, 127, time.Second, false}, {2, 2, -time.Hour, true}, // the clock was set back
	} {
		if got := Due(c.now, c.stored, c.age, time.Minute); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
