// Package nodemap makes of a fleet's nodes what a map of squares shows, by their health or by what jobs have of them:
// one letter a node, in groups, so that ten thousand nodes are ten thousand bytes. It is pure.
package nodemap

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/jobs/rooms"
)

// Node is what a map takes of a node.
type Node struct {
	Name  string
	Meta  map[string]string
	Place string // to group by with ByPlace
	Square
}

// Square is how a node is drawn.
type Square struct {
	Letter byte
	Rank   int // those with the greatest stand first
	// Used and All are what jobs have and may have of the node; they are summed up for a group.
	Used, All int64
}

// Health is the square of a node by its worst check, of weight 0 passing, 1 warning or 2 critical: p, w or c.
func Health(weight int) Square {
	weight = min(max(weight, 0), 2)
	return Square{Letter: "pwc"[weight], Rank: weight}
}

// steps is how many steps of fullness there are.
const steps = 20

// Rooms are the squares of nodes by what jobs have of them, with datacenter and class as their place: of="memory" looks
// at memory, anything else at CPU. The letter is a for less than 5 % to t for 95 % and more, a capital one while the
// node drains, x when it is down, - where it runs no jobs.
func Rooms(nodes map[string]rooms.NodeRoom, of string) func(name string) (place string, s Square) {
	return func(name string) (string, Square) {
		n, ok := nodes[name]
		if !ok {
			return "", Square{Letter: '-'}
		}
		s, place := Square{Used: n.CPUUsed, All: n.CPU}, n.Datacenter
		if of == "memory" {
			s.Used, s.All = n.MemoryUsedMB, n.MemoryMB
		}
		if n.Class != "" {
			place += ", " + n.Class
		}
		step := int(min(max(steps*s.Used/max(s.All, 1), 0), steps-1))
		s.Letter, s.Rank = byte('a'+step), 1+step
		switch {
		case n.Down > 0:
			s.Letter, s.Rank = 'x', 1+steps
		case n.Draining > 0:
			s.Letter = byte('A' + step)
		}
		return place, s
	}
}

// Lone are the squares of those nodes that run jobs and are wanted, in the order of their names: those that no list of
// nodes has.
func Lone(nodes map[string]rooms.NodeRoom, square func(name string) (place string, s Square),
	want func(name string) bool) (out []Node) {
	for name := range nodes {
		if want(name) {
			n := Node{Name: name}
			n.Place, n.Square = square(name)
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Map is all nodes in groups.
type Map struct {
	Groups []Group `json:"groups"`
	// Keys are those of the nodes' metadata, to group by.
	Keys []string `json:"keys"`
	// Problem says what is wrong with the filter that chose the nodes.
	Problem string `json:"problem,omitempty"`
}

// Group is the nodes with one value of the key that they are grouped by, the worst or fullest first.
type Group struct {
	Name   string `json:"name"`
	States string `json:"states"` // the letter of each node's square
	// Names are those of the first nodes: as many as a person points at.
	Names []string `json:"names"`
	Used  int64    `json:"used,omitempty"`
	All   int64    `json:"all,omitempty"`
}

// ByPlace groups nodes by their place in place of a key.
const ByPlace = "\x00"

const (
	maxKeys   = 64  // that are told
	maxGroups = 200 // the smallest beyond them go together, with the nodes that have no value
	maxNames  = 400 // of each group
)

// Of groups nodes by the value of a key of their metadata, or ByPlace; "" makes one group.
func Of(by string, nodes iter.Seq[Node]) *Map {
	groups, keys := map[string][]Node{}, map[string]bool{}
	for n := range nodes {
		for k := range n.Meta {
			keys[k] = true
		}
		value := ""
		switch by {
		case "":
		case ByPlace:
			value = n.Place
		default:
			value = n.Meta[by]
		}
		groups[value] = append(groups[value], n)
	}
	out := &Map{Groups: []Group{}, Keys: slices.AppendSeq([]string{}, maps.Keys(keys))}
	slices.Sort(out.Keys)
	out.Keys = out.Keys[:min(len(out.Keys), maxKeys)]
	bySize := slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(groups[b]), len(groups[a])), strings.Compare(a, b))
	})
	for _, name := range bySize[min(len(bySize), maxGroups):] {
		if name != "" {
			groups[""] = append(groups[""], groups[name]...)
			delete(groups, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		out.Groups = append(out.Groups, groupOf(name, groups[name]))
	}
	return out
}

func groupOf(name string, nodes []Node) Group {
	slices.SortStableFunc(nodes, func(a, b Node) int { return cmp.Compare(b.Rank, a.Rank) })
	g, states := Group{Name: name, Names: []string{}}, make([]byte, 0, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		states = append(states, n.Letter)
		if g.Used, g.All = g.Used+n.Used, g.All+n.All; i < maxNames {
			g.Names = append(g.Names, n.Name)
		}
	}
	g.States = string(states)
	return g
}
