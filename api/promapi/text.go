package promapi

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"corbel.dev/corbel/telemetry"
)

type form uint8

const (
	formText             form = iota // Prometheus 0.0.4
	formOpenMetricsNames             // OpenMetrics that keeps the contract's names
	formOpenMetrics                  // OpenMetrics to the letter: counters end in _total
)

// appendText writes all allowed series, family by family.
func appendText(b []byte, r *telemetry.Registry, f form) []byte {
	return (&Handler{registry: r}).appendText(b, f)
}

// text is the answer in a form.
func (h *Handler) text(f form) []byte { return h.appendText(nil, f) }

func (h *Handler) appendText(b []byte, f form) []byte {
	b = appendSeries(b, h.registry, "", f)
	if h.more != nil {
		b = appendSeries(b, h.more, h.prefix, f)
	}
	if f != formText {
		b = append(b, "# EOF\n"...)
	}
	return b
}

// appendSeries appends the series whose names begin with prefix.
func appendSeries(b []byte, r *telemetry.Registry, prefix string, f form) []byte {
	naming := r.Naming()
	w := textWriter{b: b, form: f, summary: r.Summary(), naming: naming, seen: make(map[string]bool)}
	all := r.Series()
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Name == all[0].Name {
			n++
		}
		group := all[:n]
		all = all[n:]
		if strings.HasPrefix(group[0].Name, prefix) && naming.Allowed(group[0]) {
			w.family(metricName(naming.Plain(group[0])), r.Help(group[0].Name), group)
		}
	}
	return w.b
}

type textWriter struct {
	b       []byte
	form    form
	summary *telemetry.Summary
	naming  *telemetry.Naming
	seen    map[string]bool // names taken; two of ours may read the same once cleaned
	buckets telemetry.Buckets
	labels  []byte
}

func (w *textWriter) family(name, help string, group []*telemetry.Series) {
	kind := group[0].Kind
	typed, sample := "gauge", name
	switch {
	case kind == telemetry.KindTiming:
		typed = "summary"
	case kind == telemetry.KindCounter && w.form == formText:
		typed = "counter"
	case kind == telemetry.KindCounter && w.form == formOpenMetrics:
		name = strings.TrimSuffix(name, "_total")
		typed, sample = "counter", name+"_total"
	case kind == telemetry.KindCounter:
		typed = "unknown"
	}
	if w.seen[name] {
		return
	}
	w.seen[name] = true
	if kind == telemetry.KindTiming {
		w.seen[name+"_sum"], w.seen[name+"_count"] = true, true
	}
	if help == "" {
		help = group[0].Name
	}
	w.b = append(append(append(w.b, "# HELP "...), name...), ' ')
	w.b = appendHelp(w.b, help, w.form != formText)
	w.b = append(append(append(append(w.b, "\n# TYPE "...), name...), ' '), typed...)
	w.b = append(w.b, '\n')
	for _, s := range group {
		if s.Declared && len(group) > 1 {
			continue // it only stood for the name until a real one came
		}
		w.series(sample, s)
	}
}

func (w *textWriter) series(name string, s *telemetry.Series) {
	w.labels = appendLabels(w.labels[:0], w.naming.Labels(s))
	switch s.Kind {
	case telemetry.KindCounter:
		w.sample(name, "", "")
		w.b = strconv.AppendUint(w.b, s.CounterValue(), 10)
	case telemetry.KindGauge:
		v, ok := s.GaugeValue()
		if !ok {
			v = 0
		}
		w.sample(name, "", "")
		w.b = appendFloat(w.b, v)
	default:
		w.timing(name, s)
	}
	w.b = append(w.b, '\n')
}

// timing writes a summary: quantiles over the last interval, sum and count since the start.
func (w *textWriter) timing(name string, s *telemetry.Series) {
	quantiles := [3]float64{math.NaN(), math.NaN(), math.NaN()} // as the format has it: nothing was observed
	if a := w.summary.TimingOf(s); a != nil {
		quantiles = [3]float64{a.P50, a.P90, a.P99}
	}
	for i, q := range [...]string{"0.5", "0.9", "0.99"} {
		w.sample(name, "", q)
		w.b = append(appendFloat(w.b, quantiles[i]), '\n')
	}
	sum := s.TimingTotals(&w.buckets)
	w.sample(name, "_sum", "")
	w.b = append(appendFloat(w.b, sum), '\n')
	w.sample(name, "_count", "")
	w.b = strconv.AppendUint(w.b, w.buckets.Count, 10)
}

// sample writes name, suffix and labels, up to the blank before the value.
func (w *textWriter) sample(name, suffix, quantile string) {
	w.b = append(append(w.b, name...), suffix...)
	if len(w.labels) > 0 || quantile != "" {
		w.b = append(append(w.b, '{'), w.labels...)
		if quantile != "" {
			if len(w.labels) > 0 {
				w.b = append(w.b, ',')
			}
			w.b = append(append(append(w.b, `quantile="`...), quantile...), '"')
		}
		w.b = append(w.b, '}')
	}
	w.b = append(w.b, ' ')
}

func appendFloat(b []byte, v float64) []byte { return strconv.AppendFloat(b, v, 'g', -1, 64) }

// metricName makes a name that both formats allow: dots, dashes and all else become underscores.
func metricName(s string) string { return string(appendCleanName(nil, s, true)) }

func appendCleanName(b []byte, s string, colon bool) []byte {
	if s == "" || (s[0] >= '0' && s[0] <= '9') {
		b = append(b, '_')
	}
	for _, r := range s {
		if r == '_' || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9') || (r == ':' && colon) {
			b = append(b, byte(r))
		} else {
			b = append(b, '_')
		}
	}
	return b
}

// appendLabels writes the labels without braces. A name that reads like one before it,
// or like the summary's own, gets underscores until it is unique.
func appendLabels(b []byte, labels []telemetry.Label) []byte {
	var taken [8]string
	names := taken[:0]
	for i, l := range labels {
		name := string(appendCleanName(nil, l.Name, false))
		if strings.HasPrefix(name, "__") {
			name = "label" + name // two underscores are kept for the formats themselves
		}
		for name == "quantile" || contains(names, name) {
			name += "_"
		}
		names = append(names, name)
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, name...), `="`...)
		b = append(appendEscaped(b, l.Value, true), '"')
	}
	return b
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// appendHelp escapes a help text; OpenMetrics escapes quotes too.
func appendHelp(b []byte, s string, quotes bool) []byte { return appendEscaped(b, s, quotes) }

// appendEscaped writes s with backslash, line feed and, if asked, quotes escaped. Bytes
// that are no UTF-8 become the replacement character, since both formats are UTF-8.
func appendEscaped(b []byte, s string, quotes bool) []byte {
	for _, r := range s {
		switch {
		case r == '\\':
			b = append(b, `\\`...)
		case r == '\n':
			b = append(b, `\n`...)
		case r == '"' && quotes:
			b = append(b, `\"`...)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}
