// Package lifecycle decides which tasks of an allocation may begin and which have to end. It is pure.
package lifecycle

import "corbel.dev/corbel/jobs"

// The hooks; a main task has none.
const (
	Main      = ""
	Prestart  = "prestart"
	Poststart = "poststart"
	Poststop  = "poststop"
)

// The states of a task.
const (
	Pending = "pending"
	Running = "running"
	Dead    = "dead"
)

// Task is a task of an allocation.
type Task struct {
	Name            string
	Hook            string
	Sidecar, Leader bool
	State           string
	Failed          bool
	Begun           bool // it was running once
}

// The reasons for an end.
const (
	Stopping      = "the allocation stops"
	SiblingFailed = "Task's sibling failed"
	LeaderDead    = "Leader Task Dead"
	MainsDead     = "Main tasks in the group died"
)

// Orders are what follows from the states.
type Orders struct {
	Begin []string
	Kill  map[string]string // name -> why
}

// Decide says what may begin and what has to end. Asked again with the same states it says the same.
func Decide(tasks []Task, stop bool) Orders {
	o := Orders{Kill: map[string]string{}}
	why := reason(tasks, stop)
	kill := func(t *Task, why string) {
		if t.State != Dead {
			o.Kill[t.Name] = why
		}
	}
	for i := range tasks {
		t := &tasks[i]
		switch {
		case t.Hook == Poststop:
			if t.State == Pending && all(tasks, isDead, mains) {
				o.Begin = append(o.Begin, t.Name)
			}
		case why == "":
			if t.State == Pending && mayBegin(tasks, t) {
				o.Begin = append(o.Begin, t.Name)
			}
		case why == MainsDead && !t.Sidecar: // what runs to its end may do so
			if t.State == Pending && mayBegin(tasks, t) {
				o.Begin = append(o.Begin, t.Name)
			}
		case leaderLives(tasks) && !t.Leader: // the leader goes first
		case t.Sidecar && why != MainsDead && !all(tasks, isDead, mains): // what serves the main tasks goes after them
		default:
			kill(t, why)
		}
	}
	return o
}

// reason is why tasks have to end, or "".
func reason(tasks []Task, stop bool) string {
	some := false
	for i := range tasks {
		t := &tasks[i]
		some = some || mains(t)
		switch {
		case stop:
			return Stopping
		case t.Failed && t.Hook != Poststop:
			return SiblingFailed
		case t.Leader && t.State == Dead:
			return LeaderDead
		}
	}
	if some && all(tasks, isDead, mains) {
		return MainsDead
	}
	return ""
}

func leaderLives(tasks []Task) bool {
	return !all(tasks, isDead, func(t *Task) bool { return t.Leader && t.Begun })
}

func mayBegin(tasks []Task, t *Task) bool {
	switch t.Hook {
	case Prestart:
		return true
	case Poststart:
		return all(tasks, func(o *Task) bool { return o.Begun }, mains)
	}
	return all(tasks, func(o *Task) bool { return o.State == Dead || o.Sidecar && o.State == Running },
		func(o *Task) bool { return o.Hook == Prestart })
}

func isDead(t *Task) bool { return t.State == Dead }
func mains(t *Task) bool  { return t.Hook == Main }

// all reports whether those tasks that count are so.
func all(tasks []Task, so, counts func(*Task) bool) bool {
	for i := range tasks {
		if counts(&tasks[i]) && !so(&tasks[i]) {
			return false
		}
	}
	return true
}

// Done reports whether nothing runs or will.
func Done(tasks []Task) bool { return all(tasks, isDead, func(*Task) bool { return true }) }

// Status is the allocation's client status.
func Status(tasks []Task) string {
	begun, failed := false, false
	for i := range tasks {
		begun = begun || tasks[i].Begun || tasks[i].State == Running
		failed = failed || tasks[i].Failed
	}
	switch {
	case failed:
		return jobs.ClientFailed
	case Done(tasks):
		return jobs.ClientComplete
	case begun:
		return jobs.ClientRunning
	}
	return jobs.ClientPending
}
