package monitor

import (
	"slices"
	"strings"
	"unique"

	"corbel.dev/corbel/kit/tagproto"
)

// Classes of entities; any valid name is one.
const (
	ClassAgent   = "agent"
	ClassProxy   = "proxy"
	ClassBackend = "backend"
)

// Entity is what is watched: a host with an agent, or whatever an agent reports for.
type Entity struct {
	Class              string         `json:"entity_class" pb:"1"`
	System             System         `json:"system" pb:"3"`
	Subscriptions      []string       `json:"subscriptions" pb:"4"`
	LastSeen           int64          `json:"last_seen" pb:"5"`
	Deregister         bool           `json:"deregister" pb:"6"`
	Deregistration     Deregistration `json:"deregistration" pb:"7"`
	User               string         `json:"user,omitempty" pb:"11"`
	ExtendedAttributes []byte         `json:"-" pb:"12"`
	Redact             []string       `json:"redact,omitempty" pb:"13"`
	Meta               `json:"metadata,omitempty" pb:"14"`
	AgentVersion       string         `json:"sensu_agent_version" pb:"15"`
	KeepaliveHandlers  []string       `json:"keepalive_handlers,omitempty" pb:"16"`
	Extra              tagproto.Extra `json:"-"`
}

// System is what an agent found out about its host.
type System struct {
	Hostname        string         `json:"hostname,omitempty" pb:"1"`
	OS              string         `json:"os,omitempty" pb:"2"`
	Platform        string         `json:"platform,omitempty" pb:"3"`
	PlatformFamily  string         `json:"platform_family,omitempty" pb:"4"`
	PlatformVersion string         `json:"platform_version,omitempty" pb:"5"`
	Network         Network        `json:"network" pb:"6"`
	Arch            string         `json:"arch,omitempty" pb:"7"`
	ARMVersion      int32          `json:"arm_version,omitempty" pb:"8"`
	LibCType        string         `json:"libc_type" pb:"9"`
	VMSystem        string         `json:"vm_system" pb:"10"`
	VMRole          string         `json:"vm_role" pb:"11"`
	CloudProvider   string         `json:"cloud_provider" pb:"12"`
	FloatType       string         `json:"float_type,omitempty" pb:"13"`
	Processes       []*Process     `json:"processes" pb:"14"`
	Extra           tagproto.Extra `json:"-"`
}

// Process is a running program on an entity.
type Process struct {
	Name  string         `json:"name" pb:"1"`
	Extra tagproto.Extra `json:"-"`
}

// Network is a host's interfaces.
type Network struct {
	Interfaces []Interface    `json:"interfaces" pb:"1"`
	Extra      tagproto.Extra `json:"-"`
}

// Interface is one of a host's network interfaces.
type Interface struct {
	Name      string         `json:"name,omitempty" pb:"1"`
	MAC       string         `json:"mac,omitempty" pb:"2"`
	Addresses []string       `json:"addresses" pb:"3"`
	Extra     tagproto.Extra `json:"-"`
}

// Deregistration says who hears of an entity's end.
type Deregistration struct {
	Handler string         `json:"handler,omitempty" pb:"1"`
	Extra   tagproto.Extra `json:"-"`
}

// EntityConfig is the part of an entity that operators decide (core/v3).
type EntityConfig struct {
	Meta              `json:"metadata" pb:"1"`
	Class             string         `json:"entity_class" pb:"2"`
	User              string         `json:"user" pb:"3"`
	Subscriptions     []string       `json:"subscriptions" pb:"4"`
	Deregister        bool           `json:"deregister" pb:"5"`
	Deregistration    Deregistration `json:"deregistration" pb:"6"`
	KeepaliveHandlers []string       `json:"keepalive_handlers" pb:"7"`
	Redact            []string       `json:"redact" pb:"8"`
	Extra             tagproto.Extra `json:"-"`
}

// Share has c keep once what many entities have in common: their namespace, class, user, subscriptions and list of
// what is hidden.
func (c *EntityConfig) Share() {
	for _, text := range []*string{&c.Namespace, &c.Class, &c.User} {
		*text = unique.Make(*text).Value()
	}
	for _, list := range [][]string{c.Subscriptions, c.KeepaliveHandlers, c.Redact} {
		for i, text := range list {
			if !strings.HasPrefix(text, entityPrefix) { // that one is of one entity
				list[i] = unique.Make(text).Value()
			}
		}
	}
	if slices.Equal(c.Redact, defaultRedact) {
		c.Redact = defaultRedact
	}
	c.Subscriptions = slices.Clip(c.Subscriptions)
}

// EntityState is the part of an entity that its agent reports (core/v3).
type EntityState struct {
	Meta         `json:"metadata" pb:"1"`
	System       System         `json:"system" pb:"2"`
	LastSeen     int64          `json:"last_seen" pb:"3"`
	AgentVersion string         `json:"sensu_agent_version" pb:"4"`
	Extra        tagproto.Extra `json:"-"`
}

// Join makes an entity of its two parts; s may be nil.
func Join(c *EntityConfig, s *EntityState) *Entity {
	e := &Entity{
		Meta: c.Meta, Class: c.Class, User: c.User, Subscriptions: c.Subscriptions, Deregister: c.Deregister,
		Deregistration: c.Deregistration, KeepaliveHandlers: c.KeepaliveHandlers, Redact: c.Redact,
	}
	if s != nil {
		e.System, e.LastSeen, e.AgentVersion = s.System, s.LastSeen, s.AgentVersion
	}
	return e
}

// Split is the reverse of Join.
func Split(e *Entity) (*EntityConfig, *EntityState) {
	c := &EntityConfig{
		Meta: e.Meta, Class: e.Class, User: e.User, Subscriptions: e.Subscriptions, Deregister: e.Deregister,
		Deregistration: e.Deregistration, KeepaliveHandlers: e.KeepaliveHandlers, Redact: e.Redact,
	}
	s := &EntityState{
		Meta:   Meta{Name: e.Name, Namespace: e.Namespace},
		System: e.System, LastSeen: e.LastSeen, AgentVersion: e.AgentVersion,
	}
	return c, s
}
