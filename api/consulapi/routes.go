package consulapi

import (
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
)

// routes is the whole contract of this adapter, one row per pattern and set of methods.
func routes() []route {
	var all []route
	for _, rows := range [][]route{agentRoutes, catalogRoutes, healthRoutes, kvRoutes, sessionRoutes, operatorRoutes, snapshotRoutes, configRoutes, queryRoutes, eventRoutes, keyringRoutes, intentionRoutes, intentionIDRoutes, aclRoutes,
		coordinateRoutes, chainRoutes, centralRoutes, gatewayRoutes, connectCARoutes, leafRoutes, meshRoutes, drainRoutes, watchRoutes} {
		all = append(all, rows...)
	}
	return all
}

var kvRoutes = []route{
	{"GET", kvPattern, read, acl.Key, kvGet},
	{"PUT", kvPattern, write, acl.Key, kvPut},
	{"DELETE", kvPattern, write, acl.Key, kvDelete},
	{"PUT", "/v1/txn", write, acl.Key, txn},
}

var sessionRoutes = []route{
	{"PUT", "/v1/session/create", write, acl.Session, sessionCreate},
	{"PUT", "/v1/session/destroy/", write, acl.Session, sessionDestroy},
	{"PUT", "/v1/session/renew/", write, acl.Session, sessionRenew},
	{"GET", "/v1/session/info/", read, acl.Session, sessionInfo},
	{"GET", "/v1/session/node/", read, acl.Session, sessionNode},
	{"GET", "/v1/session/list", read, acl.Session, sessionList},
}

var catalogRoutes = []route{
	{"PUT", "/v1/catalog/register", write, acl.Node, catalogRegister},
	{"PUT", "/v1/catalog/register-batch", write, acl.Node, catalogRegisterMany},
	{"PUT", "/v1/catalog/deregister", write, acl.Node, catalogDeregister},
	{"GET", "/v1/catalog/datacenters", read, acl.NoResource, catalogDatacenters},
	{"GET", "/v1/catalog/nodes", read, acl.Node, catalogNodes},
	{"GET", "/v1/catalog/services", read, acl.Service, catalogServices},
	{"GET", "/v1/catalog/service/", read, acl.Service, catalogService},
	{"GET", "/v1/catalog/connect/", read, acl.Service, catalogConnect},
	{"GET", nodePattern, read, acl.Node, catalogNode},
	{"PUT", nodePattern, write, acl.Node, catalogNodePut},
	{"DELETE", nodePattern, write, acl.Node, catalogNodeDelete},
	{"GET", "/v1/catalog/node-bars", read, acl.Node, catalogNodeBars},
	{"GET", "/v1/catalog/node-services/", read, acl.Node, catalogNodeServices},
}

var healthRoutes = []route{
	{"GET", "/v1/health/service/", read, acl.Service, healthService},
	{"GET", "/v1/health/connect/", read, acl.Service, healthConnect},
	{"GET", "/v1/health/ingress/", read, acl.Service, healthIngress},
	{"GET", "/v1/health/node/", read, acl.Node, healthNode},
	{"GET", "/v1/health/checks/", read, acl.Service, healthChecks},
	{"GET", "/v1/health/state/", read, acl.Node, healthState},
}

var operatorRoutes = []route{
	{"GET", "/v1/status/leader", read, acl.NoResource, statusLeader},
	{"GET", "/v1/status/peers", read, acl.NoResource, statusPeers},
	{"GET", "/v1/operator/raft/configuration", read, acl.Operator, raftConfiguration},
	{"DELETE", "/v1/operator/raft/peer", write, acl.Operator, raftRemovePeer},
	{"POST", "/v1/operator/raft/transfer-leader", write, acl.Operator, raftTransfer},
	{"GET", "/v1/operator/autopilot/configuration", read, acl.Operator, autopilotConfig},
	{"PUT", "/v1/operator/autopilot/configuration", write, acl.Operator, autopilotSet},
	{"GET", "/v1/operator/autopilot/health", read, acl.Operator, autopilotHealth},
	{"GET", "/v1/operator/autopilot/state", read, acl.Operator, autopilotState},
}

var agentRoutes = []route{
	{"GET", "/v1/agent/self", own, acl.Agent, agentSelf},
	{"GET", "/v1/agent/host", own, acl.Operator, agentHost},
	{"GET", "/v1/agent/version", own, acl.Agent, agentVersion},
	{"GET", "/v1/agent/members", own, acl.Node, agentMembers},
	{"PUT", "/v1/agent/join/", own, acl.Agent, agentJoin},
	{"PUT", "/v1/agent/leave", own, acl.Agent, agentLeave},
	{"PUT", "/v1/agent/force-leave/", own, acl.Operator, agentForceLeave},
	{"PUT", "/v1/agent/reload", own, acl.Agent, agentReload},
	{"PUT", "/v1/agent/maintenance", own, acl.Node, onLocal(agentMaintenance)},
	{"GET", "/v1/agent/metrics", own, acl.Agent, agentMetrics},
	{"GET", "/v1/agent/metrics/stream", own, acl.Agent, agentMetricsStream},
	{"GET", "/v1/agent/monitor", own, acl.Agent, agentMonitor},
	{"PUT", "/v1/agent/token/", own, acl.Agent, agentToken},
	{"GET", "/v1/agent/services", own, acl.Service, onLocal(agentServices)},
	{"GET", "/v1/agent/service/", own, acl.Service, onLocal(agentService)},
	{"GET", readyPattern, own, acl.NoResource, agentReady},
	{"GET", "/v1/agent/health/service/id/", own, acl.Service, onLocal(agentHealthByID)},
	{"GET", "/v1/agent/health/service/name/", own, acl.Service, onLocal(agentHealthByName)},
	{"PUT", "/v1/agent/service/register", own, acl.Service, onLocal(agentServiceRegister)},
	{"PUT", "/v1/agent/services/register", own, acl.Service, onLocal(agentServicesRegister)},
	{"PUT", "/v1/agent/service/deregister/", own, acl.Service, onLocal(agentServiceDeregister)},
	{"PUT", "/v1/agent/service/maintenance/", own, acl.Service, onLocal(agentServiceMaintenance)},
	{"GET", "/v1/agent/checks", own, acl.Node, onLocal(agentChecks)},
	{"PUT", "/v1/agent/check/register", own, acl.Node, onLocal(agentCheckRegister)},
	{"PUT", "/v1/agent/check/deregister/", own, acl.Node, onLocal(agentCheckDeregister)},
	{"PUT", "/v1/agent/check/pass/", own, acl.Node, onLocal(agentCheckMark(catalog.Passing))},
	{"PUT", "/v1/agent/check/warn/", own, acl.Node, onLocal(agentCheckMark(catalog.Warning))},
	{"PUT", "/v1/agent/check/fail/", own, acl.Node, onLocal(agentCheckMark(catalog.Critical))},
	{"PUT", "/v1/agent/check/update/", own, acl.Node, onLocal(agentCheckUpdate)},
}
