package configrows

import (
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
)

// Routes are the rows of this part of the contract.
func (cf *Rows) Routes() []rows.Row {
	return []rows.Row{
		rows.Read("GET POST", "/v1/discovery-chain/", acl.Service, discoveryChain),
		rows.Write("PUT", "/v1/config", acl.Service, configSet),
		rows.Read("GET", "/v1/config/", acl.Service, configGet),
		rows.Write("DELETE", "/v1/config/", acl.Service, configDelete),
		rows.Read("GET", "/v1/catalog/gateway-services/", acl.Service, gatewayServices),
		rows.Read("GET", "/v1/exported-services", acl.Service, exportedServices),
		rows.Read("GET", "/v1/peerings", acl.Peering, peerings),
		rows.Read("GET", "/v1/connect/intentions", acl.Intention, intentionList),
		rows.Read("GET", "/v1/connect/intentions/exact", acl.Intention, intentionGet),
		rows.Write("PUT", "/v1/connect/intentions/exact", acl.Intention, intentionSet),
		rows.Write("DELETE", "/v1/connect/intentions/exact", acl.Intention, intentionDelete),
		rows.Read("GET", "/v1/connect/intentions/match", acl.Intention, intentionMatch),
		rows.Read("GET", "/v1/connect/intentions/check", acl.Intention, cf.intentionCheck),
		rows.Write("POST", "/v1/connect/intentions", acl.Intention, intentionCreate),
		rows.Read("GET", intentionIDPattern, acl.Intention, intentionByID),
		rows.Write("PUT", intentionIDPattern, acl.Intention, intentionUpdate),
		rows.Write("DELETE", intentionIDPattern, acl.Intention, intentionDrop),
		rows.Own("POST", "/v1/agent/connect/authorize", acl.Service, cf.agentAuthorize),
		rows.Read("POST", CentralPattern, acl.Service, meshCentral),
	}
}
