// Package nodemap makes of a fleet's nodes what a map of squares shows: one letter a node, in groups, so that ten
// thousand nodes are ten thousand bytes. It is pure.
package nodemap

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Node is what a map takes of a node.
type Node struct {
	Name   string
	Meta   map[string]string
	Weight int // 0 passing, 1 warning, 2 critical
}

// Map is all nodes in groups.
type Map struct {
	Groups []Group `json:"groups"`
	// Keys are those of the nodes' metadata, to group by.
	Keys []string `json:"keys"`
	// Problem says what is wrong with the filter that chose the nodes.
	Problem string `json:"problem,omitempty"`
}

// Group is the nodes with one value of the key that they are grouped by, the worst first.
type Group struct {
	Name   string `json:"name"`
	States string `json:"states"` // a letter a node: p passing, w warning, c critical
	// Names are those of the first nodes, which are the worst: as many as a person points at.
	Names []string `json:"names"`
}

const (
	maxKeys   = 64  // that are told
	maxGroups = 200 // the smallest beyond them go together, with the nodes that have no value
	maxNames  = 400 // of each group
)

// Of groups nodes by the value of a key of their metadata; "" makes one group.
func Of(by string, nodes iter.Seq[Node]) *Map {
	groups, keys := map[string][]Node{}, map[string]bool{}
	for n := range nodes {
		for k := range n.Meta {
			keys[k] = true
		}
		value := ""
		if by != "" {
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
	slices.SortStableFunc(nodes, func(a, b Node) int { return cmp.Compare(b.Weight, a.Weight) })
	states, names := make([]byte, 0, len(nodes)), []string{}
	for i, n := range nodes {
		states = append(states, "pwc"[min(max(n.Weight, 0), 2)])
		if i < maxNames {
			names = append(names, n.Name)
		}
	}
	return Group{Name: name, States: string(states), Names: names}
}
