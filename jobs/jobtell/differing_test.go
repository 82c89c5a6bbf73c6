package jobtell

import (
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/noderpc"
)

// TestNodeGoesOnFromWhatIsComplete: a frame that was made of a View with later changes of the node, which are told by
// the next one, is not as new as that View.
func TestNodeGoesOnFromWhatIsComplete(t *testing.T) {
	v := dispatched(1, 2)
	e := v.State.Edit(2)
	now := *e.Allocation(jobs.ID{1, 0, 0})
	now.Desired.Status = jobs.Stop
	e.PutAllocation(&now)
	e.Advance()
	late := *e.Allocation(jobs.ID{1, 1, 0})
	late.Desired.Status = jobs.Stop
	e.PutAllocation(&late)
	v.State = e.Done()
	to := listens(NewTexts(), 0)
	f := to.Next(v, []jobs.ID{{1, 0, 0}}, 2)
	if f == nil || len(f.Allocs) != 1 || f.Index != 2 || v.State.Index() != 3 {
		t.Fatalf("%+v of a View at %d", f, v.State.Index())
	}
	again := Listen(NewTexts(), &noderpc.Watch{Key: noderpc.Key{Node: dispatchNode}, Since: f.Index}).Frame(v, true)
	if len(again.Allocs) != 2 {
		t.Errorf("after the stream broke the node is told of %d allocations, want both that are to end", len(again.Allocs))
	}
}

// TestDiffering: a node that has what the servers know is told nothing, another one what they know, once, whatever it
// asks for, and nobody what is another node's.
func TestDiffering(t *testing.T) {
	v := dispatched(1, 3)
	e := v.State.Edit(2)
	over := *e.Allocation(jobs.ID{1, 2, 0})
	over.Client.Status = jobs.ClientComplete
	e.PutAllocation(&over)
	v.State = e.Done()
	var same noderpc.Sum
	same.Add(jobs.ID{1, 1, 0}, jobs.ClientPending)
	same.Add(jobs.ID{1, 0, 0}, jobs.ClientPending)
	other := same
	other.Add(jobs.ID{1, 2, 0}, jobs.ClientPending)
	mine, foreign := []jobs.ID{dispatchNode}, []jobs.ID{{8}}
	for _, test := range []struct {
		what  string
		nodes []jobs.ID
		held  []noderpc.Held
		want  int
	}{
		{"nobody asks", mine, nil, 0},
		{"the same", mine, []noderpc.Held{{Node: dispatchNode, Sum: uint64(same)}}, 0},
		{"one more", mine, []noderpc.Held{{Node: dispatchNode, Sum: uint64(other)}}, 1},
		{"asked twice", mine, []noderpc.Held{{Node: dispatchNode}, {Node: dispatchNode}}, 1},
		{"another one's", foreign, []noderpc.Held{{Node: dispatchNode}}, 0},
		{"nothing on both sides", foreign, []noderpc.Held{{Node: jobs.ID{8}}}, 0},
	} {
		list := Differing(v, test.nodes, test.held)
		if len(list) != test.want {
			t.Errorf("%s: %+v", test.what, list)
		}
		for _, k := range list {
			if k.Node != dispatchNode || len(k.Allocs) != 2 || k.Allocs[0].Status != jobs.ClientPending {
				t.Errorf("%s: %+v", test.what, k)
			}
		}
	}
}
