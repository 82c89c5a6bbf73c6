package agentrows

import (
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
)

// Routes are the rows of this part of the contract.
func (ar *Rows) Routes() []rows.Row {
	return []rows.Row{
		rows.Own("GET", "/v1/agent/self", acl.Agent, ar.agentSelf),
		rows.Own("GET", "/v1/agent/host", acl.Operator, agentHost),
		rows.Own("GET", "/v1/agent/version", acl.Agent, agentVersion),
		rows.Own("GET", "/v1/agent/members", acl.Node, ar.agentMembers),
		rows.Own("PUT", "/v1/agent/join/", acl.Agent, ar.agentJoin),
		rows.Own("PUT", "/v1/agent/leave", acl.Agent, ar.agentLeave),
		rows.Own("PUT", "/v1/agent/force-leave/", acl.Operator, ar.agentForceLeave),
		rows.Own("PUT", "/v1/agent/reload", acl.Agent, ar.agentReload),
		rows.Own("PUT", "/v1/agent/maintenance", acl.Node, ar.onLocal(agentMaintenance)),
		rows.Own("GET", "/v1/agent/metrics", acl.Agent, ar.agentMetrics),
		rows.Own("GET", "/v1/agent/metrics/stream", acl.Agent, ar.agentMetricsStream),
		rows.Own("GET", "/v1/agent/monitor", acl.Agent, ar.agentMonitor),
		rows.Own("PUT", "/v1/agent/token/", acl.Agent, ar.agentToken),
		rows.Own("GET", "/v1/agent/services", acl.Service, ar.onLocal(agentServices)),
		rows.Own("GET", "/v1/agent/service/", acl.Service, ar.onLocal(agentService)),
		rows.Own("GET", "/v1/agent/health/ready", acl.NoResource, ar.agentReady).ForAnyone(),
		rows.Own("GET", "/v1/agent/health/service/id/", acl.Service, ar.onLocal(agentHealthByID)),
		rows.Own("GET", "/v1/agent/health/service/name/", acl.Service, ar.onLocal(agentHealthByName)),
		rows.Own("PUT", "/v1/agent/service/register", acl.Service, ar.onLocal(agentServiceRegister)),
		rows.Own("PUT", "/v1/agent/services/register", acl.Service, ar.onLocal(agentServicesRegister)),
		rows.Own("PUT", "/v1/agent/service/deregister/", acl.Service, ar.onLocal(agentServiceDeregister)),
		rows.Own("PUT", "/v1/agent/service/maintenance/", acl.Service, ar.onLocal(agentServiceMaintenance)),
		rows.Own("GET", "/v1/agent/checks", acl.Node, ar.onLocal(agentChecks)),
		rows.Own("PUT", "/v1/agent/check/register", acl.Node, ar.onLocal(agentCheckRegister)),
		rows.Own("PUT", "/v1/agent/check/deregister/", acl.Node, ar.onLocal(agentCheckDeregister)),
		rows.Own("PUT", "/v1/agent/check/pass/", acl.Node, ar.onLocal(agentCheckMark(catalog.Passing))),
		rows.Own("PUT", "/v1/agent/check/warn/", acl.Node, ar.onLocal(agentCheckMark(catalog.Warning))),
		rows.Own("PUT", "/v1/agent/check/fail/", acl.Node, ar.onLocal(agentCheckMark(catalog.Critical))),
		rows.Own("PUT", "/v1/agent/check/update/", acl.Node, ar.onLocal(agentCheckUpdate)),
		rows.Own("PUT", "/v1/event/fire/", acl.Event, ar.eventFire),
		rows.Own("GET", "/v1/event/list", acl.Event, ar.eventList),
		rows.Own("PUT", "/v1/agent/service/drain/", acl.Service, ar.onLocal(ar.agentServiceDrain)),
	}
}
