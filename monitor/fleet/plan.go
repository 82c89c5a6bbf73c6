package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"corbel.dev/corbel/monitor"
)

// Prefix begins the IDs of the catalog's checks that are ours.
const Prefix = "monitor:"

// gossipCheck is the catalog's own check of a node whose agent gossips.
const gossipCheck = "serfHealth"

// maxOutput bounds what of a check's output goes to the catalog, in bytes.
const maxOutput = 4096

// Health is a status in the catalog: 0 passing, 1 warning, 2 critical.
type Health uint8

// HealthOf is what a check's exit status means; all but 0 and 1 are critical.
func HealthOf(status uint32) Health { return Health(min(status, 2)) }

// Check is a check in the catalog, of a node or (Service is not empty) of an instance.
type Check struct {
	ID, Name, Service string
	Status            Health
	Output            string
}

// Instance is an instance of a service on a node.
type Instance struct{ ID, Service string }

// Node is a node of the catalog.
type Node struct {
	Name      string
	Instances []Instance
	Checks    []Check
}

// has reports whether any check of the node is ours.
func (n *Node) has() bool {
	return slices.ContainsFunc(n.Checks, func(c Check) bool { return strings.HasPrefix(c.ID, Prefix) })
}

// Write is one change of the catalog: a check of a node to set, or (Remove) to remove.
type Write struct {
	Node string
	Check
	Remove bool
}

// Result is the newest result of a check that something depends on.
type Result struct {
	Check   string
	Binding monitor.Binding
	Status  uint32
	Output  string
}

// Plan returns what is to be written so that a node has the checks that follow from the results of the entity of its
// name, and no others of ours. A check's output alone is no reason: it is that of when its status changed. lacks says
// that a result is about a service, or a node, that is not there. Plan is pure.
func Plan(node Node, results []Result) (writes []Write, lacks bool) {
	want := map[string]Check{}
	for _, r := range results {
		own, found := wanted(node, r)
		for _, c := range own {
			want[c.ID] = c
		}
		lacks = lacks || !found
	}
	for _, c := range node.Checks {
		if !strings.HasPrefix(c.ID, Prefix) {
			continue
		}
		w, ok := want[c.ID]
		switch {
		case !ok:
			writes = append(writes, Write{Node: node.Name, Check: Check{ID: c.ID}, Remove: true})
		case w.Status == c.Status && w.Service == c.Service:
			delete(want, c.ID)
		}
	}
	for _, c := range want {
		writes = append(writes, Write{Node: node.Name, Check: c})
	}
	slices.SortFunc(writes, func(a, b Write) int { return cmp.Compare(a.ID, b.ID) })
	return writes, lacks
}

// wanted returns the checks that a result asks for; found is false where it is about what is not there.
func wanted(node Node, r Result) (list []Check, found bool) {
	c := Check{ID: Prefix + r.Check, Name: fmt.Sprintf("Monitoring check %q", r.Check), Status: HealthOf(r.Status),
		Output: r.Output[:min(len(r.Output), maxOutput)]}
	found = true
	if r.Binding.Service != "" {
		list = ofService(node, r.Binding.Service, c)
		found = len(list) > 0
	}
	strays := r.Binding.Stray && !slices.ContainsFunc(node.Checks, func(c Check) bool { return c.ID == gossipCheck })
	if r.Binding.Node || strays {
		list = append(list, c)
		if len(list) > 1 { // the ID of an instance's
			list[0].ID += "/" + list[0].Service
		}
	}
	return list, found
}

// ofService gives a check to the instance of an ID, else to all of a service.
func ofService(node Node, service string, c Check) (list []Check) {
	for _, i := range node.Instances {
		if i.ID == service {
			c.Service = i.ID
			return []Check{c}
		}
	}
	for _, i := range node.Instances {
		if strings.EqualFold(i.Service, service) {
			c.Service = i.ID
			list = append(list, c)
		}
	}
	if len(list) > 1 { // IDs are unique on a node; no name of a check has a slash
		for i := range list {
			list[i].ID += "/" + list[i].Service
		}
	}
	return list
}
