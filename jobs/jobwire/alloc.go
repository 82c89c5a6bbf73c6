package jobwire

import (
	"time"

	"corbel.dev/corbel/jobs"
)

// Allocation is NO-21. Allocations and evaluations leave empty fields out.
type Allocation struct {
	AllocHead
	Job                *Job                `json:",omitempty"`
	AllocatedResources *AllocatedResources `json:",omitempty"`
	Metrics            *AllocationMetric   `json:",omitempty"`
	AllocDesire
	AllocClient
	AllocRollout
	AllocLineage
	AllocStamp
}

// AllocHead is what an allocation is and where.
type AllocHead struct {
	ID, Namespace, EvalID, Name string
	NodeID, NodeName            string
	JobID, TaskGroup            string
}

// AllocDesire is what the servers want of it.
type AllocDesire struct {
	DesiredStatus      string
	DesiredDescription string `json:",omitempty"`
	DesiredTransition  DesiredTransition
}

// DesiredTransition is what the servers ask of it next.
type DesiredTransition struct {
	Migrate    *bool `json:",omitempty"`
	Reschedule *bool `json:",omitempty"`
}

// AllocClient is what its node says.
type AllocClient struct {
	ClientStatus      string
	ClientDescription string                `json:",omitempty"`
	TaskStates        map[string]*TaskState `json:",omitempty"`
}

// TaskState is how a task is.
type TaskState struct {
	State                              string
	Failed                             bool
	Restarts                           uint64
	LastRestart, StartedAt, FinishedAt time.Time
	Events                             []*TaskEvent
}

// TaskEvent is something that happened to a task.
type TaskEvent struct {
	Type           string
	Time           int64
	DisplayMessage string
	Details        map[string]string
}

// AllocRollout is its part in a deployment.
type AllocRollout struct {
	DeploymentID     string                 `json:",omitempty"`
	DeploymentStatus *AllocDeploymentStatus `json:",omitempty"`
}

// AllocDeploymentStatus is what a deployment knows of it.
type AllocDeploymentStatus struct {
	Healthy     *bool
	Timestamp   time.Time
	Canary      bool
	ModifyIndex uint64
}

// AllocLineage is what it replaces and what replaces it.
type AllocLineage struct {
	FollowupEvalID        string             `json:",omitempty"`
	PreviousAllocation    string             `json:",omitempty"`
	NextAllocation        string             `json:",omitempty"`
	PreemptedByAllocation string             `json:",omitempty"`
	PreemptedAllocations  []string           `json:",omitempty"`
	RescheduleTracker     *RescheduleTracker `json:",omitempty"`
}

// RescheduleTracker are the replacements so far.
type RescheduleTracker struct{ Events []*RescheduleEvent }

// RescheduleEvent is one.
type RescheduleEvent struct {
	RescheduleTime          int64
	PrevAllocID, PrevNodeID string
	Delay                   Duration
}

// AllocStamp is when it was made and changed.
type AllocStamp struct {
	CreateIndex, ModifyIndex, AllocModifyIndex uint64
	CreateTime, ModifyTime                     int64
}

// AllocatedResources is what it has of its node.
type AllocatedResources struct {
	Tasks          map[string]*AllocatedTask
	TaskLifecycles map[string]*TaskLifecycle
	Shared         AllocatedShared
}

// AllocatedTask is a task's part.
type AllocatedTask struct {
	Cpu      AllocatedCPU
	Memory   AllocatedMemory
	Networks []*NetworkResource
	Devices  []*AllocatedDevice
}

// AllocatedCPU is a part of the processors.
type AllocatedCPU struct {
	CpuShares     int64
	ReservedCores []uint16
}

// AllocatedMemory is a part of the memory.
type AllocatedMemory struct{ MemoryMB, MemoryMaxMB int64 }

// AllocatedDevice are devices.
type AllocatedDevice struct {
	Vendor, Type, Name string
	DeviceIDs          []string
}

// AllocatedShared is what the tasks share.
type AllocatedShared struct {
	Networks []*NetworkResource
	DiskMB   int64
	Ports    []PortMapping
}

// PortMapping is a port.
type PortMapping struct {
	Label     string
	Value, To int
	HostIP    string
}

// FromAllocation is an allocation as the API shows it. node may be nil when it is gone; job is the whole job or nil,
// which lists leave out. States of tasks and network status are the caller's: the core does not have them.
func FromAllocation(a *jobs.Allocation, node *jobs.Node, job *Job) *Allocation {
	w := &Allocation{AllocHead: AllocHead{ID: a.ID.String(), Namespace: a.Job.Namespace, EvalID: a.EvalID.String(),
		Name: a.Name(), NodeID: a.NodeID.String(), JobID: a.Job.ID, TaskGroup: a.Group}, Job: job,
		Metrics: FromMetric(a.Metric), AllocatedResources: fromGrant(a, node),
		AllocDesire: AllocDesire{DesiredStatus: a.Desired.Status, DesiredDescription: a.Desired.Description},
		AllocClient: AllocClient{ClientStatus: a.Client.Status, ClientDescription: a.Client.Description},
		AllocLineage: AllocLineage{FollowupEvalID: a.Lineage.Followup.String(),
			PreviousAllocation: a.Lineage.Previous.String(), NextAllocation: a.Lineage.Next.String(),
			PreemptedByAllocation: a.Lineage.PreemptedBy.String()},
		AllocStamp: AllocStamp{CreateIndex: a.CreateIndex, ModifyIndex: a.ModifyIndex, AllocModifyIndex: a.ModifyIndex,
			CreateTime: int64(a.CreateTime), ModifyTime: int64(a.ModifyTime)}}
	if node != nil {
		w.NodeName = node.Name
	}
	if a.Desired.Migrate {
		w.DesiredTransition.Migrate = to(true)
	}
	if a.Desired.Reschedule {
		w.DesiredTransition.Reschedule = to(true)
	}
	if r := a.Rollout; !r.Deployment.IsZero() {
		w.DeploymentID = r.Deployment.String()
		if r.Canary || r.Health != jobs.Undecided {
			w.DeploymentStatus = &AllocDeploymentStatus{Timestamp: moment(r.At), Canary: r.Canary, ModifyIndex: a.ModifyIndex}
			if r.Health != jobs.Undecided {
				w.DeploymentStatus.Healthy = to(r.Health == jobs.Healthy)
			}
		}
	}
	if list := a.Lineage.Reschedules; len(list) > 0 {
		w.RescheduleTracker = &RescheduleTracker{}
		for _, r := range list {
			w.RescheduleTracker.Events = append(w.RescheduleTracker.Events, &RescheduleEvent{RescheduleTime: int64(r.At),
				PrevAllocID: r.Previous.String(), PrevNodeID: r.Node.String(), Delay: Duration(r.Delay)})
		}
	}
	return w
}

// fromGrant tells each task's part. A task with cores has their share of the node's clock rate.
func fromGrant(a *jobs.Allocation, node *jobs.Node) *AllocatedResources {
	group := a.Job.Group(a.Group)
	if a.Grant == nil || group == nil {
		return nil
	}
	w := &AllocatedResources{Tasks: map[string]*AllocatedTask{}, TaskLifecycles: map[string]*TaskLifecycle{},
		Shared: AllocatedShared{DiskMB: a.Grant.DiskMB}}
	for _, t := range group.Tasks {
		r := t.Resources
		w.Tasks[t.Name] = &AllocatedTask{Cpu: AllocatedCPU{CpuShares: r.CPU},
			Memory: AllocatedMemory{r.MemoryMB, r.MemoryMaxMB}}
		var lifecycle *TaskLifecycle
		read(t.Parts["Lifecycle"], &lifecycle)
		w.TaskLifecycles[t.Name] = lifecycle
	}
	for _, c := range a.Grant.Cores {
		t := w.Tasks[c.Task]
		if t == nil {
			continue
		}
		t.Cpu.ReservedCores = c.Cores
		if node != nil && node.Capacity.TotalCores > 0 {
			t.Cpu.CpuShares = node.Capacity.Total.CPU * int64(len(c.Cores)) / int64(node.Capacity.TotalCores)
		}
	}
	for _, d := range a.Grant.Devices {
		if t := w.Tasks[d.Task]; t != nil && node != nil && d.Group < len(node.Capacity.Devices) {
			g := node.Capacity.Devices[d.Group]
			t.Devices = append(t.Devices, &AllocatedDevice{Vendor: g.Vendor, Type: g.Type, Name: g.Name, DeviceIDs: d.Instances})
		}
	}
	for _, p := range a.Grant.Ports {
		mapping := PortMapping{Label: p.Label, Value: p.Value, To: p.To}
		if node != nil && p.Network < len(node.Capacity.Networks) {
			mapping.HostIP = node.Capacity.Networks[p.Network].Address
		}
		w.Shared.Ports = append(w.Shared.Ports, mapping)
	}
	for _, n := range group.Networks {
		w.Shared.Networks = append(w.Shared.Networks, fromNetwork(n))
	}
	return w
}
