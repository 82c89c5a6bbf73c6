package jobsagentplane

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/allocnet"
	"corbel.dev/corbel/jobs/client/allocrunner"
	"corbel.dev/corbel/node/config"
)

// Keys are the agent's part of the jobs section: jobs { agent { ... } }.
type Keys struct {
	Enabled   bool              `key:"enabled" doc:"run workloads on this host; on in dev"`
	NodeClass string            `key:"node_class" doc:"class of the node, for constraints and computed classes"`
	NodePool  string            `key:"node_pool" def:"default" doc:"pool that the node belongs to"`
	Meta      map[string]string `key:"meta" doc:"pairs that describe the node to jobs"`
	AllocDir  string            `key:"alloc_dir" doc:"folders of allocations; default jobs/alloc in data_dir"`
	Secrets   string            `key:"secrets_address" doc:"URL of the secrets plane, for tasks; default this host's"`
	MaxAllocs int               `key:"node_max_allocs" doc:"most allocations at once; 0 is no limit"`
	// MaxKill bounds what jobs ask for.
	MaxKill     time.Duration    `key:"max_kill_timeout" def:"30s" doc:"longest kill_timeout that a task may have"`
	HostVolumes []map[string]any `key:"host_volume" doc:"folders that jobs may mount, each with path and read_only"`
	Tokens      TokenKeys
	Drivers     DriverKeys
	Capacity    CapacityKeys
	Network     NetworkKeys
	GC          GCKeys
}

// DriverKeys turn task drivers on and off.
type DriverKeys struct {
	RawExec     bool     `key:"raw_exec" doc:"tasks may be processes without isolation; on in dev"`
	Exec        bool     `key:"exec" def:"true" doc:"tasks may be isolated processes (Linux, as root)"`
	Java        bool     `key:"java" def:"true" doc:"tasks may be Java programs, isolated like exec"`
	Mock        bool     `key:"mock_driver" doc:"tasks may be simulated, for tests; on in dev"`
	Docker      string   `key:"docker" def:"unix:///var/run/docker.sock" doc:"socket of the Docker Engine; empty is off"`
	Podman      string   `key:"podman" def:"unix:///run/podman/podman.sock" doc:"socket of Podman's API; empty is off"`
	Privileged  bool     `key:"docker_privileged" doc:"containers may be privileged, and mount folders of the host"`
	DeniedUsers []string `key:"denied_users" doc:"users that no task may be; default root, but in dev"`
}

// CapacityKeys say what the host has, where the fingerprint is not to.
type CapacityKeys struct {
	CPU            int    `key:"cpu_total_compute" doc:"MHz of all cores together; 0 measures"`
	MemoryMB       int    `key:"memory_total_mb" doc:"memory; 0 measures"`
	DiskMB         int    `key:"disk_total_mb" doc:"disk for allocations; 0 measures"`
	ReservedCPU    int    `key:"reserved.cpu" doc:"MHz that jobs do not get"`
	ReservedMemory int    `key:"reserved.memory" doc:"MB of memory that jobs do not get"`
	ReservedDisk   int    `key:"reserved.disk" doc:"MB of disk that jobs do not get"`
	ReservedPorts  string `key:"reserved.reserved_ports" doc:"ports that jobs do not get: 22,80,8500-8600"`
}

// NetworkKeys are the host's network.
type NetworkKeys struct {
	Address string `key:"network_address" doc:"address at which tasks are reached; default the advertised one"`
	MinPort int    `key:"min_dynamic_port" def:"20000" doc:"first port for tasks"`
	MaxPort int    `key:"max_dynamic_port" def:"32000" doc:"last port for tasks"`
	// Hosts are further addresses.
	HostNetworks []map[string]any `key:"host_network" doc:"addresses for ports, each with cidr or interface"`
	Bridge       string           `key:"bridge_network_name" def:"nomad" doc:"bridge of networks with mode bridge"`
	Subnet       string           `key:"bridge_network_subnet" def:"172.26.64.0/20" doc:"addresses of their allocations"`
	Hairpin      bool             `key:"bridge_network_hairpin_mode" doc:"frames may leave a port of the bridge as they came"`
	CNIPath      string           `key:"cni_path" def:"/opt/cni/bin:/usr/lib/cni" doc:"folders of CNI plug-ins"`
	CNIDir       string           `key:"cni_config_dir" def:"/opt/cni/config" doc:"networks of mode cni/NAME: .conflist and .conf"`
	Infra        string           `key:"infra_image" def:"registry.k8s.io/pause:3.10" doc:"holds the network of containers"`
	// MeshToken is not the agent's own: tasks of a group may read what its proxy has.
	MeshToken string `key:"mesh_token" doc:"token with which the proxies of jobs ask for their configuration"`
}

// GCKeys are when what is left of dead allocations goes, and what is told of those that live.
type GCKeys struct {
	MaxAllocs   int           `key:"gc_max_allocs" def:"50" doc:"dead allocations that are kept"`
	DiskPercent int           `key:"gc_disk_usage_threshold" def:"80" doc:"use of the disk in percent above which all go"`
	Every       time.Duration `key:"gc_interval" def:"1m" doc:"how often that is looked at"`
	// Publish is a series for each task and number: many.
	Publish bool `key:"publish_allocation_metrics" doc:"metrics of what each task and network of allocations uses"`
}

// Section is the section of a process whose servers have none of their own.
type Section struct {
	Agent Keys `key:"agent"`
}

// JobsAgent is the keys, for the plane that finds them in a section.
func (s *Section) JobsAgent() *Keys { return &s.Agent }

// SetDefaults implements what config.Options.Sections asks for.
func (s *Section) SetDefaults(_ config.Style, dev bool) { s.Agent.SetDefaults(dev) }

// SetDefaults turns on what dev is to have.
func (k *Keys) SetDefaults(dev bool) { k.Enabled, k.Drivers.RawExec, k.Drivers.Mock = dev, dev, dev }

// keysOf are the keys in a configuration, or nil where it has none.
func keysOf(cfg *config.Config) *Keys {
	if s, ok := cfg.Section("jobs").(interface{ JobsAgent() *Keys }); ok {
		return s.JobsAgent()
	}
	return nil
}

// checkKeys names what is wrong with the keys.
func checkKeys(cfg *config.Config) error {
	k := keysOf(cfg)
	if k == nil || !k.Enabled {
		return nil
	}
	if runtime.GOOS == "windows" && !cfg.Dev {
		return errors.New("jobs.agent.enabled: agents on Windows run no jobs")
	}
	var wrong []error
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf("jobs.agent."+format, args...)) }
	if k.Network.MinPort < 1 || k.Network.MaxPort > 65535 || k.Network.MinPort > k.Network.MaxPort {
		fail("min_dynamic_port, max_dynamic_port: %d to %d is no range of ports", k.Network.MinPort, k.Network.MaxPort)
	}
	if k.MaxKill < 0 {
		fail("max_kill_timeout: is negative")
	}
	if k.GC.MaxAllocs < 1 {
		fail("gc_max_allocs: must be at least 1")
	}
	if k.GC.DiskPercent < 1 || k.GC.DiskPercent > 100 {
		fail("gc_disk_usage_threshold: %d is no percentage", k.GC.DiskPercent)
	}
	if strings.Trim(k.Tokens.Auth, "/") == "" {
		fail("secrets_auth: is empty")
	}
	if _, err := volumes(k.HostVolumes); err != nil {
		fail("host_volume: %w", err)
	}
	if _, err := hostNetworks(k.Network.HostNetworks); err != nil {
		fail("host_network: %w", err)
	}
	if n := k.Network.Bridge; n == "" || len(n) > 15 || strings.ContainsAny(n, "/: \t\n") {
		fail("bridge_network_name: %q is no name of an interface", n)
	}
	if p, err := netip.ParsePrefix(k.Network.Subnet); err != nil {
		fail("bridge_network_subnet: %w", err)
	} else if _, err := allocnet.NewPool(p); err != nil {
		fail("bridge_network_subnet: %w", err)
	}
	if _, err := portList(k.Capacity.ReservedPorts); err != nil {
		fail("reserved.reserved_ports: %w", err)
	}
	return errors.Join(wrong...)
}

// volumes reads host_volume blocks.
func volumes(blocks []map[string]any) (map[string]allocrunner.Volume, error) {
	all := map[string]allocrunner.Volume{}
	for _, block := range blocks {
		for _, name := range slices.Sorted(maps.Keys(block)) {
			fields, ok := object(block[name])
			path, _ := fields["path"].(string)
			if !ok || !strings.HasPrefix(path, "/") {
				return nil, fmt.Errorf("%q needs an absolute path", name)
			}
			readOnly, _ := fields["read_only"].(bool)
			all[name] = allocrunner.Volume{Path: path, ReadOnly: readOnly}
		}
	}
	return all, nil
}

// hostNetworks reads host_network blocks: addresses of this host by their names.
func hostNetworks(blocks []map[string]any) (list []jobs.HostNetwork, err error) {
	for _, block := range blocks {
		for _, name := range slices.Sorted(maps.Keys(block)) {
			fields, ok := object(block[name])
			cidr, _ := fields["cidr"].(string)
			device, _ := fields["interface"].(string)
			if !ok || name == "default" || (cidr == "") == (device == "") {
				return nil, fmt.Errorf("%q needs one of cidr and interface, and a name that is not default", name)
			}
			address, err := addressIn(cidr, device)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", name, err)
			}
			list = append(list, jobs.HostNetwork{Name: name, Address: address})
		}
	}
	return list, nil
}

// object is the body of a block, which decoders wrap in lists.
func object(body any) (map[string]any, bool) {
	if list, ok := body.([]map[string]any); ok && len(list) == 1 {
		body = list[0]
	}
	if list, ok := body.([]any); ok && len(list) == 1 {
		body = list[0]
	}
	fields, ok := body.(map[string]any)
	return fields, ok
}

// addressIn is the host's first address in a network or of an interface, an IPv4 one where there is one.
func addressIn(cidr, device string) (string, error) {
	var in netip.Prefix
	if cidr != "" {
		var err error
		if in, err = netip.ParsePrefix(cidr); err != nil {
			return "", fmt.Errorf("cidr: %w", err)
		}
	}
	all, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	found := ""
	for _, i := range all {
		if device != "" && i.Name != device {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it went away
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil || cidr != "" && !in.Contains(p.Addr()) || p.Addr().IsLinkLocalUnicast() {
				continue
			}
			if p.Addr().Is4() {
				return p.Addr().String(), nil
			}
			if found == "" {
				found = p.Addr().String()
			}
		}
	}
	if found == "" {
		return "", fmt.Errorf("no address of this host is in cidr %q, or of interface %q", cidr, device)
	}
	return found, nil
}

// portList reads "22,80,8500-8600".
func portList(text string) (list []int, err error) {
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		from, to := 0, 0
		if n, err := fmt.Sscanf(word, "%d-%d", &from, &to); n < 2 || err != nil {
			if n, err := fmt.Sscanf(word, "%d", &from); n < 1 || err != nil {
				return nil, fmt.Errorf("%q is no port", word)
			}
			to = from
		}
		if from < 1 || to > 65535 || from > to {
			return nil, fmt.Errorf("%q is no port or range of ports", word)
		}
		for p := from; p <= to; p++ {
			list = append(list, p)
		}
	}
	return list, nil
}

// reserved is what jobs do not get.
func (k *CapacityKeys) reserved() jobs.Vector {
	return jobs.Vector{CPU: int64(k.ReservedCPU), MemoryMB: int64(k.ReservedMemory), DiskMB: int64(k.ReservedDisk)}
}
