package node

import (
	"corbel.dev/corbel/node/plane"
	secretsplane "corbel.dev/corbel/node/planes/secrets"
)

// kinds are the planes beside catalog and mesh, one line each, in the order in which they start.
func kinds(p *Process) []plane.Kind {
	return []plane.Kind{
		secretsplane.Kind(),
		{Name: monitorGroupName, Open: func(d *plane.Doors) (plane.Plane, error) { return p.openMonitor(d) }},
		{Name: "monitor agent", Open: func(*plane.Doors) (plane.Plane, error) { return p.openMonitorAgent() }},
	}
}

// Sections are the keys of the planes, for config.Options.
func Sections() map[string]func() any { return plane.Sections(kinds(nil)) }
