package jobstore

import (
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobpack"
	"corbel.dev/corbel/kit/errkind"
)

// Command is one change. Its parts are carried out in the order of its fields.
type Command struct {
	Head
	Jobs     JobWrites
	Nodes    NodeWrites
	Allocs   AllocWrites
	Rollouts []RolloutWrite
	Plans    []PlanWrite
	Evals    []*jobs.Evaluation // stored as they are
	Names    NameWrites
	Sweep    Sweep
	Scalings []ScalingWrite
}

// Head is what every command has. Who proposes takes the time from its clock and the seed from crypto/rand.
type Head struct {
	Now  jobs.Time
	Seed uint64
	Kind string // of its events (NA-24)
}

// The kinds of events.
const (
	JobRegistered       = "JobRegistered"
	JobDeregistered     = "JobDeregistered"
	EvaluationUpdated   = "EvaluationUpdated"
	AllocationUpdated   = "AllocationUpdated"
	AllocationDesired   = "AllocationUpdateDesiredStatus"
	PlanResult          = "PlanResult"
	NodeRegistration    = "NodeRegistration"
	NodeDeregistration  = "NodeDeregistration"
	NodeDrain           = "NodeDrain"
	NodeEvent           = "NodeEvent"
	DeploymentStatus    = "DeploymentStatusUpdate"
	DeploymentPromotion = "DeploymentPromotion"
	DeploymentHealth    = "DeploymentAllocHealth"
)

// JobWrites are changes of jobs.
type JobWrites struct {
	Put    []JobWrite
	Stop   []JobStop
	Stable []StableMark
	Eval   []EvalOrder
}

// JobWrite stores a job. The conditions that are not nil must hold for the stored one.
type JobWrite struct {
	Job        *jobs.Job
	Index      *uint64 // its JobModifyIndex; 0 for no job
	Version    *uint64
	Once       bool // nothing happens when there is one
	KeepCounts bool // of groups that are there already
	Trigger    string
	Priority   int // of the evaluation; 0 is the job's
	EvalID     jobs.ID
	Submission string
	Launch     jobs.Time // when the schedule says that this child of a periodic job starts
	Stopped    bool      // it is stored as one that is stopped
}

// JobStop stops a job, or forgets it.
type JobStop struct {
	jobs.JobKey
	Purge    bool
	Priority int
	EvalID   jobs.ID
}

// StableMark says whether a version of a job is one to go back to.
type StableMark struct {
	jobs.JobKey
	Version uint64
	Stable  bool
}

// EvalOrder asks for an evaluation of a job as it is. Reschedule replaces failed allocations at once.
type EvalOrder struct {
	jobs.JobKey
	Trigger    string
	Reschedule bool
	EvalID     jobs.ID
}

// NodeWrites are changes of nodes.
type NodeWrites struct {
	Put   []NodeWrite
	Duty  []DutyWrite
	Purge []jobs.ID
	Eval  []jobs.ID // their jobs are evaluated
}

// NodeWrite registers a node. What operators set of its duty stays.
type NodeWrite struct {
	Node   *jobs.Node
	Secret string // that the node has made up; later registrations must bring the same
	Detail string // what the servers keep for those who ask, encoded
	Silent bool   // it is initializing: no evaluations yet
}

// DutyWrite changes what a node is to do. What is nil stays.
type DutyWrite struct {
	ID         jobs.ID
	Status     string // "" stays
	Unless     uint64 // nothing happens when the node's ModifyIndex is above it; 0 does not ask
	Ineligible *bool
	Drain      *jobs.Drain
	EndDrain   bool
	Record     *DrainRecord
	Message    string // of the node's event
	Subsystem  string
}

// DrainRecord is who drained a node last.
type DrainRecord struct {
	StartedAt, UpdatedAt jobs.Time
	Status, Accessor     string
	Meta                 map[string]string
}

// AllocWrites are changes of allocations.
type AllocWrites struct {
	Reports     []Report
	Transitions []Transition
	// Ordered has late reports left out and the order kept. It is said once all servers of the group do so: one of an
	// older release takes all of them, and would have another state.
	Ordered bool
}

// Report is what a node says of an allocation. Tasks and Network are kept as they are.
type Report struct {
	Alloc  jobs.ID
	Client jobs.Client
	Health jobs.Health
	Tasks  string
	Net    string
	Order  jobs.Order // see AllocWrites.Ordered
}

// Transition asks an allocation to move or to be replaced; its job is evaluated.
type Transition struct {
	Alloc               jobs.ID
	Migrate, Reschedule bool
	Trigger             string
	EvalID              jobs.ID // of the evaluation; zero has one made
	Stop                bool    // now, whether there is a place for what replaces it or not
}

// RolloutWrite changes a deployment; its job is evaluated.
type RolloutWrite struct {
	ID                  jobs.ID
	Promote             bool
	Groups              []string
	Status, Description string
	Healthy, Unhealthy  []jobs.ID
	Revert              *uint64 // the version to register again
	EvalID              jobs.ID
	Quiet               bool // no evaluation
}

// NameWrites are changes of documents, and of what operators set.
type NameWrites struct {
	Docs   []DocWrite
	Config *jobs.Config
}

// DocWrite stores or deletes a document; with Check only when the stored one's ModifyIndex is that, 0 for none.
type DocWrite struct {
	Document
	Delete bool
	Check  *uint64
}

// Sweep forgets what is over.
type Sweep struct {
	Jobs        []SweptJob
	Evals       []jobs.ID
	Allocs      []jobs.ID
	Deployments []jobs.ID
	Nodes       []jobs.ID
	Recount     bool // what the allocations of jobs come to is counted anew
}

// SweptJob is a job as the sweeper saw it: one that was changed since stays.
type SweptJob struct {
	jobs.JobKey
	ModifyIndex uint64
}

// Encode is the command as the group carries it.
func (c *Command) Encode() []byte { return jobpack.Append(make([]byte, 0, 512), c) }

// Decode reads a command.
func Decode(b []byte) (*Command, error) {
	c, err := jobpack.Decode[Command](b)
	if err != nil {
		return nil, errkind.E(errkind.Corrupt, "jobs command", err)
	}
	return c, nil
}
