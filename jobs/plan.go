package jobs

// Evaluation is the order to compare what a job wants with what runs.
type Evaluation struct {
	ID ID
	JobKey
	Type, Trigger       string
	Priority            int
	NodeID              ID
	DeploymentID        ID
	Status, Description string
	WaitUntil           Time
	Chain               Chain
	Outcome             Outcome
	SnapshotIndex       uint64
	Stamp
	Quota string
}

// Chain is how evaluations follow each other.
type Chain struct{ Previous, Next, Blocked ID }

// Outcome is what an evaluation found.
type Outcome struct {
	Failed  map[string]*Metric // by group: why not all of it was placed
	Queued  map[string]int     // by group: how many are still to be placed
	Classes map[uint64]bool    // whether a computed class of nodes is feasible
	Escaped bool               // a constraint looks past classes: any node may be feasible
}

// The states of an evaluation.
const (
	EvalPending  = "pending"
	EvalComplete = "complete"
	EvalFailed   = "failed"
	EvalBlocked  = "blocked"
	EvalCanceled = "canceled"
)

// The triggers of evaluations (NS-24).
const (
	TriggerJobRegister    = "job-register"
	TriggerJobDeregister  = "job-deregister"
	TriggerPeriodic       = "periodic-job"
	TriggerNodeDrain      = "node-drain"
	TriggerNodeUpdate     = "node-update"
	TriggerAllocStop      = "alloc-stop"
	TriggerScheduled      = "scheduled"
	TriggerRolling        = "rolling-update"
	TriggerDeployment     = "deployment-watcher"
	TriggerFailedFollowUp = "failed-follow-up"
	TriggerMaxPlans       = "max-plan-attempts"
	TriggerAllocFailure   = "alloc-failure"
	TriggerQueued         = "queued-allocs"
	TriggerPreemption     = "preemption"
	TriggerScaling        = "job-scaling"
	TriggerMaxDisconnect  = "max-disconnect-timeout"
	TriggerReconnect      = "reconnect"
	TriggerReschedule     = "alloc-reschedule"
)

// Metric is why a group was placed where it was, or was not (NO-22).
type Metric struct {
	Evaluated, Filtered, Exhausted int
	InPool                         int
	Available                      map[string]int // ready nodes by datacenter
	ClassFiltered                  map[string]int
	ConstraintFiltered             map[string]int
	ClassExhausted                 map[string]int
	DimensionExhausted             map[string]int
	QuotaExhausted                 []string
	Scores                         []NodeScore // best first
	Coalesced                      int         // further failures of the same group
}

// NodeScore is how good a node was.
type NodeScore struct {
	Node  ID
	Parts map[string]float64
	Norm  float64
}

// Plan is what an evaluation wants to happen; it is checked against the newest State.
type Plan struct {
	EvalID        ID
	Job           *Job
	Priority      int
	SnapshotIndex uint64
	Place         []*Allocation // new ones, and running ones in a new version (the same ID)
	Stop          []Stopping
	Preempt       []Stopping  // of other jobs
	Deployment    *Deployment // new, or with other counts
	Statuses      []DeploymentStatus
}

// Empty reports whether nothing is to happen.
func (p *Plan) Empty() bool {
	return len(p.Place)+len(p.Stop)+len(p.Preempt)+len(p.Statuses) == 0 && p.Deployment == nil
}

// Stopping ends an allocation, or changes what is known of one.
type Stopping struct {
	Alloc, Node ID
	Desired     string // "" leaves it
	Description string
	Client      string // "" leaves it; lost, unknown, running
	Followup    ID
	By          ID // the allocation for which this one is preempted
}

// Deployment is the replacement of one version of a job by another.
type Deployment struct {
	ID ID
	JobKey
	JobVersion     uint64
	JobCreateIndex uint64
	Status         string
	Description    string
	Groups         map[string]*DeploymentGroup
	Stamp
}

// DeploymentGroup is a deployment's progress in one group.
type DeploymentGroup struct {
	AutoRevert, AutoPromote, Promoted bool
	DesiredCanaries, DesiredTotal     int
	Canaries                          []ID // placed
	Placed, Healthy, Unhealthy        int
	ProgressDeadline                  int64 // nanoseconds
	RequireProgressBy                 Time
}

// DeploymentStatus changes a deployment's status.
type DeploymentStatus struct {
	ID                  ID
	Status, Description string
}

// The states of a deployment.
const (
	DeployRunning    = "running"
	DeployPaused     = "paused"
	DeployFailed     = "failed"
	DeploySuccessful = "successful"
	DeployCancelled  = "cancelled"
	DeployPending    = "pending"
)

// Active reports whether d still goes on.
func (d *Deployment) Active() bool {
	return d != nil && (d.Status == DeployRunning || d.Status == DeployPaused || d.Status == DeployPending)
}

// NeedsPromotion reports whether a group of d has canaries and is not promoted.
func (d *Deployment) NeedsPromotion() bool {
	for _, g := range d.Groups {
		if g.DesiredCanaries > 0 && !g.Promoted {
			return true
		}
	}
	return false
}

// The algorithms of scoring (NS-18).
const (
	Binpack   = "binpack"
	SpreadFit = "spread"
)

// Config is what operators set for the whole cluster.
type Config struct {
	Algorithm        string            // Binpack ("") or SpreadFit
	PoolAlgorithm    map[string]string // by node pool
	Oversubscription bool
	Preempt          map[string]bool // by type of job
}

// AlgorithmOf is the algorithm for a pool.
func (c Config) AlgorithmOf(pool string) string {
	if a := c.PoolAlgorithm[pool]; a != "" {
		return a
	}
	return c.Algorithm
}

// Preempts reports whether jobs of a type may preempt: system jobs unless it is switched off, others when it is
// switched on (NS-18).
func (c Config) Preempts(jobType string) bool {
	on, stated := c.Preempt[jobType]
	return on || !stated && jobType == System
}

// Gain is room that came free on nodes of a computed class: a node that joined, allocations that ended, or the like.
type Gain struct {
	Class uint64
	Free  Vector // summed up; zero when it is not known
	Index uint64 // of the State that has it
	Node  bool   // it is a node's, which joined or came back
}
