package clusterrows

import (
	"encoding/json"
	"io"
	"log/slog"
	"strings"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/nomadapi/nomadrows"
)

// logLevels are the words of log_level. What is below debug has no name of slog's.
var logLevels = map[string]slog.Level{"": slog.LevelInfo, "trace": slog.LevelDebug - 4, "debug": slog.LevelDebug,
	"info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// monitor follows the log of this process, as frames or with plain=true as it is.
func monitor(q *request) error {
	level, ok := logLevels[strings.ToLower(q.Query.Value("log_level"))]
	if !ok {
		return nomadrows.BadRequest("Unknown log level: %s", q.Query.Value("log_level"))
	}
	structured, err := q.Flag("log_json")
	if err != nil {
		return err
	}
	plain, err := q.Flag("plain")
	if err != nil {
		return err
	}
	if err := followsItself(q); err != nil {
		return err
	}
	if q.Logs == nil {
		return nomadrows.Failed("this process keeps no log to follow")
	}
	kind := httpx.JSONType
	if plain {
		kind = []string{"text/plain; charset=utf-8"}
	}
	out := httpx.NewStream(q.W, q.R, kind)
	defer out.Close()
	ctx, release := q.Lasting(q.Ctx(), func(q *request) error { return q.May("", nomadrows.AgentRead) })
	defer release()
	var w io.Writer = out
	if !plain {
		w = framed{json.NewEncoder(out)}
	}
	out.Flush()
	_ = q.Logs.Follow(ctx, level, structured, w, out.Flush) // it ends with the client, or with its right
	return nil
}

// followsItself refuses a log that another process has.
func followsItself(q *request) error {
	self := q.Cluster.Self()
	node, server := q.Query.Value("node_id"), q.Query.Value("server_id")
	switch {
	case node != "" && server != "":
		return nomadrows.BadRequest("Cannot target node and server simultaneously")
	case node != "" && node != self.Node.String():
		return nomadrows.BadRequest("this process follows its own log alone: ask the agent of node %q itself "+
			"(corbel monitor)", node)
	case server == "" || server == self.Name || server == self.Name+"."+self.Region:
		return nil
	case server == "leader" && leads(q):
		return nil
	}
	return nomadrows.BadRequest("this process follows its own log alone: ask server %q itself", server)
}

// leads reports whether this process is the leader.
func leads(q *request) bool {
	for _, s := range q.Cluster.Servers() {
		if s.Leader {
			return s.Name == q.Cluster.Self().Name
		}
	}
	return false
}

// framed writes what it gets as frames.
type framed struct{ to *json.Encoder }

// Write implements io.Writer.
func (f framed) Write(p []byte) (int, error) { return len(p), f.to.Encode(nomadrows.Frame{Data: p}) }
