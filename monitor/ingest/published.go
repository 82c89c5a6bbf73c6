package ingest

import (
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/runs"
)

// State is what was known of the check after the result. It must not be changed.
func (p *Published) State() *monitor.State { return &p.state }

// Past returns the spans of the check's past that are kept, oldest first, the result's own the last.
func (p *Published) Past() []runs.Span { return p.past.Spans() }

// Output is what the check said. It must not be changed.
func (p *Published) Output() []byte { return p.output }

// HasMetrics reports whether the event holds metrics.
func (p *Published) HasMetrics() bool { return p.metrics != nil }

// Pipelines returns the pipelines that the event itself names, beside those of its check.
func (p *Published) Pipelines() ([]*monitor.Ref, error) {
	if len(p.rest) == 0 {
		return nil, nil
	}
	var rest struct {
		Pipelines []*monitor.Ref `pb:"8"`
		Extra     tagproto.Extra
	}
	if err := tagproto.Unmarshal(p.rest, &rest); err != nil {
		return nil, errkind.E(errkind.Corrupt, "event", err)
	}
	return rest.Pipelines, nil
}

// MetricHandlers returns the handlers that the event's metrics name.
func (p *Published) MetricHandlers() ([]string, error) {
	if p.metrics == nil {
		return nil, nil
	}
	var metrics struct {
		Handlers []string `pb:"1"`
		Extra    tagproto.Extra
	}
	if err := tagproto.Unmarshal(p.metrics, &metrics); err != nil {
		return nil, errkind.E(errkind.Corrupt, "metrics", err)
	}
	return metrics.Handlers, nil
}
