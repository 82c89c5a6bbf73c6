// Package pgblobs keeps the snapshots of counters in a table of PostgreSQL, and windows that are over in another one.
//
// What always holds: a row is whole or not there, and Put returns when its transaction is durable, as the server's
// synchronous_commit promises; a name that is taken is never overwritten. Open makes the table where it is missing.
package pgblobs

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage/counterstate"
)

// Config says where.
type Config struct {
	DSN string
	// Timeout bounds a call; zero means 30 s.
	Timeout time.Duration
	// Conns bounds the connections; zero means 2.
	Conns int
}

// Blobs are rows of a table.
type Blobs struct {
	pool    *pgxpool.Pool
	timeout time.Duration
}

var _ counterstate.Blobs = (*Blobs)(nil)

// maxBytes bounds a blob: a message of the protocol has less than 1 GiB.
const maxBytes = 512 << 20

// The table. Blobs are compressed already, so PostgreSQL need not try.
const create = `CREATE TABLE IF NOT EXISTS corbel_usage_snapshots (
	name text COLLATE "C" PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), data bytea NOT NULL);
ALTER TABLE corbel_usage_snapshots ALTER COLUMN data SET STORAGE EXTERNAL`

// Open connects, and makes the table where it is missing. Kinds: Invalid, Unavailable.
func Open(ctx context.Context, cfg Config) (*Blobs, error) {
	return open(ctx, cfg, "corbel_usage_snapshots", create)
}

func open(ctx context.Context, cfg Config, table, create string) (*Blobs, error) {
	settings, err := pgxpool.ParseConfig(cfg.DSN)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "usage.snapshots.postgresql", err) // pgx leaves the password out
	}
	settings.MaxConns = int32(cmp.Or(cfg.Conns, 2))
	settings.ConnConfig.RuntimeParams["application_name"] = "corbel usage"
	b := &Blobs{timeout: cmp.Or(cfg.Timeout, 30*time.Second)}
	if b.pool, err = pgxpool.NewWithConfig(ctx, settings); err != nil {
		return nil, errkind.E(errkind.Unavailable, "usage.snapshots.postgresql", err)
	}
	ctx, cancel := b.within(ctx)
	defer cancel()
	if _, err := b.pool.Exec(ctx, "SELECT FROM "+table+" LIMIT 0"); err != nil {
		if _, err = b.pool.Exec(ctx, create); err != nil {
			b.pool.Close()
			return nil, errkind.E(errkind.Unavailable, "usage.snapshots.postgresql: make the table "+table, err)
		}
	}
	return b, nil
}

// Close ends the connections.
func (b *Blobs) Close() { b.pool.Close() }

func (b *Blobs) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, b.timeout)
}

// Put implements counterstate.Blobs.
func (b *Blobs) Put(ctx context.Context, name string, data []byte) error {
	if len(data) > maxBytes {
		return errkind.Errorf(errkind.TooLarge, "snapshot %s: has %d bytes, PostgreSQL takes %d", name, len(data), maxBytes)
	}
	ctx, cancel := b.within(ctx)
	defer cancel()
	_, err := b.pool.Exec(ctx, "INSERT INTO corbel_usage_snapshots (name, data) VALUES ($1, $2)", name, data)
	var said *pgconn.PgError
	if errors.As(err, &said) && said.Code == "23505" { // unique_violation
		return errkind.Errorf(errkind.Conflict, "snapshot %s: is there already", name)
	}
	return failed(err)
}

func failed(err error) error { return errkind.E(errkind.Unavailable, "snapshots in postgresql", err) }

// Get implements counterstate.Blobs.
func (b *Blobs) Get(ctx context.Context, name string) (data []byte, err error) {
	ctx, cancel := b.within(ctx)
	defer cancel()
	err = b.pool.QueryRow(ctx, "SELECT data FROM corbel_usage_snapshots WHERE name = $1", name).Scan(&data)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, errkind.Errorf(errkind.NotFound, "snapshot %s: is not there", name)
	}
	return data, failed(err)
}

// List implements counterstate.Blobs.
func (b *Blobs) List(ctx context.Context, prefix string) ([]string, error) {
	ctx, cancel := b.within(ctx)
	defer cancel()
	rows, err := b.pool.Query(ctx, "SELECT name FROM corbel_usage_snapshots WHERE starts_with(name, $1) ORDER BY name",
		prefix)
	if err != nil {
		return nil, failed(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return names, failed(err)
}

// Delete implements counterstate.Blobs.
func (b *Blobs) Delete(ctx context.Context, name string) error {
	ctx, cancel := b.within(ctx)
	defer cancel()
	_, err := b.pool.Exec(ctx, "DELETE FROM corbel_usage_snapshots WHERE name = $1", name)
	return failed(err)
}
