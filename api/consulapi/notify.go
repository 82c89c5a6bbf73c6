package consulapi

import (
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/telemetry"
)

// notifyTimings say how long a change takes to reach those who wait for it at one kind of
// endpoint: corbel.notify.woken and corbel.notify.written, both from when the log committed
// the change on this server. A blocking query that ends because its time is over counts in
// neither.
type notifyTimings struct {
	woken   *telemetry.Timing // until the waiter runs again
	written *telemetry.Timing // until its answer was given to the connection
}

func notifyOf(m *telemetry.Registry, label string) *notifyTimings {
	return &notifyTimings{m.Timing("notify.woken", "endpoint", label), m.Timing("notify.written", "endpoint", label)}
}

// notifyLabels are the endpoints with timings of their own: those that fleets watch.
var notifyLabels = map[string]bool{
	"kv": true, "catalog/services": true, "catalog/nodes": true, "catalog/service": true, "catalog/node": true,
	"health/service": true, "health/state": true, "health/node": true, "health/checks": true,
	"config": true, "session": true,
}

// notifyLabel is the label of a pattern: /v1/health/service/ is health/service. What is not
// watched by fleets shares the label other.
func notifyLabel(pattern string) string {
	label := strings.Trim(strings.TrimPrefix(pattern, "/v1/"), "/")
	if area, _, _ := strings.Cut(label, "/"); area == "config" || area == "session" {
		label = area
	}
	if notifyLabels[label] {
		return label
	}
	return "other"
}

// wokenAt notes that a change of an index ended the wait of this query.
func (q *request) wokenAt(s registry.Subject, index uint64) {
	if index <= q.block.Index {
		return // its time was over
	}
	committed, ok := q.api.cfg.Registry.AppliedAt(index)
	if !ok {
		return
	}
	t := q.api.table
	switch _, streamed := q.w.(*watchRecorder); {
	case streamed:
		q.notify = t.watch
	case s.Topic == registry.TopicKVPrefix:
		q.notify = t.kvPrefix
	default:
		e, _ := t.find(q.r.URL.Path)
		q.notify = e.notify
	}
	q.committed = committed
	q.notify.woken.Observe(q.api.cfg.Clock.Since(committed))
}

// told notes that the handler has written the answer. What a stream waits for counts when
// the stream has written it.
func (n *notifyTimings) told(w http.ResponseWriter, committed, now time.Time) {
	if rec, ok := w.(*watchRecorder); ok {
		rec.committed = committed
		return
	}
	n.written.Observe(now.Sub(committed))
}

// wokenBy notes that those of due who wait for the change of an index were woken, and
// returns when it was committed; zero when that is not known.
func (n *notifyTimings) wokenBy(a *API, index uint64, due []*parked, now time.Time) time.Time {
	committed, ok := a.cfg.Registry.AppliedAt(index)
	if !ok {
		return time.Time{}
	}
	took := now.Sub(committed)
	for _, m := range due {
		if m.index < index {
			n.woken.Observe(took)
		}
	}
	return committed
}
