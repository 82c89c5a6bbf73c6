package pgstore

import (
	"context"
	"errors"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/records"
)

// statements are what the store says to the server, for its table.
type statements struct {
	create                                                    []string
	get, list, listBelow, scan, scanTo, commit, fence, newest string
	first, turn                                               string
}

func statementsFor(table string) statements {
	fill := strings.NewReplacer("{table}", pgx.Identifier{table}.Sanitize(), "{fence}",
		pgx.Identifier{table + "_fence"}.Sanitize())
	// From a key the walk goes to the next one, from a folder to where it ends: '0' is what follows '/'.
	list := func(end string) string {
		return fill.Replace(`WITH RECURSIVE walk(key, n) AS (
  (SELECT key, 1 FROM {table} WHERE key >= $2 ` + end + ` ORDER BY key LIMIT 1)
  UNION ALL
  SELECT (SELECT t.key FROM {table} t WHERE t.key >= CASE WHEN strpos(substr(w.key, length($1::text)+1), '/') > 0
      THEN $1::text || split_part(substr(w.key, length($1::text)+1), '/', 1) || '0' ELSE w.key || chr(1) END ` + end + ` ORDER BY t.key LIMIT 1), w.n + 1
  FROM walk w WHERE w.key IS NOT NULL AND w.n < $3)
SELECT CASE WHEN strpos(rest, '/') > 0 THEN split_part(rest, '/', 1) || '/' ELSE rest END
FROM (SELECT substr(key, length($1::text)+1) AS rest, n FROM walk WHERE key IS NOT NULL) names ORDER BY n`)
	}
	return statements{
		create: []string{
			fill.Replace(`CREATE TABLE IF NOT EXISTS {table} (key text COLLATE "C" PRIMARY KEY, value bytea NOT NULL)`),
			fill.Replace(`CREATE TABLE IF NOT EXISTS {fence} (id int PRIMARY KEY CHECK (id = 1), epoch bigint NOT NULL, turn ` +
				`bigint NOT NULL)`),
		},
		first:     fill.Replace(`INSERT INTO {fence} VALUES (1, 0, 0) ON CONFLICT DO NOTHING`),
		get:       fill.Replace(`SELECT value FROM {table} WHERE key = $1`),
		list:      list(""),
		listBelow: list("AND key < $4"),
		scan:      fill.Replace(`SELECT key, value FROM {table} WHERE key >= $1 ORDER BY key LIMIT $2`),
		scanTo:    fill.Replace(`SELECT key, value FROM {table} WHERE key >= $1 AND key < $3 ORDER BY key LIMIT $2`),
		commit: fill.Replace(`WITH fence AS MATERIALIZED (SELECT epoch, turn FROM {fence} WHERE id = 1 FOR SHARE),
mine AS MATERIALIZED (SELECT 1 FROM fence WHERE epoch = $1 AND turn = $2),
gone AS (DELETE FROM {table} USING mine WHERE key = ANY($3::text[])),
puts AS (INSERT INTO {table} (key, value) SELECT u.key, u.value FROM mine, unnest($4::text[], $5::bytea[]) AS u(key, value)
  ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value)
SELECT epoch, turn FROM fence`),
		fence:  fill.Replace(`UPDATE {fence} SET epoch = $1, turn = turn + 1 WHERE id = 1 AND epoch <= $1 RETURNING turn`),
		newest: fill.Replace(`SELECT epoch FROM {fence} WHERE id = 1`),
		turn:   fill.Replace(`UPDATE {fence} SET turn = turn + 1 WHERE id = 1 RETURNING turn`),
	}
}

// work does what gathered: neighbours of one epoch are one statement. The queue calls it.
func (s *Store) work(batches []records.Batch) []error {
	outcomes := make([]error, 0, len(batches))
	for len(batches) > 0 {
		n := 1
		for !batches[0].Fence && n < len(batches) && !batches[n].Fence && batches[n].Epoch == batches[0].Epoch {
			n++
		}
		err := s.run(batches[:n])
		if errkind.Is(err, errkind.Unknown) {
			s.stale = true
		}
		for range n {
			outcomes = append(outcomes, err)
		}
		batches = batches[n:]
	}
	return outcomes
}

func (s *Store) run(batches []records.Batch) (err error) {
	if err := s.gate.enter(context.Background(), s.pool.Ping); err != nil {
		return err
	}
	defer func() { s.gate.leave(err) }()
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeout)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return errkind.E(errkind.Unavailable, "storage postgresql", err)
	}
	defer conn.Release()
	if batches[0].Fence {
		return s.raise(ctx, conn.Conn(), batches[0].Epoch)
	}
	if batches[0].Epoch > math.MaxInt64 {
		return storage.Fenced(batches[0].Epoch, 0)
	}
	gone, keys, values := merge(batches)
	for {
		if s.stale {
			if err := conn.QueryRow(ctx, s.sql.turn).Scan(&s.turn); err != nil {
				return readError(err) // nothing of this commit was sent, and a turn more or less means nothing
			}
			s.stale = false
		}
		var epoch, turn int64
		err := conn.QueryRow(ctx, s.sql.commit, int64(batches[0].Epoch), s.turn, gone, keys, values).Scan(&epoch, &turn)
		switch {
		case err != nil:
			return writeError(err)
		case storage.Epoch(epoch) != batches[0].Epoch:
			return storage.Fenced(batches[0].Epoch, storage.Epoch(epoch))
		case turn == s.turn:
			return nil
		}
		s.stale = true // another store of this epoch has raised it: nothing was done, so try again
	}
}

func (s *Store) raise(ctx context.Context, conn *pgx.Conn, epoch storage.Epoch) error {
	err := conn.QueryRow(ctx, s.sql.fence, int64(epoch)).Scan(&s.turn)
	if !errors.Is(err, pgx.ErrNoRows) {
		s.stale = err != nil
		return writeError(err)
	}
	var newest int64
	if err := conn.QueryRow(ctx, s.sql.newest).Scan(&newest); err != nil {
		return readError(err)
	}
	return storage.Fenced(epoch, storage.Epoch(newest))
}

// merge makes one set of changes: of two operations on a key the later counts.
func merge(batches []records.Batch) (gone, keys []string, values [][]byte) {
	last := map[string][]byte{}
	for _, b := range batches {
		for _, op := range b.Ops {
			last[op.Key] = op.Value
		}
	}
	gone, keys, values = []string{}, []string{}, [][]byte{}
	for key, value := range last {
		if value == nil {
			gone = append(gone, key)
			continue
		}
		keys, values = append(keys, key), append(values, value)
	}
	return gone, keys, values
}

// openError gives a kind to an error of Open. That a server refuses this user, or has no such database, is the
// operator's to mend; any other trouble may pass.
func openError(err error) error {
	var said *pgconn.PgError
	if errors.As(err, &said) && (strings.HasPrefix(said.Code, "28") || strings.HasPrefix(said.Code, "3D") ||
		strings.HasPrefix(said.Code, "42")) {
		return errkind.E(errkind.Invalid, "storage postgresql", err)
	}
	return readError(err)
}

// readError gives a kind to an error of what changed no record.
func readError(err error) error { return errkind.E(errkind.Unavailable, "storage postgresql", err) }

// writeError gives a kind to an error of a statement that may have changed records. What the server says while
// it runs a statement means that the statement was undone, but that it is being shut down (57P..) or lost sight of
// (08...).
func writeError(err error) error {
	if err == nil {
		return nil
	}
	var said *pgconn.PgError
	if pgconn.SafeToRetry(err) || (errors.As(err, &said) && !strings.HasPrefix(said.Code,
		"57P") && !strings.HasPrefix(said.Code, "08")) {
		return errkind.E(errkind.Unavailable, "storage postgresql", err)
	}
	return errkind.E(errkind.Unknown, "storage postgresql: outcome unknown", err)
}

// atLeast returns the least text that PostgreSQL can hold (UTF-8, no NUL) and that is not before
// bound; false when there is none: every text is before it.
func atLeast(bound string) (string, bool) {
	if before, _, nul := strings.Cut(bound, "\x00"); nul && utf8.ValidString(before) {
		return before + "\x01", true
	}
	if utf8.ValidString(bound) {
		return bound, true
	}
	good := 0 // bytes of whole characters
	for {
		r, size := utf8.DecodeRuneInString(bound[good:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		good += size
	}
	bad := bound[good:]
	low, high := rune(1), rune(utf8.MaxRune+1) // the least character that is behind bad
	for low < high {
		mid := (low + high) / 2
		if encoded(mid) > bad {
			high = mid
		} else {
			low = mid + 1
		}
	}
	if low <= utf8.MaxRune {
		return bound[:good] + encoded(low), true
	}
	for good > 0 { // none: the character before gives way to its successor
		r, size := utf8.DecodeLastRuneInString(bound[:good])
		good -= size
		if r < utf8.MaxRune {
			return bound[:good] + encoded(r+1), true
		}
	}
	return "", false
}

// encoded is a character's UTF-8; for the surrogates, which are none, that of the next character.
func encoded(r rune) string {
	if r >= 0xD800 && r <= 0xDFFF {
		r = 0xE000
	}
	return string(r)
}
