package nodeclient

import (
	"time"

	"corbel.dev/corbel/jobs/client/lifecycle"
	"corbel.dev/corbel/jobs/jobwire"
)

// TaskState is how a task of this node does, for the doctor.
type TaskState struct {
	Name        string // job.group.task
	Restarts    uint64
	LastRestart time.Time
	Preparing   time.Time // since when it is made ready; zero when it is not
	Event       string    // its last
}

// Tasks are the tasks of allocations that are not over.
func (c *Client) Tasks() (list []TaskState) {
	for _, a := range c.snapshot() {
		if a.Done() {
			continue
		}
		load := a.Workload()
		for name, s := range a.States() {
			if s.State == lifecycle.Dead {
				continue
			}
			t := TaskState{Name: jobwire.Get(load.Job.ID) + "." + load.Alloc.Group + "." + name, Restarts: s.Restarts,
				LastRestart: s.LastRestart}
			t.Preparing, t.Event = preparing(&s)
			list = append(list, t)
		}
	}
	return list
}

// preparing is since when a task is made ready, with its last event.
func preparing(s *jobwire.TaskState) (since time.Time, event string) {
	if s.State != lifecycle.Pending {
		return since, ""
	}
	for _, e := range s.Events {
		switch event = e.Type; event {
		case "Task Setup":
			since = time.Unix(0, e.Time)
		case "Restarting", "Setup Failure", "Driver Failure", "Started", "Terminated":
			since = time.Time{}
		}
	}
	return since, event
}
