// Package agentrows answers what a process tells about itself: /v1/agent (members, registrations of this host, health,
// maintenance, logs, metrics, tokens), /v1/event, and the draining of instances, which the process also does for itself
// when it ends. Registrations go to catalog/local, which decides.
package agentrows

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/kit/vivaldi"
)

// Config is what the rows about this process need. Each may be nil where a process has none.
type Config struct {
	Local   Local
	Members Members
	WAN     Members // the pool of all datacenters' servers; nil where this process is not in it
	Events  Events  // nil: this agent is in no pool
	Info    AgentInfo
	Logs    LogSource
	// Place is where this process lies in the network; nil: nobody knows.
	Place func() vivaldi.Coord
	// Lacks tells what the process waits for before it is ready; nil: it always is.
	Lacks func() []string
	// MetricsHandler serves /v1/agent/metrics.
	MetricsHandler http.Handler
	// Connections looks at the open connections of this host; draining waits for them. Required where Local is.
	Connections Connections
	// SetToken stores one of the agent's own tokens; kind NotFound for a name that there is not. Nil while ACLs are off.
	SetToken func(kind, token string) error
}

// Rows are the rows about this process.
type Rows struct {
	*rows.Core
	Config
	operator *operatorrows.Rows
	meshed   bool // there are proxies that must hear of what drains
}

// New makes the rows. operator takes servers that are gone out of the Raft groups; meshed tells that there are proxies,
// which must hear of what drains. It starts nothing.
func New(c *rows.Core, cfg Config, operator *operatorrows.Rows, meshed bool) *Rows {
	return &Rows{c, cfg, operator, meshed}
}

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

// Member is one row of /v1/agent/members.
type Member struct {
	Name   string
	Addr   string
	Port   uint16
	Tags   map[string]string
	Status int // 1 alive, 2 leaving, 3 left, 4 failed
}

// Members is the gossip pool as an operator sees it.
type Members interface {
	Members() []Member
	// Join returns how many of the addresses answered.
	Join(ctx context.Context, addrs []string) (int, error)
	// ForceLeave fails with kind NotFound when no member has that name.
	ForceLeave(name string, prune bool) error
}

// AgentInfo tells about this process.
type AgentInfo interface {
	// DebugConfig is the running configuration with secrets hidden.
	DebugConfig() map[string]any
	// Stats are sections of name and value.
	Stats() map[string]map[string]string
	// Reload reads the configuration again, all or nothing.
	Reload(ctx context.Context) error
	// Leave leaves the cluster and returns when the others know; then the process ends.
	Leave(ctx context.Context) error
}

// LogSource lets an operator follow the log.
type LogSource interface {
	// Follow writes lines of the level and above to w until ctx ends or a write fails;
	// flush is called after each batch. A slow reader loses lines, and never blocks the log.
	Follow(ctx context.Context, level slog.Level, json bool, w io.Writer, flush func()) error
}

// MetricsStreamer is what MetricsHandler also is where metrics can be followed.
type MetricsStreamer interface {
	// Stream writes a JSON summary for each interval that ends, until ctx ends or a write fails.
	Stream(ctx context.Context, w io.Writer, flush func()) error
}

// Local is what this host registered (catalog/local.Local). Errors carry their
// kind and the contract's text.
type Local interface {
	View() *local.View
	// AwaitService returns the service once its hash differs from hash, or after wait.
	AwaitService(ctx context.Context, id, hash string, wait time.Duration) (*local.Service, error)
	// ServiceHealth returns a nil service when there is none of that id.
	ServiceHealth(id string) (status string, s *local.Service, checks []*local.Check)
	RegisterService(ctx context.Context, d *definition.Service, o local.RegisterOptions) error
	RegisterServices(ctx context.Context, list []*definition.Service, o local.RegisterOptions) error
	DeregisterService(ctx context.Context, id string) error
	RegisterCheck(ctx context.Context, d *definition.Check, o local.RegisterOptions) error
	DeregisterCheck(ctx context.Context, id string) error
	// UpdateTTL is a heartbeat: it stays on this host unless the status changes.
	UpdateTTL(id, status, output string) error
	SetServiceMaintenance(ctx context.Context, id string, enable bool, reason string, persist bool) error
	SetServiceDrain(ctx context.Context, id string, enable bool, reason string) error
	// DrainServices is SetServiceDrain for many, and kept on no disk.
	DrainServices(ctx context.Context, ids []string, reason string) error
	SetNodeMaintenance(ctx context.Context, enable bool, reason string, persist bool) error
}
