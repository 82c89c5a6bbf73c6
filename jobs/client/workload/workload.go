// Package workload is an allocation as its node has it: what the servers sent, with its job read. It is pure.
package workload

import (
	"encoding/json"
	"strconv"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
)

// Workload is never changed.
type Workload struct {
	noderpc.Alloc
	Job   *jobwire.Job
	Group *jobwire.TaskGroup
	text  []byte // of the job
}

// Read makes the workloads of a frame. A job is read once for all its allocations. What cannot be read is left out,
// and named.
func Read(frame *noderpc.Allocs) (list []*Workload, wrong map[jobs.ID]error) {
	read := make([]*jobwire.Job, len(frame.Jobs))
	wrong = map[jobs.ID]error{}
	for i := range frame.Allocs {
		a := &frame.Allocs[i]
		job := read[a.Job]
		if job == nil {
			var err error
			if job, err = jobwire.Decode[jobwire.Job](frame.Jobs[a.Job]); err != nil {
				wrong[a.ID] = err
				continue
			}
			job.Canonicalize()
			read[a.Job] = job
		}
		w := &Workload{Alloc: *a, Job: job, Group: groupOf(job, a.Group), text: frame.Jobs[a.Job]}
		if w.Group == nil {
			wrong[a.ID] = errkind.Errorf(errkind.Invalid, "the job has no group %q", a.Group)
			continue
		}
		list = append(list, w)
	}
	return list, wrong
}

func groupOf(job *jobwire.Job, name string) *jobwire.TaskGroup {
	for _, g := range job.TaskGroups {
		if jobwire.Get(g.Name) == name {
			return g
		}
	}
	return nil
}

// Bytes is w as a frame of its own, which Read reads.
func (w *Workload) Bytes() []byte {
	a := w.Alloc
	a.Job = 0
	return noderpc.Bytes(&noderpc.Allocs{Jobs: [][]byte{w.text}, Allocs: []noderpc.Alloc{a}})
}

// Parse reads Bytes.
func Parse(text []byte) (*Workload, error) {
	frame, err := noderpc.Read[noderpc.Allocs](text)
	if err != nil {
		return nil, err
	}
	list, wrong := Read(frame)
	for _, err := range wrong {
		return nil, err
	}
	if len(list) != 1 {
		return nil, errkind.New(errkind.Corrupt, "not one allocation")
	}
	return list[0], nil
}

// Wanted reports whether it is to run.
func (w *Workload) Wanted() bool { return w.Desired.Status == jobs.Run }

// Name is the contract's: job.group[index].
func (w *Workload) Name() string {
	return jobwire.Get(w.Job.ID) + "." + w.Alloc.Group + "[" + strconv.Itoa(w.Index) + "]"
}

// TaskNames are those of the group.
func (w *Workload) TaskNames() (list []string) {
	for _, t := range w.Group.Tasks {
		list = append(list, t.Name)
	}
	return list
}

// Task finds one, or nil.
func (w *Workload) Task(name string) *jobwire.Task {
	for _, t := range w.Group.Tasks {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// New makes a workload, for tests.
func New(a noderpc.Alloc, job *jobwire.Job) (*Workload, error) {
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	a.Job = 0
	list, wrong := Read(&noderpc.Allocs{Jobs: [][]byte{text}, Allocs: []noderpc.Alloc{a}})
	for _, err := range wrong {
		return nil, err
	}
	return list[0], nil
}
