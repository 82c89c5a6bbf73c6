package state

import (
	"iter"
	"slices"
	"strings"

	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/jobs"
)

// Tally is what the allocations of a job come to. It is kept with each change of one, so that nobody counts them to
// answer a list of jobs. A job without allocations has none.
//
// Invariant: it is what counting the job's allocations gives (Recount), but for Modified, which stays when the newest
// allocation is forgotten.
type Tally struct {
	jobs.JobKey
	Modified    uint64 // the highest ModifyIndex that an allocation had
	Total, Live int    // Live are those that are not terminal
	groups      []group
}

// group is the part of one group; they are sorted by name.
type group struct {
	name  string
	total int
	jobs.Counts
}

// Groups yields the counts of the groups that have allocations, by name. A nil Tally has none.
func (t *Tally) Groups() iter.Seq2[string, jobs.Counts] {
	return func(yield func(string, jobs.Counts) bool) {
		if t == nil {
			return
		}
		for i := range t.groups {
			if !yield(t.groups[i].name, t.groups[i].Counts) {
				return
			}
		}
	}
}

// add counts a, n times.
func (t *Tally) add(a *jobs.Allocation, n int) {
	i, ok := slices.BinarySearchFunc(t.groups, a.Group, func(g group, name string) int {
		return strings.Compare(g.name, name)
	})
	if !ok {
		t.groups = slices.Insert(t.groups, i, group{name: a.Group})
	}
	t.groups[i].total += n
	t.groups[i].Add(a, n)
	if t.groups[i].total == 0 {
		t.groups = slices.Delete(t.groups, i, i+1)
	}
	t.Total += n
	if !a.Terminal() {
		t.Live += n
	}
}

// Tally is what a job's allocations come to, nil when it has none.
func (s *State) Tally(key jobs.JobKey) *Tally {
	t, _ := s.tallies.Find(func(t *Tally) int { return compareKeys(key, t.JobKey) })
	return t
}

// Recount counts the allocations of a job, nil when it has none.
func (s *State) Recount(key jobs.JobKey) *Tally {
	t := &Tally{JobKey: key}
	for a := range s.OfJob(key) {
		t.add(a, 1)
		t.Modified = max(t.Modified, a.ModifyIndex)
	}
	if t.Total == 0 {
		return nil
	}
	return t
}

// same reports whether two tallies count the same.
func (t *Tally) same(o *Tally) bool {
	if t == nil || o == nil {
		return t == o
	}
	return t.Total == o.Total && t.Live == o.Live && slices.Equal(t.groups, o.groups)
}

// tallied are the tallies of an Edit: those that it changed stand beside the table until there is a State.
type tallied struct {
	table table.Edit[*Tally]
	fresh map[jobs.JobKey]*Tally
	last  *Tally // of fresh: commands change many allocations of one job
}

// of is a job's tally, to be changed.
func (e *tallied) of(key jobs.JobKey) *Tally {
	if e.last != nil && e.last.JobKey == key {
		return e.last
	}
	t := e.fresh[key]
	if t == nil {
		t = &Tally{JobKey: key}
		if old, ok := e.table.Get(t); ok {
			next := *old
			next.groups = slices.Clone(old.groups)
			t = &next
		}
		if e.fresh == nil {
			e.fresh = map[jobs.JobKey]*Tally{}
		}
		e.fresh[key] = t
	}
	e.last = t
	return t
}

// move counts an allocation as what it is, nil for nothing, and no more as what it was.
func (e *tallied) move(before, after *jobs.Allocation) {
	if before != nil {
		e.of(before.Job.JobKey).add(before, -1)
	}
	if after != nil {
		t := e.of(after.Job.JobKey)
		t.add(after, 1)
		t.Modified = max(t.Modified, after.ModifyIndex)
	}
}

// settle puts the changed tallies into the table: they do not change from then on.
func (e *tallied) settle() {
	for _, t := range e.fresh {
		if t.Total == 0 {
			e.table.Delete(t)
		} else {
			e.table.Set(t)
		}
	}
	clear(e.fresh)
	e.last = nil
}

// RecountAll counts the allocations of all jobs anew, and returns the jobs whose tally was wrong.
func (e *Edit) RecountAll() (wrong []jobs.JobKey) {
	e.tallied.settle()
	s := State{tables: tables{byJob: e.allocs[2].Table, tallies: e.tallied.table.Table}}
	right := map[jobs.JobKey]*Tally{}
	var keys []jobs.JobKey // in order
	for a := range s.byJob.All() {
		t := right[a.Job.JobKey]
		if t == nil {
			t = &Tally{JobKey: a.Job.JobKey}
			right[a.Job.JobKey] = t
			keys = append(keys, a.Job.JobKey)
		}
		t.add(a, 1)
		t.Modified = max(t.Modified, a.ModifyIndex)
	}
	var gone []*Tally
	for t := range s.tallies.All() {
		if right[t.JobKey] == nil {
			gone = append(gone, t)
			wrong = append(wrong, t.JobKey)
		}
	}
	for _, t := range gone {
		e.tallied.table.Delete(t)
	}
	for _, key := range keys {
		t, kept := right[key], s.Tally(key)
		if kept != nil {
			t.Modified = max(t.Modified, kept.Modified)
		}
		if !t.same(kept) {
			wrong = append(wrong, key)
			e.tallied.table.Set(t)
		}
	}
	return wrong
}
