package nomadrows

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/dispatch"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/state"
)

// What the API needs of the plane. Errors have a kind, and a text that clients may see.

// Table is a kind of objects that has an index of its own.
type Table uint8

// The tables.
const (
	Jobs Table = iota
	Nodes
	Allocations
	Evaluations
	Deployments
	Services
	Namespaces
	Pools
	Scheduler
	Variables
)

// Views are what this server knows.
type Views interface {
	// View is the newest. Unless stale, it has all that the leader had committed when the call began.
	View(ctx context.Context, stale bool) (View, error)
	// Wait returns when what w names may have changed in a view whose index is above index, at the latest when ctx ends.
	// It may return too early, never too late: who waits looks again.
	Wait(ctx context.Context, w Watch, index uint64)
	// LastContact is how long ago the leader was heard; 0 on the leader itself.
	LastContact() (ago time.Duration, known bool)
	// Events are those after index, in their order: it waits until there is one or ctx ends. An error of kind NotFound
	// says that they are no longer kept: Oldest is where to begin. Conflict says that a snapshot has replaced everything
	// since index.
	Events(ctx context.Context, index uint64) ([]*Events, error)
	// Oldest is the index before that of the oldest events that are kept.
	Oldest() uint64
}

// Watch is what a blocking query waits for: a table (all fields zero), or the objects of it that belong to one job,
// node or deployment, or that have the ID.
type Watch struct {
	Table Table
	Job   jobs.JobKey // the job itself; or its allocations, evaluations, deployments
	ID    jobs.ID     // of the object; of the node whose allocations, or of the deployment whose allocations, are read
}

// View is everything at one index. It never changes.
type View interface {
	State() *state.State
	// Generation is how many snapshots replaced everything in this process: indexes of two generations do not compare.
	Generation() uint64
	// Index is when a table was changed last, 0 before that; never above State().Index().
	Index(t Table) uint64
	Details
	Names
}

// Details is what the servers keep beside the State, for those who ask.
type Details interface {
	// Tasks are the states of an allocation's tasks as its node reported them, nil before that.
	Tasks(alloc jobs.ID) map[string]*jobwire.TaskState
	// Network is what an allocation's node says of its network, nil when it said nothing.
	Network(alloc jobs.ID) json.RawMessage
	Node(id jobs.ID) NodeDetail
	// Scalings are the events of scaling of a job by its groups, the newest first.
	Scalings(key jobs.JobKey) map[string][]*ScalingEvent
	// Submission is what a version of a job was written as, nil when it is not kept.
	Submission(key jobs.JobKey, version uint64) *Submission
}

// NodeDetail is what is known of a node beyond what places work on it.
type NodeDetail struct {
	Address, Version string // of its HTTP port; of its agent
	TLS              bool
	Links            map[string]string
	Events           []*jobwire.NodeEvent
	LastDrain        *jobwire.DrainMetadata
	Drivers          map[string]*jobwire.DriverInfo // nil: what the State knows
	Reserved         string                         // ports that it keeps, "" when there are none
}

// Names are the things that have names and no place in the State, sorted by them.
type Names interface {
	Namespaces() []*Namespace // default is always there
	Pools() []*NodePool       // all and default are always there
	Services(namespace string) iter.Seq[*Service]
	// Variables are those of a namespace without what they hold, all with "".
	Variables(namespace string) iter.Seq[*VariableMeta]
	Variable(namespace, path string) *VariableMeta // nil: there is none
	Scheduler() SchedulerSetting
}

// JobWriter changes jobs. Each call returns when the change is committed and visible in View.
type JobWriter interface {
	// Register stores the job as a new version, or makes only an evaluation when nothing changed. The job is canonical
	// and valid by itself; whether its namespace and pool are there, and the conditions of Registration, are judged here.
	Register(ctx context.Context, r *Registration) (Written, error)
	Deregister(ctx context.Context, key jobs.JobKey, purge bool, priority int) (Written, error)
	Evaluate(ctx context.Context, key jobs.JobKey, reschedule bool) (Written, error)
	Stable(ctx context.Context, key jobs.JobKey, version uint64, stable bool) (Written, error)
	// Scaled notes an event of scaling that changed no count.
	Scaled(ctx context.Context, key jobs.JobKey, event *ScalingEvent) (Written, error)
}

// Registration is a job to be stored.
type Registration struct {
	Job        *jobs.Job
	Submission *Submission
	// Index is the JobModifyIndex that the stored job must have, 0 that there must be none; nil is any.
	Index *uint64
	// Version is the version that the stored job must have; nil is any.
	Version        *uint64
	PreserveCounts bool
	Trigger        string // of the evaluation; "" is job-register
	Priority       int    // of the evaluation; 0 is the job's
	Token          string // who registers, by its accessor
	Stopped        bool   // the job is stored and does not run; else Stop of the job does not count
	// Scaling is noted with the registration; nil is none.
	Scaling *ScalingEvent
}

// Written is what a write did. A field is zero where it does not apply.
type Written struct {
	Index, JobModifyIndex uint64
	Eval                  jobs.ID
	EvalIndex             uint64
	Evals                 []jobs.ID
	Job                   string // that was started: dispatched, or a periodic child
	Warnings              string
	Updated               bool   // a check-and-set took place
	Version               uint64 // that a deployment reverted to, when Reverted
	Reverted              bool
}

// JobStarter makes children of jobs.
type JobStarter interface {
	Dispatch(ctx context.Context, parent jobs.JobKey, r dispatch.Request) (Written, error)
	// Force starts a periodic job now.
	Force(ctx context.Context, key jobs.JobKey) (Written, error)
	// StopAllocation has an allocation stop and be replaced.
	StopAllocation(ctx context.Context, id jobs.ID, noShutdownDelay bool) (Written, error)
}

// NodeWriter changes nodes. A node that is not there is NotFound.
type NodeWriter interface {
	// Drain begins a drain, or ends it when there is none in d.
	Drain(ctx context.Context, id jobs.ID, d Draining) (Written, error)
	Eligible(ctx context.Context, id jobs.ID, eligible bool) (Written, error)
	EvaluateNode(ctx context.Context, id jobs.ID) (Written, error)
	Purge(ctx context.Context, id jobs.ID) (Written, error)
}

// Draining is how a node is emptied. A Deadline below 0 stops everything at once, 0 is none.
type Draining struct {
	Drain            bool
	Deadline         time.Duration
	IgnoreSystemJobs bool
	MarkEligible     bool // when a drain is ended
	Meta             map[string]string
	Accessor         string
}

// DeploymentWriter steers deployments. One that is not there is NotFound, one that has ended Conflict.
type DeploymentWriter interface {
	// Promote promotes groups, all when there are none.
	Promote(ctx context.Context, id jobs.ID, groups []string) (Written, error)
	Fail(ctx context.Context, id jobs.ID) (Written, error)
	Pause(ctx context.Context, id jobs.ID, pause bool) (Written, error)
	Health(ctx context.Context, id jobs.ID, healthy, unhealthy []jobs.ID) (Written, error)
}

// Settings changes what has names, and what operators set.
type Settings interface {
	// SetScheduler replaces the setting; with an index only when its ModifyIndex is that.
	SetScheduler(ctx context.Context, s SchedulerSetting, index *uint64) (Written, error)
	// Put stores a *Namespace or a *NodePool.
	Put(ctx context.Context, object any) (Written, error)
	// Delete removes one by table and name (of a service: its ID). In use is Conflict.
	Delete(ctx context.Context, t Table, namespace, name string) (Written, error)
	// DropEvaluations forgets evaluations, whatever their state.
	DropEvaluations(ctx context.Context, ids []jobs.ID) (Written, error)
	// Collect sweeps what is over, however young.
	Collect(ctx context.Context) error
	// Reconcile counts the summaries of all jobs anew.
	Reconcile(ctx context.Context) error
}

// VariableKeeper stores variables and opens them: what they hold is sealed wherever it stands. Unavailable says that
// nothing seals, and what to do about it.
type VariableKeeper interface {
	// Open is a variable of a view with its items, nil where there is none.
	Open(ctx context.Context, v View, namespace, path string) (*Variable, error)
	// PutVariable stores one, with an index only when the stored one's ModifyIndex is that; 0 is for none. Else the error
	// is of kind Conflict.
	PutVariable(ctx context.Context, one *Variable, index *uint64) (Written, error)
	// DeleteVariable removes one likewise. That there is none is no error.
	DeleteVariable(ctx context.Context, namespace, path string, index *uint64) (Written, error)
}

// Clients are the nodes' agents. Methods and their objects stand in calls.go.
type Clients interface {
	// Ask calls a method of a node's agent with in as JSON and reads its answer into out. Unavailable when the node is not
	// connected, NotFound when it has no such allocation, task or file.
	Ask(ctx context.Context, node jobs.ID, method string, in, out any) error
	// Read opens a stream of frames, each one JSON object behind the other; it ends with io.EOF, or with the error of the
	// node's. Closing it ends the node's work.
	Read(ctx context.Context, node jobs.ID, method string, in any) (io.ReadCloser, error)
	// Talk opens a stream of frames in both directions, for exec.
	Talk(ctx context.Context, node jobs.ID, method string, in any) (io.ReadWriteCloser, error)
}

// Cluster is the servers.
type Cluster interface {
	// Forward answers r elsewhere, at the leader or, on an agent, at any server; false when it is to be answered here.
	// Stale reads are answered by every server.
	Forward(w http.ResponseWriter, r *http.Request, stale bool) bool
	Leader() string // its address, "" when there is none
	Servers() []Server
	Self() Self
	Regions() Regions // the others; nil where this process knows none
	// Monitor follows the log of another server, a stream of Frames. Closing it, and the end of ctx, end it there too.
	Monitor(ctx context.Context, s Server, call MonitorCall) (io.ReadCloser, error)
}

// Logs is the log of this process.
type Logs interface {
	// Follow writes lines of level and above to w until ctx ends or a write fails; flush is called after each batch. A
	// follower that is too slow loses lines.
	Follow(ctx context.Context, level slog.Level, json bool, w io.Writer, flush func()) error
}

// Keys are the public keys of workload identities.
type Keys interface {
	// JWKS is the key set, and Issuer the issuer of tokens ("" when none is configured).
	JWKS(ctx context.Context) (json.RawMessage, error)
	Issuer() string
	// Signing are the keys, the one that signs first; Rotate has a new one sign from now on.
	Signing() []SigningKey
	Rotate(ctx context.Context) (SigningKey, error)
	// Remove forgets a key that signs no more: what it signed is not valid from then on. The key that signs is Invalid.
	Remove(ctx context.Context, id string) error
}

// SigningKey is what is shown of a key.
type SigningKey struct {
	KeyID, Algorithm, State  string
	CreateTime               int64
	CreateIndex, ModifyIndex uint64
}

// Server is one of the servers.
type Server struct {
	Name, Address, ID  string // the address is host:port of its RPC port
	Status             string // alive, failed, left
	Leader, Voter      bool
	Datacenter, Region string
	Tags               map[string]string
}

// Self is this process.
type Self struct {
	Name, Region, Datacenter, Version string
	Server                            bool
	Node                              jobs.ID // of the client in this process, zero when there is none
	Config                            map[string]any
	Stats                             map[string]map[string]string
}

// Rights judge tokens. A nil Rights allows everything: access control is off.
type Rights interface {
	// Allows reports whether a token may do something in a namespace ("" where it has none), with a variable of the name
	// namespace/path. An unknown token is Denied.
	Allows(token, namespace string, what Capability) (bool, error)
}

// Snapshots save and replace everything that the servers of the plane know.
type Snapshots interface {
	// Save returns an archive, which the caller closes: the leader's, or with stale that of whoever is asked.
	Save(ctx context.Context, stale bool) (io.ReadSeekCloser, error)
	// Restore has an archive replace everything, on all servers, and returns the index from which it counts. Corrupt and
	// Invalid say what is wrong with the archive; nothing was changed then.
	Restore(ctx context.Context, archive io.Reader) (index uint64, err error)
}

// AccessControl keeps tokens, policies, roles and logins: the catalog's. Its rights, and who answers what, are judged
// there.
type AccessControl interface {
	// Ask sends a request to the catalog's API of access control and reads its answer into out, nil for none. The index
	// is that of what was read. The error has a kind, NotFound and Denied among them, and the catalog's text.
	Ask(ctx context.Context, call AccessCall, out any) (index uint64, err error)
}

// AccessCall is a request to it.
type AccessCall struct {
	Token, Remote string // who asks, and from where
	Method, Path  string // the path behind /v1/acl/, or /v1/internal/acl/ where Own
	Own           bool
	Query         url.Values
	In            any // nil is no body
}

// Capability is what a token may do.
type Capability string

// The capabilities.
const (
	ReadJob        Capability = "read-job"
	ListJobs       Capability = "list-jobs"
	SubmitJob      Capability = "submit-job"
	DispatchJob    Capability = "dispatch-job"
	ScaleJob       Capability = "scale-job"
	ReadLogs       Capability = "read-logs"
	ReadFS         Capability = "read-fs"
	AllocExec      Capability = "alloc-exec"
	AllocNodeExec  Capability = "alloc-node-exec" // beside AllocExec where nothing isolates the task
	AllocLifecycle Capability = "alloc-lifecycle"
	ReadScaling    Capability = "read-job-scaling"
	NodeRead       Capability = "node-read"
	NodeWrite      Capability = "node-write"
	AgentRead      Capability = "agent-read"
	OperatorRead   Capability = "operator-read"
	OperatorWrite  Capability = "operator-write"
	ListVariable   Capability = "variables:list"
	ReadVariable   Capability = "variables:read"
	WriteVariable  Capability = "variables:write"
	DeleteVariable Capability = "variables:destroy"
	Management     Capability = "management"
	Anyone         Capability = ""
)

// Everywhere reports whether a capability has no namespace: it is about the cluster.
func (c Capability) Everywhere() bool {
	switch c {
	case NodeRead, NodeWrite, AgentRead, OperatorRead, OperatorWrite, Management:
		return true
	}
	return false
}
