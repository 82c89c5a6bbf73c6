package monitorplane

import (
	"context"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
)

// handing is how the plane decides over results, and whom it hands on to what they led to: it implements
// ingest.Policy and ingest.Sink.
type handing struct {
	m *Plane
	e *Events // m.Events, before the plane has it
}

func (h handing) Silences(namespace string) *monitor.Silences {
	return h.m.Group.Resources.View().Silences(namespace)
}

func (h handing) Wants(namespace string, kind *monitor.Kind, out monitor.Outcome) bool {
	return h.m.Pipes.wants(namespace, kind, out)
}

func (h handing) Deregisters(namespace, entity string) bool {
	return h.e.janitor.Deregisters(namespace, entity)
}

func (h handing) Hears() bool { return h.m.ready() }

func (h handing) Proxy(ctx context.Context, namespace, entity string) ([]byte, error) {
	return h.m.Group.Resources.Proxy(ctx, namespace, entity)
}

func (h handing) Publish(p *ingest.Published) { h.m.Pipes.publish(p) }

func (h handing) Lift(namespace string, names []string) { h.e.janitor.Lift(namespace, names) }

func (h handing) Deregister(namespace, entity string) { h.e.janitor.Deregister(namespace, entity) }

func (h handing) StatusChanged(namespace, entity string) {
	if h.e.Fleet != nil {
		h.e.Fleet.StatusChanged(namespace, entity)
	}
}

func (h handing) Replicate(shard uint16, reset bool, until uint64, records []byte) {
	h.e.Router.Replicate(shard, reset, until, records)
}
