package node

import (
	"net"

	"corbel.dev/corbel/node/plane"
	jobsplane "corbel.dev/corbel/node/planes/jobs"
	jobsagentplane "corbel.dev/corbel/node/planes/jobsagent"
	monitorplane "corbel.dev/corbel/node/planes/monitor"
	secretsplane "corbel.dev/corbel/node/planes/secrets"
	uiplane "corbel.dev/corbel/node/planes/ui"
	usageplane "corbel.dev/corbel/node/planes/usage"
	usageagentplane "corbel.dev/corbel/node/planes/usageagent"
	usagecacheplane "corbel.dev/corbel/node/planes/usagecache"
)

// kinds are the planes beside catalog and mesh, one line each, in the order in which they start.
func kinds() []plane.Kind {
	return []plane.Kind{
		secretsplane.Kind(),
		monitorplane.Kind(),
		monitorplane.AgentKind(),
		usageplane.Kind(),
		usageagentplane.Kind(),
		usagecacheplane.Kind(),
		jobsplane.Kind(),
		jobsagentplane.Kind(),
		uiplane.Kind(),
	}
}

// Sections are the keys of the planes, for config.Options.
func Sections() map[string]func() any { return plane.Sections(kinds()) }

// SecretsAddr is where dev's secrets plane answers, or nil.
func (p *localAgent) SecretsAddr() net.Addr {
	if part := plane.Find[*secretsplane.Part](p.doors.Planes); part != nil {
		return part.Addr()
	}
	return nil
}

// JobsAddr is where the jobs plane's API answers, "" where that is off.
func (p *localAgent) JobsAddr() string {
	if jobs := plane.Find[*jobsplane.Plane](p.doors.Planes); jobs != nil {
		return jobs.Addr()
	}
	return ""
}

// MonitorAddrs are where the monitor plane's API and its port for agents answer, "" where that is off.
func (p *localAgent) MonitorAddrs() (api, agents string) {
	if m := plane.Find[*monitorplane.Plane](p.doors.Planes); m != nil {
		return m.Addrs()
	}
	return "", ""
}
