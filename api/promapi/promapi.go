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
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/telemetry"
)

// Content types of the text forms.
const (
	TextType        = "text/plain; version=0.0.4; charset=utf-8"
	OpenMetricsType = "application/openmetrics-text; version=1.0.0; charset=utf-8"
)

// Handler answers GET /v1/agent/metrics.
type Handler struct {
	registry *telemetry.Registry
	more     *telemetry.Registry // whose series that begin with prefix stand behind the others; nil is none
	prefix   string
}

// New makes a Handler over r, which must not be nil.
func New(r *telemetry.Registry) *Handler { return &Handler{registry: r} }

// And shows the series of another registry whose names begin with prefix too.
func (h *Handler) And(r *telemetry.Registry, prefix string) *Handler {
	return &Handler{h.registry, r, prefix}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	query := req.URL.Query()
	format := query.Get("format")
	accepts := acceptsOpenMetrics(req.Header.Values("Accept"))
	if format != "prometheus" && format != "openmetrics" && !accepts {
		h.serveJSON(w, req, query.Has("pretty"))
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
	httpx.Write(w, req, http.StatusOK, []string{contentType}, h.text(form))
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

func (h *Handler) serveJSON(w http.ResponseWriter, req *http.Request, pretty bool) {
	body, err := json.Marshal(h.summary())
	if err != nil { // numbers are finite: never
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if pretty {
		var out bytes.Buffer
		_ = json.Indent(&out, body, "", "    ") // it is JSON
		body = out.Bytes()
	}
	httpx.Write(w, req, http.StatusOK, httpx.JSONType, append(body, '\n'))
}

// streamTick is how soon after its end an interval's summary is sent.
const streamTick = time.Second

// Stream writes the JSON summary of the last complete interval, then one for each that
// ends, until ctx ends or a write fails. flush is called after each.
func (h *Handler) Stream(ctx context.Context, w io.Writer, flush func()) error {
	tick := time.NewTicker(streamTick)
	defer tick.Stop()
	encoder := json.NewEncoder(w)
	for last := ""; ; {
		if s := h.summary(); s.Timestamp != last {
			if err := encoder.Encode(s); err != nil {
				return err
			}
			last = s.Timestamp
			flush()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// summary is the last complete interval in the contract's form.
func (h *Handler) summary() jsonSummary {
	summary := h.registry.Summary()
	out := jsonSummary{
		// The contract's form: the interval's begin, in UTC, to the full ten seconds.
		Timestamp: summary.Start.UTC().Truncate(telemetry.Interval).Format("2006-01-02 15:04:05 +0000 UTC"),
		Gauges:    []jsonGauge{}, Points: []struct{}{}, Counters: []jsonAggregate{}, Samples: []jsonAggregate{},
	}
	out.add(h.registry, "")
	if h.more != nil {
		out.add(h.more, h.prefix)
	}
	return out
}

// add adds the series whose names begin with prefix.
func (out *jsonSummary) add(r *telemetry.Registry, prefix string) {
	summary, naming := r.Summary(), r.Naming()
	for _, g := range summary.Gauges {
		if strings.HasPrefix(g.Series.Name, prefix) {
			out.Gauges = append(out.Gauges, jsonGauge{naming.Name(g.Series), g.Value, labelMap(naming, g.Series)})
		}
	}
	for _, a := range summary.Counters {
		if strings.HasPrefix(a.Series.Name, prefix) {
			out.Counters = append(out.Counters, jsonOf(a, naming))
		}
	}
	for _, a := range summary.Timings {
		if strings.HasPrefix(a.Series.Name, prefix) {
			out.Samples = append(out.Samples, jsonOf(a, naming))
		}
	}
}

func jsonOf(a telemetry.Aggregate, naming *telemetry.Naming) jsonAggregate {
	return jsonAggregate{naming.Name(a.Series), a.Count, a.Rate, a.Sum, a.Min, a.Max, a.Mean, a.Stddev,
		labelMap(naming, a.Series)}
}

func labelMap(naming *telemetry.Naming, s *telemetry.Series) map[string]string {
	labels := naming.Labels(s)
	m := make(map[string]string, len(labels))
	for _, l := range labels {
		m[l.Name] = l.Value
	}
	return m
}
