package dockerdriver

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/jobs/client/allocnet"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// config is what a task says.
type config struct {
	Image      string   `json:"image"`
	Command    string   `json:"command"`
	Args       []string `json:"args"`
	Entrypoint []string `json:"entrypoint"`
	ForcePull  bool     `json:"force_pull"`
	// PullTimeout is a duration.
	PullTimeout string       `json:"image_pull_timeout"`
	Auth        list[auth]   `json:"auth"`
	AuthSoft    bool         `json:"auth_soft_fail"`
	Labels      driver.Pairs `json:"labels"`
	networking
	storage
	rights
}

// networking is how a container is reached.
type networking struct {
	Ports       []string     `json:"ports"`
	NetworkMode string       `json:"network_mode"`
	Aliases     []string     `json:"network_aliases"`
	Hostname    string       `json:"hostname"`
	DNSServers  []string     `json:"dns_servers"`
	DNSSearch   []string     `json:"dns_search_domains"`
	DNSOptions  []string     `json:"dns_options"`
	ExtraHosts  []string     `json:"extra_hosts"`
	Logging     list[logs]   `json:"logging"`
	Health      driver.Pairs `json:"healthchecks"`
}

// storage is what a container sees of disks.
type storage struct {
	Volumes    []string     `json:"volumes"`
	Mounts     []mount      `json:"mounts"`
	Mount      []mount      `json:"mount"`
	WorkDir    string       `json:"work_dir"`
	ReadOnly   bool         `json:"readonly_rootfs"`
	ShmSize    int64        `json:"shm_size"`
	StorageOpt driver.Pairs `json:"storage_opt"`
}

// rights are what a container may.
type rights struct {
	CapAdd      []string     `json:"cap_add"`
	CapDrop     []string     `json:"cap_drop"`
	Privileged  bool         `json:"privileged"`
	PIDMode     string       `json:"pid_mode"`
	IPCMode     string       `json:"ipc_mode"`
	SecurityOpt []string     `json:"security_opt"`
	Ulimit      driver.Pairs `json:"ulimit"`
	Sysctl      driver.Pairs `json:"sysctl"`
	Init        bool         `json:"init"`
	HardLimitMB int64        `json:"memory_hard_limit"`
	CPUHard     bool         `json:"cpu_hard_limit"`
	PIDsLimit   int64        `json:"pids_limit"`
	TTY         bool         `json:"tty"`
}

// auth is for a registry.
type auth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Email         string `json:"email,omitempty"`
	ServerAddress string `json:"server_address,omitempty"`
}

// logs are where output goes beside the task's files.
type logs struct {
	Type   string       `json:"type"`
	Driver string       `json:"driver"`
	Config driver.Pairs `json:"config"`
}

// mount is a mount of a container.
type mount struct {
	Type     string `json:"type"`
	Target   string `json:"target"`
	Source   string `json:"source"`
	ReadOnly bool   `json:"readonly"`
}

// list is an object, or a list of such: blocks of job files.
type list[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (l *list[T]) UnmarshalJSON(text []byte) error {
	if strings.HasPrefix(strings.TrimSpace(string(text)), "[") {
		return driver.Strict(text, (*[]T)(l))
	}
	var one T
	if err := driver.Strict(text, &one); err != nil {
		return err
	}
	*l = list[T]{one}
	return nil
}

// create is what the Engine is asked for.
type create struct {
	Image        string
	Cmd          []string            `json:",omitempty"`
	Entrypoint   []string            `json:",omitempty"`
	Env          []string            `json:",omitempty"`
	User         string              `json:",omitempty"`
	WorkingDir   string              `json:",omitempty"`
	Hostname     string              `json:",omitempty"`
	Labels       map[string]string   `json:",omitempty"`
	ExposedPorts map[string]struct{} `json:",omitempty"`
	Tty          bool                `json:",omitempty"`
	HostConfig   hostConfig
	// NetworkingConfig is for aliases.
	NetworkingConfig map[string]any `json:",omitempty"`
}

// hostConfig is its part about the host.
type hostConfig struct {
	hostResources
	hostRights
	Binds        []string `json:",omitempty"`
	Mounts       []engineMount
	PortBindings map[string][]portBinding `json:",omitempty"`
	NetworkMode  string                   `json:",omitempty"`
	Dns          []string                 `json:",omitempty"`
	DnsSearch    []string                 `json:",omitempty"`
	DnsOptions   []string                 `json:",omitempty"`
	ExtraHosts   []string                 `json:",omitempty"`
	LogConfig    *logConfig               `json:",omitempty"`
	StorageOpt   map[string]string        `json:",omitempty"`
}

type hostResources struct {
	Memory            int64  `json:",omitempty"`
	MemoryReservation int64  `json:",omitempty"`
	MemorySwap        int64  `json:",omitempty"`
	CpuShares         int64  `json:",omitempty"`
	CpuPeriod         int64  `json:",omitempty"`
	CpuQuota          int64  `json:",omitempty"`
	CpusetCpus        string `json:",omitempty"`
	PidsLimit         int64  `json:",omitempty"`
	ShmSize           int64  `json:",omitempty"`
	Ulimits           []ulimit
}

type hostRights struct {
	CapAdd         []string          `json:",omitempty"`
	CapDrop        []string          `json:",omitempty"`
	Privileged     bool              `json:",omitempty"`
	PidMode        string            `json:",omitempty"`
	IpcMode        string            `json:",omitempty"`
	SecurityOpt    []string          `json:",omitempty"`
	Sysctls        map[string]string `json:",omitempty"`
	Init           bool              `json:",omitempty"`
	ReadonlyRootfs bool              `json:",omitempty"`
}

type engineMount struct {
	Type, Target, Source string
	ReadOnly             bool
}

type portBinding struct{ HostIp, HostPort string }

type logConfig struct {
	Type   string
	Config map[string]string
}

type ulimit struct {
	Name       string
	Soft, Hard int64
}

// bridged is the mode of containers that have a network of their own.
const bridged = "bridge"

// create makes the request of a task.
func (d *Driver) create(t *driver.Task, c *config) (*create, error) {
	if err := d.allowed(t, c); err != nil {
		return nil, err
	}
	out := &create{Image: c.Image, Entrypoint: c.Entrypoint, User: t.User, WorkingDir: c.WorkDir, Hostname: c.Hostname,
		Tty: c.TTY, Labels: map[string]string{"com.hashicorp.nomad.alloc_id": t.Alloc}}
	if c.Command != "" {
		out.Cmd = []string{c.Command}
	}
	out.Cmd = append(out.Cmd, c.Args...)
	for name, value := range c.Labels {
		out.Labels[name] = value
	}
	for name, value := range t.Env {
		out.Env = append(out.Env, name+"="+value)
	}
	h := &out.HostConfig
	h.hostRights = hostRights{CapAdd: c.CapAdd, CapDrop: c.CapDrop, Privileged: c.Privileged, PidMode: c.PIDMode,
		IpcMode: c.IPCMode, SecurityOpt: c.SecurityOpt, Sysctls: c.Sysctl, Init: c.Init, ReadonlyRootfs: c.ReadOnly}
	h.Dns, h.DnsSearch, h.DnsOptions, h.ExtraHosts = c.DNSServers, c.DNSSearch, c.DNSOptions, c.ExtraHosts
	h.StorageOpt, h.Mounts = c.StorageOpt, []engineMount{}
	if err := c.limits(h, &t.Resources); err != nil {
		return nil, err
	}
	for _, l := range c.Logging {
		if l.Type == "" {
			l.Type = l.Driver
		}
		h.LogConfig = &logConfig{l.Type, l.Config}
	}
	if err := d.volumes(t, c, h); err != nil {
		return nil, err
	}
	return out, c.network(t, out)
}

// allowed refuses what only an operator may allow.
func (d *Driver) allowed(t *driver.Task, c *config) error {
	switch {
	case c.Image == "":
		return errkind.New(errkind.Invalid, "config: image is missing")
	case d.Privileged:
		return nil
	case c.Privileged:
		return errkind.New(errkind.Denied, "config: privileged containers are not allowed on this node")
	case c.PIDMode == "host" || c.IPCMode == "host":
		return errkind.New(errkind.Denied, "config: pid_mode and ipc_mode host are not allowed on this node")
	case strings.HasPrefix(c.NetworkMode, "container:"):
		return errkind.New(errkind.Denied, "config: network_mode: other containers' networks are not allowed on this node")
	}
	for _, o := range c.SecurityOpt {
		if !strings.HasPrefix(o, "no-new-privileges") {
			return errkind.Errorf(errkind.Denied, "config: security_opt: %q is not allowed on this node", o)
		}
	}
	for _, name := range c.CapAdd {
		if !safeCaps[strings.TrimPrefix(strings.ToLower(name), "cap_")] {
			return errkind.Errorf(errkind.Denied, "config: cap_add: %q is not allowed on this node", name)
		}
	}
	return nil
}

// safeCaps are the capabilities that a job may have: the Engine's own defaults, without raw sockets.
var safeCaps = map[string]bool{"audit_write": true, "chown": true, "dac_override": true, "fowner": true, "fsetid": true,
	"kill": true, "mknod": true, "net_bind_service": true, "setfcap": true, "setgid": true, "setpcap": true,
	"setuid": true, "sys_chroot": true}

func (c *config) limits(h *hostConfig, r *driver.Resources) error {
	hard := max(r.MemoryMB, r.MemoryMaxMB, c.HardLimitMB)
	h.Memory, h.MemorySwap = hard<<20, hard<<20
	if hard > r.MemoryMB {
		h.MemoryReservation = r.MemoryMB << 20
	}
	h.CpuShares, h.PidsLimit, h.ShmSize = max(r.CPU, 2), c.PIDsLimit, c.ShmSize
	if c.CPUHard && r.TotalCPU > 0 {
		h.CpuPeriod = 100_000
		h.CpuQuota = max(1000, h.CpuPeriod*r.CPU*int64(driver.CPUs())/r.TotalCPU)
	}
	var cores []string
	for _, n := range r.Cores {
		cores = append(cores, strconv.Itoa(int(n)))
	}
	h.CpusetCpus = strings.Join(cores, ",")
	h.Ulimits = []ulimit{}
	for name, value := range c.Ulimit {
		soft, hardText, ok := strings.Cut(value, ":")
		if !ok {
			hardText = soft
		}
		a, err := strconv.ParseInt(soft, 10, 64)
		b, err2 := strconv.ParseInt(hardText, 10, 64)
		if err != nil || err2 != nil {
			return errkind.Errorf(errkind.Invalid, "config: ulimit: %s: %q is no soft:hard", name, value)
		}
		h.Ulimits = append(h.Ulimits, ulimit{name, a, b})
	}
	return nil
}

// volumes are the task's folders, and what its job mounts.
func (d *Driver) volumes(t *driver.Task, c *config, h *hostConfig) error {
	h.Binds = []string{t.Dirs.Shared + ":/alloc", filepath.Join(t.Dirs.Task, "local") + ":/local",
		filepath.Join(t.Dirs.Task, "secrets") + ":/secrets"}
	for _, v := range c.Volumes {
		from, to, ok := strings.Cut(v, ":")
		if !ok || from == "" {
			return errkind.Errorf(errkind.Invalid, "config: volumes: %q is no host:container", v)
		}
		full, err := d.source(t, from)
		if err != nil {
			return err
		}
		h.Binds = append(h.Binds, full+":"+to)
	}
	for _, m := range append(append([]mount(nil), c.Mounts...), c.Mount...) {
		source := m.Source
		switch m.Type {
		case "bind", "":
			m.Type = "bind"
			var err error
			if source, err = d.source(t, source); err != nil {
				return err
			}
		case "tmpfs":
			source = ""
		case "volume":
			if !d.Privileged {
				return errkind.New(errkind.Denied, "config: mount: volumes of the Engine are not allowed on this node")
			}
		default:
			return errkind.Errorf(errkind.Invalid, "config: mount: type %q is none of bind, tmpfs, volume", m.Type)
		}
		h.Mounts = append(h.Mounts, engineMount{m.Type, m.Target, source, m.ReadOnly})
	}
	for _, m := range t.Mounts { // host volumes, which an operator named
		h.Mounts = append(h.Mounts, engineMount{"bind", m.Task, m.Host, m.ReadOnly})
	}
	return nil
}

// source is a folder of the task, or where that is allowed of the host.
func (d *Driver) source(t *driver.Task, from string) (string, error) {
	if !path.IsAbs(from) {
		full := filepath.Join(t.Dirs.Task, from)
		if filepath.IsLocal(from) {
			// A link that the task made itself could lead the Engine anywhere.
			if real, err := filepath.EvalSymlinks(full); err == nil && real != full && !d.Privileged {
				return "", errkind.Errorf(errkind.Denied, "config: %q is a link, which may not be mounted", from)
			}
			return full, nil
		}
		from = full
	}
	if !d.Privileged {
		return "", errkind.Errorf(errkind.Denied, "config: %q: folders of the host are not allowed on this node: use a "+
			"host volume", from)
	}
	return from, nil
}

// network binds the ports that the task names.
func (c *config) network(t *driver.Task, out *create) error {
	h := &out.HostConfig
	h.NetworkMode = c.NetworkMode
	if h.NetworkMode == "" && t.Network.Path != "" {
		return joined(t, out)
	}
	if h.NetworkMode == "" && t.Network.Mode == "none" {
		h.NetworkMode = "none"
	}
	if h.NetworkMode == "host" || h.NetworkMode == "none" {
		return nil
	}
	if len(c.Aliases) > 0 && h.NetworkMode != "" && h.NetworkMode != bridged {
		out.NetworkingConfig = map[string]any{"EndpointsConfig": map[string]any{h.NetworkMode: map[string]any{
			"Aliases": c.Aliases}}}
	}
	for _, label := range c.Ports {
		found := false
		for _, p := range t.Ports {
			if p.Label != label {
				continue
			}
			found = true
			inside := p.To
			if inside <= 0 {
				inside = p.Value
			}
			for _, proto := range []string{"tcp", "udp"} {
				key := fmt.Sprintf("%d/%s", inside, proto)
				if out.ExposedPorts == nil {
					out.ExposedPorts, h.PortBindings = map[string]struct{}{}, map[string][]portBinding{}
				}
				out.ExposedPorts[key] = struct{}{}
				h.PortBindings[key] = append(h.PortBindings[key], portBinding{p.HostIP, strconv.Itoa(p.Value)})
			}
		}
		if !found {
			return errkind.Errorf(errkind.Invalid, "config: ports: the group has no port %q", label)
		}
	}
	return nil
}

// joined puts the container into the network of its allocation. The Engine takes names and addresses there from what
// holds the network: it refuses to be told others, so that they come as files.
func joined(t *driver.Task, out *create) error {
	h := &out.HostConfig
	if t.Network.Container == "" {
		return errkind.New(errkind.Unavailable, "the allocation's network is not held by a container")
	}
	h.NetworkMode = "container:" + t.Network.Container
	out.Hostname = ""
	resolv := t.Network.Resolv
	if len(h.Dns)+len(h.DnsSearch)+len(h.DnsOptions) > 0 {
		text := allocnet.ResolvFile(allocnet.DNS{Servers: h.Dns, Searches: h.DnsSearch, Options: h.DnsOptions}, "")
		var err error
		if resolv, err = own(t, "resolv.conf", text); err != nil {
			return err
		}
	}
	hosts := t.Network.Hosts
	if len(h.ExtraHosts) > 0 {
		text, err := os.ReadFile(hosts)
		if err != nil {
			return err
		}
		for _, line := range h.ExtraHosts {
			name, ip, ok := strings.Cut(line, ":")
			if !ok || name == "" || ip == "" {
				return errkind.Errorf(errkind.Invalid, "config: extra_hosts: %q is no name:address", line)
			}
			text = append(text, ip+" "+name+"\n"...)
		}
		if hosts, err = own(t, "hosts", string(text)); err != nil {
			return err
		}
	}
	h.Dns, h.DnsSearch, h.DnsOptions, h.ExtraHosts = nil, nil, nil, nil
	for file, inside := range map[string]string{hosts: "/etc/hosts", resolv: "/etc/resolv.conf"} {
		if file != "" {
			h.Binds = append(h.Binds, file+":"+inside)
		}
	}
	slices.Sort(h.Binds)
	return nil
}

// own writes a file of the task's.
func own(t *driver.Task, name, text string) (string, error) {
	if err := os.MkdirAll(t.Dirs.Private, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(t.Dirs.Private, name)
	return path, vfs.WriteFileAtomic(vfs.OS{}, path, []byte(text), 0o644)
}
