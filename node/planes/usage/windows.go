package usageplane

import (
	"context"

	"corbel.dev/corbel/usage/counterstate/pgblobs"
	"corbel.dev/corbel/usage/finished"
)

// newWindows writes windows that are over to the PostgreSQL of the configuration; nil where there is none.
func newWindows(p *Plane) *finished.Writer {
	dsn := p.keys.Copies.PostgreSQL
	if dsn == "" {
		return nil
	}
	return finished.New(finished.Config{Source: p.Aggregator, View: p.Definitions.View, Zone: p.zoneOf,
		Leads: p.raft.IsLeader, Every: 2 * p.keys.Copies.Every, Clock: p.d.Clock, Log: p.d.Log, Metrics: p.d.Metrics,
		Open: func(ctx context.Context) (finished.Table, error) {
			t, err := pgblobs.OpenWindows(ctx, pgblobs.Config{DSN: dsn, Conns: 1})
			if err != nil {
				return nil, err
			}
			return t, nil
		}})
}
