package jobtell

import (
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/noderpc"
)

// Differing is what the servers know of those of the nodes that hold something else, for them to say it again. It looks
// at all allocations of a node that holds something, so nodes ask for it now and then.
func Differing(v *jobstore.View, nodes []jobs.ID, held []noderpc.Held) (list []noderpc.Known) {
	if len(held) == 0 {
		return nil
	}
	proven := make(map[jobs.ID]bool, len(nodes))
	for _, id := range nodes {
		proven[id] = true
	}
	for _, h := range held {
		if !proven[h.Node] {
			continue // another one's secret, or asked before
		}
		proven[h.Node] = false
		var sum noderpc.Sum
		for a := range v.State.OnNode(h.Node) {
			if !a.ClientTerminal() {
				sum.Add(a.ID, a.Client.Status)
			}
		}
		if uint64(sum) == h.Sum {
			continue
		}
		known := noderpc.Known{Node: h.Node}
		for a := range v.State.OnNode(h.Node) {
			if !a.ClientTerminal() && len(known.Allocs) < noderpc.MaxAllocs {
				known.Allocs = append(known.Allocs, noderpc.KnownAlloc{ID: a.ID, Status: a.Client.Status})
			}
		}
		list = append(list, known)
	}
	return list
}
