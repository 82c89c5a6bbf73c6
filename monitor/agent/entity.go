package agent

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/hostinfo"
	"corbel.dev/corbel/monitor"
)

// managedBy is the label of an entity that its agent decides on.
const (
	managedBy      = "sensu.io/managed_by"
	managedByAgent = "sensu-agent"
)

// notFound is the name of the configuration that a backend sends which knows nothing of the agent.
const notFound = "not found"

// factsInterval is how often the host is looked at.
const factsInterval = 20 * time.Second

// entity is what the agent says of itself: the configuration that the backend has, else its own, and what the host
// says.
type entity struct {
	cfg   *Config
	local monitor.EntityConfig

	mu     sync.Mutex // guards below; what they point to is never changed
	stored *monitor.EntityConfig
	system monitor.System
}

func newEntity(cfg *Config) *entity {
	e := &entity{cfg: cfg, local: monitor.EntityConfig{
		Meta: monitor.Meta{Name: cfg.Name, Namespace: cfg.Namespace, Labels: maps.Clone(cfg.Labels),
			Annotations: cfg.Annotations},
		Class: monitor.ClassAgent, User: cfg.User, Subscriptions: subscriptions(cfg.Name, cfg.Subscriptions),
		Deregister:     cfg.Deregister,
		Deregistration: monitor.Deregistration{Handler: cfg.Deregistration}, KeepaliveHandlers: cfg.Keepalive.Handlers,
		Redact: cfg.Redact,
	}}
	if cfg.Managed {
		if e.local.Labels == nil {
			e.local.Labels = map[string]string{}
		}
		e.local.Labels[managedBy] = managedByAgent
	}
	e.refresh()
	return e
}

// subscriptions are those asked for and the entity's own.
func subscriptions(name string, list []string) []string {
	out := append(slices.Clone(list), monitor.EntitySubscription(name))
	slices.Sort(out)
	return slices.Compact(out)
}

// configure takes what the backend has of the entity; it means nothing where the agent itself decides.
func (e *entity) configure(c *monitor.EntityConfig) {
	if e.cfg.Managed {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.Name == notFound {
		e.stored = nil
		return
	}
	e.stored = c
}

// get returns the entity of now; it is the caller's.
func (e *entity) get() *monitor.Entity {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.stored
	if c == nil {
		c = &e.local
	}
	return monitor.Join(c, &monitor.EntityState{System: e.system, LastSeen: e.cfg.Now().Unix(),
		AgentVersion: e.cfg.Version})
}

func (e *entity) run(ctx context.Context) error {
	tick := time.NewTicker(factsInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			e.refresh()
		}
	}
}

// refresh looks at the host.
func (e *entity) refresh() {
	f := hostinfo.ReadFacts(!e.cfg.StripNetworks)
	s := monitor.System{Hostname: f.Hostname, OS: f.OS, Platform: f.Platform, PlatformFamily: f.Family,
		PlatformVersion: f.Version, Arch: f.Arch,
		ARMVersion: f.ARMVersion, LibCType: f.LibC, VMSystem: f.VMSystem, VMRole: f.VMRole, FloatType: f.FloatType}
	for _, i := range f.Interfaces {
		s.Network.Interfaces = append(s.Network.Interfaces,
			monitor.Interface{Name: i.Name, MAC: i.MAC, Addresses: i.Addresses})
	}
	if e.cfg.DetectCloud {
		s.CloudProvider = hostinfo.Cloud()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.system = s
}

func newID() monitor.ID {
	id := uuid.New()
	return id[:]
}
