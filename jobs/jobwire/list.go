package jobwire

import (
	"iter"
	"maps"

	"corbel.dev/corbel/jobs"
)

// JobSummary is NO-26.
type JobSummary struct {
	JobID, Namespace         string
	Summary                  map[string]*GroupSummary
	Children                 *ChildrenSummary
	CreateIndex, ModifyIndex uint64
}

// GroupSummary counts a group's allocations by what their nodes say.
type GroupSummary struct{ Queued, Complete, Failed, Running, Starting, Lost, Unknown int }

// ChildrenSummary counts the jobs that a periodic or parameterized one started.
type ChildrenSummary struct{ Pending, Running, Dead int64 }

// Summarize shows what the allocations of j come to, by group; index is that of the newest. queued are those that its
// newest evaluation could not place. A group that the newest version no longer has is shown as long as it has
// allocations.
func Summarize(j *jobs.Job, groups iter.Seq2[string, jobs.Counts], index uint64, queued map[string]int) *JobSummary {
	s := &JobSummary{JobID: j.ID, Namespace: j.Namespace, Summary: map[string]*GroupSummary{},
		CreateIndex: j.CreateIndex, ModifyIndex: max(j.ModifyIndex, index)}
	for _, g := range j.Groups {
		s.Summary[g.Name] = &GroupSummary{Queued: queued[g.Name]}
	}
	for name, n := range groups {
		g := s.Summary[name]
		if g == nil {
			g = &GroupSummary{}
			s.Summary[name] = g
		}
		g.Starting, g.Running, g.Complete, g.Failed, g.Lost, g.Unknown = n.Starting, n.Running, n.Complete, n.Failed,
			n.Lost, n.Unknown
	}
	if j.Periodic != nil || j.Dispatch != nil && !j.Origin.Dispatched {
		s.Children = &ChildrenSummary{}
	}
	return s
}

// JobStub is a job in a list. Periodic and ParameterizedJob are booleans there.
type JobStub struct {
	StubHead
	StubState
	Datacenters                      []string
	NodePool                         string
	Periodic, ParameterizedJob, Stop bool
	JobSummary                       *JobSummary
	Meta                             map[string]string `json:",omitempty"`
}

// StubHead is what a listed job is called.
type StubHead struct {
	ID, ParentID, Name, Namespace, Type string
	Priority                            int
}

// StubState is what the servers write of a listed job.
type StubState struct {
	Status, StatusDescription                         string
	Version, CreateIndex, ModifyIndex, JobModifyIndex uint64
	SubmitTime                                        int64
}

// JobListed is a job in a list; its status is the caller's to add. Meta is there when it is asked for.
func JobListed(j *jobs.Job, summary *JobSummary, meta bool) *JobStub {
	s := &JobStub{StubHead: StubHead{ID: j.ID, ParentID: j.Origin.ParentID, Name: j.Name, Namespace: j.Namespace,
		Type: j.Type, Priority: j.Priority}, Datacenters: j.Datacenters, NodePool: j.NodePool,
		Periodic: j.Periodic != nil, ParameterizedJob: j.Dispatch != nil && !j.Origin.Dispatched, Stop: j.Stop,
		JobSummary: summary, StubState: StubState{Version: j.Version, CreateIndex: j.CreateIndex,
			ModifyIndex: j.ModifyIndex, JobModifyIndex: j.JobModifyIndex, SubmitTime: int64(j.SubmitTime)}}
	if meta {
		s.Meta = maps.Clone(j.Meta)
	}
	return s
}

// AllocStub is an allocation in a list.
type AllocStub struct {
	AllocHead
	JobType            string
	JobVersion         uint64
	AllocatedResources *AllocatedResources `json:",omitempty"`
	AllocDesire
	AllocClient
	AllocRollout
	AllocLineage
	Stamp
}

// AllocListed is an allocation in a list, with its resources when they are asked for.
func AllocListed(a *jobs.Allocation, node *jobs.Node, resources bool) *AllocStub {
	bare := *a
	if bare.Metric = nil; !resources { // neither is listed, and both are most of the work
		bare.Grant = nil
	}
	w := FromAllocation(&bare, node, nil)
	s := &AllocStub{AllocHead: w.AllocHead, JobType: a.Job.Type, JobVersion: a.Job.Version, AllocDesire: w.AllocDesire,
		AllocClient: w.AllocClient, AllocRollout: w.AllocRollout, AllocLineage: w.AllocLineage, Stamp: stamp(a.Stamp)}
	if resources {
		s.AllocatedResources = w.AllocatedResources
	}
	return s
}

// NodeStub is a node in a list.
type NodeStub struct {
	Address, ID, Name, Datacenter, NodeClass, NodePool, Version string
	NodeListedState
	Attributes               map[string]string `json:",omitempty"`
	Drivers                  map[string]*DriverInfo
	NodeResources            *NodeResources     `json:",omitempty"`
	ReservedResources        *ReservedResources `json:",omitempty"`
	CreateIndex, ModifyIndex uint64
}

// NodeListedState is whether a listed node takes work.
type NodeListedState struct {
	Drain                                            bool
	SchedulingEligibility, Status, StatusDescription string
	LastDrain                                        *DrainMetadata
}

// NodeListed is a node in a list, with its resources when they are asked for. The address is the one that clients use.
func NodeListed(n *jobs.Node, address string, resources bool) *NodeStub {
	w := FromNode(n, 0)
	s := &NodeStub{Address: address, ID: w.ID, Name: w.Name, Datacenter: w.Datacenter, NodeClass: w.NodeClass,
		NodePool: w.NodePool, Version: n.Attributes["nomad.version"], Drivers: w.Drivers, CreateIndex: w.CreateIndex,
		ModifyIndex: w.ModifyIndex, NodeListedState: NodeListedState{Drain: w.Drain,
			SchedulingEligibility: w.SchedulingEligibility, Status: w.Status, StatusDescription: w.StatusDescription,
			LastDrain: w.LastDrain}}
	if resources {
		s.NodeResources, s.ReservedResources = w.NodeResources, w.ReservedResources
	}
	return s
}
