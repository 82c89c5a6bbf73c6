package jobwire

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/jobs"
)

// Node is NO-20. Jobs and nodes have all their fields, also empty ones.
type Node struct {
	NodeHead
	Attributes, Links, Meta map[string]string
	NodeResources           *NodeResources
	ReservedResources       *ReservedResources
	NodeDuty
	Events                                  []*NodeEvent
	Drivers                                 map[string]*DriverInfo
	HostVolumes                             map[string]*HostVolumeInfo
	HostNetworks                            map[string]*HostNetworkInfo
	NodeMaxAllocs, CreateIndex, ModifyIndex uint64
}

// NodeHead is what a node is called and where it is.
type NodeHead struct {
	ID, Name, Datacenter, NodeClass, NodePool string
	ComputedClass                             string
	HTTPAddr                                  string
	TLSEnabled                                bool
	SecretID                                  string // always empty
}

// NodeDuty is whether a node takes work.
type NodeDuty struct {
	Status, StatusDescription string
	StatusUpdatedAt           int64 // Unix seconds
	SchedulingEligibility     string
	Drain                     bool
	DrainStrategy             *DrainStrategy
	LastDrain                 *DrainMetadata
}

// NodeResources is what a node has.
type NodeResources struct {
	Cpu            NodeCPU
	Memory         NodeMemory
	Disk           NodeDisk
	Networks       []*NetworkResource
	Devices        []*NodeDevices
	MinDynamicPort int
	MaxDynamicPort int
}

// NodeCPU is a node's processors.
type NodeCPU struct {
	CpuShares          int64
	TotalCpuCores      uint16
	ReservableCpuCores []uint16
}

// NodeMemory is a node's memory.
type NodeMemory struct{ MemoryMB int64 }

// NodeDisk is a node's disk.
type NodeDisk struct{ DiskMB int64 }

// NodeDevices are equal devices of a node.
type NodeDevices struct {
	Vendor, Type, Name string
	Instances          []*NodeDevice
	Attributes         map[string]*Attribute
}

// NodeDevice is one of them.
type NodeDevice struct {
	ID                string
	Healthy           bool
	HealthDescription string
}

// Attribute is a typed value of a device; ours are text.
type Attribute struct {
	String *string `json:",omitempty"`
	Unit   string
}

// ReservedResources is what a node keeps for itself.
type ReservedResources struct {
	Cpu      struct{ CpuShares int64 }
	Memory   NodeMemory
	Disk     NodeDisk
	Networks struct{ ReservedHostPorts string }
}

// DrainStrategy is how a node is emptied.
type DrainStrategy struct {
	Deadline                 Duration
	IgnoreSystemJobs         bool
	ForceDeadline, StartedAt time.Time
}

// DrainMetadata is who drained a node last.
type DrainMetadata struct {
	StartedAt, UpdatedAt time.Time
	Status, AccessorID   string
	Meta                 map[string]string
}

// NodeEvent is something that happened to a node.
type NodeEvent struct {
	Message, Subsystem string
	Details            map[string]string
	Timestamp          time.Time
	CreateIndex        uint64
}

// DriverInfo is a driver of a node.
type DriverInfo struct {
	Attributes        map[string]string
	Detected, Healthy bool
	HealthDescription string
	UpdateTime        time.Time
}

// HostVolumeInfo is a folder that groups may mount.
type HostVolumeInfo struct {
	Path     string
	ReadOnly bool
}

// HostNetworkInfo is an address of a node.
type HostNetworkInfo struct{ Name, CIDR, Interface, ReservedPorts string }

// moment is a time as the API has it; none is Go's zero time.
func moment(t jobs.Time) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(t)).UTC()
}

// FromNode is a node as the API shows it. What the core does not know of it (addresses, events, links) the caller adds.
func FromNode(n *jobs.Node, class uint64) *Node {
	c := n.Capacity
	w := &Node{NodeHead: NodeHead{ID: n.ID.String(), Name: n.Name, Datacenter: n.Datacenter, NodeClass: n.Class,
		NodePool: n.InPool(), ComputedClass: fmt.Sprintf("v1:%d", class)}, Attributes: n.Attributes, Meta: n.Meta,
		Links: map[string]string{}, Drivers: map[string]*DriverInfo{}, HostVolumes: map[string]*HostVolumeInfo{},
		HostNetworks: map[string]*HostNetworkInfo{}, NodeMaxAllocs: uint64(n.Duty.MaxAllocs), CreateIndex: n.CreateIndex,
		ModifyIndex: n.ModifyIndex, NodeDuty: fromDuty(n.Duty)}
	w.NodeResources = &NodeResources{Memory: NodeMemory{c.Total.MemoryMB}, Disk: NodeDisk{c.Total.DiskMB},
		Cpu:            NodeCPU{c.Total.CPU, uint16(c.TotalCores), c.Cores},
		MinDynamicPort: jobs.DefaultMinPort, MaxDynamicPort: jobs.DefaultMaxPort}
	if c.MinPort > 0 {
		w.NodeResources.MinDynamicPort = c.MinPort
	}
	if c.MaxPort > 0 {
		w.NodeResources.MaxDynamicPort = c.MaxPort
	}
	for _, network := range c.Networks {
		w.NodeResources.Networks = append(w.NodeResources.Networks, &NetworkResource{Mode: "host", Device: network.Name,
			IP: network.Address})
		w.HostNetworks[network.Name] = &HostNetworkInfo{Name: network.Name, CIDR: network.Address}
	}
	for _, mode := range c.Modes { // bridge, cni/NAME
		w.NodeResources.Networks = append(w.NodeResources.Networks, &NetworkResource{Mode: mode})
	}
	for _, d := range c.Devices {
		w.NodeResources.Devices = append(w.NodeResources.Devices, fromDevices(d))
	}
	w.ReservedResources = &ReservedResources{Memory: NodeMemory{c.Reserved.MemoryMB}, Disk: NodeDisk{c.Reserved.DiskMB}}
	w.ReservedResources.Cpu.CpuShares = c.Reserved.CPU
	w.ReservedResources.Networks.ReservedHostPorts = ports(c.ReservedPorts)
	for name, d := range n.Drivers {
		w.Drivers[name] = &DriverInfo{Detected: d.Detected, Healthy: d.Healthy}
	}
	for name, v := range n.HostVolumes {
		w.HostVolumes[name] = &HostVolumeInfo{ReadOnly: v.ReadOnly}
	}
	return w
}

func fromDuty(d jobs.Duty) NodeDuty {
	w := NodeDuty{Status: d.Status, StatusUpdatedAt: int64(d.Since) / 1e9, SchedulingEligibility: "eligible",
		Drain: d.Drain != nil}
	if d.Ineligible || d.Drain != nil {
		w.SchedulingEligibility = "ineligible"
	}
	if d.Drain != nil {
		w.DrainStrategy = &DrainStrategy{IgnoreSystemJobs: d.Drain.IgnoreSystemJobs, ForceDeadline: moment(d.Drain.Deadline)}
	}
	return w
}

func fromDevices(d jobs.DeviceGroup) *NodeDevices {
	w := &NodeDevices{Vendor: d.Vendor, Type: d.Type, Name: d.Name, Attributes: map[string]*Attribute{}}
	for _, id := range d.Instances {
		w.Instances = append(w.Instances, &NodeDevice{ID: id, Healthy: true})
	}
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		w.Attributes[name] = &Attribute{String: to(d.Attributes[name])}
	}
	return w
}

// ports writes a list as "22,8000-8010".
func ports(list []int) string {
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	var parts []string
	for i := 0; i < len(list); {
		end := i
		for end+1 < len(list) && list[end+1] == list[end]+1 {
			end++
		}
		part := strconv.Itoa(list[i])
		if end > i {
			part += "-" + strconv.Itoa(list[end])
		}
		parts, i = append(parts, part), end+1
	}
	return strings.Join(parts, ",")
}
