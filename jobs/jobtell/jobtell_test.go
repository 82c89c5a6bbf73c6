package jobtell

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/workload"
	"corbel.dev/corbel/jobs/dispatch"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/noderpc"
)

var dispatchNode = jobs.ID{9}

// parentJob is a job with something of everything that a child takes from it.
func parentJob(id string) *jobs.Job {
	env := map[string]string{}
	for i := range 40 { // so that its size shows
		env[fmt.Sprint("SETTING_", i)] = fmt.Sprint("the value of setting ", i)
	}
	return &jobs.Job{JobKey: jobs.JobKey{Namespace: "default", ID: id}, Name: id, Type: jobs.Batch, Priority: 50,
		Datacenters: []string{"*"}, Meta: map[string]string{"of": "parent"},
		Rules:    jobs.Rules{Constraints: []jobs.Constraint{{Left: "${attr.kernel.name}", Operand: "=", Right: "linux"}}},
		Dispatch: &jobs.DispatchRules{Payload: dispatch.Optional, MetaOptional: []string{"a"}},
		Parts:    map[string]string{"VaultToken": `"x"`},
		Groups: []*jobs.TaskGroup{{Name: "g", Count: 1, Restart: &jobs.RestartPolicy{Attempts: 2, Mode: "fail",
			Interval: time.Minute}, Tasks: []*jobs.Task{{Name: "t", Driver: "mock_driver", Env: env,
			Config: `{"run_for":"1s"}`, Resources: jobs.Resources{CPU: 10, MemoryMB: 10}}}}}}
}

// dispatched is a View with children of each parent on one node, n of each, the parents' in turn.
func dispatched(parents, n int) *jobstore.View {
	v := jobstore.Empty()
	e := v.State.Edit(1)
	e.PutNode(&jobs.Node{ID: dispatchNode, Duty: jobs.Duty{Status: jobs.NodeReady}})
	var list []*jobs.Job
	for i := range parents {
		list = append(list, e.PutJob(parentJob(fmt.Sprint("p", i))))
	}
	for k := range n {
		for i, p := range list {
			child := e.PutJob(dispatch.Named(p, fmt.Sprint(p.ID, "/dispatch-", k), dispatch.Request{
				Payload: []byte("what to do"), Meta: map[string]string{"a": fmt.Sprint(k)}, Token: "t", Priority: 70}, 7))
			e.PutAllocation(&jobs.Allocation{ID: jobs.ID{1, byte(k), byte(i)}, Job: child, Group: "g",
				NodeID: dispatchNode, Grant: &jobs.Grant{}, Desired: jobs.Desired{Status: jobs.Run},
				Client: jobs.Client{Status: jobs.ClientPending}})
		}
	}
	v.State = e.Done()
	return v
}

// loads are what a node makes of a frame, as it comes over the wire.
func loads(t *testing.T, f *noderpc.Allocs, bases *workload.Bases) []*workload.Workload {
	t.Helper()
	got, err := noderpc.Read[noderpc.Allocs](noderpc.Bytes(f))
	if err != nil {
		t.Fatal(err)
	}
	list, wrong := workload.Read(got, bases)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	return list
}

func listens(texts *Texts, most int) *Listener {
	return Listen(texts, &noderpc.Watch{Key: noderpc.Key{Node: dispatchNode}, Bases: most})
}

// TestChildrenAreWhole: a node that is told of children as differences has what one has that is told of whole jobs,
// also when it keeps fewer bases than there are parents, and what it stores is whole.
func TestChildrenAreWhole(t *testing.T) {
	for _, most := range []int{1, 2, noderpc.MaxBases} {
		texts := NewTexts()
		whole, less := listens(texts, 0), listens(texts, most)
		var bases workload.Bases
		for round, v := range []*jobstore.View{dispatched(3, 2), dispatched(3, 2), dispatched(5, 3)} {
			full := round == 0
			a, b := whole.Frame(v, full), less.Frame(v, full)
			if len(a.Children)+len(a.Bases) > 0 || len(b.Children) == 0 {
				t.Fatalf("%d bases: %d and %d children are differences", most, len(a.Children), len(b.Children))
			}
			want, got := loads(t, a, &workload.Bases{}), loads(t, b, &bases)
			if len(got) != len(want) {
				t.Fatalf("%d bases: %d allocations, want %d", most, len(got), len(want))
			}
			for i := range want {
				if !reflect.DeepEqual(got[i].Job, want[i].Job) || got[i].Group == nil {
					t.Fatalf("%d bases: the node has\n%+v\nwant\n%+v", most, got[i].Job, want[i].Job)
				}
				kept, err := workload.Parse(got[i].Bytes())
				if err != nil || !reflect.DeepEqual(kept.Job, want[i].Job) {
					t.Fatalf("%d bases: the node stores another job: %v", most, err)
				}
			}
		}
	}
}

// TestDispatchesAreToldAsDifferences counts what telling a node of one more dispatched job costs: the parent's text
// goes once.
func TestDispatchesAreToldAsDifferences(t *testing.T) {
	texts := NewTexts()
	to := listens(texts, noderpc.MaxBases)
	first := noderpc.Bytes(to.Frame(dispatched(1, 1), true))
	const more = 100
	v := dispatched(1, more+1)
	to.bases.slots[0] = v.State.Allocation(jobs.ID{1, 0, 0}).Job // the View was made anew: its jobs are others
	texts.base(to.bases.slots[0])
	next := noderpc.Bytes(to.Frame(v, false))
	if per := len(next) / (more + 1); per > 320 || len(first) < 2000 {
		t.Errorf("%d bytes for each child of a parent of %d", per, len(first))
	}
	if len(texts.all) != 1 {
		t.Errorf("%d jobs were encoded, want 1", len(texts.all))
	}
	to.sent = map[jobs.ID]told{}
	perChild := testing.AllocsPerRun(20, func() { clear(to.sent); to.Frame(v, false) }) / (more + 1)
	if perChild > 2 {
		t.Errorf("%.1f allocations for each child", perChild)
	}
}

// TestNextTellsWhatFrameDoes changes allocations of a node at random, and sweeps some: what is told by their names is
// what a look at all of them tells.
func TestNextTellsWhatFrameDoes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	v := dispatched(3, 20)
	texts := NewTexts()
	whole, less := listens(texts, 2), listens(texts, 2)
	whole.Frame(v, true)
	less.Frame(v, true)
	for round := range 60 {
		next := *v
		e := v.State.Edit(v.State.Index() + 1)
		var changed []jobs.ID
		for a := range v.State.OnNode(dispatchNode) {
			switch n := rng.IntN(40); {
			case n == 0 && rng.IntN(4) == 0:
				e.DeleteAllocation(a.ID)
			case n < 3:
				now := *a
				now.Client.Status = []string{jobs.ClientRunning, jobs.ClientComplete}[rng.IntN(2)]
				if n == 2 {
					now.Desired.Status = jobs.Stop
				}
				e.PutAllocation(&now)
			default:
				continue
			}
			changed = append(changed, a.ID)
		}
		for n := range rng.IntN(3) {
			for a := range v.State.OnNode(dispatchNode) {
				now := *a
				now.ID = jobs.ID{2, byte(round), byte(n)}
				e.PutAllocation(&now)
				changed = append(changed, now.ID, now.ID)
				break
			}
		}
		next.State = e.Done()
		v = &next
		rng.Shuffle(len(changed), func(i, k int) { changed[i], changed[k] = changed[k], changed[i] })
		if want, got := whole.Frame(v, false), less.Next(v, changed, v.State.Index()); !reflect.DeepEqual(got, want) {
			t.Fatalf("round %d: the node is told\n%+v\nwant\n%+v", round, got, want)
		}
	}
}

// TestWhatEndedCostsNothing counts what telling a node of one change looks at: what ended there long ago is no part.
func TestWhatEndedCostsNothing(t *testing.T) {
	v := dispatched(10, 50)
	to := listens(NewTexts(), 0)
	to.Frame(v, true)
	to.looks = 0
	for n := range byte(10) {
		next := *v
		e := v.State.Edit(v.State.Index() + 1)
		a := *v.State.Allocation(jobs.ID{1, n, 1})
		a.Desired.Status = jobs.Stop
		e.PutAllocation(&a)
		next.State = e.Done()
		v = &next
		if f := to.Next(v, []jobs.ID{a.ID}, v.State.Index()); f == nil || len(f.Allocs) != 1 || f.Full {
			t.Fatalf("the node is told %+v", f)
		}
	}
	if to.looks != 10 {
		t.Errorf("10 changes took %d looks at allocations", to.looks)
	}
}
