// Package meshrows answers about the mesh: roots and configuration of its authority, leaf certificates of this host,
// and how the proxies of the fleet stand, which it gathers from their hosts. What a host answers is not filtered; the
// caller sees of it what its token may read.
package meshrows

import (
	"corbel.dev/corbel/api/consulapi/configrows"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
)

// Config is what the rows of the mesh's certificates and proxies need.
type Config struct {
	// CA is nil on a client agent.
	CA CA
	// Leaves are this host's leaf certificates; nil while the mesh is switched off.
	Leaves Leaves
	// Proxies are those of this host; nil while the mesh is switched off.
	Proxies Mesh
}

// Rows are the rows of the mesh's certificates and proxies.
type Rows struct {
	Config
	intentions *configrows.Rows
}

// New makes the rows, which judge connections by the intentions of entries; it starts nothing.
func New(cfg Config, entries *configrows.Rows) *Rows { return &Rows{cfg, entries} }

// Routes are the rows of this part of the contract.
func (mr *Rows) Routes() []rows.Row {
	return []rows.Row{
		rows.Read("GET", "/v1/connect/ca/roots", acl.NoResource, mr.caRoots),
		rows.Read("GET", "/v1/agent/connect/ca/roots", acl.NoResource, mr.caRoots),
		rows.Read("GET", "/v1/connect/ca/configuration", acl.Operator, mr.caConfig),
		rows.Write("PUT", "/v1/connect/ca/configuration", acl.Operator, mr.caSetConfig),
		rows.Own("GET", "/v1/agent/connect/ca/leaf/", acl.Service, mr.agentLeaf),
		rows.Own("GET", meshProxiesPattern, acl.Service, mr.meshProxies),
		rows.Own("GET", MeshProxyPattern, acl.Service, mr.meshProxy),
		rows.Read("GET", "/v1/internal/mesh/status", acl.Operator, mr.meshStatus),
		rows.Read("GET", "/v1/internal/mesh/find/", acl.Service, mr.meshFind),
		rows.Read("GET", "/v1/internal/mesh/topology", acl.Service, mr.meshTopology),
		rows.Own("GET", heldPattern, acl.Service, mr.meshLeaves),
		rows.Read("GET", "/v1/internal/mesh/certificates", acl.Service, mr.meshCertificates),
		rows.Own("GET", settledPattern, acl.Service, mr.meshSettled),
		rows.Read("GET", SettlePattern, acl.Service, mr.meshSettle),
	}
}
