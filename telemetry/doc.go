// Package telemetry counts what the process does: counters, gauges, timings and
// facts, kept in memory and read by exporters.
//
// Invariants:
//   - Observing never blocks and never allocates: Counter.Add, Gauge.Set and
//     Timing.Observe are a few atomic operations on memory of their own. No hot
//     path takes a lock, touches a socket or knows which sinks exist.
//   - Readers pull. A sink, the interval roll and the HTTP view each hold a Cursor
//     (or read totals); what a reader misses it sees at its next read, because
//     series only ever grow.
//   - Memory is bounded: a name holds at most Config.MaxSeriesPerName label sets and
//     the registry at most Config.MaxSeries series. What comes after that shares one
//     series per name whose label values read "overflow", and is counted in
//     telemetry.series_overflow.
//   - The same name and labels always give the same object. A name keeps the kind it
//     was first made with; asking for it as another kind gives a working object that
//     no exporter shows, counted in telemetry.kind_conflict.
//   - No exported number is NaN or infinite.
//
// Concurrency: every method is safe from any goroutine. All methods work on nil
// receivers and on a nil *Registry, where they do nothing, so that a package can
// be tested without metrics.
//
// Names are written without prefix and host (raft.commitTime, kvs.apply); Naming adds
// both when a reader asks. Facts are rare typed events; see Publish.
//
// This package opens no socket and writes no file: sinks live in telemetry/sink.
package telemetry
