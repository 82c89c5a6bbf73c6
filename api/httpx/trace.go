package httpx

import (
	"net/http"

	"corbel.dev/corbel/telemetry"
)

// Trace takes up a request at its door: its context has the caller's trace (the header traceparent, W3C Trace
// Context) for whoever keeps slow requests, and, while traces are exported, the span that all that is done for it
// belongs to. end closes that; route is a pattern that the path fits, which must hold nothing that a client wrote.
// With neither, w and r are given back as they are.
func Trace(to *telemetry.Traces, plane string, w http.ResponseWriter, r *http.Request) (http.ResponseWriter,
	*http.Request, func(route string)) {
	header := r.Header.Get("Traceparent")
	span := to.Begin(plane, r.Method, header)
	if span == nil {
		if parent, ok := telemetry.ParseTraceparent(header); ok {
			r = r.WithContext(telemetry.WithTrace(r.Context(), parent.Trace.String()))
		}
		return w, r, func(string) {}
	}
	seen := &statusWriter{ResponseWriter: w}
	return seen, r.WithContext(telemetry.WithRequest(r.Context(), span)),
		func(route string) { span.End(route, seen.status) }
}

// statusWriter remembers with which status a request was answered.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher.
func (w *statusWriter) Flush() {
	_ = http.NewResponseController(w.ResponseWriter).Flush() // what cannot be flushed goes out at the end
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
