package telemetry

import "context"

type traceKey struct{}

// WithTrace gives ctx the id of the caller's trace (W3C Trace Context), for whoever keeps slow requests.
func WithTrace(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, traceKey{}, id)
}

// TraceOf is the id that WithTrace gave, "" without one.
func TraceOf(ctx context.Context) string {
	id, _ := ctx.Value(traceKey{}).(string)
	return id
}
