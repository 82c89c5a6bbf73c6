// Package promapi shows the metrics over HTTP: Prometheus text, OpenMetrics, and the
// JSON summary of the contract's /agent/metrics.
//
// What is asked decides the form: format=prometheus, or an Accept header that names
// OpenMetrics, gives the one or the other text form; format=openmetrics gives
// OpenMetrics with counters typed and suffixed as its specification wants; anything else
// gives JSON over the last complete ten seconds. Names in the first two cases are the contract's, without
// _total: dashboards are written against them, and so counters are of type unknown there.
//
// A request reads totals and the last summary; it takes no lock that an observer takes. A Handler
// may serve any number of requests at once. Access control is the caller's.
package promapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"corbel.dev/corbel/telemetry"
)

// Content types of the text forms.
const (
	TextType        = "text/plain; version=0.0.4; charset=utf-8"
	OpenMetricsType = "application/openmetrics-text; version=1.0.0; charset=utf-8"
)

// Handler answers GET /v1/agent/metrics.
type Handler struct{ registry *telemetry.Registry }

// New makes a Handler over r, which must not be nil.
func New(r *telemetry.Registry) *Handler { return &Handler{registry: r} }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	query := req.URL.Query()
	format := query.Get("format")
	accepts := acceptsOpenMetrics(req.Header.Values("Accept"))
	if format != "prometheus" && format != "openmetrics" && !accepts {
		h.serveJSON(w, query.Has("pretty"))
		return
	}
	if h.registry.Settings().PrometheusRetentionTime <= 0 {
		http.Error(w, "Prometheus is not enabled since its retention time is not positive", http.StatusUnsupportedMediaType)
		return
	}
	form := formText
	switch {
	case format == "openmetrics":
		form = formOpenMetrics
	case accepts:
		form = formOpenMetricsNames
	}
	contentType := TextType
	if form != formText {
		contentType = OpenMetricsType
	}
	w.Header().Set("Content-Type", contentType)
	body := appendText(nil, h.registry, form)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // the client is gone: nothing to do
}

// acceptsOpenMetrics reports whether an Accept header prefers OpenMetrics to plain text.
func acceptsOpenMetrics(headers []string) bool {
	open, plain := -1.0, -1.0
	for _, header := range headers {
		for part := range strings.SplitSeq(header, ",") {
			kind, parameters, _ := strings.Cut(part, ";")
			quality := 1.0
			for p := range strings.SplitSeq(parameters, ";") {
				if name, value, ok := strings.Cut(strings.TrimSpace(p), "="); ok && strings.EqualFold(name, "q") {
					if q, err := strconv.ParseFloat(value, 64); err == nil {
						quality = q
					}
				}
			}
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "application/openmetrics-text":
				open = max(open, quality)
			case "text/plain":
				plain = max(plain, quality)
			}
		}
	}
	return open > 0 && open >= plain
}

// The JSON form, field by field as clients decode it.
type jsonSummary struct {
	Timestamp string
	Gauges    []jsonGauge
	Points    []struct{}
	Counters  []jsonAggregate
	Samples   []jsonAggregate
}

type jsonGauge struct {
	Name   string
	Value  float64
	Labels map[string]string
}

type jsonAggregate struct {
	Name                              string
	Count                             uint64
	Rate, Sum, Min, Max, Mean, Stddev float64
	Labels                            map[string]string
}

func (h *Handler) serveJSON(w http.ResponseWriter, pretty bool) {
	summary, naming := h.registry.Summary(), h.registry.Naming()
	out := jsonSummary{
		// The contract's form: the interval's begin, in UTC, to the full ten seconds.
		Timestamp: summary.Start.UTC().Truncate(telemetry.Interval).Format("2006-01-02 15:04:05 +0000 UTC"),
		Gauges:    []jsonGauge{}, Points: []struct{}{}, Counters: []jsonAggregate{}, Samples: []jsonAggregate{},
	}
	for _, g := range summary.Gauges {
		out.Gauges = append(out.Gauges, jsonGauge{naming.Name(g.Series), g.Value, labelMap(g.Series)})
	}
	for _, a := range summary.Counters {
		out.Counters = append(out.Counters, jsonOf(a, naming))
	}
	for _, a := range summary.Timings {
		out.Samples = append(out.Samples, jsonOf(a, naming))
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	if pretty {
		encoder.SetIndent("", "    ")
	}
	_ = encoder.Encode(out) // numbers are finite, so only a lost client is left
}

func jsonOf(a telemetry.Aggregate, naming *telemetry.Naming) jsonAggregate {
	return jsonAggregate{naming.Name(a.Series), a.Count, a.Rate, a.Sum, a.Min, a.Max, a.Mean, a.Stddev, labelMap(a.Series)}
}

func labelMap(s *telemetry.Series) map[string]string {
	m := make(map[string]string, len(s.Labels))
	for _, l := range s.Labels {
		m[l.Name] = l.Value
	}
	return m
}
