package jobrows

import (
	"cmp"
	"fmt"
	"slices"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/explain"
	"corbel.dev/corbel/jobs/jobwire"
)

// Why is the one answer to "why is it pending?": an extension of the API.
type Why struct {
	JobID, Namespace, Status string
	Text                     string // the whole answer in a sentence
	Groups                   map[string]*WhyGroup
	// Waits is the evaluation that is still to be decided or to be woken, nil when there is none.
	Waits *WhyWaits
}

// WhyGroup is why a group is not placed whole.
type WhyGroup struct {
	Desired, Placed, Queued int
	Fits                    int // nodes that would take one more allocation now
	Metric                  *jobwire.AllocationMetric
	Changes                 []WhyChange // each alone lets one be placed; the smallest first
}

// WhyChange is what would help.
type WhyChange struct {
	Text                    string
	Demands                 []string // that would have to go
	CPU, MemoryMB, DiskMB   int64    // that would have to be less
	Named, NodeID, NodeName string   // the port, core or device that is taken; where it would fit
	Nodes                   int      // that the same demands keep away
}

// WhyWaits is where the job's evaluation stands.
type WhyWaits struct {
	EvalID, Status, Trigger string
	Priority                int
	Ahead                   int // evaluations that are decided before it, or are woken with it and come first
}

func why(q *request) error {
	return one(q, func(v nomadrows.View, j *jobs.Job) (any, error) {
		s := v.State()
		answer := &Why{JobID: j.ID, Namespace: j.Namespace, Groups: map[string]*WhyGroup{}, Waits: waits(v, j)}
		answer.Status, _ = s.JobStatus(j)
		placed := map[string]int{}
		for a := range s.OfJob(j.JobKey) {
			if !a.Terminal() {
				placed[a.Group]++
			}
		}
		queued := s.Queued(j.JobKey)
		for _, g := range j.Groups {
			w := &WhyGroup{Desired: g.Count, Placed: placed[g.Name], Queued: queued[g.Name]}
			answer.Groups[g.Name] = w
			if j.Stop || w.Queued == 0 && (j.PerNode() || j.RunsOnce() || w.Placed >= w.Desired) {
				continue
			}
			found, err := explain.Why(s, j, g)
			if err != nil {
				return nil, err
			}
			w.Fits, w.Metric = found.Fits, jobwire.FromMetric(found.Metric)
			for _, c := range found.Changes {
				w.Changes = append(w.Changes, changed(v, c))
			}
		}
		answer.Text = said(v, j, answer)
		return answer, nil
	})
}

func changed(v nomadrows.View, c explain.Change) WhyChange {
	w := WhyChange{Text: c.String(), Demands: c.Demands, CPU: c.Lacking.CPU, MemoryMB: c.Lacking.MemoryMB,
		DiskMB: c.Lacking.DiskMB, Named: c.Named, NodeID: c.Node.String(), Nodes: c.Nodes}
	if n := nomadrows.NodeOf(v, c.Node); n != nil {
		w.NodeName = n.Name
	}
	return w
}

// waits finds the evaluation that the job waits for, and how many come first.
func waits(v nomadrows.View, j *jobs.Job) *WhyWaits {
	var own *jobs.Evaluation
	for e := range v.State().EvaluationsOf(j.JobKey) {
		open := e.Status == jobs.EvalPending || e.Status == jobs.EvalBlocked
		if open && (own == nil || e.Status == jobs.EvalPending && own.Status == jobs.EvalBlocked ||
			e.Status == own.Status && e.ModifyIndex > own.ModifyIndex) {
			own = e
		}
	}
	if own == nil {
		return nil
	}
	w := &WhyWaits{EvalID: own.ID.String(), Status: own.Status, Trigger: own.Trigger, Priority: own.Priority}
	for e := range v.State().Evaluations() {
		if e.Status == own.Status && e.ID != own.ID &&
			cmp.Or(cmp.Compare(own.Priority, e.Priority), cmp.Compare(e.CreateIndex, own.CreateIndex)) < 0 {
			w.Ahead++
		}
	}
	return w
}

// said is the answer in words.
func said(v nomadrows.View, j *jobs.Job, answer *Why) string {
	switch {
	case j.Stop:
		return "The job is stopped: nothing of it is to run."
	case j.Periodic != nil && j.Periodic.Enabled:
		return "The job is periodic: the clock starts children of it."
	case j.Dispatch != nil && !j.Origin.Dispatched:
		return "The job is parameterized: each dispatch starts a child of it."
	}
	names := make([]string, 0, len(answer.Groups))
	for name := range answer.Groups {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		g := answer.Groups[name]
		missing := max(g.Queued, g.Desired-g.Placed)
		if j.RunsOnce() || j.PerNode() {
			missing = g.Queued
		}
		switch {
		case missing <= 0:
		case v.State().Nodes() == 0:
			return fmt.Sprintf("Group %q waits for %d of its allocations: the cluster has no nodes yet.", name, missing)
		case g.Fits > 0:
			return fmt.Sprintf("Group %q waits for %d of its allocations, and %d nodes have room: the scheduler has not come "+
				"to it yet, or the job's deployment goes on step by step.", name, missing, g.Fits)
		case len(g.Changes) > 0:
			return fmt.Sprintf("Group %q waits for %d of its allocations: no node takes one more. The smallest change: "+
				"%s.", name, missing, g.Changes[0].Text)
		default:
			return fmt.Sprintf("Group %q waits for %d of its allocations: no node takes one more.", name, missing)
		}
	}
	if answer.Waits != nil && answer.Waits.Status == jobs.EvalPending {
		return fmt.Sprintf("An evaluation waits for the scheduler, behind %d others.", answer.Waits.Ahead)
	}
	return "Nothing of the job is pending."
}
