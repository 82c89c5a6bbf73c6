// Package rooms sums up what the nodes that run jobs have and what allocations have of it. It is pure.
package rooms

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/state"
)

// Room is what a group of nodes has, and what allocations have of it.
type Room struct {
	Datacenter string `json:"datacenter"`
	Class      string `json:"class"`
	Nodes      int    `json:"nodes"`
	Draining   int    `json:"draining"`
	Down       int    `json:"down"` // neither ready nor starting
	Allocs     int    `json:"allocs"`

	CPU          int64 `json:"cpu"` // MHz that jobs may have
	CPUUsed      int64 `json:"cpuUsed"`
	MemoryMB     int64 `json:"memory"`
	MemoryUsedMB int64 `json:"memoryUsed"`
}

// Add counts what o has as r's own.
func (r *Room) Add(o *Room) {
	r.Nodes, r.Draining, r.Down, r.Allocs = r.Nodes+o.Nodes, r.Draining+o.Draining, r.Down+o.Down, r.Allocs+o.Allocs
	r.CPU, r.CPUUsed = r.CPU+o.CPU, r.CPUUsed+o.CPUUsed
	r.MemoryMB, r.MemoryUsedMB = r.MemoryMB+o.MemoryMB, r.MemoryUsedMB+o.MemoryUsedMB
}

// NodeRoom is the room of one node.
type NodeRoom struct {
	Name string `json:"name"`
	ID   string `json:"id"`
	Room
}

// Rooms are what the nodes that run jobs have, in groups, and the nodes that have the least left.
type Rooms struct {
	Groups  []Room     `json:"groups"` // by datacenter and class
	Hottest []NodeRoom `json:"hottest"`
	// Waiting is how many evaluations wait for room; 0 on servers that do not lead.
	Waiting int `json:"waiting"`
}

// hottestNamed is how many nodes are named.
const hottestNamed = 10

// Of sums up nodes by datacenter and class, and names the fullest.
func Of(uses iter.Seq[*state.Use]) Rooms {
	groups, nodes := map[[2]string]*Room{}, []NodeRoom{}
	for u := range uses {
		one := roomOf(u)
		key := [2]string{one.Datacenter, one.Class}
		if groups[key] == nil {
			groups[key] = &Room{Datacenter: one.Datacenter, Class: one.Class}
		}
		groups[key].Add(&one.Room)
		if one.Allocs == 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(nodes, one, func(a, b NodeRoom) int {
			return cmp.Or(cmp.Compare(b.heat(), a.heat()), strings.Compare(a.Name, b.Name))
		})
		if at < hottestNamed {
			nodes = slices.Insert(nodes, at, one)
			nodes = nodes[:min(len(nodes), hottestNamed)]
		}
	}
	out := Rooms{Groups: []Room{}, Hottest: nodes}
	for _, key := range slices.SortedFunc(maps.Keys(groups), func(a, b [2]string) int {
		return cmp.Or(strings.Compare(a[0], b[0]), strings.Compare(a[1], b[1]))
	}) {
		out.Groups = append(out.Groups, *groups[key])
	}
	return out
}

// ByName are the rooms of single nodes by their names. Of two that have one, as after a host was made anew, it is the
// one that is not down, or the fuller one.
func ByName(uses iter.Seq[*state.Use]) map[string]NodeRoom {
	out := map[string]NodeRoom{}
	for u := range uses {
		one := roomOf(u)
		if old, ok := out[one.Name]; !ok || cmp.Or(cmp.Compare(old.Down, one.Down),
			cmp.Compare(one.heat(), old.heat())) > 0 {
			out[one.Name] = one
		}
	}
	return out
}

func roomOf(u *state.Use) NodeRoom {
	n := u.Node
	one := NodeRoom{Name: n.Name, ID: n.ID.String(), Room: Room{Datacenter: n.Datacenter, Class: n.Class, Nodes: 1,
		Allocs: u.Room.Allocs}}
	if n.Duty.Drain != nil {
		one.Draining = 1
	}
	if s := n.Duty.Status; s != jobs.NodeReady && s != jobs.NodeInitializing {
		one.Down = 1
		return one // what it has is no room
	}
	usable, free := u.Room.Usable, u.Room.Free
	one.CPU, one.CPUUsed = usable.CPU, usable.CPU-free.CPU
	one.MemoryMB, one.MemoryUsedMB = usable.MemoryMB, usable.MemoryMB-free.MemoryMB
	return one
}

// heat is the share of what a node has least of that is used.
func (n *NodeRoom) heat() float64 {
	share := func(used, of int64) float64 { return float64(used) / float64(max(of, 1)) }
	return max(share(n.CPUUsed, n.CPU), share(n.MemoryUsedMB, n.MemoryMB))
}
