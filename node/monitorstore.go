package node

import (
	"context"
	"time"

	"corbel.dev/corbel/api/sensuapi"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/eventstore/logevents"
	"corbel.dev/corbel/monitor/eventstore/pgevents"
	"corbel.dev/corbel/monitor/objects"
)

// openStore opens the event store that the configuration names.
func (m *monitorPlane) openStore(fsys vfs.FS, dir string, l eventstore.Loaded) (eventstore.Store, error) {
	cfg := &m.p.Cfg.Monitor
	if cfg.Store != "postgresql" {
		return logevents.Open(logevents.Config{FS: fsys, Dir: dir, Log: m.log}, l)
	}
	s, err := pgevents.Open(context.Background(), pgevents.Config{DSN: cfg.DSN, Self: m.p.ID, Owner: m.router.Owner,
		Conns: cfg.StorePool, Retention: cfg.HistoryRetention, Settled: func() bool { return len(m.router.Lacks()) == 0 },
		Log: m.log, Now: m.p.Clock.Now}, l)
	if err != nil {
		return nil, err
	}
	m.postgres = s
	return s, nil
}

// history answers from the long history of checks, where the store has one.
func (m *monitorPlane) history() func(ctx context.Context, k eventstore.Key, before time.Time,
	most int) ([]eventstore.Run, error) {
	if m.postgres == nil {
		return nil
	}
	return m.postgres.History
}

// postgresHealth tells of the objects that describe PostgreSQL; which database it is, this server's configuration says.
func (m *monitorPlane) postgresHealth() (list []sensuapi.Postgres) {
	if m.postgres == nil {
		return nil
	}
	healthy := m.postgres.Healthy() == nil
	m.resources.View().List("provider", "", "", "", func(i *objects.Item) bool {
		list = append(list, sensuapi.Postgres{Name: i.Name, Active: true, Healthy: healthy})
		return true
	})
	if len(list) == 0 {
		list = []sensuapi.Postgres{{Name: "postgresql", Active: true, Healthy: healthy}}
	}
	return list
}

// meterPostgres exports how far PostgreSQL is behind.
func (m *monitorPlane) meterPostgres(stat func(name, help string, f func() float64, labels ...string)) {
	if m.postgres == nil {
		return
	}
	of := func(pick func(pgevents.Stats) float64) func() float64 {
		return func() float64 { return pick(m.postgres.Stats()) }
	}
	stat("postgres_healthy", "1 while events are written to PostgreSQL, 0 while it is gone.", func() float64 {
		if m.postgres.Healthy() != nil {
			return 0
		}
		return 1
	})
	stat("postgres_failures", "Commits to PostgreSQL that failed, or whose outcome is unknown.",
		of(func(s pgevents.Stats) float64 { return float64(s.Failures) }))
	stat("postgres_behind", "Checks and entities whose newest state PostgreSQL does not have.",
		of(func(s pgevents.Stats) float64 { return float64(s.Dirty) }))
	stat("postgres_deferred", "Changes that were not written with their commit; of those of one check the newest is "+
		"written later.", of(func(s pgevents.Stats) float64 { return float64(s.Deferred) }))
	stat("postgres_fenced", "Times at which a shard was not written, since it is another server's.",
		of(func(s pgevents.Stats) float64 { return float64(s.Fenced) }))
	stat("postgres_history_waiting", "Entries of the history that PostgreSQL does not have yet.",
		of(func(s pgevents.Stats) float64 { return float64(s.Waiting) }))
	stat("postgres_history_lost", "Entries of the history that were lost, since too many waited.",
		of(func(s pgevents.Stats) float64 { return float64(s.HistoryLost) }))
}
