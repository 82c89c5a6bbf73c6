package promapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"corbel.dev/corbel/telemetry"
)

func filled(settings telemetry.Settings) *telemetry.Registry {
	r := telemetry.New(telemetry.Config{Host: "host1", Settings: settings})
	Declare(r)
	r.Counter("raft.apply").Add(3)
	r.Gauge("raft.last_index").Set(12.5)
	r.Timing("raft.commitTime").Observe(7100 * time.Microsecond)
	r.Timing("api.http", "method", "GET", "path", "v1_kv_").Observe(2 * time.Millisecond)
	r.Counter("odd-name.with", "la-bel", "quo\"te\\back\nline", "quantile", "x").Add(1)
	return r
}

var on = telemetry.Settings{PrometheusRetentionTime: time.Minute}

func get(t *testing.T, r *telemetry.Registry, query, accept string) (int, string, string) {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, "/v1/agent/metrics"+query, nil)
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	rec := httptest.NewRecorder()
	New(r).ServeHTTP(rec, req)
	body, err := io.ReadAll(rec.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return rec.Code, rec.Header().Get("Content-Type"), string(body)
}

func parse(t testing.TB, body string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatalf("%v in\n%s", err, body)
	}
	return families
}

func TestPrometheusTextIsReadBack(t *testing.T) {
	code, kind, body := get(t, filled(on), "?format=prometheus", "")
	if code != 200 || kind != TextType {
		t.Fatalf("%d %s", code, kind)
	}
	families := parse(t, body)
	if f := families["consul_raft_apply"]; f.GetType() != dto.MetricType_COUNTER || f.Metric[0].Counter.GetValue() != 3 {
		t.Errorf("counter %v", f)
	}
	if f := families["consul_raft_last_index"]; f.GetType() != dto.MetricType_GAUGE ||
		f.Metric[0].Gauge.GetValue() != 12.5 {
		t.Errorf("gauge %v", f)
	}
	f := families["consul_raft_commitTime"]
	if s := f.Metric[0].Summary; f.GetType() != dto.MetricType_SUMMARY || s.GetSampleCount() != 1 ||
		s.GetSampleSum() != 7.1 ||
		len(s.Quantile) != 3 || s.Quantile[0].GetQuantile() != 0.5 || s.Quantile[2].GetValue() != 7.1 {
		t.Errorf("summary %v", f)
	}
	if f := families["consul_api_http"]; len(f.Metric) != 1 || f.Metric[0].Label[0].GetValue() != "GET" {
		t.Errorf("the placeholder stayed beside the real series: %v", f)
	}
	labels := families["consul_odd_name_with"].Metric[0].Label
	if labels[0].GetName() != "la_bel" || labels[0].GetValue() != "quo\"te\\back\nline" ||
		labels[1].GetName() != "quantile_" {
		t.Errorf("labels %v", labels)
	}
}

func TestEveryDeclaredNameExistsAtZero(t *testing.T) {
	r := telemetry.New(telemetry.Config{Settings: on})
	Declare(r)
	_, _, body := get(t, r, "?format=prometheus", "")
	families := parse(t, body)
	for _, group := range declared {
		for _, name := range group.names {
			f := families[metricName("consul."+name)]
			if f == nil || len(f.Metric) != 1 {
				t.Errorf("%s: %v", name, f)
				continue
			}
			m := f.Metric[0]
			if m.Counter.GetValue() != 0 || m.Gauge.GetValue() != 0 || m.Summary.GetSampleCount() != 0 ||
				m.Summary.GetSampleSum() != 0 {
				t.Errorf("%s is not zero: %v", name, m)
			}
		}
	}
}

// promlint may find fault with names, which are the contract's, and with nothing else.
func TestLintFindsOnlyTheContractsNames(t *testing.T) {
	_, _, body := get(t, filled(on), "?format=prometheus", "")
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		switch {
		case strings.Contains(p.Text, `counter metrics should have "_total" suffix`),
			strings.Contains(p.Text, "snake_case"), strings.Contains(p.Text, `use base unit`),
			strings.Contains(p.Text, "abbreviated unit"), strings.Contains(p.Text, `should not have "_count" suffix`):
		default:
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestFormIsNegotiated(t *testing.T) {
	r := filled(on)
	scraper := "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
	for _, c := range []struct{ query, accept, kind string }{
		{"?format=prometheus", "", TextType},
		{"?format=prometheus", "text/plain", TextType},
		{"?format=prometheus", scraper, OpenMetricsType},
		{"?format=prometheus", "application/openmetrics-text;q=0.1,text/plain;q=0.9", TextType},
		{"", scraper, OpenMetricsType},
		{"?format=openmetrics", "", OpenMetricsType},
		{"", "", "application/json"},
		{"?pretty", "application/json", "application/json"},
	} {
		code, kind, body := get(t, r, c.query, c.accept)
		if code != 200 || kind != c.kind {
			t.Errorf("%s %s: %d %s", c.query, c.accept, code, kind)
		}
		if open := kind == OpenMetricsType; open != strings.HasSuffix(body, "# EOF\n") {
			t.Errorf("%s %s: the end is %q", c.query, c.accept, body[len(body)-10:])
		}
	}
	_, _, body := get(t, r, "?format=prometheus", scraper)
	if !strings.Contains(body, "\n# TYPE consul_raft_apply unknown\nconsul_raft_apply 3\n") {
		t.Error("the contract's counter name is not kept for a scraper that asks for OpenMetrics")
	}
	_, _, body = get(t, r, "?format=openmetrics", "")
	if !strings.Contains(body, "\n# TYPE consul_raft_apply counter\nconsul_raft_apply_total 3\n") {
		t.Error("format=openmetrics does not suffix counters")
	}
}

func TestTextNeedsRetention(t *testing.T) {
	r := filled(telemetry.Settings{})
	if code, _, _ := get(t, r, "?format=prometheus", ""); code != http.StatusUnsupportedMediaType {
		t.Errorf("without retention the status is %d", code)
	}
	if err := r.Reload(on); err != nil {
		t.Fatal(err)
	}
	if code, _, _ := get(t, r, "?format=prometheus", ""); code != 200 {
		t.Errorf("after a reload the status is %d", code)
	}
}

func TestJSONSummary(t *testing.T) {
	code, _, body := get(t, filled(telemetry.Settings{}), "", "")
	var got struct {
		Timestamp string
		Gauges    []struct {
			Name   string
			Value  float64
			Labels map[string]string
		}
		Points            []any
		Counters, Samples []struct {
			Name                              string
			Count                             int
			Rate, Sum, Min, Max, Mean, Stddev float64
			Labels                            map[string]string
		}
	}
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil || code != 200 {
		t.Fatalf("%d %v in %s", code, err, body)
	}
	if _, err := time.Parse("2006-01-02 15:04:05 +0000 UTC", got.Timestamp); err != nil {
		t.Error(err)
	}
	if len(got.Gauges) != 1 || got.Gauges[0].Name != "consul.host1.raft.last_index" || got.Gauges[0].Labels == nil ||
		got.Points == nil {
		t.Errorf("gauges %+v", got.Gauges)
	}
	found := false
	for _, s := range got.Samples {
		if s.Name == "consul.api.http" {
			found = s.Count == 1 && s.Sum == 2 && s.Min == 2 && s.Max == 2 && s.Labels["path"] == "v1_kv_"
		}
	}
	if !found || len(got.Counters) != 2 {
		t.Errorf("samples %+v, counters %+v", got.Samples, got.Counters)
	}
}

// TestStreamGoesOn: a summary at once, and one for each interval that ends.
func TestStreamGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := telemetry.New(telemetry.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		var out bytes.Buffer
		flushed := 0
		var wg sync.WaitGroup
		wg.Go(func() { _ = r.Run(ctx) })
		wg.Go(func() { _ = New(r).Stream(ctx, &out, func() { flushed++ }) })
		timer := time.NewTimer(4*telemetry.Interval + telemetry.Interval/2)
		<-timer.C
		cancel()
		wg.Wait()
		stamps := map[string]bool{}
		for d := json.NewDecoder(&out); d.More(); {
			var one struct{ Timestamp string }
			if err := d.Decode(&one); err != nil {
				t.Fatal(err)
			}
			stamps[one.Timestamp] = true
		}
		if len(stamps) < 4 || len(stamps) != flushed {
			t.Errorf("%d summaries, %d flushes", len(stamps), flushed)
		}
	})
}

func TestNamesThatReadTheSameAreShownOnce(t *testing.T) {
	r := telemetry.New(telemetry.Config{Settings: on})
	r.Counter("a.b").Add(1)
	r.Counter("a-b").Add(1)
	r.Timing("t").Observe(1)
	r.Counter("t.count").Add(1)
	_, _, body := get(t, r, "?format=prometheus", "")
	if strings.Count(body, "# TYPE consul_a_b ") != 1 || strings.Count(body, "\nconsul_t_count ") != 1 {
		t.Errorf("a name is written twice:\n%s", body)
	}
	parse(t, body)
}

func TestFilterHidesFamilies(t *testing.T) {
	settings := on
	settings.PrefixFilter = []string{"-consul.raft"}
	_, _, body := get(t, filled(settings), "?format=prometheus", "")
	if strings.Contains(body, "consul_raft") || !strings.Contains(body, "consul_rpc_query") {
		t.Error("the filter does not hold")
	}
}

func FuzzLabelsAreReadBack(f *testing.F) {
	f.Add("raft.apply", "peer", "a\"b\\c\nd")
	f.Add("9-x", "0", "\xff\xfe")
	f.Add("", "quantile", "\\")
	f.Add("__name__", "__name__", "{}")
	f.Fuzz(func(t *testing.T, name, label, value string) {
		r := telemetry.New(telemetry.Config{Settings: on})
		r.Counter(name, label, value, label, "again").Add(7)
		families := parse(t, string(appendText(nil, r, formText)))
		family := families[metricName("consul."+name)]
		if family == nil || len(family.Metric) != 1 {
			t.Fatalf("name %q is lost", name)
		}
		if got := family.Metric[0].Label[0].GetValue(); got != string([]rune(value)) {
			t.Fatalf("value %q reads %q", value, got)
		}
	})
}

func BenchmarkText(b *testing.B) {
	r := filled(on)
	var body []byte
	b.ReportAllocs()
	for b.Loop() {
		body = appendText(body[:0], r, formText)
	}
}

// enable_hostname_label: every metric has the host as a label, and none has it in its name.
func TestHostnameLabel(t *testing.T) {
	settings := on
	settings.EnableHostnameLabel = true
	r := telemetry.New(telemetry.Config{Settings: settings, Host: "h1"})
	r.Counter("a", "peer", "p").Add(1)
	r.Gauge("g").Set(2)
	r.Timing("t", "host", "mine").Observe(1)
	_, _, body := get(t, r, "?format=prometheus", "")
	for _, want := range []string{`consul_a{peer="p",host="h1"} 1`, `consul_g{host="h1"} 2`,
		`consul_t_count{host="mine"} 1`} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("%s is not in\n%s", want, body)
		}
	}
	parse(t, body)
	for _, s := range r.Series() {
		if name := r.Naming().Name(s); strings.Contains(name, "h1") {
			t.Errorf("the host is in the name %s", name)
		}
	}
}
