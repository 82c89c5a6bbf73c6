// Package groupfate judges groups of jobs whose allocations fail or whose tasks restart, for the events that tell of
// them: state in, verdicts out. What it decides follows from the state and the time alone, so that a new leader, who
// knows of no earlier verdict, comes to the same one.
package groupfate

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"corbel.dev/corbel/jobs"
)

// Group names a group of a job.
type Group struct{ Namespace, Job, Group string }

// The statuses of events.
const (
	Fine     uint32 = 0
	Warning  uint32 = 1
	Critical uint32 = 2
)

const (
	// Fresh is how long a failure or a restart counts, whatever has replaced it since.
	Fresh = time.Minute
	// Settle is how long an allocation runs before it counts as healthy, where no deployment judges it.
	Settle = 30 * time.Second
	// maxText bounds what an event quotes of a node.
	maxText = 500
)

// Verdict is how a group does.
type Verdict struct {
	Group
	Status uint32
	Output string
}

// State is what is read of the plane's.
type State interface {
	Job(key jobs.JobKey) *jobs.Job
	Allocations() iter.Seq[*jobs.Allocation]
	OfJob(key jobs.JobKey) iter.Seq[*jobs.Allocation]
}

// Restarted is when a task of an allocation began again last, zero for never.
type Restarted func(a *jobs.Allocation) jobs.Time

// Suspects are the groups, at most so many, of which an allocation has failed or restarted as far as is known.
func Suspects(s State, restarted Restarted, now jobs.Time, most int) (list []Group) {
	seen := map[Group]bool{}
	for a := range s.Allocations() {
		if len(list) >= most {
			break
		}
		g := Group{a.Job.Namespace, a.Job.ID, a.Group}
		if !seen[g] && (failed(a) || lately(a, restarted, now)) {
			seen[g] = true
			list = append(list, g)
		}
	}
	return list
}

func failed(a *jobs.Allocation) bool {
	return a.Client.Status == jobs.ClientFailed || a.Client.Status == jobs.ClientLost
}

// lately reports whether a task of a restarted a short while ago. What did not change since need not be read.
func lately(a *jobs.Allocation, restarted Restarted, now jobs.Time) bool {
	if a.Terminal() || a.ModifyTime.Add(Fresh) < now {
		return false
	}
	at := restarted(a)
	return at > 0 && at.Add(Fresh) >= now
}

// Judge judges a group. It is not settled while what replaces a failed allocation has yet to prove itself: then the
// last verdict stands.
func Judge(s State, g Group, restarted Restarted, now jobs.Time) (v Verdict, settled bool) {
	key := jobs.JobKey{Namespace: g.Namespace, ID: g.Job}
	v.Group = g
	if j := s.Job(key); j.Stopped() || j.Group(g.Group) == nil {
		v.Output = fmt.Sprintf("Group %s of job %s is stopped", g.Group, g.Job)
		return v, true
	}
	var bad, young, again, good int
	var worst *jobs.Allocation
	for a := range s.OfJob(key) {
		if a.Group != g.Group {
			continue
		}
		switch {
		case failed(a):
			// A failed allocation that nothing has replaced fails on while it is wanted.
			if a.Lineage.Next.IsZero() && !a.ServerTerminal() || end(a).Add(Fresh) >= now {
				bad++
				if worst == nil || end(a) > end(worst) {
					worst = a
				}
			}
		case a.Terminal():
		case a.Client.Status == jobs.ClientRunning && (a.Rollout.Health == jobs.Healthy ||
			a.Client.StartedAt.Add(Settle) <= now):
			good++
		default:
			young++
		}
		if lately(a, restarted, now) {
			again++
		}
	}
	switch {
	case bad > 0:
		v.Status = Critical
		v.Output = fmt.Sprintf("%d of group %s of job %s failed; last %s: %s", bad, g.Group, g.Job, worst.ID, why(worst))
	case again > 0:
		v.Status = Warning
		v.Output = fmt.Sprintf("Tasks of %d of group %s of job %s restarted within %s", again, g.Group, g.Job, Fresh)
	case young > 0:
		return v, false
	default:
		v.Output = fmt.Sprintf("%d of group %s of job %s run", good, g.Group, g.Job)
	}
	return v, true
}

func end(a *jobs.Allocation) jobs.Time {
	if a.Client.FinishedAt > 0 {
		return a.Client.FinishedAt
	}
	return a.ModifyTime
}

func why(a *jobs.Allocation) string {
	text := a.Client.Description
	if text == "" {
		text = a.Client.Status
	}
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	return text
}
