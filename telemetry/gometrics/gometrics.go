// Package gometrics receives what libraries emit through hashicorp/go-metrics (raft,
// raft-wal, memberlist) and counts it in a telemetry.Registry. It is the only package
// that imports go-metrics.
//
// Receiving never blocks: a metric is looked up by name under a read lock and added
// atomically. The look-up does not allocate once a name is known. The table of names is bounded;
// past the bound the registry's own limits decide what is kept.
//
// go-metrics is global: one registry per process receives, the last one installed.
package gometrics

import (
	"math"
	"strconv"
	"sync"
	"time"

	metrics "github.com/hashicorp/go-metrics"

	"corbel.dev/corbel/telemetry"
)

// nameLimit bounds each table; raft and memberlist together use fewer than 200 names.
const nameLimit = 4096

// Sink is a go-metrics sink over a registry. Its methods are safe from any goroutine.
type Sink struct {
	registry *telemetry.Registry
	counters table[*telemetry.Counter]
	gauges   table[*telemetry.Gauge]
	timings  table[*telemetry.Timing]
	inline   Inline
	// tapped is the time that callers spend in inline, by its name.
	tapped table[*telemetry.Timing]
}

// Inline is a sink that is called on the way of those who observe, who wait for it. Corbel has none: the fault lab
// sets one, to show what the libraries that it replaces do, and the time spent there is counted in
// telemetry.tap{sink} so that the doctor finds it.
type Inline interface {
	// Name is empty while it takes nothing.
	Name() string
	Write(line []byte)
}

// tap calls the inline sink.
func (s *Sink) tap(key []string, v float64) {
	if s.inline == nil {
		return
	}
	name := s.inline.Name()
	if name == "" {
		return
	}
	began := time.Now()
	line := append(strconv.AppendFloat(append(appendName(nil, key), ':'), v, 'g', -1, 64), "|ms\n"...)
	s.inline.Write(line)
	s.tapped.get([]string{"telemetry", "tap"}, []metrics.Label{{Name: "sink", Value: name}},
		s.registry.Timing).Observe(time.Since(began))
}

var _ metrics.MetricSink = (*Sink)(nil)

// New makes a Sink.
func New(r *telemetry.Registry) *Sink { return &Sink{registry: r} }

// Install makes r the receiver of everything emitted through go-metrics in this process; inline is nil but in the
// fault lab.
func Install(r *telemetry.Registry, inline Inline) error {
	// No service name, host or runtime figures: prefix and host are the exporters'
	// matter, and the registry samples the runtime itself.
	cfg := metrics.DefaultConfig("")
	cfg.EnableHostname = false
	cfg.EnableRuntimeMetrics = false
	cfg.HostName = ""
	sink := New(r)
	sink.inline = inline
	_, err := metrics.NewGlobal(cfg, sink)
	return err
}

// SetGauge implements metrics.MetricSink.
func (s *Sink) SetGauge(key []string, v float32) { s.SetGaugeWithLabels(key, v, nil) }

// SetGaugeWithLabels implements metrics.MetricSink.
func (s *Sink) SetGaugeWithLabels(key []string, v float32, labels []metrics.Label) {
	s.gauges.get(key, labels, s.registry.Gauge).Set(float64(v))
	s.tap(key, float64(v))
}

// SetPrecisionGauge is SetGauge for sinks that keep float64.
func (s *Sink) SetPrecisionGauge(key []string, v float64) {
	s.SetPrecisionGaugeWithLabels(key, v, nil)
}

// SetPrecisionGaugeWithLabels is SetGaugeWithLabels for sinks that keep float64.
func (s *Sink) SetPrecisionGaugeWithLabels(key []string, v float64, labels []metrics.Label) {
	s.gauges.get(key, labels, s.registry.Gauge).Set(v)
}

// EmitKey implements metrics.MetricSink. The libraries do not use it; a point has no
// place among counters, gauges and timings, so it is kept as a gauge.
func (s *Sink) EmitKey(key []string, v float32) { s.SetGaugeWithLabels(key, v, nil) }

// IncrCounter implements metrics.MetricSink.
func (s *Sink) IncrCounter(key []string, v float32) { s.IncrCounterWithLabels(key, v, nil) }

// IncrCounterWithLabels implements metrics.MetricSink. Counters only grow: what is
// negative or not a number is ignored.
func (s *Sink) IncrCounterWithLabels(key []string, v float32, labels []metrics.Label) {
	c := s.counters.get(key, labels, s.registry.Counter)
	if v >= 0 && v <= math.MaxInt64 {
		c.Add(uint64(v))
	}
	s.tap(key, float64(v))
}

// AddSample implements metrics.MetricSink.
func (s *Sink) AddSample(key []string, v float32) { s.AddSampleWithLabels(key, v, nil) }

// AddSampleWithLabels implements metrics.MetricSink. Samples are milliseconds or plain
// numbers; both are shown as they came.
func (s *Sink) AddSampleWithLabels(key []string, v float32, labels []metrics.Label) {
	s.timings.get(key, labels, s.registry.Timing).ObserveMillis(float64(v))
	s.tap(key, float64(v))
}

// table finds a metric by its key without allocating.
type table[T any] struct {
	mu    sync.RWMutex // guards known; a leaf
	known map[string]T
}

func (t *table[T]) get(key []string, labels []metrics.Label, make func(string, ...string) T) T {
	var room [256]byte
	id := appendName(room[:0], key)
	nameLength := len(id)
	for _, l := range labels {
		id = append(append(append(append(id, 0), l.Name...), 0), l.Value...)
	}
	t.mu.RLock()
	metric, ok := t.known[string(id)]
	t.mu.RUnlock()
	if ok {
		return metric
	}
	return t.add(string(id[:nameLength]), string(id), labels, make)
}

func (t *table[T]) add(name, id string, labels []metrics.Label, create func(string, ...string) T) T {
	pairs := make([]string, 0, 2*len(labels))
	for _, l := range labels {
		pairs = append(pairs, l.Name, l.Value)
	}
	metric := create(name, pairs...)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = make(map[string]T)
	}
	if len(t.known) < nameLimit {
		t.known[id] = metric
	}
	return metric
}

func appendName(b []byte, key []string) []byte {
	for i, part := range key {
		if i > 0 {
			b = append(b, '.')
		}
		b = append(b, part...)
	}
	return b
}
