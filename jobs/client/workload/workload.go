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
	text  []byte // of the job; nil when it came as a difference
}

// Bases are the jobs that a stream's frames refer to, by their slots. They belong to one stream and one goroutine; the
// zero value is that of a stream that begins.
type Bases struct {
	jobs [noderpc.MaxBases]*jobwire.Job
	errs [noderpc.MaxBases]error // why one could not be read
}

// keep takes the bases of a frame.
func (b *Bases) keep(list []noderpc.Base) {
	for _, base := range list {
		b.jobs[base.Slot], b.errs[base.Slot] = readJob(base.Job)
	}
}

// child is the job that c tells. It shares with its base what c does not say: neither is changed.
func (b *Bases) child(c *noderpc.Child) (*jobwire.Job, error) {
	base := b.jobs[c.Slot]
	if base == nil {
		if err := b.errs[c.Slot]; err != nil {
			return nil, err
		}
		return nil, errkind.Errorf(errkind.Corrupt, "job %q is told as a difference from one that was not told", c.ID)
	}
	return jobwire.Variant(base, &jobs.Job{JobKey: jobs.JobKey{ID: c.ID}, Name: c.Name, Priority: c.Priority,
		Origin: c.Origin, Meta: c.Meta, Revision: c.Revision}), nil
}

func readJob(text []byte) (*jobwire.Job, error) {
	job, err := jobwire.Decode[jobwire.Job](text)
	if err != nil {
		return nil, err
	}
	job.Canonicalize()
	return job, nil
}

// Read makes the workloads of a frame. A job is read once for all its allocations, a base once for all its children in
// this frame and the next ones. What cannot be read is left out, and named.
func Read(frame *noderpc.Allocs, bases *Bases) (list []*Workload, wrong map[jobs.ID]error) {
	read := make([]*jobwire.Job, len(frame.Jobs)+len(frame.Children))
	wrong = map[jobs.ID]error{}
	bases.keep(frame.Bases)
	for i := range frame.Allocs {
		a := &frame.Allocs[i]
		job := read[a.Job]
		var text []byte
		if a.Job < len(frame.Jobs) {
			text = frame.Jobs[a.Job]
		}
		if job == nil {
			var err error
			if text != nil {
				job, err = readJob(text)
			} else {
				job, err = bases.child(&frame.Children[a.Job-len(frame.Jobs)])
			}
			if err != nil {
				wrong[a.ID] = err
				continue
			}
			read[a.Job] = job
		}
		w := &Workload{Alloc: *a, Job: job, Group: groupOf(job, a.Group), text: text}
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

// Bytes is w as a frame of its own, which Parse reads, also that of an older release: its job is whole.
func (w *Workload) Bytes() []byte {
	a, text := w.Alloc, w.text
	a.Job = 0
	if text == nil {
		var err error
		if text, err = json.Marshal(w.Job); err != nil {
			panic("workload: " + err.Error()) // it was read from JSON
		}
	}
	return noderpc.Bytes(&noderpc.Allocs{Jobs: [][]byte{text}, Allocs: []noderpc.Alloc{a}})
}

// Parse reads Bytes.
func Parse(text []byte) (*Workload, error) {
	frame, err := noderpc.Read[noderpc.Allocs](text)
	if err != nil {
		return nil, err
	}
	list, wrong := Read(frame, &Bases{})
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
	list, wrong := Read(&noderpc.Allocs{Jobs: [][]byte{text}, Allocs: []noderpc.Alloc{a}}, &Bases{})
	for _, err := range wrong {
		return nil, err
	}
	return list[0], nil
}
