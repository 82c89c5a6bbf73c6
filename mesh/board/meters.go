package board

import "corbel.dev/corbel/telemetry"

// meters are made once; all of them are nil-safe.
type meters struct {
	builds, published, told, denied, failed *telemetry.Counter
	// build: making one view and encoding it.
	build *telemetry.Timing
	costs *telemetry.Stages
}

func newMeters(b *Board, t *telemetry.Registry) meters {
	t.GaugeFunc("mesh.board.subjects", func() float64 { return float64(b.Stats().Subjects) })
	t.GaugeFunc("mesh.board.followers", func() float64 { return float64(b.Stats().Followers) })
	return meters{
		builds: t.Counter("mesh.board.builds"), published: t.Counter("mesh.board.published"),
		told:   t.Counter("mesh.board.told"),
		denied: t.Counter("mesh.board.denied"), failed: t.Counter("mesh.board.failed"), build: t.Timing("mesh.board.build"),
		costs: t.Stages("mesh", "view"),
	}
}
