package jobtell

import (
	"slices"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/noderpc"
)

// TestFirstFrame: what a node is told when it begins to listen, by what it has seen and what the servers know.
func TestFirstFrame(t *testing.T) {
	const index = 10 // of each change
	for _, c := range []struct {
		name            string
		desired, client string
		since           uint64
		told            bool
	}{
		{"new to the node", jobs.Run, jobs.ClientPending, index - 1, true},
		{"known to the node", jobs.Run, jobs.ClientRunning, index, false},
		{"runs, and the agent begins anew", jobs.Run, jobs.ClientRunning, 0, true},
		{"to end, and the node was told", jobs.Stop, jobs.ClientRunning, index, true},
		{"to end, and never began", jobs.Stop, jobs.ClientPending, index, true},
		{"ended", jobs.Stop, jobs.ClientComplete, index, false},
		{"ended, and the agent begins anew", jobs.Run, jobs.ClientComplete, 0, false},
		{"failed, and the agent begins anew", jobs.Run, jobs.ClientFailed, 0, false},
		{"given up while the node was away", jobs.Stop, jobs.ClientLost, index - 1, true},
		{"given up while the agent was away", jobs.Stop, jobs.ClientLost, 0, true},
		{"given up, and the node was told", jobs.Stop, jobs.ClientLost, index, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := jobstore.Empty()
			e := v.State.Edit(index)
			node := jobs.ID{9}
			j := e.PutJob(&jobs.Job{JobKey: jobs.JobKey{Namespace: "default", ID: "a"}, Type: jobs.Service,
				Groups: []*jobs.TaskGroup{{Name: "g", Count: 1}}})
			e.PutNode(&jobs.Node{ID: node, Duty: jobs.Duty{Status: jobs.NodeReady}})
			e.PutAllocation(&jobs.Allocation{ID: jobs.ID{1}, Job: j, Group: "g", NodeID: node, Grant: &jobs.Grant{},
				Desired: jobs.Desired{Status: c.desired}, Client: jobs.Client{Status: c.client}})
			v.State = e.Done()
			f := Listen(NewTexts(), &noderpc.Watch{Key: noderpc.Key{Node: node}, Since: c.since}).Frame(v, true)
			if !slices.Contains(f.Present, jobs.ID{1}) || len(f.Allocs) == 1 != c.told {
				t.Errorf("present %v, told %d, want told %v", f.Present, len(f.Allocs), c.told)
			}
		})
	}
}
