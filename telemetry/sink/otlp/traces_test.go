package otlp

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/telemetry"
)

const sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// traceCollector answers with answers, one after the other, then with 200, and keeps what it took.
type traceCollector struct {
	mu      sync.Mutex
	answers []func(http.ResponseWriter)
	posts   int
	taken   []*trace.ResourceSpans
	problem string
}

func (c *traceCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.posts++
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &request) != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" ||
		r.Header.Get("Content-Type") != "application/x-protobuf" {
		c.problem = r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type")
	}
	if len(c.answers) > 0 {
		answer := c.answers[0]
		c.answers = c.answers[1:]
		answer(w)
		return
	}
	c.taken = append(c.taken, request.ResourceSpans...)
}

func (c *traceCollector) spans() (out []*trace.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.taken {
		out = append(out, r.ScopeSpans[0].Spans...)
	}
	return out
}

func status(code int, headers ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
	}
}

func attributes(list []*common.KeyValue) map[string]any {
	out := map[string]any{}
	for _, kv := range list {
		switch v := kv.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			out[kv.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			out[kv.Key] = v.IntValue
		case *common.AnyValue_DoubleValue:
			out[kv.Key] = v.DoubleValue
		}
	}
	return out
}

// runTraces runs an exporter until stop is called.
func runTraces(t *testing.T, url string, timeout time.Duration) (r *telemetry.Registry, s *Traces, stop func()) {
	t.Helper()
	r = telemetry.New(telemetry.Config{})
	s, err := NewTraces(TracesConfig{Endpoint: url, Host: "h", Instance: "i", Registry: r, Gather: time.Millisecond,
		Timeout: timeout, Retry: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	polltest.Until(t, r.Traces().On, "the exporter to run")
	return r, s, stop
}

func ask(r *telemetry.Registry) {
	one := r.Traces().Begin("catalog", "GET", sampled)
	r.Stages("catalog", "read").Done(telemetry.WithRequest(context.Background(), one), 0, 3*time.Millisecond,
		&telemetry.Spent{telemetry.StageToken: time.Millisecond})
	one.End("/v1/kv/", 503)
}

func TestTracesReachTheCollector(t *testing.T) {
	fake := &traceCollector{}
	server := httptest.NewServer(fake)
	defer server.Close()
	r, s, stop := runTraces(t, server.URL, 0)
	ask(r)
	polltest.Until(t, func() bool { return s.sent.Value() == 2 }, "the request's spans")
	ask(r)
	stop() // what is queued is sent at the end
	if r.Traces().On() || s.sent.Value() != 4 || s.dropped.Value() != 0 || fake.problem != "" {
		t.Errorf("%d sent, %d dropped, %q", s.sent.Value(), s.dropped.Value(), fake.problem)
	}
	root, part := fake.spans()[0], fake.spans()[1]
	if got := attributes(fake.taken[0].Resource.Attributes); got["service.name"] != "corbel" ||
		got["service.instance.id"] != "i" || got["host.name"] != "h" {
		t.Errorf("the resource is %v", got)
	}
	if root.Kind != trace.Span_SPAN_KIND_SERVER || root.Name != "GET /v1/kv/" ||
		root.Status.GetCode() != trace.Status_STATUS_CODE_ERROR || root.EndTimeUnixNano < root.StartTimeUnixNano ||
		telemetry.TraceID(root.TraceId).String() != sampled[3:35] ||
		telemetry.SpanID(root.ParentSpanId).String() != sampled[36:52] {
		t.Errorf("the request is %v", root)
	}
	if got := attributes(root.Attributes); got["corbel.plane"] != "catalog" || got["http.request.method"] != "GET" ||
		got["http.route"] != "/v1/kv/" || got["http.response.status_code"] != int64(503) {
		t.Errorf("the request has %v", got)
	}
	if part.Kind != trace.Span_SPAN_KIND_INTERNAL || part.Name != "catalog read" ||
		string(part.ParentSpanId) != string(root.SpanId) || string(part.TraceId) != string(root.TraceId) ||
		part.EndTimeUnixNano-part.StartTimeUnixNano != 3e6 {
		t.Errorf("its part is %v", part)
	}
	if got := attributes(part.Attributes); got["corbel.kind"] != "read" || got["corbel.stage.token_ms"] != 1.0 {
		t.Errorf("its part has %v", got)
	}
}

// TestWhatACollectorAnswers: it is asked again where it says so and when it says so; what it refuses is counted, and
// told.
func TestWhatACollectorAnswers(t *testing.T) {
	partial, err := proto.Marshal(&collector.ExportTraceServiceResponse{
		PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: "too old"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		answers []func(http.ResponseWriter)
		posts   int
		sent    uint64
	}{
		"again, when it says": {[]func(http.ResponseWriter){status(429, "Retry-After", "1"),
			status(503, "Retry-After", "1")}, 3, 2},
		"again, after a while": {[]func(http.ResponseWriter){status(503), status(502), status(504)}, 4, 2},
		"not for ever":         {[]func(http.ResponseWriter){status(503), status(503), status(503), status(503)}, 4, 0},
		"never":                {[]func(http.ResponseWriter){status(400)}, 1, 0},
		"a part":               {[]func(http.ResponseWriter){func(w http.ResponseWriter) { _, _ = w.Write(partial) }}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := &traceCollector{answers: c.answers}
			server := httptest.NewServer(fake)
			defer server.Close()
			r, s, _ := runTraces(t, server.URL+"/", 0)
			begun := time.Now()
			ask(r)
			polltest.Until(t, func() bool { return s.sent.Value()+s.dropped.Value() == 2 }, "two spans sent or dropped")
			fake.mu.Lock()
			defer fake.mu.Unlock()
			if fake.posts != c.posts || s.sent.Value() != c.sent || (s.failures.Value() > 0) != (c.sent < 2) {
				t.Errorf("%d posts, %d sent, %d dropped, %d failures", fake.posts, s.sent.Value(), s.dropped.Value(),
					s.failures.Value())
			}
			if name == "again, when it says" && time.Since(begun) < 2*time.Second {
				t.Errorf("asked again after %s in all", time.Since(begun))
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for header, want := range map[string]time.Duration{"": 0, "7": 7 * time.Second, "-1": 0, "soon": 0, "0": 0,
		now.Add(9 * time.Second).Format(http.TimeFormat): 9 * time.Second, now.Add(-time.Hour).Format(http.TimeFormat): 0} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("%q is %s", header, got)
		}
	}
}

// TestACollectorThatNeverReads: it costs requests nothing, what it does not take is dropped and counted, and the
// exporter ends when it is to.
func TestACollectorThatNeverReads(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, s, stop := runTraces(t, "http://"+l.Addr().String(), 50*time.Millisecond)
	rec := r.Facts()
	polltest.Until(t, func() bool { ask(r); return s.failures.Value() > 0 }, "a failure to be counted")
	if s.sent.Value() != 0 || s.dropped.Value() == 0 {
		t.Errorf("%d sent, %d dropped", s.sent.Value(), s.dropped.Value())
	}
	fact, ok := rec.TryNext()
	if f, is := fact.Fact.(telemetry.SinkFailing); !ok || !is || f.Sink != "otlp_traces" {
		t.Errorf("told is %+v", fact)
	}
	stop()
}

func TestEndpointsOfTraces(t *testing.T) {
	for endpoint, want := range map[string]string{"http://c:4318": "http://c:4318/v1/traces",
		"https://c/": "https://c/v1/traces", "http://c/x": "http://c/x", "c:4318": "", "ftp://c": "", "": ""} {
		s, err := NewTraces(TracesConfig{Endpoint: endpoint, Registry: telemetry.New(telemetry.Config{})})
		if (err == nil) != (want != "") || err == nil && s.url != want {
			t.Errorf("%q: %v %v", endpoint, s, err)
		}
	}
}
