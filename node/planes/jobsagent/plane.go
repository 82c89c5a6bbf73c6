// Package jobsagentplane wires the jobs plane's agent of a host: the node client with its drivers, what servers ask of
// it, and its services in the catalog.
package jobsagentplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/allocrunner"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/driver/dockerdriver"
	"corbel.dev/corbel/jobs/client/driver/mockdriver"
	"corbel.dev/corbel/jobs/client/fingerprint"
	"corbel.dev/corbel/jobs/client/nodeclient"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/planes/jobsagent/nodecalls"
	"github.com/google/uuid"
)

// Name is the plane's.
const Name = "jobs agent"

// Kind is the plane as a process lists it.
func Kind() plane.Kind { return plane.Kind{Name: Name, Check: checkKeys, Open: open} }

// Agent is the plane.
type Agent struct {
	plane.Idle
	client *nodeclient.Client
	served *registrar
	// secrets is where the secrets plane answers; "" is on this host.
	secrets string
	asks    *http.Client // logins of tasks
	temp    string       // the folder of dev, which goes with the process
}

// open makes the agent where the configuration wants one.
func open(d *plane.Doors) (plane.Plane, error) {
	k := keysOf(d.Cfg)
	if k == nil || !k.Enabled {
		return nil, nil
	}
	a := &Agent{}
	cfg, err := a.config(d, k)
	if err != nil {
		return nil, fmt.Errorf("jobs.agent: %w", err)
	}
	a.served, a.secrets = newRegistrar(d, servers{d}), k.Secrets
	tokens, err := a.tokens(d, k)
	if err != nil {
		return nil, fmt.Errorf("jobs.agent.%w", err)
	}
	cfg.Services, cfg.Steps = a.served, append([]allocrunner.Step{tokens}, a.steps(d)...)
	if a.client, err = nodeclient.New(*cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("jobs.agent: %w", err), a.Close())
	}
	a.served.client = a.client
	for method, h := range a.client.Handlers() {
		d.Handle(wire.Servers, method, h)
	}
	for method, h := range a.client.Streams() {
		d.HandleStream(wire.Servers, method, h)
	}
	if d.Logs != nil {
		d.HandleStream(wire.Servers, noderpc.MethodMonitor, nodecalls.FollowLog(d.Logs))
	}
	d.Debug(func() any { return a.client.Debug() })
	d.Fresh((&reporter{tasks: a.client.Tasks, now: d.Clock.Now, metrics: d.Metrics, named: map[string]bool{},
		slow: map[[2]string]bool{}}).tell)
	return a, nil
}

// Run implements plane.Plane.
func (a *Agent) Run(ctx context.Context) error {
	served := make(chan error, 1)
	life, end := context.WithCancel(context.WithoutCancel(ctx)) // the services of tasks that are stopped go too
	go func() { served <- a.served.Run(life) }()
	err := a.client.Run(ctx)
	end()
	return errors.Join(err, <-served, a.Close())
}

// Close implements plane.Plane.
func (a *Agent) Close() error {
	if a.temp == "" {
		return nil
	}
	return os.RemoveAll(a.temp)
}

// config is the node client's.
func (a *Agent) config(d *plane.Doors, k *Keys) (*nodeclient.Config, error) {
	id, err := uuid.Parse(d.ID)
	if err != nil {
		return nil, fmt.Errorf("node_id: %w", err)
	}
	dir, err := a.folders(d)
	if err != nil {
		return nil, err
	}
	mounts, err := volumes(k.HostVolumes)
	if err != nil {
		return nil, err
	}
	reserved, err := portList(k.Capacity.ReservedPorts)
	if err != nil {
		return nil, err
	}
	all, err := drivers(d, k)
	if err != nil {
		return nil, err
	}
	addresses, err := hostNetworks(k.Network.HostNetworks)
	if err != nil {
		return nil, fmt.Errorf("host_network: %w", err)
	}
	networks, err := openNetworks(d, k, dir, all)
	if err != nil {
		return nil, fmt.Errorf("networks: %w", err)
	}
	c := &nodeclient.Config{
		Node: nodeclient.Identity{ID: jobs.ID(id), Name: d.Cfg.Node.Name, Datacenter: d.Cfg.Node.Datacenter,
			Class: k.NodeClass, Pool: k.NodePool, Meta: withProxies(k.Meta), MaxAllocs: k.MaxAllocs,
			ReservedForTheHost: k.Capacity.reserved(), AdvertisedHostNetworks: addresses,
			Attributes: map[string]string{"unique.consul.name": d.Cfg.Node.Name,
				"consul.server": strconv.FormatBool(d.Cfg.Server)}},
		Drivers: all, Networks: networks,
		Servers: servers{d}, RPCAddr: d.RPCAddr, HTTPAddr: func() string { return httpAddr(d) },
		Host: fingerprint.Options{Address: address(d, k), TotalCPU: int64(k.Capacity.CPU),
			MemoryMB: int64(k.Capacity.MemoryMB), DiskMB: int64(k.Capacity.DiskMB),
			MinPort: k.Network.MinPort, MaxPort: k.Network.MaxPort, Ports: reserved},
		AllocDir: k.AllocDir, StateDir: filepath.Join(dir, "state"), Volumes: mounts, MaxKillTimeout: k.MaxKill,
		GC:            nodeclient.GC{MaxAllocs: k.GC.MaxAllocs, DiskPercent: float64(k.GC.DiskPercent), Every: k.GC.Every},
		PublishAllocs: k.GC.Publish, StopTasks: d.Cfg.Dev, FS: d.FS, Clock: d.Clock,
		Log: d.Log.With("plane", "jobs"), Metrics: d.Metrics}
	if c.AllocDir == "" {
		c.AllocDir = filepath.Join(dir, "alloc")
	}
	return c, nil
}

// folders is where the agent keeps what it has: below data_dir, in dev without one in a folder of the system's.
func (a *Agent) folders(d *plane.Doors) (dir string, err error) {
	if dir = base.InDir(d.Cfg.DataDir, "jobs"); dir != "" {
		return filepath.Abs(dir)
	}
	a.temp, err = os.MkdirTemp("", "corbel-jobs-")
	return a.temp, err
}

// address is where tasks are reached.
func address(d *plane.Doors, k *Keys) string {
	if k.Network.Address != "" {
		return k.Network.Address
	}
	host, _, err := net.SplitHostPort(d.RPCAddr())
	if err != nil {
		return "127.0.0.1"
	}
	return host
}

// httpAddr is where the process's HTTP API answers, for tools that go past the servers.
func httpAddr(d *plane.Doors) string {
	if len(d.Cfg.Listen.HTTP) == 0 || strings.HasPrefix(d.Cfg.Listen.HTTP[0], "unix:") {
		return ""
	}
	return d.Cfg.Listen.HTTP[0]
}

// drivers are those that the configuration wants.
func drivers(d *plane.Doors, k *Keys) (map[string]driver.Driver, error) {
	all := map[string]driver.Driver{}
	if k.Drivers.Mock {
		all[mockdriver.Name] = &mockdriver.Driver{Clock: d.Clock}
	}
	addProcesses(all, k, d.Cfg.Dev)
	for kind, address := range map[string]string{dockerdriver.Name: k.Drivers.Docker,
		dockerdriver.Podman: k.Drivers.Podman} {
		if address == "" {
			continue
		}
		engine, err := dockerdriver.New(kind, address, k.Drivers.Privileged)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		engine.Infra = k.Network.Infra
		all[kind] = engine
	}
	return all, nil
}

// servers are the servers of the datacenter; a server asks itself.
type servers struct{ d *plane.Doors }

// Call implements nodeclient.Servers.
func (s servers) Call(ctx context.Context, method string, req []byte) ([]byte, error) {
	if s.d.Cfg.Server {
		return s.d.RPC.Call(ctx, s.d.RPCAddr(), method, req)
	}
	return s.d.Others.Ask(ctx, method, req)
}

// Stream implements nodeclient.Servers.
func (s servers) Stream(ctx context.Context, method string, req []byte) (nodeclient.Stream, error) {
	addr := s.d.RPCAddr()
	if !s.d.Cfg.Server {
		var err error
		if addr, err = s.d.AnyServer(); err != nil {
			return nil, err
		}
	}
	var stream *rpc.Stream
	stream, err := s.d.RPC.Stream(ctx, addr, method, req)
	if err != nil {
		return nil, errkind.E(errkind.Of(err), "", err)
	}
	return stream, nil
}
