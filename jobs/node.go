package jobs

// The states of a node.
const (
	NodeInitializing = "initializing"
	NodeReady        = "ready"
	NodeDown         = "down"
	NodeDisconnected = "disconnected"
)

// Node is a host that runs allocations. It is never changed once it is in a State.
type Node struct {
	ID                       ID
	Name, Datacenter         string
	Class, Pool              string // pool "" is "default"
	Attributes, Meta         map[string]string
	Capacity                 Capacity
	Drivers                  map[string]Driver
	HostVolumes              map[string]HostVolume
	Duty                     Duty
	CreateIndex, ModifyIndex uint64
}

// Duty is whether a node takes work.
type Duty struct {
	Status     string
	Ineligible bool
	Drain      *Drain
	Since      Time // of Status
	MaxAllocs  int  // 0: no limit
}

// Drain empties a node.
type Drain struct {
	Deadline         Time // 0: none; in the past: at once
	IgnoreSystemJobs bool
}

// Ready reports whether new work may be placed on n.
func (n *Node) Ready() bool {
	return n.Duty.Status == NodeReady && !n.Duty.Ineligible && n.Duty.Drain == nil
}

// InPool is the node pool that n belongs to.
func (n *Node) InPool() string {
	if n.Pool == "" {
		return "default"
	}
	return n.Pool
}

// Vector is an amount of what is counted: MHz and MB.
type Vector struct{ CPU, MemoryMB, DiskMB int64 }

// Plus is v + w.
func (v Vector) Plus(w Vector) Vector {
	return Vector{v.CPU + w.CPU, v.MemoryMB + w.MemoryMB, v.DiskMB + w.DiskMB}
}

// Minus is v - w.
func (v Vector) Minus(w Vector) Vector {
	return Vector{v.CPU - w.CPU, v.MemoryMB - w.MemoryMB, v.DiskMB - w.DiskMB}
}

// Capacity is what a node has.
type Capacity struct {
	Total, Reserved Vector
	TotalCores      int
	Cores           []uint16 // that may be reserved, ascending
	ReservedPorts   []int
	Networks        []HostNetwork // the first is the default; none means one without a name
	Modes           []string      // of networks beside host and none: bridge, cni/x
	Devices         []DeviceGroup
	MinPort         int // of dynamic ports; 0 is DefaultMinPort
	MaxPort         int
}

// The range of dynamic ports (NO-19).
const (
	DefaultMinPort = 20000
	DefaultMaxPort = 32000
)

// HostNetwork is an address of a node that ports can be bound to.
type HostNetwork struct{ Name, Address string }

// DeviceGroup are equal devices.
type DeviceGroup struct {
	Vendor, Type, Name string
	Attributes         map[string]string
	Instances          []string // healthy ones, ascending
}

// Driver is a task driver as the node found it.
type Driver struct{ Detected, Healthy bool }

// HostVolume is a folder of the node that groups may mount.
type HostVolume struct{ ReadOnly bool }
