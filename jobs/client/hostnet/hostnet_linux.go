package hostnet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"corbel.dev/corbel/jobs/client/allocnet"
	"corbel.dev/corbel/jobs/client/cninet"
	"corbel.dev/corbel/jobs/client/natrules"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// Config is what a Host needs.
type Config struct {
	Dir     string // a folder of its own, for what allocations have
	Spaces  string // where namespaces are; default /run/netns
	Bridge  string // default nomad
	Subnet  netip.Prefix
	Hairpin bool
	CNI     cninet.Config
	Log     *slog.Logger
}

// The defaults, which jobs and their operators know.
const (
	DefaultBridge = "nomad"
	DefaultSubnet = "172.26.64.0/20"
	defaultSpaces = "/run/netns"
)

// Holder keeps namespaces for containers: an Engine joins only those that a container of it has.
type Holder interface {
	// Hold has a container with a namespace of its own and nothing in it. It returns the namespace's file, and the
	// container's name. It may be called again.
	Hold(ctx context.Context, alloc, hostname string) (path, container string, err error)
	Release(ctx context.Context, alloc string) error
}

// Host is the networks of this host.
type Host struct {
	cfg Config
	cni *cninet.Networks

	mu    sync.Mutex // guards what follows, and is held while the bridge and its rules change
	pool  *allocnet.Pool
	nets  map[string]*allocnet.Made
	rules *natrules.Rules
	stand bool // bridge and rules are there
}

const made = "network.json"

// Open reads what a former life made, and changes nothing.
func Open(cfg Config) (*Host, error) {
	if cfg.Spaces == "" {
		cfg.Spaces = defaultSpaces
	}
	if cfg.Bridge == "" {
		cfg.Bridge = DefaultBridge
	}
	if !cfg.Subnet.IsValid() {
		cfg.Subnet = netip.MustParsePrefix(DefaultSubnet)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	pool, err := allocnet.NewPool(cfg.Subnet)
	if err != nil {
		return nil, fmt.Errorf("bridge_network_subnet: %w", err)
	}
	h := &Host{cfg: cfg, cni: cninet.New(cfg.CNI), pool: pool, nets: map[string]*allocnet.Made{},
		rules: natrules.New(cfg.Bridge, cfg.Subnet)}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := h.read(e.Name()); err != nil {
			cfg.Log.Error("the network of an allocation cannot be read: what is left of it has to be deleted by hand",
				"alloc", e.Name(), "error", err)
		}
	}
	return h, nil
}

// read finds what a former life made for an allocation.
func (h *Host) read(alloc string) error {
	text, err := os.ReadFile(filepath.Join(h.cfg.Dir, alloc, made))
	if errors.Is(err, fs.ErrNotExist) {
		return os.RemoveAll(filepath.Join(h.cfg.Dir, alloc)) // it was not even planned
	}
	if err != nil {
		return err
	}
	m := &allocnet.Made{}
	if err := json.Unmarshal(text, m); err != nil {
		return err
	}
	if m.Alloc != alloc {
		return errkind.Errorf(errkind.Corrupt, "%s says that it is %q's", made, m.Alloc)
	}
	if m.Mode == allocnet.BridgeMode && !h.pool.Keep(alloc, m.Address) {
		h.cfg.Log.Warn("an allocation keeps an address that is not of the bridge's subnet any more", "alloc", alloc,
			"address", m.Address)
	}
	h.nets[alloc] = m
	return nil
}

// Modes are the networks that groups may ask for beside host and none, with attributes of the node. What is missing
// for one that somebody configured is logged.
func (h *Host) Modes(ctx context.Context) (modes []string, attributes map[string]string) {
	if err := h.rules.Probe(); err != nil {
		h.cfg.Log.Warn("no bridge networks for jobs: the kernel has no nftables, or the agent may not use it", "error", err)
	} else {
		modes = append(modes, allocnet.BridgeMode)
	}
	found := h.cni.Look(ctx)
	for name, err := range found.Wrong {
		h.cfg.Log.Warn("a CNI network is not offered to jobs", "network", name, "error", err)
	}
	for _, name := range found.Names {
		modes = append(modes, allocnet.CNIPrefix+name)
	}
	return modes, found.Attributes
}

// Bridge is the name of the bridge.
func (h *Host) Bridge() string { return h.cfg.Bridge }

// Keep takes away the networks of all allocations but these. holder is who held them, by the name of the container.
func (h *Host) Keep(ctx context.Context, allocs []string, release func(ctx context.Context, alloc string) error) {
	h.mu.Lock()
	var old []string
	for alloc := range h.nets {
		if !slices.Contains(allocs, alloc) {
			old = append(old, alloc)
		}
	}
	h.mu.Unlock()
	for _, alloc := range old {
		if err := h.Leave(ctx, alloc, release); err != nil {
			h.cfg.Log.Warn("the network of an allocation that is over could not be taken away", "alloc", alloc, "error", err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rules.Stand() { // also what a life left that ended in the middle of it
		if err := h.fold(); err != nil {
			h.cfg.Log.Warn("the bridge of allocations could not be taken away", "error", err)
		}
	}
}

// Made is the network of an allocation, or nil.
func (h *Host) Made(alloc string) *allocnet.Made {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nets[alloc]
}

// Join makes the network of an allocation, or finds it.
func (h *Host) Join(ctx context.Context, w *allocnet.Want, holder Holder) (*allocnet.Made, error) {
	m, err := h.plan(w)
	if err != nil {
		return nil, err
	}
	next := *m // what others see of it never changes
	m = &next
	fresh, err := h.namespace(ctx, m, holder)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "network namespace", err)
	}
	switch name, isCNI := cut(m.Mode); {
	case isCNI:
		if fresh && m.Interface != "" { // the host was started again: what plug-ins made went with the namespace
			h.unplug(ctx, name, m)
		}
		err = h.plug(ctx, name, m)
	case m.Mode == allocnet.BridgeMode:
		err = h.connect(m)
	}
	if err == nil {
		err = h.files(m)
	}
	if err == nil {
		err = h.store(m)
	}
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.nets[m.Alloc] = m
	h.mu.Unlock()
	return m, nil
}

// plan reserves what a network needs, and stores that.
func (h *Host) plan(w *allocnet.Want) (*allocnet.Made, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.nets[w.Alloc]; m != nil {
		return m, nil
	}
	m := &allocnet.Made{Want: *w, Path: filepath.Join(h.cfg.Spaces, w.Alloc)}
	if m.Mode == allocnet.BridgeMode {
		for _, p := range w.Ports {
			if !p.HostIP.Unmap().Is4() {
				return nil, errkind.Errorf(errkind.Invalid, "port %q: bridge networks publish ports at IPv4 addresses, and "+
					"the host's is %q: set network_address or a host_network", p.Label, p.HostIP)
			}
		}
		var err error
		if m.Address, err = h.pool.Take(w.Alloc); err != nil {
			return nil, err
		}
		m.Interface, m.Outside = allocnet.Interface, allocnet.OutsideName(w.Alloc)
	}
	if err := h.store(m); err != nil {
		h.pool.Give(m.Address)
		return nil, err
	}
	h.nets[w.Alloc] = m
	return m, nil
}

func (h *Host) store(m *allocnet.Made) error {
	dir := filepath.Join(h.cfg.Dir, m.Alloc)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(vfs.OS{}, filepath.Join(dir, made), text, 0o600)
}

// The host's own files about names; the second has what systemd's stub asks.
const (
	hostResolv    = "/etc/resolv.conf"
	systemdResolv = "/run/systemd/resolve/resolv.conf"
)

// files writes what tasks see as /etc/hosts and /etc/resolv.conf.
func (h *Host) files(m *allocnet.Made) error {
	dir := filepath.Join(h.cfg.Dir, m.Alloc)
	write := func(name, text string) (string, error) {
		path := filepath.Join(dir, name)
		return path, vfs.WriteFileAtomic(vfs.OS{}, path, []byte(text), 0o644)
	}
	var err error
	if m.Hosts, err = write("hosts", allocnet.HostsFile(m)); err != nil {
		return err
	}
	if d := m.Resolution(); m.Mode != allocnet.NoneMode || d.Given() {
		host, _ := os.ReadFile(hostResolv)
		if allocnet.Loopback(string(host)) {
			if real, err := os.ReadFile(systemdResolv); err == nil {
				host = real
			}
		}
		m.Resolv, err = write("resolv.conf", allocnet.ResolvFile(d, string(host)))
	}
	return err
}

// Leave takes the network of an allocation away; one that has none is not an error. What failed is tried again by the
// next life of the agent. release may be nil.
func (h *Host) Leave(ctx context.Context, alloc string, release func(ctx context.Context, alloc string) error) error {
	m := h.Made(alloc)
	if m == nil {
		return nil
	}
	var wrong []error
	if name, isCNI := cut(m.Mode); isCNI {
		wrong = append(wrong, h.cni.Del(ctx, attachment(name, m)))
	}
	if m.Mode == allocnet.BridgeMode {
		wrong = append(wrong, h.disconnect(m))
	}
	wrong = append(wrong, removeNamespace(m.Path))
	if m.Holder != "" && release != nil {
		wrong = append(wrong, release(ctx, alloc))
	}
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(h.cfg.Dir, alloc)); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.nets, alloc)
	if m.Mode != allocnet.BridgeMode {
		return nil
	}
	h.pool.Give(m.Address)
	return h.fold()
}

// Tend puts back the rules that somebody else has flushed.
func (h *Host) Tend() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stand || h.rules.Stand() {
		return
	}
	h.cfg.Log.Warn("the rules of the bridge are gone, and are made again: something flushes nftables", "table",
		h.rules.Table())
	if err := h.rules.Replace(h.published()); err != nil {
		h.cfg.Log.Error("the rules of the bridge cannot be made", "error", err)
	}
}

// published are the ports of all that hang on the bridge.
func (h *Host) published() (list []natrules.Published) {
	for _, m := range h.nets {
		list = append(list, portsOf(m)...)
	}
	return list
}

func portsOf(m *allocnet.Made) (list []natrules.Published) {
	if m.Mode != allocnet.BridgeMode {
		return nil
	}
	for _, p := range m.Ports {
		list = append(list, natrules.Published{Host: netip.AddrPortFrom(p.HostIP.Unmap(), p.Host),
			Inside: netip.AddrPortFrom(m.Address, p.Inside)})
	}
	return list
}

func cut(mode string) (name string, isCNI bool) {
	if len(mode) > len(allocnet.CNIPrefix) && mode[:len(allocnet.CNIPrefix)] == allocnet.CNIPrefix {
		return mode[len(allocnet.CNIPrefix):], true
	}
	return "", false
}
