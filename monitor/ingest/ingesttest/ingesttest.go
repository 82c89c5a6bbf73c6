// Package ingesttest is what tests put around an ingest: a store in memory, and somebody who wants every event.
package ingesttest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/eventstore/logevents"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/resources"
)

// Double is a policy and a sink: silences and proxies are those of Resources, and all events are wanted.
type Double struct {
	ingest.Discard
	T         testing.TB
	Resources *resources.Resources
	Published func(*monitor.Event) // nil where nobody wants events
}

// Silences implements ingest.Policy.
func (d *Double) Silences(namespace string) *monitor.Silences {
	return d.Resources.View().Silences(namespace)
}

// Wants implements ingest.Policy.
func (d *Double) Wants(string, *monitor.Kind, monitor.Outcome) bool { return d.Published != nil }

// Proxy implements ingest.Policy.
func (d *Double) Proxy(ctx context.Context, namespace, entity string) ([]byte, error) {
	return d.Resources.Proxy(ctx, namespace, entity)
}

// Publish implements ingest.Sink.
func (d *Double) Publish(p *ingest.Published) {
	if d.Published == nil {
		return
	}
	e, err := p.Event()
	if err != nil {
		d.T.Error(err)
	}
	d.Published(e)
}

// Config is that of an ingest which keeps its events in memory and commits at once. A nil sink is none.
func Config(log *slog.Logger, on interface {
	ingest.Policy
	ingest.Sink
}) ingest.Config {
	c := ingest.Config{Log: log, Now: time.Now, Gather: time.Millisecond,
		Open: func(l eventstore.Loaded) (eventstore.Store, error) {
			return logevents.Open(logevents.Config{FS: vfs.NewMem(), Dir: "/e", Log: log}, l)
		}}
	if on != nil {
		c.Policy, c.Sink = on, on
	}
	return c
}
