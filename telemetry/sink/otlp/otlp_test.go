package otlp

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"

	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/telemetry"
)

// fakeCollector keeps what it was sent.
type fakeCollector struct {
	mu       sync.Mutex
	requests []*collector.ExportMetricsServiceRequest
	status   int
	problem  string
}

func (c *fakeCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	request := &collector.ExportMetricsServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(body, request)
	}
	if err != nil || r.URL.Path != "/v1/metrics" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		c.problem = r.URL.Path + " " + r.Header.Get("Content-Type")
	}
	c.requests = append(c.requests, request)
	w.WriteHeader(c.status)
}

func (c *fakeCollector) metrics() map[string]*metrics.Metric {
	out := make(map[string]*metrics.Metric)
	for _, request := range c.requests {
		for _, m := range request.ResourceMetrics[0].ScopeMetrics[0].Metrics {
			out[m.Name] = m
		}
	}
	return out
}

func TestExportHoldsTheTotals(t *testing.T) {
	fake := &fakeCollector{status: http.StatusOK}
	server := httptest.NewServer(fake)
	defer server.Close()
	r := telemetry.New(telemetry.Config{Host: "h", Settings: telemetry.Settings{PrefixFilter: []string{"-consul.hidden"}}})
	s, err := New(Config{Endpoint: server.URL, Host: "h", Registry: r})
	if err != nil {
		t.Fatal(err)
	}
	defer s.cfg.Client.CloseIdleConnections()
	r.Counter("hits", "code", "200").Add(3)
	r.Counter("hits", "code", "500").Add(1)
	r.Counter("hidden").Add(1)
	r.Gauge("load").Set(0.5)
	r.Gauge("unset")
	for _, d := range []time.Duration{time.Nanosecond, 7 * time.Millisecond, 8 * time.Millisecond, time.Hour} {
		r.Timing("took").Observe(d)
	}
	s.export(t.Context(), time.Now())
	s.export(t.Context(), time.Now()) // cumulative: the same again
	if fake.problem != "" || len(fake.requests) != 2 {
		t.Fatalf("%d requests, problem %q", len(fake.requests), fake.problem)
	}
	got := fake.metrics()
	if got["consul.hidden"] != nil || got["consul.unset"] != nil {
		t.Error("a filtered or unset metric was sent")
	}
	sum := got["consul.hits"].GetSum()
	if len(sum.GetDataPoints()) != 2 || sum.DataPoints[0].GetAsInt() != 3 || !sum.IsMonotonic ||
		sum.DataPoints[0].Attributes[0].Value.GetStringValue() != "200" {
		t.Errorf("counter: %v", sum)
	}
	if v := got["consul.load"].GetGauge().DataPoints[0].GetAsDouble(); v != 0.5 {
		t.Errorf("gauge: %v", v)
	}
	point := got["consul.took"].GetHistogram().DataPoints[0]
	total := uint64(0)
	for i, n := range point.BucketCounts {
		total += n
		if n == 0 {
			continue
		}
		low, high := 0.0, math.Inf(1)
		if i > 0 {
			low = point.ExplicitBounds[i-1]
		}
		if i < len(point.ExplicitBounds) {
			high = point.ExplicitBounds[i]
		}
		if !(high < 0.01 || low == 0 || (low < 7 && high > 8) || low < 3.6e6) {
			t.Errorf("%d observations between %f and %f ms", n, low, high)
		}
	}
	if total != 4 || point.Count != 4 || math.Abs(*point.Sum-3.6e6-15) > 1 ||
		len(point.BucketCounts) != len(point.ExplicitBounds)+1 {
		t.Errorf("histogram: %v", point)
	}
}

func TestBoundsLieOnTheRegistrysBuckets(t *testing.T) {
	r := telemetry.New(telemetry.Config{})
	for i, bound := range boundsMillis {
		timing := r.Timing("edge", "n", strconv.Itoa(i))
		nanos := time.Duration(math.Round(bound * 1e6))
		timing.Observe(nanos - 64) // one finest step below the edge
		timing.Observe(nanos)
		var b telemetry.Buckets
		timing.Read(&b)
		counts := coarsen(&b)
		if counts[i] != 1 || counts[i+1] != 1 {
			t.Errorf("around %f ms the counts are %v", bound, counts)
		}
	}
}

func TestAFailedExportIsCountedAndTold(t *testing.T) {
	fake := &fakeCollector{status: http.StatusServiceUnavailable}
	server := httptest.NewServer(fake)
	defer server.Close()
	r := telemetry.New(telemetry.Config{})
	s, err := New(Config{Endpoint: server.URL + "/", Registry: r})
	if err != nil {
		t.Fatal(err)
	}
	defer s.cfg.Client.CloseIdleConnections()
	for i := range 2*pointLimit + 10 {
		r.Counter("many", "n", strconv.Itoa(i%900), "m", strconv.Itoa(i/900)).Add(1)
	}
	s.export(t.Context(), time.Now())
	if len(fake.requests) != 1 || s.dropped.Value() == 0 || s.failures.Value() != 1 {
		t.Errorf("%d requests, %d dropped", len(fake.requests), s.dropped.Value())
	}
	rec, ok := r.Facts().TryNext()
	if f, is := rec.Fact.(telemetry.SinkFailing); !ok || !is || f.Sink != "otlp" {
		t.Errorf("fact %+v", rec)
	}
	fake.status = http.StatusOK
	s.export(t.Context(), time.Now())
	if s.failing || s.sent.Value() == 0 {
		t.Error("the sink did not recover")
	}
}

func TestLargeExportsAreSplit(t *testing.T) {
	fake := &fakeCollector{status: http.StatusOK}
	server := httptest.NewServer(fake)
	defer server.Close()
	r := telemetry.New(telemetry.Config{})
	for i := range 5000 {
		r.Counter("name" + strconv.Itoa(i)).Add(1)
	}
	s, err := New(Config{Endpoint: server.URL, Registry: r})
	if err != nil {
		t.Fatal(err)
	}
	defer s.cfg.Client.CloseIdleConnections()
	s.export(t.Context(), time.Now())
	if len(fake.requests) != 3 || len(fake.metrics()) < 5000 {
		t.Errorf("%d requests with %d metrics", len(fake.requests), len(fake.metrics()))
	}
}

func TestMain(m *testing.M) { leaktest.Main(m) }
