package operatorrows

import (
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
)

// Routes are the rows of this part of the contract.
func (or *Rows) Routes() []rows.Row {
	return []rows.Row{
		rows.Read("GET", "/v1/coordinate/datacenters", acl.NoResource, or.coordinateDatacenters),
		rows.Read("GET", "/v1/coordinate/nodes", acl.Node, coordinateNodes),
		rows.Read("GET", "/v1/coordinate/node/", acl.Node, coordinateNode),
		rows.Write("PUT", "/v1/coordinate/update", acl.Node, or.coordinateUpdate),
		rows.Read("GET", "/v1/operator/keyring", acl.Keyring, or.keyringList),
		rows.Write("POST", "/v1/operator/keyring", acl.Keyring, or.keyringInstall),
		rows.Write("PUT", "/v1/operator/keyring", acl.Keyring, or.keyringUse),
		rows.Write("DELETE", "/v1/operator/keyring", acl.Keyring, or.keyringRemove),
		rows.Read("GET", "/v1/operator/usage", acl.Operator, operatorUsage),
		rows.Read("GET", "/v1/status/leader", acl.NoResource, or.statusLeader).ForAnyone(),
		rows.Read("GET", "/v1/status/peers", acl.NoResource, or.statusPeers).ForAnyone(),
		rows.Read("GET", "/v1/operator/raft/configuration", acl.Operator, or.raftConfiguration),
		rows.Write("DELETE", "/v1/operator/raft/peer", acl.Operator, or.raftRemovePeer),
		rows.Write("POST", "/v1/operator/raft/transfer-leader", acl.Operator, or.raftTransfer),
		rows.Read("GET", "/v1/operator/autopilot/configuration", acl.Operator, or.autopilotConfig),
		rows.Write("PUT", "/v1/operator/autopilot/configuration", acl.Operator, or.autopilotSet),
		rows.Read("GET", "/v1/operator/autopilot/health", acl.Operator, or.autopilotHealth),
		rows.Read("GET", "/v1/operator/autopilot/state", acl.Operator, or.autopilotState),
		rows.Read("GET", "/v1/snapshot", acl.ACL, or.snapshotSave).Streaming(),
		rows.Write("PUT", "/v1/snapshot", acl.ACL, or.snapshotRestore).Streaming(),
	}
}
