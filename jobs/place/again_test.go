package place

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/feasible"
)

// placedAs places random jobs, most of which ask the same, in one View, and tells where. forget walks over all nodes
// for each of them.
func placedAs(t *testing.T, seed uint64, forget bool) (story []string, walks int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	s := cluster(12, 3, 0)
	if seed%2 == 1 {
		e := s.Edit(2)
		e.SetConfig(jobs.Config{Algorithm: jobs.SpreadFit})
		s = e.Done()
	}
	v, p := NewView(s), &Placer{}
	var before *Group
	for n := range 120 {
		j := job(fmt.Sprint("j", n), 1+2*(r.IntN(8)/7))
		g := j.Groups[0]
		g.Tasks[0].Resources.CPU = int64(1500 + 2500*(r.IntN(12)/11))
		switch r.IntN(30) {
		case 0:
			j.Constraints = []jobs.Constraint{{Left: "${meta.rack}", Operand: "!=", Right: "r1"}}
		case 1:
			g.Networks = []jobs.Network{{Reserved: []jobs.Port{{Label: "a", Value: 8000}}}}
		case 2:
			g.Constraints = []jobs.Constraint{{Operand: "distinct_hosts"}}
		case 3:
			j.Spreads = []jobs.Spread{{Attribute: "${meta.rack}", Weight: 50}}
		case 4: // something else changes the View
			for u := range s.Uses() {
				v.Take(v.Use(u), &jobs.Grant{Vector: jobs.Vector{CPU: 700}})
				break
			}
		}
		var live []*jobs.Allocation
		if r.IntN(20) == 0 {
			live = []*jobs.Allocation{{NodeID: id(1, r.IntN(12)), Group: "g", Job: j}}
		}
		program, err := feasible.New(j, g, s.Config())
		if err != nil {
			t.Fatal(err)
		}
		if forget {
			p.last = nil
		}
		group := p.Begin(v, j, g, program, live, jobs.NewDice(seed, uint64(n)))
		if before == nil || !sameWalk(group, before) {
			walks++
		}
		before = group
		for range g.Count {
			u, grant := group.Next(Request{})
			if u == nil {
				story = append(story, fmt.Sprintf("%d: no room %+v", n, *group.Metric()))
				break
			}
			story = append(story, fmt.Sprintf("%d: %s %+v %+v", n, u.Node.Name, *grant, *group.Placed()))
		}
		story = append(story, rooms(v))
	}
	return story, walks
}

func sameWalk(a, b *Group) bool { return fmt.Sprintf("%p", a.partOf) == fmt.Sprintf("%p", b.partOf) }

func rooms(v *View) (text string) {
	for u := range v.State.Uses() {
		text += fmt.Sprint(v.Use(u).Room.Free, " ")
	}
	return text
}

// TestAgainIsTheSame: who goes on from the group before places as who walks over all nodes does, to the last figure,
// and rarely walks.
func TestAgainIsTheSame(t *testing.T) {
	var short, long int
	for seed := range uint64(60) {
		got, walked := placedAs(t, seed, false)
		want, all := placedAs(t, seed, true)
		short, long = short+walked, long+all
		if len(got) != len(want) {
			t.Fatalf("seed %d: %d lines, not %d", seed, len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("seed %d: goes on: %s\nwalks: %s", seed, got[i], want[i])
			}
		}
	}
	if long != 60*120 || short > long*3/4 {
		t.Errorf("%d walks of %d; each of %d walks", short, long, 60*120)
	}
}

// TestDispatchesWalkOnce counts: of 500 groups that ask the same in one View, one walks over the nodes.
func TestDispatchesWalkOnce(t *testing.T) {
	v, p := NewView(cluster(300, 3, 0)), &Placer{}
	first := begin(t, p, v, job("first", 1))
	first.Next(Request{})
	rated := 0
	for n := range 500 {
		before := p.last
		g := begin(t, p, v, job(fmt.Sprint("j", n), 1))
		if before == nil || !sameWalk(g, first) {
			t.Fatalf("group %d walks over the nodes again", n)
		}
		rated += len(before.held)
		if u, _ := g.Next(Request{}); u == nil {
			t.Fatal("there is room")
		}
	}
	if rated > 500 {
		t.Errorf("%d nodes were rated anew for 500 groups of one allocation", rated)
	}
}
