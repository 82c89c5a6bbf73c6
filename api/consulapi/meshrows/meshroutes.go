package meshrows

import (
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
)

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
		rows.Own("GET", settledPattern, acl.Service, mr.meshSettled),
		rows.Read("GET", SettlePattern, acl.Service, mr.meshSettle),
	}
}
