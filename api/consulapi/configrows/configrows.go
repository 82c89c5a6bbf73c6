// Package configrows answers /v1/config, the discovery chain, and intentions, which are a view of the
// service-intentions entries: what that API writes is an entry, and what an entry says it shows. Intentions by ID are
// for clients that are older than config entries; the ID is kept with the source in the destination's entry. A change
// is checked against the entries that it belongs to, and refused when one of those changed on the way.
package configrows

import (
	"net/http"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
)

// Config is what the rows of config entries and intentions need.
type Config struct {
	// DefaultIntentionPolicy decides on connections that no intention names; "" is DefaultACLPolicy.
	DefaultIntentionPolicy string
	// TrustDomain is the mesh's, "" while it is not known; nil while the mesh is switched off. A server asks its State.
	TrustDomain func() string
	// ConnectOff (connect.enabled = false) refuses the rows of the mesh's authority.
	ConnectOff bool
}

// Rows are the rows of config entries and intentions.
type Rows struct {
	*rows.Core
	Config
}

var errConnectOff = answer.Fail(http.StatusInternalServerError, "Connect must be enabled in order to use this endpoint")

// ConnectOn is nil where this process serves the mesh's rows.
func (cf *Rows) ConnectOn() error {
	if cf.ConnectOff {
		return errConnectOff
	}
	return nil
}

// New makes the rows; it starts nothing.
func New(c *rows.Core, cfg Config) *Rows { return &Rows{c, cfg} }

// Routes are the rows of this part of the contract.
func (cf *Rows) Routes() []rows.Row {
	return []rows.Row{
		rows.Read("GET POST", "/v1/discovery-chain/", acl.Service, discoveryChain),
		rows.Write("PUT", "/v1/config", acl.Service, configSet),
		rows.Read("GET", "/v1/config/", acl.Service, configGet),
		rows.Write("DELETE", "/v1/config/", acl.Service, configDelete),
		rows.Read("GET", "/v1/catalog/gateway-services/", acl.Service, gatewayServices),
		rows.Read("GET", "/v1/exported-services", acl.Service, exportedServices),
		rows.Write("POST PUT", "/v1/internal/service-virtual-ip", acl.Mesh, setVirtualIPs),
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
