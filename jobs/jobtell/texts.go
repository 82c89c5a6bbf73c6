package jobtell

import (
	"encoding/json"
	"sync"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/noderpc"
)

// Texts has versions of jobs as JSON, each encoded once, by the first node that asks and beside the others: nothing
// is encoded under the lock. It is bounded: past maxTexts it begins anew.
type Texts struct {
	mu  sync.Mutex // guards all
	all map[*jobs.Job]*jobText
	// bases are the jobs that stand for those that share a body with them (jobs.Job.SharesBody), by their groups.
	bases map[body]*jobs.Job
}

// body is what dispatched jobs of one version of their parent have in common: their list of groups.
type body **jobs.TaskGroup

type jobText struct {
	once sync.Once
	text []byte
}

const maxTexts = 4096

// NewTexts has none yet.
func NewTexts() *Texts {
	return &Texts{all: map[*jobs.Job]*jobText{}, bases: map[body]*jobs.Job{}}
}

func (t *Texts) of(j *jobs.Job) []byte {
	t.mu.Lock()
	one := t.all[j]
	if one == nil {
		if len(t.all) >= maxTexts {
			clear(t.all)
		}
		one = &jobText{}
		t.all[j] = one
	}
	t.mu.Unlock()
	one.once.Do(func() {
		text, err := json.Marshal(jobwire.FromJob(j))
		if err != nil {
			panic("jobtell: " + err.Error()) // jobwire's types have nothing that JSON cannot say
		}
		one.text = text
	})
	return one.text
}

// base is the job that all who share a body with j are told as differences from: the first of them that was asked for.
func (t *Texts) base(j *jobs.Job) *jobs.Job {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := body(&j.Groups[0])
	if b := t.bases[key]; b != nil && b.SharesBody(j) {
		return b
	}
	if len(t.bases) >= maxTexts {
		clear(t.bases)
	}
	t.bases[key] = j
	return j
}

// bases are the jobs that a node keeps for its stream. The oldest makes room for the next one.
type bases struct {
	most  int // 0: the node keeps none
	slots []*jobs.Job
	next  int
}

// slot is where the node keeps base, -1 for nowhere.
func (b *bases) slot(base *jobs.Job) int {
	for i, j := range b.slots {
		if j == base {
			return i
		}
	}
	return -1
}

// telling is a frame in the making.
type telling struct {
	texts *Texts
	bases *bases
	frame *noderpc.Allocs
	jobs  map[*jobs.Job]int // places in frame.Jobs
	// children are places in frame.Children, negative and counted from -1: where they begin is known at the end.
	children map[*jobs.Job]int
}

// add tells an allocation and, when it is its first in the frame, its job.
func (t *telling) add(a *jobs.Allocation) {
	t.frame.Allocs = append(t.frame.Allocs, noderpc.Alloc{ID: a.ID, ModifyIndex: a.ModifyIndex, Job: t.job(a.Job),
		Group: a.Group, Index: a.Index, Desired: a.Desired, Client: a.Client.Status, Rollout: a.Rollout,
		Previous: a.Lineage.Previous, EvalID: a.EvalID, CreateTime: a.CreateTime, Grant: *a.Grant})
}

// job is the place of a job.
func (t *telling) job(j *jobs.Job) int {
	if at, ok := t.children[j]; ok {
		return at
	}
	if at, ok := t.jobs[j]; ok {
		return at
	}
	if slot := t.base(j); slot >= 0 {
		t.frame.Children = append(t.frame.Children, noderpc.Child{Slot: slot, ID: j.ID, Name: j.Name,
			Priority: j.Priority, Origin: j.Origin, Meta: j.Meta, Revision: j.Revision})
		if t.children == nil {
			t.children = map[*jobs.Job]int{}
		}
		t.children[j] = -len(t.frame.Children)
		return t.children[j]
	}
	if t.jobs == nil {
		t.jobs = map[*jobs.Job]int{}
	}
	t.jobs[j] = len(t.frame.Jobs)
	t.frame.Jobs = append(t.frame.Jobs, t.texts.of(j))
	return t.jobs[j]
}

// base is the slot of the job that j is told as a difference from, -1 when it is told whole. A frame has each slot at
// most once, since its bases are read before its children.
func (t *telling) base(j *jobs.Job) int {
	if !j.Origin.Dispatched || len(j.Groups) == 0 || t.bases.most == 0 {
		return -1
	}
	base := t.texts.base(j)
	slot := t.bases.slot(base)
	switch {
	case slot >= 0:
		return slot
	case len(t.frame.Bases) == t.bases.most || t.used(t.bases.next):
		return -1
	}
	slot = t.bases.next
	if t.bases.next++; t.bases.next == t.bases.most {
		t.bases.next = 0
	}
	if slot == len(t.bases.slots) {
		t.bases.slots = append(t.bases.slots, nil)
	}
	t.bases.slots[slot] = base
	t.frame.Bases = append(t.frame.Bases, noderpc.Base{Slot: slot, Job: t.texts.of(base)})
	return slot
}

// used reports whether a child of this frame needs the base that is in a slot.
func (t *telling) used(slot int) bool {
	if slot >= len(t.bases.slots) {
		return false
	}
	for i := range t.frame.Children {
		if t.frame.Children[i].Slot == slot {
			return true
		}
	}
	return false
}

// end gives children their places.
func (t *telling) end() {
	if len(t.frame.Children) == 0 {
		return
	}
	for i := range t.frame.Allocs {
		if at := &t.frame.Allocs[i].Job; *at < 0 {
			*at = len(t.frame.Jobs) - *at - 1
		}
	}
}
