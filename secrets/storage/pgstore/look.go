package pgstore

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"corbel.dev/corbel/kit/errkind"
)

// Look finds out what Open would, and changes nothing: whether the server is there and takes the login, and whether
// the tables are there and may be used, or else may be made. Said is what the server promises, for people.
func Look(ctx context.Context, cfg Config) (said string, err error) {
	settings, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return "", errkind.E(errkind.Invalid, "storage postgresql: connection_url", err) // pgx leaves the password out
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(cfg.Timeout, 10*time.Second))
	defer cancel()
	settings.MaxConns, settings.MinConns = 1, 0
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return "", errkind.E(errkind.Unavailable, "storage postgresql", err)
	}
	defer pool.Close()
	cfg.Table, cfg.Log = cmp.Or(cfg.Table, "corbel_secrets"), slog.New(slog.DiscardHandler)
	s := &Store{cfg: cfg, pool: pool}
	if err := s.promises(ctx); err != nil {
		return "", err
	}
	for _, name := range []string{cfg.Table, cfg.Table + "_fence"} {
		if err := s.usable(ctx, name); err != nil {
			return "", err
		}
	}
	return s.durability, nil
}

// usable reports what keeps a table from being used, or from being made where it is missing.
func (s *Store) usable(ctx context.Context, table string) error {
	var there, may bool
	quoted := pgx.Identifier{table}.Sanitize()
	err := s.pool.QueryRow(ctx,
		`SELECT to_regclass($1) IS NOT NULL, coalesce(CASE WHEN to_regclass($1) IS NULL THEN has_schema_privilege(current_schema(), 'CREATE')
ELSE has_table_privilege(to_regclass($1), 'SELECT') AND has_table_privilege(to_regclass($1), 'INSERT') AND has_table_privilege(to_regclass($1), 'UPDATE')
  AND has_table_privilege(to_regclass($1), 'DELETE') END, false)`, quoted).Scan(&there, &may)
	switch {
	case err != nil:
		return openError(err)
	case may:
		return nil
	case there:
		return errkind.Errorf(errkind.Denied, "storage postgresql: the user may not read and write the table %s", quoted)
	}
	return errkind.Errorf(errkind.Denied, "storage postgresql: the table %s is missing and the user may not make it",
		quoted)
}
