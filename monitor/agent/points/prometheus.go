package points

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"corbel.dev/corbel/monitor"
)

// Tags that a point of prometheus_text has beside its labels.
const (
	typeTag = "prom_type"
	helpTag = "prom_help"
)

// prometheus reads the exposition text. What stands before a mistake counts.
func (r *reading) prometheus() {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(r.Output))
	if err != nil {
		r.wrong("prometheus text: %w", err)
	}
	options := &expfmt.DecodeOptions{Timestamp: model.TimeFromUnix(r.Executed)}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		family := families[name]
		samples, err := expfmt.ExtractSamples(options, family)
		if err != nil {
			r.wrong("prometheus text: %w", err)
		}
		kind := strings.ToLower(family.GetType().String())
		for _, s := range samples {
			tags := make([]*monitor.MetricTag, 0, len(s.Metric)+2)
			for label, value := range s.Metric {
				if label != model.MetricNameLabel {
					tags = append(tags, &monitor.MetricTag{Name: string(label), Value: string(value)})
				}
			}
			tags = append(tags, &monitor.MetricTag{Name: typeTag, Value: kind})
			if help := family.GetHelp(); help != "" {
				tags = append(tags, &monitor.MetricTag{Name: helpTag, Value: help})
			}
			slices.SortStableFunc(tags, func(a, b *monitor.MetricTag) int { return cmp.Compare(a.Name, b.Name) })
			r.add(string(s.Metric[model.MetricNameLabel]), float64(s.Value), s.Timestamp.Unix(), tags)
		}
	}
}
