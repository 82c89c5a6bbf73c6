package jobstore

import (
	"cmp"
	"slices"

	"corbel.dev/corbel/jobs/jobpack"
)

// Tally is how many objects of one sort a View has, and their bytes as a snapshot writes them, uncompressed.
type Tally struct {
	Name        string
	Count, Size int
}

// tableNames are the sorts of documents as Nomad's tool calls them.
var tableNames = map[Table]string{Services: "ServiceRegistration", Namespaces: "Namespace", Pools: "NodePool",
	Scheduler: "SchedulerConfig", Variables: "Variables", Submissions: "JobSubmission", Launches: "PeriodicLaunch",
	Keyring: "RootKeyMeta", Scalings: "ScalingEvents"}

// Tallies counts everything, the largest sort first.
func (v *View) Tallies() []Tally {
	by := map[string]*Tally{}
	for u := range v.State.Uses() {
		count(by, "Node", u.Node)
	}
	for d := range v.nodes.All() {
		count(by, "NodeDetail", d)
	}
	for j := range v.State.Jobs() {
		count(by, "Job", j)
	}
	for j := range v.State.VersionsAll() {
		count(by, "JobVersion", j)
	}
	for a := range v.State.Allocations() {
		count(by, "Alloc", &allocFrame{Placing: Placing{ID: a.ID, Node: a.NodeID, Group: a.Group, Lineage: a.Lineage},
			Desired: a.Desired, Client: a.Client})
	}
	for d := range v.allocs.All() {
		count(by, "AllocDetail", d)
	}
	for e := range v.State.Evaluations() {
		count(by, "Eval", e)
	}
	for d := range v.State.Deployments() {
		count(by, "Deployment", d)
	}
	for d := range v.docs.All() {
		count(by, cmp.Or(tableNames[d.Table], "Other"), d)
	}
	var list []Tally
	for _, t := range by {
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b Tally) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Name, b.Name))
	})
	return list
}

func count[T any](by map[string]*Tally, name string, v *T) {
	t := by[name]
	if t == nil {
		t = &Tally{Name: name}
		by[name] = t
	}
	t.Count++
	t.Size += len(jobpack.Append(nil, v))
}
