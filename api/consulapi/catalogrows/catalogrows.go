// Package catalogrows answers /v1/catalog and /v1/health: lists of nodes, services, instances and checks, as a whole,
// selected, or what changed since an index; registrations, leases and the removal of nodes by force. The lists of a
// service's instances and Register are what both paths to the API answer with.
package catalogrows

import (
	"context"

	"corbel.dev/corbel/catalog"
)

// Config is what the rows of nodes, services and checks need.
type Config struct{ Leases Leases }

// Leases keeps the leases of nodes.
type Leases interface {
	// RenewLease gives a node its lease anew; NotFound, Invalid for one without a lease, or NotLeader.
	RenewLease(ctx context.Context, node string) (*catalog.Node, error)
}

// Rows are the rows of nodes, services and checks.
type Rows struct{ Config }

// New makes the rows; it starts nothing.
func New(cfg Config) *Rows { return &Rows{cfg} }
