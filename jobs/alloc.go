package jobs

import "strconv"

// What is wanted of an allocation, and what its node says of it.
const (
	Run   = "run"
	Stop  = "stop"
	Evict = "evict"

	ClientPending  = "pending"
	ClientRunning  = "running"
	ClientComplete = "complete"
	ClientFailed   = "failed"
	ClientLost     = "lost"
	ClientUnknown  = "unknown"
)

// Allocation is a group placed on a node. It is never changed once it is in a State.
type Allocation struct {
	ID, NodeID, EvalID ID
	Job                *Job // the version that it runs; shared, never copied
	Group              string
	Index              int
	Grant              *Grant // shared by allocations that got the same
	Desired            Desired
	Client             Client
	Rollout            Rollout
	Lineage            Lineage
	Stamp
	Metric *Metric
}

// Stamp is when an object was made and changed last.
type Stamp struct {
	CreateIndex, ModifyIndex uint64
	CreateTime, ModifyTime   Time
}

// Desired is what the servers want of an allocation.
type Desired struct {
	Status, Description string
	// Migrate asks that it move, Reschedule that it be replaced whatever its policy says.
	Migrate, Reschedule bool
}

// Client is what the node says of an allocation.
type Client struct {
	Status, Description string
	FinishedAt          Time // of its last task; 0 when one still runs
	UnknownSince        Time
	StartedAt           Time
}

// Order is the place of an update among all that its node made, so that a late one is known. The zero one is that of
// an agent of an older release.
type Order struct {
	Life uint64 // of the agent; each start's is above those before
	Seq  uint64 // within it
}

// IsZero reports whether the node did not say.
func (o Order) IsZero() bool { return o == Order{} }

// Before reports whether o was made before other.
func (o Order) Before(other Order) bool {
	return o.Life < other.Life || o.Life == other.Life && o.Seq < other.Seq
}

// Rollout is an allocation's part in a deployment.
type Rollout struct {
	Deployment ID
	Canary     bool
	Health     Health
	At         Time // of Health
}

// Health is what a deployment knows of an allocation.
type Health uint8

// The healths.
const (
	Undecided Health = iota
	Healthy
	Unhealthy
)

// Lineage is what an allocation replaces and what replaces it.
type Lineage struct {
	Previous, Next ID
	PreemptedBy    ID
	Followup       ID // the evaluation that will replace it later
	Reschedules    []Rescheduled
}

// Rescheduled is one replacement by the reschedule policy.
type Rescheduled struct {
	At       Time
	Previous ID
	Node     ID
	Delay    int64 // nanoseconds
}

// Name is the contract's: job.group[index].
func (a *Allocation) Name() string {
	return a.Job.ID + "." + a.Group + "[" + strconv.Itoa(a.Index) + "]"
}

// ClientTerminal reports whether the node is done with a.
func (a *Allocation) ClientTerminal() bool {
	switch a.Client.Status {
	case ClientComplete, ClientFailed, ClientLost:
		return true
	}
	return false
}

// ServerTerminal reports whether the servers want a no more.
func (a *Allocation) ServerTerminal() bool { return a.Desired.Status != Run }

// Terminal reports either.
func (a *Allocation) Terminal() bool { return a.ServerTerminal() || a.ClientTerminal() }

// Counts reports whether a takes room on its node: until the node confirms that it is gone.
func (a *Allocation) Counts() bool { return !a.ClientTerminal() }

// Grant is what an allocation has of its node.
type Grant struct {
	Vector
	MemoryMaxMB int64
	Ports       []PortGrant
	Cores       []CoreGrant
	Devices     []DeviceGrant
}

// PortGrant is a port: Network is the place of the host network in the node's list.
type PortGrant struct {
	Label     string
	Value, To int
	Network   int
}

// CoreGrant are the cores of a task.
type CoreGrant struct {
	Task  string
	Cores []uint16
}

// DeviceGrant are instances of a node's device group for a task.
type DeviceGrant struct {
	Task      string
	Group     int // place in the node's list
	Instances []string
}
