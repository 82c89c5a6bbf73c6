package snapcache

import "corbel.dev/corbel/telemetry"

// meters are made once; all of them are nil-safe.
type meters struct {
	builds, published, told, denied, failed *telemetry.Counter
	// build: making one view and encoding it.
	build *telemetry.Timing
	costs *telemetry.Stages
}

func newMeters(sc *Cache, t *telemetry.Registry) meters {
	t.GaugeFunc("mesh.snapshots.subjects", func() float64 { return float64(sc.Stats().Subjects) })
	t.GaugeFunc("mesh.snapshots.followers", func() float64 { return float64(sc.Stats().Followers) })
	return meters{
		builds: t.Counter("mesh.snapshots.builds"), published: t.Counter("mesh.snapshots.published"),
		told:   t.Counter("mesh.snapshots.notified"),
		denied: t.Counter("mesh.snapshots.denied"), failed: t.Counter("mesh.snapshots.failed"),
		build: t.Timing("mesh.snapshots.build"),
		costs: t.Stages("mesh", "view"),
	}
}
