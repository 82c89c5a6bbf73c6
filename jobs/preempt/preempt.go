// Package preempt finds the allocations that have to go from a node so that a more important one fits
// (NS-34): only of jobs whose priority is lower by Difference or more, the least important first, and
// none that need not go. The package is pure; a call costs O(allocations of the node · log).
package preempt

import (
	"bytes"
	"cmp"
	"iter"
	"slices"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/feasible"
	"corbel.dev/corbel/jobs/state"
)

// Difference is by how much the priority of what goes must be lower.
const Difference = 10

// Input is the node and who wants it.
type Input struct {
	Use      *state.Use
	Ask      *feasible.Ask
	Priority int
	Job      jobs.JobKey
	Allocs   iter.Seq[*jobs.Allocation] // of the node
	Gone     map[jobs.ID]bool           // those that the plan stops already
	Dice     *jobs.Dice
}

// Find returns the allocations that have to go, or nil when the node cannot be cleared.
func Find(in Input) []*jobs.Allocation {
	var list []*jobs.Allocation
	for a := range in.Allocs {
		if !a.Terminal() && !in.Gone[a.ID] && a.Job.JobKey != in.Job && a.Job.Priority <= in.Priority-Difference {
			list = append(list, a)
		}
	}
	need := in.Ask.Base(in.Use.Node)
	slices.SortFunc(list, func(a, b *jobs.Allocation) int {
		if c := cmp.Compare(a.Job.Priority, b.Job.Priority); c != 0 {
			return c
		}
		if c := cmp.Compare(distance(need.Vector, a.Grant.Vector), distance(need.Vector, b.Grant.Vector)); c != 0 {
			return c
		}
		return bytes.Compare(a.ID[:], b.ID[:])
	})
	room := in.Use.Room
	fits := func(r *feasible.Room) bool {
		_, lacks := in.Ask.Assign(in.Use.Node, r, in.Dice)
		return lacks == ""
	}
	for i, a := range list {
		room.Give(a.Grant)
		if fits(&room) {
			return spare(list[:i+1], room, fits)
		}
	}
	return nil
}

// spare lets those stay that need not go, the most important first.
func spare(list []*jobs.Allocation, room feasible.Room, fits func(*feasible.Room) bool) (gone []*jobs.Allocation) {
	for _, a := range slices.Backward(list) {
		with := room
		with.Take(a.Grant)
		if fits(&with) {
			room = with
		} else {
			gone = append(gone, a)
		}
	}
	return gone
}

// distance is how far what an allocation has is from what is needed, relative to the need.
func distance(need, has jobs.Vector) float64 {
	part := func(need, has int64) float64 {
		if need == 0 {
			return 0
		}
		x := float64(need-has) / float64(need)
		return x * x
	}
	return part(need.CPU, has.CPU) + part(need.MemoryMB, has.MemoryMB) + part(need.DiskMB, has.DiskMB)
}

// Priorities are those of the allocations' jobs, each job once.
func Priorities(list []*jobs.Allocation) (priorities []int) {
	seen := map[jobs.JobKey]bool{}
	for _, a := range list {
		if !seen[a.Job.JobKey] {
			seen[a.Job.JobKey] = true
			priorities = append(priorities, a.Job.Priority)
		}
	}
	return priorities
}
