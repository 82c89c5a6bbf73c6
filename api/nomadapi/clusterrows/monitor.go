package clusterrows

import (
	"context"
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

// monitor follows the log of this process, or of the node or server that is named, as frames or with plain=true as it
// is.
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
	ctx, release := q.Lasting(q.Ctx(), func(q *request) error { return q.May("", nomadrows.AgentRead) })
	defer release()
	follow, err := followed(ctx, q, nomadrows.MonitorCall{Level: level, JSON: structured})
	if err != nil {
		return err
	}
	kind := httpx.JSONType
	if plain {
		kind = []string{"text/plain; charset=utf-8"}
	}
	out := httpx.NewStream(q.W, q.R, kind)
	defer out.Close()
	var w io.Writer = out
	if !plain {
		w = framed{json.NewEncoder(out)}
	}
	out.Flush()
	_ = follow(w, out.Flush) // it ends with the client, with its right, or with the process that is followed
	return nil
}

// follower writes a log to w until it, or whoever reads it, ends.
type follower func(w io.Writer, flush func()) error

// followed is the log that a request means.
func followed(ctx context.Context, q *request, call nomadrows.MonitorCall) (follower, error) {
	self := q.Cluster.Self()
	node, server := q.Query.Value("node_id"), q.Query.Value("server_id")
	if node != "" && server != "" {
		return nil, nomadrows.BadRequest("Cannot target node and server simultaneously")
	}
	if node != "" && node != self.Node.String() {
		id, ok := nomadrows.ParseID(node)
		if !ok {
			return nil, nomadrows.BadRequest("node_id: %q is no id of a node", node)
		}
		body, err := q.Clients.Read(ctx, id, nomadrows.ReadMonitor, call)
		return passOn(ctx, body), err
	}
	if server != "" {
		s, err := serverNamed(q, server)
		if err != nil {
			return nil, err
		}
		if s.Name != self.Name {
			body, err := q.Cluster.Monitor(ctx, s, call)
			return passOn(ctx, body), err
		}
	}
	if q.Logs == nil {
		return nil, nomadrows.Failed("this process keeps no log to follow")
	}
	return func(w io.Writer, flush func()) error { return q.Logs.Follow(ctx, call.Level, call.JSON, w, flush) }, nil
}

// serverNamed is a server by its name, with or without the region, by its id, or the leader.
func serverNamed(q *request, name string) (nomadrows.Server, error) {
	for _, s := range q.Cluster.Servers() {
		if name == s.Name || name == s.Name+"."+s.Region || name == s.ID || name == "leader" && s.Leader {
			return s, nil
		}
	}
	return nomadrows.Server{}, nomadrows.BadRequest("server_id: there is no server %q", name)
}

// passOn follows what another process sends, until ctx ends.
func passOn(ctx context.Context, body io.ReadCloser) follower {
	return func(w io.Writer, flush func()) error {
		defer body.Close()
		defer context.AfterFunc(ctx, func() { _ = body.Close() })()
		decode := json.NewDecoder(body)
		for {
			var f nomadrows.Frame
			if err := decode.Decode(&f); err != nil {
				return err
			}
			if _, err := w.Write(f.Data); err != nil {
				return err
			}
			flush()
		}
	}
}

// framed writes what it gets as frames.
type framed struct{ to *json.Encoder }

// Write implements io.Writer.
func (f framed) Write(p []byte) (int, error) { return len(p), f.to.Encode(nomadrows.Frame{Data: p}) }
