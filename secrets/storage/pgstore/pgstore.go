// Package pgstore keeps records in a table of PostgreSQL, for one server or several.
//
// A commit is one statement, and so one transaction: it takes a share lock on the
// fence row, and changes records only when that row has the writer's epoch. Raising the
// epoch waits for statements under way; those that come later, from whomever and
// however late, find another epoch and change nothing.
//
// The row also has a turn. After an outcome that is unknown the turn is raised before
// anything else is written: the statement that got lost is then either done or void,
// and never lands on top of a later one.
//
// Commits that arrive while one is under way share the next statement (package gather).
package pgstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/gather"
	"corbel.dev/corbel/secrets/storage/records"
)

// Config says where. Zero values mean the defaults that are named.
type Config struct {
	// URL is a connection string as libpq takes it, or a URL. Never logged: it may hold a password.
	URL string
	// Table (corbel_secrets) holds the records; another one of its name with _fence at the end holds epoch and turn.
	Table string
	// Timeout (10 s) bounds each read, each commit and the connecting of Open. After a call that took so long others are
	// refused at once, but for one at a time, until the server answers again.
	Timeout time.Duration
	// Connections bounds those of reads and commits; 0 leaves it to the URL (pool_max_conns), else as many as there are
	// cores and 4 at least.
	Connections int
	// Made says that the tables are there: they are not made, which would need the right to.
	Made bool
	Log  *slog.Logger
}

// valueBytes bounds a value: several make one statement, which PostgreSQL bounds at 1 GB.
const valueBytes = 32 << 20

// Store is the backend.
type Store struct {
	cfg        Config
	pool       *pgxpool.Pool
	sql        statements
	queue      *gather.Queue
	gate       gate
	durability string
	closed     atomic.Bool
	once       sync.Once

	turn  int64 // the queue's goroutine alone
	stale bool  // turn is to be raised first; likewise
}

var _ storage.Backend = (*Store)(nil)

// Open connects and makes the tables where they are missing.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Table == "" {
		cfg.Table = "corbel_secrets"
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	settings, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "storage postgresql: connection_url", err) // pgx leaves the password out
	}
	if cfg.Connections > 0 {
		settings.MaxConns = int32(min(cfg.Connections, math.MaxInt16))
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "storage postgresql", err)
	}
	s := &Store{cfg: cfg, pool: pool, sql: statementsFor(cfg.Table), stale: true}
	if err := s.prepare(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	s.queue = gather.New(s.work)
	return s, nil
}

// prepare makes the tables, with the fence's row, and looks at what the server promises.
func (s *Store) prepare(ctx context.Context) error {
	todo := append(slices.Clone(s.sql.create), s.sql.first)
	if s.cfg.Made {
		todo = []string{s.sql.first}
	}
	for _, sql := range todo {
		if _, err := s.pool.Exec(ctx, sql); err != nil {
			return openError(fmt.Errorf("make table %s: %w", s.cfg.Table, err))
		}
	}
	return s.promises(ctx)
}

// promises looks at how the server keeps what it was told.
func (s *Store) promises(ctx context.Context) error {
	var encoding, fsync, sync, pages string
	if err := s.pool.QueryRow(ctx, `SELECT current_setting('server_encoding'), current_setting('fsync'), `+
		`current_setting('synchronous_commit'), current_setting('full_page_writes')`).
		Scan(&encoding, &fsync, &sync, &pages); err != nil {
		return openError(err)
	}
	if encoding != "UTF8" {
		return errkind.Errorf(errkind.Invalid, "storage postgresql: the database's encoding is %s; make one with UTF8",
			encoding)
	}
	s.durability = fmt.Sprintf("a commit is one committed transaction before it returns (fsync=%s, "+
		"synchronous_commit=%s): it outlives what the PostgreSQL server outlives", fsync, sync)
	if fsync == "off" || sync == "off" || pages == "off" {
		s.durability = fmt.Sprintf("NOT durable: the PostgreSQL server has fsync=%s, synchronous_commit=%s, "+
			"full_page_writes=%s", fsync, sync, pages)
		s.cfg.Log.Warn("the PostgreSQL server may lose secrets that it has acknowledged", "fsync", fsync,
			"synchronous_commit", sync, "full_page_writes", pages)
	}
	return nil
}

var errClosed = errkind.New(errkind.Unavailable, "the storage is closed")

func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	return errkind.E(errkind.Unavailable, "storage", ctx.Err())
}

// Get implements storage.Backend.
func (s *Store) Get(ctx context.Context, key string) ([]byte, bool, error) {
	if storage.CheckKey(key) != nil {
		return nil, false, s.ready(ctx) // no such key can be there, and PostgreSQL does not take every string
	}
	var value []byte
	found := false
	err := s.read(ctx, func(ctx context.Context) error {
		err := s.pool.QueryRow(ctx, s.sql.get, key).Scan(&value)
		if found = err == nil; errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
		return err
	})
	return value, found, err
}

// List implements storage.Backend: one seek in the index for each name.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	if err := storage.CheckPrefix(prefix); err != nil {
		return nil, err
	}
	from := prefix
	if folder, _, deep := strings.Cut(after, "/"); deep { // what is behind the folder's last key
		from = storage.After(prefix + folder + "/")
	} else if after != "" {
		from = prefix + after + "\x00"
	}
	from, some := atLeast(from)
	if !some {
		return nil, nil
	}
	if limit <= 0 {
		limit = math.MaxInt32
	}
	query := s.sql.list
	args := []any{prefix, from, limit}
	if prefix != "" {
		query = s.sql.listBelow
		args = append(args, storage.After(prefix))
	}
	return collect(ctx, s, query, args, pgx.RowTo[string])
}

// Scan implements storage.Backend.
func (s *Store) Scan(ctx context.Context, from, to string, limit int) ([]storage.Record, error) {
	from, some := atLeast(from)
	if !some {
		return nil, nil
	}
	query, args := s.sql.scan, []any{from, nil}
	if limit > 0 {
		args[1] = limit
	}
	if to != "" {
		if end, bounded := atLeast(to); bounded {
			query, args = s.sql.scanTo, append(args, end)
		}
	}
	return collect(ctx, s, query, args, pgx.RowToStructByPos[storage.Record])
}

func collect[T any](ctx context.Context, s *Store, query string, args []any, row pgx.RowToFunc[T]) (list []T,
	err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, row)
		return err
	})
	return list, err
}

// Commit implements storage.Backend.
func (s *Store) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := storage.CheckOps(s.Info(), ops); err != nil {
		return err
	}
	return s.queue.Do(ctx, records.Batch{Epoch: epoch, Ops: ops})
}

// Fence implements storage.Backend.
func (s *Store) Fence(ctx context.Context, epoch storage.Epoch) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if epoch > math.MaxInt64 {
		return errkind.Errorf(errkind.Invalid, "storage: epoch %d is above PostgreSQL's bigint", epoch)
	}
	return s.queue.Do(ctx, records.Batch{Epoch: epoch, Fence: true})
}

// Info implements storage.Backend.
func (s *Store) Info() storage.Info {
	return storage.Info{Name: "postgresql", HA: true, ValueBytes: valueBytes, Durability: s.durability}
}

// Close implements storage.Backend.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.closed.Store(true)
		s.queue.Close()
		s.pool.Close()
	})
	return nil
}
