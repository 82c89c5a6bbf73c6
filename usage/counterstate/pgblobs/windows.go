package pgblobs

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/finished"
)

// Windows are the windows that are over, as rows of the table corbel_usage_windows, for whoever knows SQL. Rows that
// are put together are all there or none is. Of two numbers of a window the one stays that is as of the later time.
type Windows Blobs

var _ finished.Table = (*Windows)(nil)

const createWindows = `CREATE TABLE IF NOT EXISTS corbel_usage_windows (
	tenant text COLLATE "C", product text COLLATE "C", generation bigint, period text, starts timestamptz,
	ends timestamptz NOT NULL, zone text NOT NULL, kind text NOT NULL, unit text NOT NULL, value numeric,
	low numeric, high numeric, relative_error float8 NOT NULL, completeness float8 NOT NULL, final boolean NOT NULL,
	as_of timestamptz NOT NULL, written timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (tenant, product, period, starts, generation));
CREATE INDEX IF NOT EXISTS corbel_usage_windows_product ON corbel_usage_windows (product, period, starts);
CREATE INDEX IF NOT EXISTS corbel_usage_windows_written ON corbel_usage_windows (written)`

// Lists of columns, so that a statement is the same for any number of rows. Numbers come as texts: they may have more
// digits than 64 bits.
const putWindows = `INSERT INTO corbel_usage_windows AS t (tenant, product, generation, period, starts, ends, zone,
	kind, unit, value, low, high, relative_error, completeness, final, as_of)
SELECT n.tenant, n.product, n.generation, n.period, n.starts, n.ends, n.zone, n.kind, n.unit, n.value::numeric,
	n.low::numeric, n.high::numeric, n.relative_error, n.completeness, n.final, n.as_of
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::timestamptz[], $6::timestamptz[], $7::text[],
	$8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::float8[], $14::float8[], $15::boolean[],
	$16::timestamptz[]) AS n (tenant, product, generation, period, starts, ends, zone, kind, unit, value, low, high,
	relative_error, completeness, final, as_of)
ON CONFLICT (tenant, product, period, starts, generation) DO UPDATE SET ends = excluded.ends, zone = excluded.zone,
	kind = excluded.kind, unit = excluded.unit, value = excluded.value, low = excluded.low, high = excluded.high,
	relative_error = excluded.relative_error, completeness = excluded.completeness, final = excluded.final,
	as_of = excluded.as_of, written = now()
WHERE excluded.as_of >= t.as_of AND (t.value, t.low, t.high, t.relative_error, t.completeness, t.final, t.unit, t.kind)
	IS DISTINCT FROM (excluded.value, excluded.low, excluded.high, excluded.relative_error, excluded.completeness,
	excluded.final, excluded.unit, excluded.kind)`

// OpenWindows connects, and makes the table of windows where it is missing. Kinds: Invalid, Unavailable.
func OpenWindows(ctx context.Context, cfg Config) (*Windows, error) {
	b, err := open(ctx, cfg, "corbel_usage_windows", createWindows)
	return (*Windows)(b), err
}

// Close ends the connections.
func (t *Windows) Close() { t.pool.Close() }

func (t *Windows) failed(err error) error {
	return errkind.E(errkind.Unavailable, "windows in postgresql", err)
}

// text is a name as PostgreSQL can hold it, which has no zero byte: in quotes where it has one, and where it begins as
// those do, so that no two names become one.
func text(s string) string {
	if strings.HasPrefix(s, `"`) || strings.Contains(s, "\x00") {
		return strconv.Quote(s)
	}
	return s
}

func number(q *usage.Quantity) *string {
	if q == nil {
		return nil
	}
	s := q.String()
	return &s
}

// columns are rows as putWindows takes them.
type columns struct {
	tenant, product, period, zone, kind, unit []string
	generation                                []int64
	starts, ends, asOf                        []time.Time
	numbers
}

// numbers are what was used, and how well that is known.
type numbers struct {
	value, low, high   []*string
	relative, complete []float64
	final              []bool
}

func (c *columns) add(r *finished.Row) {
	c.tenant, c.product = append(c.tenant, text(r.Tenant)), append(c.product, text(r.Product))
	c.generation, c.period = append(c.generation, int64(r.Generation)), append(c.period, r.Window)
	c.starts, c.ends, c.asOf = append(c.starts, r.From), append(c.ends, r.To), append(c.asOf, r.AsOf)
	c.zone, c.kind, c.unit = append(c.zone, r.Zone), append(c.kind, r.Kind), append(c.unit, text(r.Unit))
	c.value, c.low = append(c.value, number(r.Value)), append(c.low, number(&r.Error.Low))
	c.high = append(c.high, number(r.Error.High))
	c.relative = append(c.relative, r.Error.Relative)
	c.complete = append(c.complete, r.Completeness.Ratio)
	c.final = append(c.final, r.Final())
}

// Put implements finished.Table.
func (t *Windows) Put(ctx context.Context, rows []finished.Row) error {
	var c columns
	for i := range rows {
		c.add(&rows[i])
	}
	ctx, cancel := (*Blobs)(t).within(ctx)
	defer cancel()
	_, err := t.pool.Exec(ctx, putWindows, c.tenant, c.product, c.generation, c.period, c.starts, c.ends, c.zone, c.kind,
		c.unit, c.value, c.low, c.high, c.relative, c.complete, c.final, c.asOf)
	return t.failed(err)
}

// Newest implements finished.Table.
func (t *Windows) Newest(ctx context.Context) (time.Time, error) {
	ctx, cancel := (*Blobs)(t).within(ctx)
	defer cancel()
	var at *time.Time
	err := t.pool.QueryRow(ctx, "SELECT max(written) FROM corbel_usage_windows").Scan(&at)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && at == nil {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, t.failed(err)
	}
	return *at, nil
}
