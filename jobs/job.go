package jobs

import (
	"maps"
	"time"
)

// JobKey names a job.
type JobKey struct{ Namespace, ID string }

// The types of jobs.
const (
	Service  = "service"
	Batch    = "batch"
	System   = "system"
	SysBatch = "sysbatch"
)

// DefaultPriority is a job's priority when none is given; 1 to 100 may be.
const DefaultPriority = 50

// Job is what somebody wants to run, in one version. It is never changed once it is in a State.
type Job struct {
	JobKey
	Name        string
	Type        string
	Priority    int
	AllAtOnce   bool     // no partial plans
	Datacenters []string // globs; none means all
	NodePool    string   // "all" is every pool, "" is "default"
	Rules
	Groups   []*TaskGroup
	Origin   Origin
	Periodic *Periodic
	Dispatch *DispatchRules // of a parameterized job
	Meta     map[string]string
	// Parts is what the API knows and the core does not read, encoded by name.
	Parts map[string]string
	Revision
}

// Revision is the part of a job that the plane writes.
type Revision struct {
	Version                                  uint64
	Stop, Stable                             bool
	SubmitTime                               Time
	CreateIndex, ModifyIndex, JobModifyIndex uint64
}

// Origin is where a child job comes from.
type Origin struct {
	ParentID   string
	Dispatched bool
	Payload    []byte // of a dispatched job
	Token      string // of the dispatch, so that it is made once
}

// Periodic is a job that is started by the clock.
type Periodic struct {
	Enabled         bool
	Specs           []string
	ProhibitOverlap bool
	TimeZone        string
}

// DispatchRules are what a dispatch of a parameterized job must and may bring.
type DispatchRules struct {
	Payload                    string
	MetaRequired, MetaOptional []string
}

// Group returns the task group called name, or nil.
func (j *Job) Group(name string) *TaskGroup {
	if j == nil {
		return nil
	}
	for _, g := range j.Groups {
		if g.Name == name {
			return g
		}
	}
	return nil
}

// SharesBody reports whether j and o are known to differ in ids and names, priorities, origins, metas and revisions
// alone: they refer to the same groups and rules, as a dispatched job does to those of its parent. It compares no
// content, so of two that were read apart it says false.
func (j *Job) SharesBody(o *Job) bool {
	return same(j.Groups, o.Groups) && len(j.Groups) > 0 && j.Namespace == o.Namespace && j.Type == o.Type &&
		j.AllAtOnce == o.AllAtOnce && j.NodePool == o.NodePool && j.Periodic == o.Periodic && j.Dispatch == o.Dispatch &&
		same(j.Datacenters, o.Datacenters) && same(j.Constraints, o.Constraints) && same(j.Affinities, o.Affinities) &&
		same(j.Spreads, o.Spreads) && maps.Equal(j.Parts, o.Parts)
}

// same reports whether two lists are one in memory.
func same[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// Stopped reports whether nothing of j is to run: also when j is nil, a job that was purged.
func (j *Job) Stopped() bool { return j == nil || j.Stop }

// PerNode reports whether j runs once on each feasible node.
func (j *Job) PerNode() bool { return j.Type == System || j.Type == SysBatch }

// RunsOnce reports whether allocations of j that complete are done for good.
func (j *Job) RunsOnce() bool { return j.Type == Batch || j.Type == SysBatch }

// Rules are what narrows down and orders the nodes for a job, a group or a task.
type Rules struct {
	Constraints []Constraint
	Affinities  []Affinity
	Spreads     []Spread
}

// Constraint is a condition that a node must meet.
type Constraint struct{ Left, Operand, Right string }

// String is how a constraint is counted in a Metric.
func (c Constraint) String() string {
	switch c.Operand {
	case "distinct_hosts":
		return "distinct_hosts"
	case "distinct_property":
		return "distinct_property: " + c.Left
	}
	return c.Left + " " + c.Operand + " " + c.Right
}

// Affinity is a condition that makes a node better (Weight > 0) or worse.
type Affinity struct {
	Constraint
	Weight int // -100..100, not 0
}

// Spread asks for an even or a stated share of allocations per value of an attribute.
type Spread struct {
	Attribute string
	Weight    int
	Targets   []SpreadTarget
}

// SpreadTarget is the share of one value.
type SpreadTarget struct {
	Value   string
	Percent int
}

// TaskGroup is what runs together on one node, Count times.
type TaskGroup struct {
	Name  string
	Count int
	Rules
	Tasks      []*Task
	Reschedule *ReschedulePolicy // nil: never
	Restart    *RestartPolicy
	Disk       EphemeralDisk
	Update     *UpdatePolicy // nil: no deployments
	Migrate    *MigratePolicy
	Disconnect *Disconnect
	Networks   []Network
	Volumes    []VolumeRequest
	Meta       map[string]string
	// Parts is what nodes run and placement does not read (services, scaling, shutdown delay), encoded by
	// name. A change of them reaches running allocations in place.
	Parts map[string]string
}

// Task is one process of a group.
type Task struct {
	Name, Driver, User string
	Config             string // the driver's, encoded
	Env                map[string]string
	Resources          Resources
	Rules
	Meta map[string]string
	// Parts is what a new process is needed for when it changes (templates, artifacts, Vault, lifecycle, logs).
	Parts map[string]string
	// Settings is what reaches a running task in place (services, kill timeout, restart policy).
	Settings map[string]string
}

// Resources are what a task asks for.
type Resources struct {
	CPU         int64 // MHz; what Cores bring takes its place when there are any
	Cores       int
	MemoryMB    int64
	MemoryMaxMB int64 // above MemoryMB only where the operator allows it
	Devices     []DeviceRequest
}

// DeviceRequest asks for devices by "type", "vendor/type" or "vendor/type/name".
type DeviceRequest struct {
	Name        string
	Count       int
	Constraints []Constraint
	Affinities  []Affinity
}

// EphemeralDisk is a group's scratch space.
type EphemeralDisk struct {
	SizeMB          int64
	Sticky, Migrate bool
}

// Network is what a group wants of the node's network.
type Network struct {
	Mode              string // host ("" too), bridge, none, cni/*
	Reserved, Dynamic []Port
	Rest              string // what placement does not read (DNS, hostname), encoded
}

// Port is a port of a group. HostNetwork "" is the node's default.
type Port struct {
	Label           string
	Value, To       int
	HostNetwork     string
	IgnoreCollision bool
}

// VolumeRequest is a volume that a group mounts. Only host volumes bind to a node here.
type VolumeRequest struct {
	Name, Type, Source string
	ReadOnly           bool
	Rest               string // what placement does not read, encoded
}

// RestartPolicy is how a node restarts a task.
type RestartPolicy struct {
	Attempts        int
	Interval, Delay time.Duration
	Mode            string
}

// ReschedulePolicy is how a failed allocation is replaced elsewhere.
type ReschedulePolicy struct {
	Unlimited bool
	Attempts  int
	Interval  time.Duration
	Delay     time.Duration
	MaxDelay  time.Duration
	Function  string // constant, exponential, fibonacci
}

// UpdatePolicy is how a new version replaces an old one.
type UpdatePolicy struct {
	MaxParallel      int
	HealthCheck      string
	MinHealthyTime   time.Duration
	HealthyDeadline  time.Duration
	ProgressDeadline time.Duration
	Canary           int
	AutoRevert       bool
	AutoPromote      bool
}

// MigratePolicy is how many allocations of a group leave draining nodes at once.
type MigratePolicy struct {
	MaxParallel     int
	HealthCheck     string
	MinHealthyTime  time.Duration
	HealthyDeadline time.Duration
}

// Disconnect is what happens to allocations whose node is not heard of.
type Disconnect struct {
	LostAfter time.Duration // 0: lost at once
	StopAfter time.Duration
	Replace   bool
	Reconcile string // best_score (""), keep_original, keep_replacement, longest_running
}
