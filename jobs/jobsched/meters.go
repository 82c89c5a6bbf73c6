package jobsched

import "corbel.dev/corbel/telemetry"

// Meters are the leader's numbers, in the contract's names (section 6).
type Meters struct {
	Registry *telemetry.Registry
	Invoke   map[string]*telemetry.Timing // of the scheduler, by type of job
	Submit   *telemetry.Timing            // from a plan to its commit
	Plans    *telemetry.Gauge             // that are proposed and not committed
	Evaluate *telemetry.Timing            // of a pass
	Rejected *telemetry.Counter           // placements that did not fit any more
	Placed   *telemetry.Counter
	Silent   *telemetry.Counter // nodes that were marked
	Failed   *telemetry.Counter // evaluations that could not be decided
}

// NewMeters makes the meters of a registry; nil counts nothing.
func NewMeters(r *telemetry.Registry) *Meters {
	m := &Meters{Registry: r, Invoke: map[string]*telemetry.Timing{}, Submit: r.Timing("plan.submit"),
		Plans:    r.Gauge("plan.queue_depth"),
		Evaluate: r.Timing("plan.evaluate"), Rejected: r.Counter("plan.node_rejected"), Placed: r.Counter("plan.placed"),
		Silent: r.Counter("heartbeat.invalidate"), Failed: r.Counter("worker.failed_eval")}
	for _, kind := range []string{"service", "batch", "system", "sysbatch"} {
		m.Invoke[kind] = r.Timing("worker.invoke_scheduler." + kind)
	}
	return m
}
