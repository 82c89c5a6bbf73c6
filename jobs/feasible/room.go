package feasible

import (
	"slices"
	"strconv"

	"corbel.dev/corbel/jobs"
)

// Room is what is still free on a node. It is a value: Take and Give replace its lists,
// so that copies made before stay as they are.
type Room struct {
	Free    jobs.Vector // below zero when a node shrank or two plans overlapped on stopped allocations
	Usable  jobs.Vector // what there is without allocations
	Allocs  int
	Most    int      // of Allocs; 0: no limit
	Ports   []uint32 // taken: network << 16 | port, ascending, with repetitions
	Cores   []uint16 // taken, ascending, with repetitions
	Devices []string // taken instances, ascending, with repetitions: see deviceKey
}

// The names of dimensions, as metrics and operators know them.
const (
	dimCPU     = "cpu"
	dimMemory  = "memory"
	dimDisk    = "disk"
	dimCores   = "cores"
	dimDevices = "devices"
	dimAllocs  = "allocs"
	dimPort    = "network: reserved port collision"
	dimDynamic = "network: dynamic port selection failed"
	dimNetwork = "network: no such host network"
)

// usable is what allocations may use of a node.
func usable(n *jobs.Node) jobs.Vector { return n.Capacity.Total.Minus(n.Capacity.Reserved) }

// NewRoom is the room of a node without allocations.
func NewRoom(n *jobs.Node) Room {
	r := Room{Free: usable(n), Usable: usable(n), Most: n.Duty.MaxAllocs}
	for _, p := range n.Capacity.ReservedPorts {
		for i := range max(1, len(n.Capacity.Networks)) {
			r.Ports = insert(r.Ports, portKey(i, p))
		}
	}
	return r
}

func portKey(network, port int) uint32 { return uint32(network)<<16 | uint32(port)&0xffff }

func deviceKey(group int, instance string) string { return strconv.Itoa(group) + "/" + instance }

// Lacks returns the dimension in which g does not fit into r, or "" when it does. It is the one
// place where that is decided: placing, applying and explaining ask it.
func (r *Room) Lacks(n *jobs.Node, g *jobs.Grant) string {
	switch {
	case g.CPU > r.Free.CPU:
		return dimCPU
	case g.MemoryMB > r.Free.MemoryMB:
		return dimMemory
	case g.DiskMB > r.Free.DiskMB:
		return dimDisk
	case r.Most > 0 && r.Allocs >= r.Most:
		return dimAllocs
	}
	if len(g.Ports)+len(g.Cores)+len(g.Devices) > 0 {
		return r.lacksNamed(n, g)
	}
	return ""
}

// lacksNamed looks at what is not counted but has a name.
func (r *Room) lacksNamed(n *jobs.Node, g *jobs.Grant) string {
	for i, p := range g.Ports {
		if p.Network >= max(1, len(n.Capacity.Networks)) {
			return dimNetwork
		}
		if taken(r.Ports, portKey(p.Network, p.Value)) {
			return dimPort
		}
		for _, q := range g.Ports[:i] {
			if q.Network == p.Network && q.Value == p.Value {
				return dimPort
			}
		}
	}
	for _, c := range g.Cores {
		for _, core := range c.Cores {
			if taken(r.Cores, core) || !slices.Contains(n.Capacity.Cores, core) {
				return dimCores
			}
		}
	}
	for _, d := range g.Devices {
		for _, instance := range d.Instances {
			if d.Group >= len(n.Capacity.Devices) || taken(r.Devices, deviceKey(d.Group, instance)) ||
				!slices.Contains(n.Capacity.Devices[d.Group].Instances, instance) {
				return dimDevices
			}
		}
	}
	return ""
}

// Take puts g into r, whether it fits or not.
func (r *Room) Take(g *jobs.Grant) {
	r.Free = r.Free.Minus(g.Vector)
	r.Allocs++
	for _, p := range g.Ports {
		r.Ports = insert(r.Ports, portKey(p.Network, p.Value))
	}
	for _, c := range g.Cores {
		for _, core := range c.Cores {
			r.Cores = insert(r.Cores, core)
		}
	}
	for _, d := range g.Devices {
		for _, instance := range d.Instances {
			r.Devices = insert(r.Devices, deviceKey(d.Group, instance))
		}
	}
}

// Give takes g out of r again.
func (r *Room) Give(g *jobs.Grant) {
	r.Free = r.Free.Plus(g.Vector)
	r.Allocs--
	for _, p := range g.Ports {
		r.Ports = remove(r.Ports, portKey(p.Network, p.Value))
	}
	for _, c := range g.Cores {
		for _, core := range c.Cores {
			r.Cores = remove(r.Cores, core)
		}
	}
	for _, d := range g.Devices {
		for _, instance := range d.Instances {
			r.Devices = remove(r.Devices, deviceKey(d.Group, instance))
		}
	}
}

type ordered interface{ ~uint16 | ~uint32 | ~string }

func taken[T ordered](list []T, item T) bool {
	_, found := slices.BinarySearch(list, item)
	return found
}

func insert[T ordered](list []T, item T) []T {
	at, _ := slices.BinarySearch(list, item)
	next := make([]T, 0, len(list)+1)
	return append(append(append(next, list[:at]...), item), list[at:]...)
}

func remove[T ordered](list []T, item T) []T {
	at, found := slices.BinarySearch(list, item)
	if !found {
		return list
	}
	next := make([]T, 0, len(list)-1)
	return append(append(next, list[:at]...), list[at+1:]...)
}
