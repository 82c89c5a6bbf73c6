package local

import (
	"cmp"

	"corbel.dev/corbel/catalog"
)

// Tokens are the agent's own, for what carries none: reading them again for each call lets
// them change while the process runs.
type Tokens struct {
	// Agent is for what the agent does for itself: its node, node checks, removals.
	Agent string
	// Default is for registrations without a token, and stands in for the others.
	Default string
	// ConfigFile is for services and checks that definition files brought.
	ConfigFile string
}

func (c *Config) tokens() Tokens {
	if c.Tokens == nil {
		return Tokens{}
	}
	return c.Tokens()
}

// own is the token for the node itself.
func (t Tokens) own() string { return cmp.Or(t.Agent, t.Default) }

// of is the token for a registration: its own, else the one of its origin, else the default one.
func (t Tokens) of(registered string, fromFile bool) string {
	if registered == "" && fromFile {
		registered = t.ConfigFile
	}
	return cmp.Or(registered, t.Default)
}

// gone is something to be deregistered: the version of its removal and the token it was registered with. What has its
// id meanwhile and is of another name or service is told afterwards: its token need not allow the removal.
type gone struct {
	gen      uint64
	of       string // the service's name, or the id of the check's service
	token    string
	fromFile bool
}

func goneService(gen uint64, e *serviceEntry) gone {
	return gone{gen, e.cur.Service.Name, e.cur.Definition.Token, e.cur.Definition.FromFile}
}

// tokenFor is the token for removing it: what nobody here registered is the agent's to remove.
func (g gone) tokenFor(t Tokens) string {
	if g.token == "" && !g.fromFile {
		return t.own()
	}
	return t.of(g.token, g.fromFile)
}

func (e *serviceEntry) token(t Tokens) string {
	return t.of(e.cur.Definition.Token, e.cur.Definition.FromFile)
}

func (e *checkEntry) token(t Tokens) string {
	d := e.cur.Definition
	if d.Token == "" && d.ServiceID == "" && !d.FromFile {
		return t.own()
	}
	return t.of(d.Token, d.FromFile)
}

// order sorts registrations into calls: the node first, then services, then checks alone; within each
// those of one token together.
func (r *registration) order() (phase int, token string) {
	switch {
	case r.service == "" && r.node:
		return 0, r.token
	case r.reg.Service != nil:
		return 1, r.token
	}
	return 2, r.token
}

// checkOf adds a check to a registration.
func (r *registration) checkOf(c *catalog.Check, id string, gen uint64) {
	r.reg.Checks = append(r.reg.Checks, c)
	r.checks = append(r.checks, mark{id, gen})
}
