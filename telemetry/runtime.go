package telemetry

import (
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// runtimeSampler turns the Go runtime's own figures into the runtime.* metrics. It
// reads them with runtime/metrics, which does not stop the world.
type runtimeSampler struct {
	samples []metrics.Sample
	gauges  []*Gauge
	pauses  *Timing
	total   *Gauge
	runs    *Gauge
	gc      debug.GCStats
	seenGC  int64
}

var runtimeGauges = []struct{ name, source string }{
	{"runtime.num_goroutines", "/sched/goroutines:goroutines"},
	{"runtime.alloc_bytes", "/memory/classes/heap/objects:bytes"},
	{"runtime.sys_bytes", "/memory/classes/total:bytes"},
	{"runtime.heap_objects", "/gc/heap/objects:objects"},
	{"runtime.malloc_count", "/gc/heap/allocs:objects"},
	{"runtime.free_count", "/gc/heap/frees:objects"},
}

func newRuntimeSampler(r *Registry) *runtimeSampler {
	s := &runtimeSampler{
		pauses: r.Timing("runtime.gc_pause_ns"),
		total:  r.Gauge("runtime.total_gc_pause_ns"),
		runs:   r.Gauge("runtime.total_gc_runs"),
	}
	for _, g := range runtimeGauges {
		s.samples = append(s.samples, metrics.Sample{Name: g.source})
		s.gauges = append(s.gauges, r.Gauge(g.name))
	}
	debug.ReadGCStats(&s.gc)
	s.seenGC = s.gc.NumGC
	return s
}

func (s *runtimeSampler) sample() {
	metrics.Read(s.samples)
	for i, sample := range s.samples {
		if sample.Value.Kind() == metrics.KindUint64 {
			s.gauges[i].Set(float64(sample.Value.Uint64()))
		}
	}
	debug.ReadGCStats(&s.gc)
	s.total.Set(float64(s.gc.PauseTotal.Nanoseconds()))
	s.runs.Set(float64(s.gc.NumGC))
	// Pause holds the newest first, at most 256: fewer than a second can bring.
	for _, pause := range s.gc.Pause[:min(int64(len(s.gc.Pause)), s.gc.NumGC-s.seenGC)] {
		// The metric's unit is the nanosecond, though samples are shown as they are given.
		s.pauses.ObserveMillis(float64(pause / time.Nanosecond))
	}
	s.seenGC = s.gc.NumGC
}
