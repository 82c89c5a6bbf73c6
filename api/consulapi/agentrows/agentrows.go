// Package agentrows answers what a process tells about itself: /v1/agent (members, registrations of this host, health,
// maintenance, logs, metrics, tokens), /v1/event, and the draining of instances, which the process also does for itself
// when it ends. Registrations go to catalog/local, which decides.
package agentrows

import (
	"net/http"

	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/api/consulapi/rows"
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
