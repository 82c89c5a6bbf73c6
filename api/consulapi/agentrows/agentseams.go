package agentrows

import (
	"context"
	"io"
	"log/slog"
)

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
