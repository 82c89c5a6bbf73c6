// Package catalogrows answers /v1/catalog and /v1/health: lists of nodes, services, instances and checks, as a whole,
// selected, or what changed since an index; registrations, leases and the removal of nodes by force. The lists of a
// service's instances and Register are what both paths to the API answer with.
package catalogrows

import (
	"context"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
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

// Routes are the rows of this part of the contract.
func (cr *Rows) Routes() []rows.Row {
	return []rows.Row{
		rows.Write("PUT", "/v1/catalog/register", acl.Node, catalogRegister),
		rows.Write("PUT", "/v1/catalog/register-batch", acl.Node, catalogRegisterMany),
		rows.Write("PUT", "/v1/catalog/deregister", acl.Node, catalogDeregister),
		rows.Read("GET", "/v1/catalog/datacenters", acl.NoResource, catalogDatacenters).ForAnyone(),
		rows.Read("GET", "/v1/catalog/nodes", acl.Node, catalogNodes),
		rows.Read("GET", "/v1/catalog/services", acl.Service, catalogServices),
		rows.Read("GET", "/v1/catalog/service/", acl.Service, catalogService),
		rows.Read("GET", "/v1/catalog/connect/", acl.Service, catalogConnect),
		rows.Read("GET", NodePattern, acl.Node, catalogNode),
		rows.Write("PUT", NodePattern, acl.Node, cr.catalogNodePut),
		rows.Write("DELETE", NodePattern, acl.Node, catalogNodeDelete),
		rows.Read("GET", "/v1/catalog/node-bars", acl.Node, catalogNodeBars),
		rows.Read("GET", "/v1/catalog/node-services/", acl.Node, catalogNodeServices),
		rows.Read("GET", "/v1/health/service/", acl.Service, healthService),
		rows.Read("GET", "/v1/health/connect/", acl.Service, healthConnect),
		rows.Read("GET", "/v1/health/ingress/", acl.Service, healthIngress),
		rows.Read("GET", "/v1/health/node/", acl.Node, healthNode),
		rows.Read("GET", "/v1/health/checks/", acl.Service, healthChecks),
		rows.Read("GET", "/v1/health/state/", acl.Node, healthState),
		rows.Read("GET", "/v1/health/counts/nodes", acl.Node, countNodes),
		rows.Read("GET", "/v1/health/counts/services", acl.Service, countServices),
	}
}
