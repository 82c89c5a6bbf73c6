package pgevents

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"corbel.dev/corbel/kit/errkind"
)

// migrations bring a database from the version that is their place to the next one. Whatever was released is not
// changed any more. What changes with each result (states, seen, shards) has narrow rows with room in their pages and
// no index but their key, so that PostgreSQL updates them in place (HOT) and cleans up as it goes.
var migrations = []string{`
CREATE TABLE corbel_event_shards (shard smallint PRIMARY KEY, epoch bigint NOT NULL, owner text NOT NULL, turn bigint NOT NULL, sequence bigint NOT NULL) WITH (fillfactor = 20);
CREATE SEQUENCE corbel_event_turns;
CREATE TABLE corbel_event_checks (shard smallint, n bigint, namespace text NOT NULL, entity text NOT NULL, name text NOT NULL, whole bytea NOT NULL, PRIMARY KEY (shard, n)) WITH (fillfactor = 90);
CREATE TABLE corbel_event_states (shard smallint, n bigint, state bytea NOT NULL, output bytea NOT NULL, hooks bytea NOT NULL, past bytea NOT NULL, PRIMARY KEY (shard, n)) WITH (fillfactor = 70);
CREATE TABLE corbel_event_entities (shard smallint, n bigint, namespace text NOT NULL, name text NOT NULL, whole bytea NOT NULL, PRIMARY KEY (shard, n)) WITH (fillfactor = 90);
CREATE TABLE corbel_event_seen (shard smallint, n bigint, at bigint NOT NULL, PRIMARY KEY (shard, n)) WITH (fillfactor = 70);
CREATE TABLE corbel_event_history (at timestamptz NOT NULL, namespace text NOT NULL, entity text NOT NULL, name text NOT NULL, status bigint NOT NULL, state text NOT NULL, output bytea NOT NULL,
  PRIMARY KEY (namespace, entity, name, at, status)) PARTITION BY RANGE (at);
`}

// migrateLock is the advisory lock under which the schema changes: servers that start at once take turns.
const migrateLock = 0x636f7262656c6576 // "corbelev"

// migrate brings the schema to the version of this program.
func (s *Store) migrate(ctx context.Context) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrateLock)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS corbel_event_schema (id int PRIMARY KEY CHECK (id = 1), `+
			`version int NOT NULL)`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO corbel_event_schema VALUES (1, 0) ON CONFLICT DO NOTHING`); err != nil {
			return err
		}
		version := 0
		if err := tx.QueryRow(ctx, `SELECT version FROM corbel_event_schema`).Scan(&version); err != nil {
			return err
		}
		if version > len(migrations) {
			return errkind.Errorf(errkind.Invalid, "the tables have version %d; this program knows %d", version, len(migrations))
		}
		for _, step := range migrations[version:] {
			if _, err := tx.Exec(ctx, step); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `UPDATE corbel_event_schema SET version = $1 WHERE version < $1`, len(migrations))
		return err
	})
}

// look makes sure that the database takes all text, and finds out what it promises.
func (s *Store) look(ctx context.Context) error {
	var encoding, fsync, sync string
	if err := s.pool.QueryRow(ctx, `SELECT current_setting('server_encoding'), current_setting('fsync'), `+
		`current_setting('synchronous_commit')`).Scan(&encoding, &fsync, &sync); err != nil {
		return err
	}
	if encoding != "UTF8" {
		return errkind.Errorf(errkind.Invalid, "the database's encoding is %s; make one with UTF8", encoding)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.durability = fmt.Sprintf("a commit is one transaction (fsync=%s, synchronous_commit=%s): it outlives what the "+
		"PostgreSQL server outlives; while that is gone, state is in memory here and on the replica", fsync, sync)
	if fsync == "off" || sync == "off" {
		s.durability = "NOT durable: " + s.durability
		s.cfg.Log.Warn("the PostgreSQL server may lose events that it has acknowledged", "fsync", fsync,
			"synchronous_commit", sync)
	}
	return nil
}

const day = 24 * time.Hour

func partition(at time.Time) string { return "corbel_event_history_" + at.UTC().Format("20060102") }

// prepare makes the partitions of days that have none yet.
func (s *Store) prepare(ctx context.Context, runs []run) error {
	for i := range runs {
		at := runs[i].at.UTC().Truncate(day)
		if s.days[at.Unix()] {
			continue
		}
		_, err := s.pool.Exec(ctx, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s PARTITION OF corbel_event_history FOR `+
			`VALUES FROM ('%s') TO ('%s')`,
			partition(at), at.Format(time.RFC3339), at.Add(day).Format(time.RFC3339)))
		if err != nil && !there(err) {
			return fmt.Errorf("a partition of the history: %w", err)
		}
		s.days[at.Unix()] = true
	}
	return nil
}

// there reports whether another server made the same table at the same time: IF NOT EXISTS does not see it.
func there(err error) bool {
	var refused *pgconn.PgError
	// duplicate_table, and the name's row in the system's catalog
	return errors.As(err, &refused) && (refused.Code == "42P07" || refused.Code == "23505")
}

// retain drops the days whose end is longer ago than the history is kept.
func (s *Store) retain(ctx context.Context) error {
	rows, err := s.pool.Query(ctx, `SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid `+
		`WHERE i.inhparent = 'corbel_event_history'::regclass`)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	var all []error
	for _, name := range names {
		at, err := time.Parse("20060102", strings.TrimPrefix(name, "corbel_event_history_"))
		if err != nil || !at.Add(day).Before(s.cfg.Now().Add(-s.cfg.Retention)) {
			continue
		}
		delete(s.days, at.Unix())
		if _, err := s.pool.Exec(ctx, "DROP TABLE IF EXISTS "+pgx.Identifier{name}.Sanitize()); err != nil {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}
