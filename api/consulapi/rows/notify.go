package rows

import (
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/telemetry"
)

// NotifyTimings say how long a change takes to reach those who wait for it at one kind of
// endpoint: corbel.notify.woken and corbel.notify.written, both from when the log committed
// the change on this server. A blocking query that ends because its time is over counts in
// neither.
type NotifyTimings struct {
	Woken   *telemetry.Timing // until the waiter runs again
	Written *telemetry.Timing // until its answer was given to the connection
}

func notifyOf(m *telemetry.Registry, label string) *NotifyTimings {
	return &NotifyTimings{m.Timing("notify.woken", "endpoint", label), m.Timing("notify.written", "endpoint", label)}
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
func (q *Request) wokenAt(s registry.Subject, index uint64) {
	if index <= q.Block.Index {
		return // its time was over
	}
	committed, ok := q.Registry.AppliedAt(index)
	if !ok {
		return
	}
	switch q.notify = q.endpoint.Notify; {
	case q.Recorder != nil:
		q.notify = q.Notified.Watch
	case s.Topic == registry.TopicKVPrefix:
		q.notify = q.Notified.KVPrefix
	}
	q.committed = committed
	q.notify.Woken.Observe(q.Clock.Since(committed))
}

// Told notes that the handler has written the answer. What a stream waits for counts when
// the stream has written it.
func (q *Request) Told(now time.Time) {
	switch {
	case q.committed.IsZero():
	case q.Recorder != nil:
		q.Recorder.Committed = q.committed
	default:
		q.notify.Written.Observe(now.Sub(q.committed))
	}
}

// Recorder is an http.ResponseWriter that keeps an answer. Its zero value is ready.
type Recorder struct {
	header http.Header
	Status int
	Body   []byte
	// committed is when the change was committed that the answer of a blocking query tells; zero without one.
	Committed time.Time
}

// Header implements http.ResponseWriter.
func (w *Recorder) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter.
func (w *Recorder) WriteHeader(status int) {
	if w.Status == 0 {
		w.Status = status
	}
}

// Write implements http.ResponseWriter.
func (w *Recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.Body = append(w.Body, p...)
	return len(p), nil
}
