package otlp

import (
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"corbel.dev/corbel/telemetry"
)

// encode turns spans into OTLP ones under one resource.
func (t *Traces) encode(batch []telemetry.Span) *trace.ResourceSpans {
	r := &resource.Resource{Attributes: []*common.KeyValue{attribute("service.name", "corbel")}}
	if t.cfg.Instance != "" {
		r.Attributes = append(r.Attributes, attribute("service.instance.id", t.cfg.Instance))
	}
	if t.cfg.Host != "" {
		r.Attributes = append(r.Attributes, attribute("host.name", t.cfg.Host))
	}
	spans := make([]*trace.Span, len(batch))
	for i := range batch {
		spans[i] = encodeSpan(&batch[i])
	}
	return &trace.ResourceSpans{Resource: r,
		ScopeSpans: []*trace.ScopeSpans{{Scope: &common.InstrumentationScope{Name: "corbel.dev/corbel"}, Spans: spans}}}
}

func encodeSpan(s *telemetry.Span) *trace.Span {
	out := &trace.Span{TraceId: s.Trace[:], SpanId: s.ID[:], Name: s.Name, Kind: trace.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: uint64(s.Begin.UnixNano()), EndTimeUnixNano: uint64(s.Begin.Add(s.Took).UnixNano()),
		Attributes: []*common.KeyValue{attribute("corbel.plane", s.Plane)}}
	if s.Parent != (telemetry.SpanID{}) {
		out.ParentSpanId = s.Parent[:]
	}
	if s.Server {
		out.Kind = trace.Span_SPAN_KIND_SERVER
		out.Attributes = append(out.Attributes, attribute("http.request.method", s.Method), attribute("http.route", s.Route))
		if s.Status > 0 {
			out.Attributes = append(out.Attributes, &common.KeyValue{Key: "http.response.status_code",
				Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: int64(s.Status)}}})
		}
		if s.Status >= 500 {
			out.Status = &trace.Status{Code: trace.Status_STATUS_CODE_ERROR}
		}
		return out
	}
	out.Attributes = append(out.Attributes, attribute("corbel.kind", s.Kind))
	// Sums, not spans of time: a stage may come several times, and which came when is not known.
	s.Spent.Each(func(stage string, took time.Duration) {
		out.Attributes = append(out.Attributes, &common.KeyValue{Key: "corbel.stage." + stage + "_ms",
			Value: &common.AnyValue{
				Value: &common.AnyValue_DoubleValue{DoubleValue: float64(took) / float64(time.Millisecond)},
			}})
	})
	return out
}
