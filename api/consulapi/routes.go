package consulapi

import "corbel.dev/corbel/catalog"

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
	{"GET", kvPattern, read, ResKey, kvGet},
	{"PUT", kvPattern, write, ResKey, kvPut},
	{"DELETE", kvPattern, write, ResKey, kvDelete},
	{"PUT", "/v1/txn", write, ResKey, txn},
}

var sessionRoutes = []route{
	{"PUT", "/v1/session/create", write, ResSession, sessionCreate},
	{"PUT", "/v1/session/destroy/", write, ResSession, sessionDestroy},
	{"PUT", "/v1/session/renew/", write, ResSession, sessionRenew},
	{"GET", "/v1/session/info/", read, ResSession, sessionInfo},
	{"GET", "/v1/session/node/", read, ResSession, sessionNode},
	{"GET", "/v1/session/list", read, ResSession, sessionList},
}

var catalogRoutes = []route{
	{"PUT", "/v1/catalog/register", write, ResNode, catalogRegister},
	{"PUT", "/v1/catalog/register-batch", write, ResNode, catalogRegisterMany},
	{"PUT", "/v1/catalog/deregister", write, ResNode, catalogDeregister},
	{"GET", "/v1/catalog/datacenters", read, resNone, catalogDatacenters},
	{"GET", "/v1/catalog/nodes", read, ResNode, catalogNodes},
	{"GET", "/v1/catalog/services", read, ResService, catalogServices},
	{"GET", "/v1/catalog/service/", read, ResService, catalogService},
	{"GET", "/v1/catalog/connect/", read, ResService, catalogConnect},
	{"GET", nodePattern, read, ResNode, catalogNode},
	{"PUT", nodePattern, write, ResNode, catalogNodePut},
	{"DELETE", nodePattern, write, ResNode, catalogNodeDelete},
	{"GET", "/v1/catalog/node-bars", read, ResNode, catalogNodeBars},
	{"GET", "/v1/catalog/node-services/", read, ResNode, catalogNodeServices},
}

var healthRoutes = []route{
	{"GET", "/v1/health/service/", read, ResService, healthService},
	{"GET", "/v1/health/connect/", read, ResService, healthConnect},
	{"GET", "/v1/health/ingress/", read, ResService, healthIngress},
	{"GET", "/v1/health/node/", read, ResNode, healthNode},
	{"GET", "/v1/health/checks/", read, ResService, healthChecks},
	{"GET", "/v1/health/state/", read, ResNode, healthState},
}

var operatorRoutes = []route{
	{"GET", "/v1/status/leader", read, resNone, statusLeader},
	{"GET", "/v1/status/peers", read, resNone, statusPeers},
	{"GET", "/v1/operator/raft/configuration", read, ResOperator, raftConfiguration},
	{"DELETE", "/v1/operator/raft/peer", write, ResOperator, raftRemovePeer},
	{"POST", "/v1/operator/raft/transfer-leader", write, ResOperator, raftTransfer},
	{"GET", "/v1/operator/autopilot/configuration", read, ResOperator, autopilotConfig},
	{"PUT", "/v1/operator/autopilot/configuration", write, ResOperator, autopilotSet},
	{"GET", "/v1/operator/autopilot/health", read, ResOperator, autopilotHealth},
	{"GET", "/v1/operator/autopilot/state", read, ResOperator, autopilotState},
}

var agentRoutes = []route{
	{"GET", "/v1/agent/self", own, ResAgent, agentSelf},
	{"GET", "/v1/agent/host", own, ResOperator, agentHost},
	{"GET", "/v1/agent/version", own, ResAgent, agentVersion},
	{"GET", "/v1/agent/members", own, ResNode, agentMembers},
	{"PUT", "/v1/agent/join/", own, ResAgent, agentJoin},
	{"PUT", "/v1/agent/leave", own, ResAgent, agentLeave},
	{"PUT", "/v1/agent/force-leave/", own, ResOperator, agentForceLeave},
	{"PUT", "/v1/agent/reload", own, ResAgent, agentReload},
	{"PUT", "/v1/agent/maintenance", own, ResNode, onLocal(agentMaintenance)},
	{"GET", "/v1/agent/metrics", own, ResAgent, agentMetrics},
	{"GET", "/v1/agent/metrics/stream", own, ResAgent, agentMetricsStream},
	{"GET", "/v1/agent/monitor", own, ResAgent, agentMonitor},
	{"PUT", "/v1/agent/token/", own, ResAgent, agentToken},
	{"GET", "/v1/agent/services", own, ResService, onLocal(agentServices)},
	{"GET", "/v1/agent/service/", own, ResService, onLocal(agentService)},
	{"GET", readyPattern, own, resNone, agentReady},
	{"GET", "/v1/agent/health/service/id/", own, ResService, onLocal(agentHealthByID)},
	{"GET", "/v1/agent/health/service/name/", own, ResService, onLocal(agentHealthByName)},
	{"PUT", "/v1/agent/service/register", own, ResService, onLocal(agentServiceRegister)},
	{"PUT", "/v1/agent/services/register", own, ResService, onLocal(agentServicesRegister)},
	{"PUT", "/v1/agent/service/deregister/", own, ResService, onLocal(agentServiceDeregister)},
	{"PUT", "/v1/agent/service/maintenance/", own, ResService, onLocal(agentServiceMaintenance)},
	{"GET", "/v1/agent/checks", own, ResNode, onLocal(agentChecks)},
	{"PUT", "/v1/agent/check/register", own, ResNode, onLocal(agentCheckRegister)},
	{"PUT", "/v1/agent/check/deregister/", own, ResNode, onLocal(agentCheckDeregister)},
	{"PUT", "/v1/agent/check/pass/", own, ResNode, onLocal(agentCheckMark(catalog.Passing))},
	{"PUT", "/v1/agent/check/warn/", own, ResNode, onLocal(agentCheckMark(catalog.Warning))},
	{"PUT", "/v1/agent/check/fail/", own, ResNode, onLocal(agentCheckMark(catalog.Critical))},
	{"PUT", "/v1/agent/check/update/", own, ResNode, onLocal(agentCheckUpdate)},
}
