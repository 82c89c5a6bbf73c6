// Package state is the jobs plane's state: nodes with their free room, jobs with their versions,
// allocations, evaluations and deployments, all immutable and indexed.
//
// Invariants:
//   - A State never changes; an Edit makes the next one. What a State holds is never changed
//     either: pointers may be kept, shared and compared.
//   - Each node's Room is what it has less what its counting allocations have (Allocation.Counts).
//     Put and Delete keep it so; nothing else does, and nothing sums it up again.
//   - Nodes are ordered by computed class, so that whoever looks for nodes asks each class once.
//   - Each job's Tally is what its allocations come to. The same functions keep it so.
//   - A node keeps its Slot, a small number, as long as it is known: overlays are slices.
//
// A State is safe for any number of readers. An Edit belongs to one goroutine. The package is
// pure. A change of an allocation costs four sets in trees (about 3 µs), whatever else there is.
package state

import (
	"bytes"
	"cmp"
	"iter"
	"strings"

	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/feasible"
)

// Use is a node and the room that it has.
type Use struct {
	Node  *jobs.Node
	Class uint64
	Slot  uint32
	Ready bool // the node takes new work; here so that a walk over all nodes reads no more than their Uses
	Room  feasible.Room
}

// State is everything at one index.
type State struct {
	index  uint64
	config jobs.Config
	tables
}

type tables struct {
	nodes    table.Table[*Use] // by ID; its room is not kept, see uses
	uses     table.Table[*Use] // by class, ID
	slots    uint32
	free     table.Table[uint32] // slots that nobody has
	jobs     table.Table[*jobs.Job]
	versions table.Table[*jobs.Job] // by key, version
	tokens   table.Table[*jobs.Job] // of dispatches with a token, newest versions: by parent, token, key
	allocs   table.Table[*jobs.Allocation]
	byNode   table.Table[*jobs.Allocation] // by node, ID
	byJob    table.Table[*jobs.Allocation] // by job, ID
	evals    table.Table[*jobs.Evaluation]
	jobEvals table.Table[*jobs.Evaluation] // by job, ID
	deploys  table.Table[*jobs.Deployment]
	byDeploy table.Table[*jobs.Deployment] // by job, create index, ID
	tallies  table.Table[*Tally]           // by job
}

func compareIDs(a, b jobs.ID) int { return bytes.Compare(a[:], b[:]) }

func compareKeys(a, b jobs.JobKey) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}

// then is the first comparison that is not 0.
func then(first int, second func() int) int {
	if first != 0 {
		return first
	}
	return second()
}

// Empty is the State of a new cluster.
func Empty() *State {
	return &State{tables: tables{
		nodes: table.New(func(a, b *Use) int { return compareIDs(a.Node.ID, b.Node.ID) }),
		uses:  table.New(compareUses),
		free:  table.New(cmp.Compare[uint32]),
		jobs:  table.New(func(a, b *jobs.Job) int { return compareKeys(a.JobKey, b.JobKey) }),
		versions: table.New(func(a, b *jobs.Job) int {
			return then(compareKeys(a.JobKey, b.JobKey), func() int { return cmp.Compare(a.Version, b.Version) })
		}),
		tokens: table.New(func(a, b *jobs.Job) int {
			return then(compareTokens(parentOf(a), a.Origin.Token, b), func() int { return compareKeys(a.JobKey, b.JobKey) })
		}),
		allocs: table.New(func(a, b *jobs.Allocation) int { return compareIDs(a.ID, b.ID) }),
		byNode: table.New(func(a, b *jobs.Allocation) int {
			return then(compareIDs(a.NodeID, b.NodeID), func() int { return compareIDs(a.ID, b.ID) })
		}),
		byJob: table.New(func(a, b *jobs.Allocation) int {
			return then(compareKeys(a.Job.JobKey, b.Job.JobKey), func() int { return compareIDs(a.ID, b.ID) })
		}),
		evals: table.New(func(a, b *jobs.Evaluation) int { return compareIDs(a.ID, b.ID) }),
		jobEvals: table.New(func(a, b *jobs.Evaluation) int {
			return then(compareKeys(a.JobKey, b.JobKey), func() int { return compareIDs(a.ID, b.ID) })
		}),
		tallies: table.New(func(a, b *Tally) int { return compareKeys(a.JobKey, b.JobKey) }),
		deploys: table.New(func(a, b *jobs.Deployment) int { return compareIDs(a.ID, b.ID) }),
		byDeploy: table.New(func(a, b *jobs.Deployment) int {
			return then(compareKeys(a.JobKey, b.JobKey), func() int {
				return then(cmp.Compare(a.CreateIndex, b.CreateIndex), func() int { return compareIDs(a.ID, b.ID) })
			})
		}),
	}}
}

func compareUses(a, b *Use) int {
	if c := cmp.Compare(a.Class, b.Class); c != 0 {
		return c
	}
	return compareIDs(a.Node.ID, b.Node.ID)
}

// Index is the index of the last change.
func (s *State) Index() uint64 { return s.index }

// Config is what operators set.
func (s *State) Config() jobs.Config { return s.config }

// Node returns a node with its room, or nil.
func (s *State) Node(id jobs.ID) *Use {
	ref, ok := s.nodes.Find(func(u *Use) int { return compareIDs(id, u.Node.ID) })
	if !ok {
		return nil
	}
	use, _ := s.uses.Get(ref)
	return use
}

// Uses yields all nodes, class by class.
func (s *State) Uses() iter.Seq[*Use] { return s.uses.All() }

// NodesOf yields the nodes of a class.
func (s *State) NodesOf(class uint64) iter.Seq[*Use] {
	return func(yield func(*Use) bool) {
		for u := range s.uses.Seek(func(u *Use) int { return atLeast(cmp.Compare(class, u.Class)) }) {
			if u.Class != class || !yield(u) {
				return
			}
		}
	}
}

// Nodes is how many nodes there are.
func (s *State) Nodes() int { return s.nodes.Len() }

// Slots is above every node's slot.
func (s *State) Slots() int { return int(s.slots) }

// Allocation returns an allocation, or nil.
func (s *State) Allocation(id jobs.ID) *jobs.Allocation {
	a, _ := s.allocs.Find(func(a *jobs.Allocation) int { return compareIDs(id, a.ID) })
	return a
}

// Allocations yields all allocations.
func (s *State) Allocations() iter.Seq[*jobs.Allocation] { return s.allocs.All() }

// OnNode yields the allocations of a node, those that are over too.
func (s *State) OnNode(id jobs.ID) iter.Seq[*jobs.Allocation] {
	return func(yield func(*jobs.Allocation) bool) {
		for a := range s.byNode.Seek(func(a *jobs.Allocation) int { return atLeast(compareIDs(id, a.NodeID)) }) {
			if a.NodeID != id || !yield(a) {
				return
			}
		}
	}
}

// OfJob yields the allocations of a job, those that are over too.
func (s *State) OfJob(key jobs.JobKey) iter.Seq[*jobs.Allocation] {
	return func(yield func(*jobs.Allocation) bool) {
		for a := range s.byJob.Seek(func(a *jobs.Allocation) int { return atLeast(compareKeys(key, a.Job.JobKey)) }) {
			if a.Job.JobKey != key || !yield(a) {
				return
			}
		}
	}
}

// atLeast makes of a comparison one that is never 0, so that Seek begins at the first of equals.
func atLeast(c int) int {
	if c == 0 {
		return -1
	}
	return c
}

// Job returns the newest version of a job, or nil.
func (s *State) Job(key jobs.JobKey) *jobs.Job {
	j, _ := s.jobs.Find(func(j *jobs.Job) int { return compareKeys(key, j.JobKey) })
	return j
}

// Jobs yields all jobs.
func (s *State) Jobs() iter.Seq[*jobs.Job] { return s.jobs.All() }

// Versions yields the versions of a job that are kept, the oldest first.
func (s *State) Versions(key jobs.JobKey) iter.Seq[*jobs.Job] {
	return func(yield func(*jobs.Job) bool) {
		for j := range s.versions.Seek(func(j *jobs.Job) int { return atLeast(compareKeys(key, j.JobKey)) }) {
			if j.JobKey != key || !yield(j) {
				return
			}
		}
	}
}

// Evaluation returns an evaluation, or nil.
func (s *State) Evaluation(id jobs.ID) *jobs.Evaluation {
	e, _ := s.evals.Find(func(e *jobs.Evaluation) int { return compareIDs(id, e.ID) })
	return e
}

// EvaluationsOf yields the evaluations of a job.
func (s *State) EvaluationsOf(key jobs.JobKey) iter.Seq[*jobs.Evaluation] {
	return func(yield func(*jobs.Evaluation) bool) {
		for e := range s.jobEvals.Seek(func(e *jobs.Evaluation) int { return atLeast(compareKeys(key, e.JobKey)) }) {
			if e.JobKey != key || !yield(e) {
				return
			}
		}
	}
}

// Evaluations yields all evaluations.
func (s *State) Evaluations() iter.Seq[*jobs.Evaluation] { return s.evals.All() }

// Deployments yields all deployments, job by job, the oldest of each first.
func (s *State) Deployments() iter.Seq[*jobs.Deployment] { return s.byDeploy.All() }

// DeploymentsOf yields the deployments of a job, the oldest first.
func (s *State) DeploymentsOf(key jobs.JobKey) iter.Seq[*jobs.Deployment] {
	return func(yield func(*jobs.Deployment) bool) {
		for d := range s.byDeploy.Seek(func(d *jobs.Deployment) int { return atLeast(compareKeys(key, d.JobKey)) }) {
			if d.JobKey != key || !yield(d) {
				return
			}
		}
	}
}

// JobsFrom yields the jobs from key on, in the order of namespaces and ids.
func (s *State) JobsFrom(key jobs.JobKey) iter.Seq[*jobs.Job] {
	return s.jobs.Seek(func(j *jobs.Job) int { return compareKeys(key, j.JobKey) })
}

// Dispatched is the child of a parameterized job that a dispatch with the token made, or nil.
func (s *State) Dispatched(parent jobs.JobKey, token string) *jobs.Job {
	return dispatched(s.tokens, parent, token)
}

func dispatched(tokens table.Table[*jobs.Job], parent jobs.JobKey, token string) *jobs.Job {
	if token == "" {
		return nil
	}
	for j := range tokens.Seek(func(j *jobs.Job) int {
		return then(compareTokens(parent, token, j), func() int { return -1 }) // before the first of them
	}) {
		if compareTokens(parent, token, j) == 0 {
			return j
		}
		break
	}
	return nil
}

func parentOf(j *jobs.Job) jobs.JobKey {
	return jobs.JobKey{Namespace: j.Namespace, ID: j.Origin.ParentID}
}

// compareTokens is where a token of a parent stands beside that of j.
func compareTokens(parent jobs.JobKey, token string, j *jobs.Job) int {
	return then(compareKeys(parent, parentOf(j)), func() int { return strings.Compare(token, j.Origin.Token) })
}

// Deployment returns a deployment, or nil.
func (s *State) Deployment(id jobs.ID) *jobs.Deployment {
	d, _ := s.deploys.Find(func(d *jobs.Deployment) int { return compareIDs(id, d.ID) })
	return d
}

// LatestDeployment is the newest one of a job, or nil.
func (s *State) LatestDeployment(key jobs.JobKey) *jobs.Deployment {
	// The first place behind all of the job: what is before it is the newest.
	before, ok, _, _ := s.byDeploy.Around(func(d *jobs.Deployment) int {
		if c := compareKeys(key, d.JobKey); c != 0 {
			return c
		}
		return 1
	})
	if !ok || before.JobKey != key {
		return nil
	}
	return before
}
