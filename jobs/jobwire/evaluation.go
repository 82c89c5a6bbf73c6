package jobwire

import (
	"fmt"
	"time"

	"corbel.dev/corbel/jobs"
)

// AllocationMetric is NO-22.
type AllocationMetric struct {
	NodesEvaluated, NodesFiltered, NodesInPool, NodesExhausted int
	NodesAvailable                                             map[string]int
	ClassFiltered, ConstraintFiltered                          map[string]int
	ClassExhausted, DimensionExhausted                         map[string]int
	QuotaExhausted                                             []string
	ScoreMetaData                                              []*NodeScore
	AllocationTime                                             Duration
	CoalescedFailures                                          int
}

// NodeScore is how good a node was.
type NodeScore struct {
	NodeID    string
	Scores    map[string]float64
	NormScore float64
}

// FromMetric is why something was placed as it was, nil when nothing was recorded.
func FromMetric(m *jobs.Metric) *AllocationMetric {
	if m == nil {
		return nil
	}
	w := &AllocationMetric{NodesEvaluated: m.Evaluated, NodesFiltered: m.Filtered, NodesInPool: m.InPool,
		NodesExhausted: m.Exhausted, NodesAvailable: m.Available, ClassFiltered: m.ClassFiltered,
		ConstraintFiltered: m.ConstraintFiltered, ClassExhausted: m.ClassExhausted,
		DimensionExhausted: m.DimensionExhausted, QuotaExhausted: m.QuotaExhausted, CoalescedFailures: m.Coalesced}
	for _, s := range m.Scores {
		w.ScoreMetaData = append(w.ScoreMetaData, &NodeScore{s.Node.String(), s.Parts, s.Norm})
	}
	return w
}

// Evaluation is NO-23.
type Evaluation struct {
	ID, Namespace            string
	Priority                 int
	Type, TriggeredBy, JobID string
	EvalTarget
	Status            string
	StatusDescription string     `json:",omitempty"`
	WaitUntil         *time.Time `json:",omitempty"`
	EvalChain
	EvalOutcome
	Stamp
}

// EvalTarget is what an evaluation is about beside its job.
type EvalTarget struct {
	NodeID       string `json:",omitempty"`
	DeploymentID string `json:",omitempty"`
}

// EvalChain is how evaluations follow each other.
type EvalChain struct {
	NextEval     string `json:",omitempty"`
	PreviousEval string `json:",omitempty"`
	BlockedEval  string `json:",omitempty"`
}

// EvalOutcome is what an evaluation found.
type EvalOutcome struct {
	FailedTGAllocs       map[string]*AllocationMetric `json:",omitempty"`
	ClassEligibility     map[string]bool              `json:",omitempty"`
	EscapedComputedClass bool                         `json:",omitempty"`
	QuotaLimitReached    string                       `json:",omitempty"`
	QueuedAllocations    map[string]int               `json:",omitempty"`
	SnapshotIndex        uint64                       `json:",omitempty"`
}

// Stamp is when an object was made and changed.
type Stamp struct {
	CreateIndex, ModifyIndex uint64
	CreateTime, ModifyTime   int64
}

func stamp(s jobs.Stamp) Stamp {
	return Stamp{s.CreateIndex, s.ModifyIndex, int64(s.CreateTime), int64(s.ModifyTime)}
}

// FromEvaluation is an evaluation as the API shows it.
func FromEvaluation(e *jobs.Evaluation) *Evaluation {
	w := &Evaluation{ID: e.ID.String(), Namespace: e.Namespace, Priority: e.Priority, Type: e.Type, TriggeredBy: e.Trigger,
		JobID: e.JobKey.ID, EvalTarget: EvalTarget{e.NodeID.String(), e.DeploymentID.String()}, Status: e.Status,
		StatusDescription: e.Description, Stamp: stamp(e.Stamp),
		EvalChain: EvalChain{NextEval: e.Chain.Next.String(), PreviousEval: e.Chain.Previous.String(),
			BlockedEval: e.Chain.Blocked.String()},
		EvalOutcome: EvalOutcome{EscapedComputedClass: e.Outcome.Escaped, QuotaLimitReached: e.Quota,
			QueuedAllocations: e.Outcome.Queued, SnapshotIndex: e.SnapshotIndex}}
	if e.WaitUntil != 0 {
		w.WaitUntil = to(moment(e.WaitUntil))
	}
	for group, m := range e.Outcome.Failed {
		if w.FailedTGAllocs == nil {
			w.FailedTGAllocs = map[string]*AllocationMetric{}
		}
		w.FailedTGAllocs[group] = FromMetric(m)
	}
	for class, feasible := range e.Outcome.Classes {
		if w.ClassEligibility == nil {
			w.ClassEligibility = map[string]bool{}
		}
		w.ClassEligibility[fmt.Sprintf("v1:%d", class)] = feasible
	}
	return w
}

// Deployment is NO-25.
type Deployment struct {
	ID, Namespace, JobID                                           string
	JobVersion, JobModifyIndex, JobSpecModifyIndex, JobCreateIndex uint64
	IsMultiregion                                                  bool
	TaskGroups                                                     map[string]*DeploymentState
	Status, StatusDescription                                      string
	EvalPriority                                                   int
	Stamp
}

// DeploymentState is a deployment's progress in a group.
type DeploymentState struct {
	AutoRevert, AutoPromote, Promoted            bool
	DesiredCanaries, DesiredTotal                int
	PlacedCanaries                               []string
	PlacedAllocs, HealthyAllocs, UnhealthyAllocs int
	ProgressDeadline                             Duration
	RequireProgressBy                            time.Time
}

// FromDeployment is a deployment as the API shows it.
func FromDeployment(d *jobs.Deployment) *Deployment {
	w := &Deployment{ID: d.ID.String(), Namespace: d.Namespace, JobID: d.JobKey.ID, JobVersion: d.JobVersion,
		JobCreateIndex: d.JobCreateIndex, TaskGroups: map[string]*DeploymentState{}, Status: d.Status,
		StatusDescription: d.Description, Stamp: stamp(d.Stamp)}
	for name, g := range d.Groups {
		state := &DeploymentState{AutoRevert: g.AutoRevert, AutoPromote: g.AutoPromote, Promoted: g.Promoted,
			DesiredCanaries: g.DesiredCanaries, DesiredTotal: g.DesiredTotal, PlacedAllocs: g.Placed,
			HealthyAllocs: g.Healthy, UnhealthyAllocs: g.Unhealthy, ProgressDeadline: Duration(g.ProgressDeadline),
			RequireProgressBy: moment(g.RequireProgressBy)}
		for _, id := range g.Canaries {
			state.PlacedCanaries = append(state.PlacedCanaries, id.String())
		}
		w.TaskGroups[name] = state
	}
	return w
}
