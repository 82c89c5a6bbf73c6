package state

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"corbel.dev/corbel/jobs"
)

// TestTallies: after any history, what is kept of a job's allocations is what counting them gives, in every State on
// the way, and also when they are put back from a snapshot.
func TestTallies(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { tallies(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func tallies(t *testing.T, rng *rand.Rand) {
	var all []*jobs.Job
	for i := range 4 {
		all = append(all, &jobs.Job{JobKey: jobs.JobKey{Namespace: "n", ID: fmt.Sprint("job-", i)}})
	}
	pick := func(words ...string) string { return words[rng.IntN(len(words))] }
	one := func(id jobs.ID, job *jobs.Job) *jobs.Allocation {
		return &jobs.Allocation{ID: id, Job: job, Group: pick("a", "b", "c"), Grant: &jobs.Grant{},
			Desired: jobs.Desired{Status: pick(jobs.Run, jobs.Run, jobs.Stop, jobs.Evict)},
			Client: jobs.Client{Status: pick("", jobs.ClientPending, jobs.ClientRunning, jobs.ClientComplete,
				jobs.ClientFailed, jobs.ClientLost, jobs.ClientUnknown)}}
	}
	s := Empty()
	of := map[jobs.ID]*jobs.Job{}
	var ids []jobs.ID
	for index := uint64(1); index < 60; index++ {
		e := s.Edit(index)
		for range rng.IntN(12) {
			switch n := rng.IntN(10); {
			case n < 4 || len(ids) == 0:
				id := jobs.ID{byte(rng.IntN(256)), byte(rng.IntN(256)), 1}
				if of[id] == nil {
					of[id] = all[rng.IntN(len(all))]
					ids = append(ids, id)
				}
				e.PutAllocation(one(id, of[id]))
			case n < 7: // what the node says changes, or the version that it runs
				id := ids[rng.IntN(len(ids))]
				next := *one(id, of[id])
				version := *of[id]
				version.Version = index
				next.Job = &version
				e.PutAllocation(&next)
			case n < 9:
				i := rng.IntN(len(ids))
				e.DeleteAllocation(ids[i])
				delete(of, ids[i])
				ids = slices.Delete(ids, i, i+1)
			default: // a State is taken on the way, and the Edit goes on
				check(t, e.Done())
				e.Advance()
			}
		}
		before := s
		was := map[jobs.JobKey]*Tally{}
		for _, j := range all {
			was[j.JobKey] = before.Recount(j.JobKey)
		}
		s = e.Done()
		check(t, s)
		for key, tally := range was { // what was made of it changed nothing of the State before
			if !before.Tally(key).same(tally) {
				t.Fatalf("an Edit changed the tally of a former State")
			}
		}
	}
	again := Empty().Edit(s.Index())
	for a := range s.Allocations() {
		again.RestoreAllocation(a)
	}
	check(t, again.Done())
	e := s.Edit(s.Index() + 1)
	if wrong := e.RecountAll(); len(wrong) > 0 {
		t.Errorf("counted anew, %v were wrong", wrong)
	}
	check(t, e.Done())
}

func check(t *testing.T, s *State) {
	t.Helper()
	keys := map[jobs.JobKey]bool{}
	for a := range s.Allocations() {
		keys[a.Job.JobKey] = true
	}
	for kept := range s.tallies.All() {
		keys[kept.JobKey] = true
	}
	for key := range keys {
		kept, counted := s.Tally(key), s.Recount(key)
		if !kept.same(counted) {
			t.Fatalf("%v at %d: kept %+v, counted %+v", key, s.Index(), kept, counted)
		}
		if kept != nil && kept.Modified < counted.Modified {
			t.Fatalf("%v: modified at %d, kept as %d", key, counted.Modified, kept.Modified)
		}
	}
}

// TestRecount: a tally that is wrong is found and put right.
func TestRecount(t *testing.T) {
	j := &jobs.Job{JobKey: jobs.JobKey{Namespace: "n", ID: "j"}}
	e := Empty().Edit(1)
	e.PutAllocation(&jobs.Allocation{ID: jobs.ID{1}, Job: j, Group: "a", Grant: &jobs.Grant{},
		Desired: jobs.Desired{Status: jobs.Run}})
	e.settle()
	e.tallied.table.Set(&Tally{JobKey: j.JobKey, Total: 7})
	lost := jobs.JobKey{Namespace: "n", ID: "lost"}
	e.tallied.table.Set(&Tally{JobKey: lost, Total: 1})
	wrong := e.RecountAll()
	s := e.Done()
	if len(wrong) != 2 || s.Tally(lost) != nil || s.Tally(j.JobKey).Total != 1 {
		t.Errorf("%v %+v", wrong, s.Tally(j.JobKey))
	}
}
