// Package usageplane wires the usage plane of a server.
package usageplane

import (
	"context"

	"corbel.dev/corbel/node/plane"
)

// Name is the plane's, and its Raft group's.
const Name = "usage"

// groupID is the number of the plane's Raft group on the wire.
const groupID = 4

// Plane is the usage plane of a server.
type Plane struct {
	plane.Idle
	d *plane.Doors
}

// Kind is the plane as a process lists it.
func Kind() plane.Kind {
	return plane.Kind{Name: Name, Keys: func() any { return new(Keys) }, Check: check, Open: open}
}

func open(d *plane.Doors) (plane.Plane, error) {
	if d.Catalog == nil || !keysOf(d.Cfg).Enabled {
		return nil, nil
	}
	return &Plane{d: d}, nil
}

// Run implements plane.Plane.
func (p *Plane) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
