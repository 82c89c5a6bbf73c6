package rooms

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/feasible"
	"corbel.dev/corbel/jobs/state"
)

func useOf(n int, class, status string, cpu, used int64) *state.Use {
	u := &state.Use{Node: &jobs.Node{ID: jobs.ID{15: byte(n)}, Name: fmt.Sprint("n", n), Datacenter: "dc1", Class: class,
		Duty: jobs.Duty{Status: status}}}
	u.Room = feasible.Room{Usable: jobs.Vector{CPU: cpu, MemoryMB: 100}, Free: jobs.Vector{CPU: cpu - used, MemoryMB: 90}}
	if used > 0 {
		u.Room.Allocs = 1
	}
	return u
}

// TestRoomOf: what a node has that is down is no room, and a node is as hot as what it has least of.
func TestRoomOf(t *testing.T) {
	ready := roomOf(useOf(1, "app", jobs.NodeReady, 1000, 250))
	want := Room{Datacenter: "dc1", Class: "app", Nodes: 1, Allocs: 1, CPU: 1000, CPUUsed: 250, MemoryMB: 100,
		MemoryUsedMB: 10}
	if !reflect.DeepEqual(ready.Room, want) || ready.heat() != 0.25 {
		t.Errorf("%+v, heat %v", ready, ready.heat())
	}
	down := roomOf(useOf(2, "app", jobs.NodeDown, 1000, 250))
	if down.Down != 1 || down.CPU != 0 || down.MemoryMB != 0 {
		t.Errorf("%+v", down)
	}
	draining := useOf(3, "db", jobs.NodeReady, 0, 0)
	draining.Node.Duty.Drain = &jobs.Drain{}
	if got := roomOf(draining); got.Draining != 1 || got.heat() != 0.1 {
		t.Errorf("%+v, heat %v", got, got.heat())
	}
	var all Room
	all.Add(&ready.Room)
	all.Add(&down.Room)
	if all.Nodes != 2 || all.Down != 1 || all.CPUUsed != 250 {
		t.Errorf("%+v", all)
	}
}

// TestHottest: the fullest nodes are named, and no more than a screen shows; nodes without work are cold.
func TestHottest(t *testing.T) {
	var uses []*state.Use
	for i := range 3 * hottestNamed {
		uses = append(uses, useOf(i, []string{"app", "db"}[i%2], jobs.NodeReady, 1000, int64(10*i)))
	}
	got := Of(func(yield func(*state.Use) bool) {
		for _, u := range uses {
			if !yield(u) {
				return
			}
		}
	})
	if len(got.Groups) != 2 || got.Groups[0].Class != "app" || got.Groups[0].Nodes != 15 ||
		len(got.Hottest) != hottestNamed || got.Hottest[0].Name != "n29" || got.Hottest[9].Name != "n20" {
		t.Errorf("%+v", got)
	}
	if none := Of(func(func(*state.Use) bool) {}); len(none.Groups) != 0 || none.Groups == nil {
		t.Errorf("%+v", none)
	}
}

// TestByName: of the nodes of one name it is the one that works, whichever comes first.
func TestByName(t *testing.T) {
	gone, works := useOf(1, "app", jobs.NodeDown, 1000, 900), useOf(2, "app", jobs.NodeReady, 1000, 100)
	fuller := useOf(3, "db", jobs.NodeReady, 1000, 500)
	gone.Node.Name, works.Node.Name, fuller.Node.Name = "n", "n", "n"
	for _, c := range []struct {
		uses []*state.Use
		want int64
	}{{[]*state.Use{gone, works}, 100}, {[]*state.Use{works, gone}, 100}, {[]*state.Use{works, fuller}, 500},
		{[]*state.Use{fuller, works}, 500}} {
		got := ByName(slices.Values(c.uses))
		if len(got) != 1 || got["n"].CPUUsed != c.want || got["n"].Down != 0 {
			t.Errorf("%+v, want %d", got, c.want)
		}
	}
}
