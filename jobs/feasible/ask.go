package feasible

import (
	"slices"
	"strings"

	"corbel.dev/corbel/jobs"
)

// Ask is what a group wants of a node's room, made once for an evaluation.
type Ask struct {
	base    *jobs.Grant // without cores, devices and dynamic ports; its ports are on the first network
	group   *jobs.TaskGroup
	static  []jobs.Port
	dynamic []jobs.Port
	named   bool // a static port names its host network
	cores   int
	devices bool
}

// NewAsk sums up a group.
func NewAsk(g *jobs.TaskGroup, oversubscription bool) *Ask {
	a := &Ask{base: &jobs.Grant{}, group: g}
	a.base.DiskMB = g.Disk.SizeMB
	for _, t := range g.Tasks {
		r := t.Resources
		if r.Cores > 0 {
			a.cores += r.Cores
		} else {
			a.base.CPU += r.CPU
		}
		a.base.MemoryMB += r.MemoryMB
		most := r.MemoryMB
		if oversubscription {
			most = max(most, r.MemoryMaxMB)
		}
		a.base.MemoryMaxMB += most
		a.devices = a.devices || len(r.Devices) > 0
	}
	for _, n := range g.Networks {
		a.static = append(a.static, n.Reserved...)
		a.dynamic = append(a.dynamic, n.Dynamic...)
	}
	for _, p := range a.static {
		a.named = a.named || p.HostNetwork != ""
		a.base.Ports = append(a.base.Ports, jobs.PortGrant{Label: p.Label, Value: p.Value, To: p.To})
	}
	return a
}

// plain reports whether the same grant serves every allocation on every node.
func (a *Ask) plain() bool {
	return len(a.static)+len(a.dynamic) == 0 && a.cores == 0 && !a.devices
}

// Base is what of the ask is known before ports, cores and devices are chosen. It is shared.
func (a *Ask) Base(n *jobs.Node) *jobs.Grant {
	if !a.named && a.cores == 0 {
		return a.base
	}
	g := *a.base
	if a.named {
		g.Ports = make([]jobs.PortGrant, len(a.static))
		for i, p := range a.static {
			g.Ports[i] = jobs.PortGrant{Label: p.Label, Value: p.Value, To: p.To, Network: networkOf(n, p.HostNetwork)}
		}
	}
	if a.cores > 0 && n.Capacity.TotalCores > 0 {
		g.CPU += int64(a.cores) * n.Capacity.Total.CPU / int64(n.Capacity.TotalCores)
	}
	return &g
}

// Vector is what the ask takes on any node; cores, whose CPU depends on the node, are left out.
func (a *Ask) Vector() jobs.Vector { return a.base.Vector }

// networkOf is the place of a host network; one behind the last when there is none.
func networkOf(n *jobs.Node, name string) int {
	if name == "" {
		return 0
	}
	i := slices.IndexFunc(n.Capacity.Networks, func(h jobs.HostNetwork) bool { return h.Name == name })
	if i < 0 {
		return max(1, len(n.Capacity.Networks))
	}
	return i
}

// Assign chooses ports, cores and devices in r. It returns the dimension that lacks, or "".
func (a *Ask) Assign(n *jobs.Node, r *Room, dice *jobs.Dice) (*jobs.Grant, string) {
	base := a.Base(n)
	if lacks := r.Lacks(n, base); lacks != "" || a.plain() {
		return base, lacks
	}
	g := *base
	g.Ports = slices.Clone(base.Ports)
	for _, p := range a.dynamic {
		network := networkOf(n, p.HostNetwork)
		if network >= max(1, len(n.Capacity.Networks)) {
			return nil, dimNetwork
		}
		value := freePort(n, r, network, g.Ports, dice)
		if value == 0 {
			return nil, dimDynamic
		}
		to := p.To
		if to == -1 {
			to = value
		}
		g.Ports = append(g.Ports, jobs.PortGrant{Label: p.Label, Value: value, To: to, Network: network})
	}
	if a.cores > 0 && !a.assignCores(n, r, &g) {
		return nil, dimCores
	}
	if a.devices && !a.assignDevices(n, r, &g) {
		return nil, dimDevices
	}
	return &g, r.Lacks(n, &g)
}

// freePort tries a few ports at random and then all of them, from a random one on.
func freePort(n *jobs.Node, r *Room, network int, own []jobs.PortGrant, dice *jobs.Dice) int {
	low, high := n.Capacity.MinPort, n.Capacity.MaxPort
	if low == 0 {
		low = jobs.DefaultMinPort
	}
	if high == 0 {
		high = jobs.DefaultMaxPort
	}
	size := high - low + 1
	if size <= 0 {
		return 0
	}
	start := int(dice.Next() % uint64(size))
	for i := range size {
		port := low + (start+i)%size
		if !taken(r.Ports, portKey(network, port)) && !slices.ContainsFunc(own, func(p jobs.PortGrant) bool {
			return p.Network == network && p.Value == port
		}) {
			return port
		}
	}
	return 0
}

func (a *Ask) assignCores(n *jobs.Node, r *Room, g *jobs.Grant) bool {
	next := 0
	for _, t := range a.group.Tasks {
		if t.Resources.Cores == 0 {
			continue
		}
		grant := jobs.CoreGrant{Task: t.Name}
		for ; next < len(n.Capacity.Cores) && len(grant.Cores) < t.Resources.Cores; next++ {
			if core := n.Capacity.Cores[next]; !taken(r.Cores, core) {
				grant.Cores = append(grant.Cores, core)
			}
		}
		if len(grant.Cores) < t.Resources.Cores {
			return false
		}
		g.Cores = append(g.Cores, grant)
	}
	return true
}

// assignDevices takes, for each request, the matching group of devices with the best affinity that has enough.
func (a *Ask) assignDevices(n *jobs.Node, r *Room, g *jobs.Grant) bool {
	room := *r
	for _, t := range a.group.Tasks {
		for _, request := range t.Resources.Devices {
			grant, best := jobs.DeviceGrant{Task: t.Name}, 0.0
			for i, d := range n.Capacity.Devices {
				if !deviceMatches(&d, &request) {
					continue
				}
				var free []string
				for _, instance := range d.Instances {
					if len(free) < request.Count && !taken(room.Devices, deviceKey(i, instance)) {
						free = append(free, instance)
					}
				}
				liking := deviceAffinity(&d, &request)
				if len(free) == request.Count && (grant.Instances == nil || liking > best) {
					grant.Group, grant.Instances, best = i, free, liking
				}
			}
			if grant.Instances == nil {
				return false
			}
			g.Devices = append(g.Devices, grant)
			room.Take(&jobs.Grant{Devices: []jobs.DeviceGrant{grant}})
		}
	}
	return true
}

// deviceMatches compares the name of a request, "type", "vendor/type" or "vendor/type/name", and its constraints.
func deviceMatches(d *jobs.DeviceGroup, request *jobs.DeviceRequest) bool {
	switch parts := strings.SplitN(request.Name, "/", 3); len(parts) {
	case 1:
		if parts[0] != d.Type {
			return false
		}
	case 2:
		if parts[0] != d.Vendor || parts[1] != d.Type {
			return false
		}
	default:
		if parts[0] != d.Vendor || parts[1] != d.Type || parts[2] != d.Name {
			return false
		}
	}
	for _, c := range request.Constraints {
		if !deviceMeets(d, c) {
			return false
		}
	}
	return true
}

func deviceMeets(d *jobs.DeviceGroup, c jobs.Constraint) bool {
	m, err := Compile(c)
	if err != nil {
		return false
	}
	left, leftOK := deviceValue(d, c.Left)
	right, rightOK := deviceValue(d, c.Right)
	return m.meets(left, leftOK, right, rightOK)
}

func deviceValue(d *jobs.DeviceGroup, target string) (string, bool) {
	name, isTarget := strings.CutPrefix(target, "${device.")
	if !isTarget {
		return target, true
	}
	name = strings.TrimSuffix(name, "}")
	switch name {
	case "vendor":
		return d.Vendor, true
	case "type":
		return d.Type, true
	case "model":
		return d.Name, true
	}
	value, ok := d.Attributes[strings.TrimPrefix(name, "attr.")]
	return value, ok
}

func deviceAffinity(d *jobs.DeviceGroup, request *jobs.DeviceRequest) (sum float64) {
	for _, a := range request.Affinities {
		if deviceMeets(d, a.Constraint) {
			sum += float64(a.Weight)
		}
	}
	return sum
}
