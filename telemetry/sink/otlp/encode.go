package otlp

import (
	"math"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"

	"corbel.dev/corbel/telemetry"
)

// boundsMillis are the histogram's upper bounds: each power of two of a
// nanosecond count from 1 µs to 18 minutes, in milliseconds. They lie on the edges of the registry's own
// buckets, so no observation is moved.
var boundsMillis = func() (out []float64) {
	for shift := 10; shift <= 40; shift++ {
		out = append(out, float64(uint64(1)<<shift)/1e6)
	}
	return out
}()

// encoder turns the registry's series into OTLP metrics, one per name.
type encoder struct {
	registry *telemetry.Registry
	host     string
	start    time.Time
	buckets  telemetry.Buckets
}

func (e *encoder) resource() *resource.Resource {
	r := &resource.Resource{Attributes: []*common.KeyValue{attribute("service.name", "corbel")}}
	if e.host != "" {
		r.Attributes = append(r.Attributes, attribute("host.name", e.host))
	}
	return r
}

// collect reads all allowed series that have a value and says how many points they are.
func (e *encoder) collect(now time.Time) (list []*metrics.Metric, points int) {
	naming := e.registry.Naming()
	var current *metrics.Metric
	var name string
	for _, s := range e.registry.Series() {
		if s.Declared || !naming.Allowed(s) {
			continue
		}
		if s.Kind == telemetry.KindGauge {
			if _, ok := s.GaugeValue(); !ok {
				continue
			}
		}
		if current == nil || name != s.Name {
			name = s.Name
			current = newMetric(s.Kind, naming.Plain(s), e.registry.Help(s.Name))
			list = append(list, current)
		}
		e.appendPoint(current, s, now)
		points++
	}
	return list, points
}

func newMetric(kind telemetry.Kind, name, help string) *metrics.Metric {
	m := &metrics.Metric{Name: name, Description: help}
	switch kind {
	case telemetry.KindCounter:
		m.Data = &metrics.Metric_Sum{Sum: &metrics.Sum{
			AggregationTemporality: metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE, IsMonotonic: true}}
	case telemetry.KindGauge:
		m.Data = &metrics.Metric_Gauge{Gauge: &metrics.Gauge{}}
	default:
		m.Unit = "ms"
		m.Data = &metrics.Metric_Histogram{Histogram: &metrics.Histogram{
			AggregationTemporality: metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE}}
	}
	return m
}

func (e *encoder) appendPoint(m *metrics.Metric, s *telemetry.Series, now time.Time) {
	labels := make([]*common.KeyValue, 0, len(s.Labels))
	for _, l := range s.Labels {
		labels = append(labels, attribute(l.Name, l.Value))
	}
	start, end := uint64(e.start.UnixNano()), uint64(now.UnixNano())
	switch data := m.Data.(type) {
	case *metrics.Metric_Sum:
		data.Sum.DataPoints = append(data.Sum.DataPoints, &metrics.NumberDataPoint{
			Attributes: labels, StartTimeUnixNano: start, TimeUnixNano: end,
			Value: &metrics.NumberDataPoint_AsInt{AsInt: int64(min(s.CounterValue(), math.MaxInt64))}})
	case *metrics.Metric_Gauge:
		v, _ := s.GaugeValue()
		data.Gauge.DataPoints = append(data.Gauge.DataPoints, &metrics.NumberDataPoint{
			Attributes: labels, TimeUnixNano: end, Value: &metrics.NumberDataPoint_AsDouble{AsDouble: v}})
	case *metrics.Metric_Histogram:
		sum := s.TimingTotals(&e.buckets)
		data.Histogram.DataPoints = append(data.Histogram.DataPoints, &metrics.HistogramDataPoint{
			Attributes: labels, StartTimeUnixNano: start, TimeUnixNano: end,
			Count: e.buckets.Count, Sum: &sum, ExplicitBounds: boundsMillis, BucketCounts: coarsen(&e.buckets)})
	}
}

// coarsen gathers the fine buckets under boundsMillis; the last count is what is above.
func coarsen(b *telemetry.Buckets) []uint64 {
	counts := make([]uint64, len(boundsMillis)+1)
	b.Each(func(low, _, count uint64) {
		i := 0
		for i < len(boundsMillis) && float64(low)/1e6 >= boundsMillis[i] {
			i++
		}
		counts[i] += count
	})
	return counts
}

func pointCount(m *metrics.Metric) int {
	return len(m.GetSum().GetDataPoints()) + len(m.GetGauge().GetDataPoints()) + len(m.GetHistogram().GetDataPoints())
}

func attribute(name, value string) *common.KeyValue {
	return &common.KeyValue{Key: name, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}
