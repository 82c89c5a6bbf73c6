package allocrunner

import (
	"context"
	"encoding/json"
	"net/netip"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/allocnet"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/taskenv"
	"corbel.dev/corbel/jobs/client/workload"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/kit/errkind"
)

// Networks gives allocations networks of their own. Its methods may be called by any goroutine.
type Networks interface {
	// Join makes the network of an allocation, or finds it as a former life made it. holders are the drivers of its
	// tasks that want to hold it.
	Join(ctx context.Context, w *allocnet.Want, holders []driver.Driver) (*allocnet.Made, error)
	// Leave takes it away; none is not an error.
	Leave(ctx context.Context, alloc string) error
	// Made is the network of an allocation, or nil.
	Made(alloc string) *allocnet.Made
	Counters(alloc string) (allocnet.Counters, error)
}

const (
	// joinTries is how often a network is tried to be made, networkPause apart: plug-ins and Engines may be away.
	joinTries    = 3
	networkPause = 2 * time.Second
	// leaveLimit bounds what taking it away may take.
	leaveLimit = 2 * time.Minute
)

// ownNetwork is a Runner with an eye on its network.
type ownNetwork struct{ *Runner }

// mode is that of the group's network.
func mode(load *workload.Workload) string {
	if len(load.Group.Networks) == 0 {
		return ""
	}
	return load.Group.Networks[0].Mode
}

// join has the network that the group asks for.
func (r ownNetwork) join(ctx context.Context) (err error) {
	load := r.now()
	if !allocnet.Own(mode(load)) || r.dir == nil {
		return nil
	}
	if r.host.Networks == nil {
		if mode(load) == allocnet.NoneMode && r.contained(load) {
			return nil // their Engine does it
		}
		return errkind.Errorf(errkind.Invalid, "network mode %q: this node gives allocations no networks of their own: "+
			"its agent does not run as root on Linux", mode(load))
	}
	var holders []driver.Driver
	for _, t := range load.Group.Tasks {
		holders = append(holders, r.host.Drivers[t.Driver])
	}
	for try := range joinTries {
		if try > 0 {
			timer := r.host.Clock.NewTimer(networkPause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			}
		}
		_, err = r.host.Networks.Join(ctx, r.want(load), holders)
		if err == nil || ctx.Err() != nil || !errkind.Is(err, errkind.Unavailable) {
			break
		}
		r.host.Log.Warn("the network of an allocation cannot be made", "alloc", load.ID.String(), "error", err)
	}
	return err
}

// contained reports whether all tasks are containers.
func (r ownNetwork) contained(load *workload.Workload) bool {
	for _, t := range load.Group.Tasks {
		if _, ok := r.host.Drivers[t.Driver].(interface {
			Hold(ctx context.Context, alloc, hostname string) (path, container string, err error)
		}); !ok {
			return false
		}
	}
	return true
}

// want is what the group asks for.
func (r ownNetwork) want(load *workload.Workload) *allocnet.Want {
	n := load.Group.Networks[0]
	env := r.env(load, load.Group.Tasks[0], &driver.Task{}, nil)
	w := &allocnet.Want{Alloc: load.ID.String(), Mode: n.Mode, Hostname: env.Replace(n.Hostname),
		Args: map[string]string{}}
	if d := n.DNS; d != nil {
		w.DNS = allocnet.DNS{Servers: d.Servers, Searches: d.Searches, Options: d.Options}
	}
	for _, p := range r.ports(load) {
		ip, _ := netip.ParseAddr(p.HostIP)
		w.Ports = append(w.Ports, allocnet.Port{Label: p.Label, HostIP: ip, Host: uint16(p.Value),
			Inside: uint16(p.Inside())})
	}
	for name, value := range map[string]string{"NOMAD_REGION": regionOf(load, r.host),
		"NOMAD_GROUP_NAME": load.Alloc.Group, "NOMAD_NAMESPACE": jobwire.Get(load.Job.Namespace),
		"NOMAD_JOB_ID": jobwire.Get(load.Job.ID), "NOMAD_ALLOC_ID": w.Alloc} {
		w.Args[name] = value
	}
	if n.CNI != nil {
		for name, value := range n.CNI.Args {
			w.Args[name] = env.Replace(value)
		}
	}
	return w
}

// leave takes the network away, when all tasks are dead.
func (r ownNetwork) leave(ctx context.Context) {
	if r.host.Networks == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveLimit)
	defer cancel()
	if err := r.host.Networks.Leave(ctx, r.now().ID.String()); err != nil {
		r.host.Log.Warn("the network of an allocation that is over could not be taken away; the agent's next start tries "+
			"again", "alloc", r.now().ID.String(), "error", err)
	}
}

// network is what a driver is told.
func (r ownNetwork) network(load *workload.Workload) driver.Network {
	n := driver.Network{Mode: mode(load)}
	m := r.made(load.ID)
	if m == nil {
		return n
	}
	n.Path, n.Container, n.Hostname, n.Hosts, n.Resolv = m.Path, m.Holder, m.Hostname, m.Hosts, m.Resolv
	n.DNS = m.DNS.Given()
	return n
}

func (r ownNetwork) made(id jobs.ID) *allocnet.Made {
	if r.host.Networks == nil {
		return nil
	}
	return r.host.Networks.Made(id.String())
}

// inside is where an allocation is, for its environment.
func (r ownNetwork) inside(load *workload.Workload) taskenv.Inside {
	m := r.made(load.ID)
	if m == nil || !m.Address.IsValid() {
		return taskenv.Inside{}
	}
	return taskenv.Inside{Address: m.Address.String(), Interface: m.Interface}
}

// status is the network as the API shows it, or nothing.
func (r ownNetwork) status(id jobs.ID) []byte {
	m := r.made(id)
	if m == nil {
		return nil
	}
	s := struct {
		InterfaceName, Address string
		DNS                    *jobwire.DNSConfig
	}{InterfaceName: m.Interface}
	if m.Address.IsValid() {
		s.Address = m.Address.String()
	}
	if d := m.Resolution(); d.Given() {
		s.DNS = &jobwire.DNSConfig{Servers: d.Servers, Searches: d.Searches, Options: d.Options}
	}
	text, _ := json.Marshal(s) // texts alone
	return text
}

// Counters are those of the allocation's own network; false where it has none.
func (r *Runner) Counters() (allocnet.Counters, bool) {
	if r.host.Networks == nil {
		return allocnet.Counters{}, false
	}
	c, err := r.host.Networks.Counters(r.now().ID.String())
	return c, err == nil
}
