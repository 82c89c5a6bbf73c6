package pgevents

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor/eventstore"
)

// early is an error of before anything was read.
type early struct{ error }

// Unwrap is for errors.Is and As.
func (e *early) Unwrap() error { return e.error }

// away tells whether an error means that PostgreSQL does not answer, or not yet. What it answers (a wrong password,
// no such database) is for people to mend.
func away(err error) bool {
	if first := (*early)(nil); !errors.As(err, &first) || errkind.Of(first.error) == errkind.Invalid {
		return false
	}
	if told := (*pgconn.PgError)(nil); errors.As(err, &told) {
		// it starts, it stops, it has no room for a connection
		return told.Code == "57P03" || told.Code == "57P01" || told.Code == "53300"
	}
	return true
}

// reread gives what the tables hold to whoever opened the store without it, and reports whether it did. Nothing is
// written before, for what the tables hold and memory does not would be lost with that.
func (s *Store) reread(ctx context.Context) bool {
	if s.cfg.Settled != nil && !s.cfg.Settled() {
		return false
	}
	err := s.late(ctx, func(l eventstore.Loaded) error { return s.open(ctx, l) })
	if err == nil {
		s.late = nil
		s.cfg.Log.Info("PostgreSQL is back; loaded its events")
		return true
	}
	s.turn = 0
	if now := time.Now(); now.Sub(s.loggedAt) > logEvery {
		s.loggedAt = now
		s.cfg.Log.Error("PostgreSQL answers but cannot be read; trying again", "error", err)
	}
	return false
}
