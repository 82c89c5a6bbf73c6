package pgevents

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/eventstore/eventrecord"
	"corbel.dev/corbel/monitor/runs"
)

// load reads everything as of one moment, row by row, shard after shard.
func (s *Store) load(ctx context.Context, l eventstore.Loaded) error {
	return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly},
		func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = "+millis(s.cfg.LoadTime)); err != nil {
				return err
			}
			rows, err := tx.Query(ctx, `SELECT shard, sequence FROM corbel_event_shards ORDER BY shard`)
			if err != nil {
				return err
			}
			var shards []int16
			var number int16
			var sequence int64
			if _, err := pgx.ForEachRow(rows, []any{&number, &sequence}, func() error {
				shards = append(shards, number)
				s.mu.Lock()
				if x := s.of(uint16(number)); s.late != nil {
					x.alien = true // until it is written anew
				} else {
					x.durable = uint64(sequence)
				}
				s.mu.Unlock()
				l.Sequence(uint16(number), uint64(sequence))
				return nil
			}); err != nil {
				return err
			}
			for _, number := range shards {
				if err := s.loadShard(ctx, tx, uint16(number), l); err != nil {
					return err
				}
			}
			return nil
		})
}

func (s *Store) loadShard(ctx context.Context, tx pgx.Tx, number uint16, l eventstore.Loaded) error {
	x := new(shard) // numbers are given anew where this is late
	if s.late == nil {
		x = s.of(number)
	}
	var n, at int64
	var text, state, output, hooks, past []byte
	rows, err := tx.Query(ctx, `SELECT n, e.whole, COALESCE(t.at, 0) FROM corbel_event_entities e LEFT JOIN `+
		`corbel_event_seen t USING (shard, n) WHERE shard = $1`, int16(number))
	if err != nil {
		return err
	}
	if _, err := pgx.ForEachRow(rows, []any{&n, &text, &at}, func() error {
		p := pack.Read(text)
		e := &eventstore.Entity{Namespace: p.String(), Name: p.String(), Message: clone(p.Bytes()), LastSeen: at}
		x.use(slot{uint32(n), true}, true)
		l.Entity(eventstore.NumberOf(number, uint32(n)), e)
		return corrupt(p)
	}); err != nil {
		return err
	}
	if rows, err = tx.Query(ctx, `SELECT n, c.whole, t.state, t.output, t.hooks, t.past FROM corbel_event_checks c `+
		`JOIN corbel_event_states t USING (shard, n) WHERE shard = $1`, int16(number)); err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, []any{&n, &text, &state, &output, &hooks, &past}, func() error {
		p := pack.Read(text)
		r := &eventstore.Result{Key: &eventstore.Key{Namespace: p.String(), Entity: p.String(), Check: p.String()},
			Stable: clone(p.Bytes()), Rest: clone(p.Bytes()),
			ProcessedBy: p.String(), Output: clone(output), Hooks: clone(hooks)}
		if err := corrupt(p); err != nil {
			return err
		}
		p = pack.Read(state)
		eventrecord.ReadState(p, &r.State)
		newest := runs.Span{First: p.Int(), Last: p.Int(), Runs: p.Int(), Status: uint32(p.Uint())}
		older := pack.Read(past)
		if r.Past = runs.ReadPast(older); newest.Runs > 0 {
			r.Past.Put(newest)
		}
		if err := corrupt(older); err != nil {
			return err
		}
		r.Fold()
		x.use(slot{uint32(n), false}, true)
		l.Result(eventstore.NumberOf(number, uint32(n)), r)
		return corrupt(p)
	})
	return err
}

func corrupt(p *pack.Reader) error {
	if p.Err() != nil {
		return errkind.E(errkind.Corrupt, "a row of events", p.Err())
	}
	return nil
}

func clone(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return append([]byte(nil), b...)
}

// History implements eventstore.Historian.
func (s *Store) History(ctx context.Context, k eventstore.Key, before time.Time, most int) ([]eventstore.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, `SELECT at, status, state, output FROM corbel_event_history WHERE namespace = $1 `+
		`AND entity = $2 AND name = $3 AND at < $4 ORDER BY at DESC LIMIT $5`,
		plain(k.Namespace), plain(k.Entity), plain(k.Check), before, most)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "postgresql", err)
	}
	var one eventstore.Run
	var status int64
	var out []eventstore.Run
	if _, err := pgx.ForEachRow(rows, []any{&one.At, &status, &one.State, &one.Output}, func() error {
		r := one
		r.Status, r.Output = uint32(status), clone(one.Output)
		out = append(out, r)
		return nil
	}); err != nil {
		return nil, errkind.E(errkind.Unavailable, "postgresql", err)
	}
	return out, nil
}
