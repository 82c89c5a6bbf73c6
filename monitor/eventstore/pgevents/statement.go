package pgevents

import "time"

// writeSQL is a whole commit: one statement, and so one transaction. It begins with the rows of its shards: only
// where one still has the writer's epoch and turn does the rest happen. Who raises them waits for statements under
// way; those that come later find others and change nothing. It returns the shards that were written, and how many
// results were there to be changed in part.
const writeSQL = `WITH mine AS (
  UPDATE corbel_event_shards s SET sequence = u.sequence FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS u(shard, epoch, sequence)
  WHERE s.shard = u.shard AND s.epoch = u.epoch AND s.turn = $4 RETURNING s.shard),
gone1 AS (DELETE FROM corbel_event_checks t USING unnest($5::smallint[], $6::bigint[]) AS u(shard, n) WHERE t.shard = u.shard AND t.n = u.n AND u.shard IN (SELECT shard FROM mine)),
gone2 AS (DELETE FROM corbel_event_states t USING unnest($5::smallint[], $6::bigint[]) AS u(shard, n) WHERE t.shard = u.shard AND t.n = u.n AND u.shard IN (SELECT shard FROM mine)),
gone3 AS (DELETE FROM corbel_event_entities t USING unnest($7::smallint[], $8::bigint[]) AS u(shard, n) WHERE t.shard = u.shard AND t.n = u.n AND u.shard IN (SELECT shard FROM mine)),
gone4 AS (DELETE FROM corbel_event_seen t USING unnest($7::smallint[], $8::bigint[]) AS u(shard, n) WHERE t.shard = u.shard AND t.n = u.n AND u.shard IN (SELECT shard FROM mine)),
checks AS (INSERT INTO corbel_event_checks (shard, n, namespace, entity, name, whole)
  SELECT u.* FROM unnest($9::smallint[], $10::bigint[], $11::text[], $12::text[], $13::text[], $14::bytea[]) AS u(shard, n, namespace, entity, name, whole) WHERE u.shard IN (SELECT shard FROM mine)
  ON CONFLICT (shard, n) DO UPDATE SET namespace = EXCLUDED.namespace, entity = EXCLUDED.entity, name = EXCLUDED.name, whole = EXCLUDED.whole),
states AS (INSERT INTO corbel_event_states (shard, n, state, output, hooks, past)
  SELECT u.* FROM unnest($9::smallint[], $10::bigint[], $15::bytea[], $16::bytea[], $17::bytea[], $38::bytea[]) AS u(shard, n, state, output, hooks, past) WHERE u.shard IN (SELECT shard FROM mine)
  ON CONFLICT (shard, n) DO UPDATE SET state = EXCLUDED.state, output = EXCLUDED.output, hooks = EXCLUDED.hooks, past = EXCLUDED.past),
parts AS (UPDATE corbel_event_states t SET state = u.state, output = COALESCE(u.output, t.output), hooks = COALESCE(u.hooks, t.hooks), past = COALESCE(u.past, t.past)
  FROM unnest($18::smallint[], $19::bigint[], $20::bytea[], $21::bytea[], $22::bytea[], $39::bytea[]) AS u(shard, n, state, output, hooks, past)
  WHERE t.shard = u.shard AND t.n = u.n AND u.shard IN (SELECT shard FROM mine) RETURNING 1),
entities AS (INSERT INTO corbel_event_entities (shard, n, namespace, name, whole)
  SELECT u.* FROM unnest($23::smallint[], $24::bigint[], $25::text[], $26::text[], $27::bytea[]) AS u(shard, n, namespace, name, whole) WHERE u.shard IN (SELECT shard FROM mine)
  ON CONFLICT (shard, n) DO UPDATE SET namespace = EXCLUDED.namespace, name = EXCLUDED.name, whole = EXCLUDED.whole),
seen AS (INSERT INTO corbel_event_seen (shard, n, at)
  SELECT u.* FROM unnest($28::smallint[], $29::bigint[], $30::bigint[]) AS u(shard, n, at) WHERE u.shard IN (SELECT shard FROM mine)
  ON CONFLICT (shard, n) DO UPDATE SET at = EXCLUDED.at),
history AS (INSERT INTO corbel_event_history (at, namespace, entity, name, status, state, output)
  SELECT u.at, u.namespace, u.entity, u.name, u.status, u.state, u.output
  FROM unnest($31::timestamptz[], $32::text[], $33::text[], $34::text[], $35::bigint[], $36::text[], $37::bytea[]) AS u(at, namespace, entity, name, status, state, output)
  ON CONFLICT DO NOTHING)
SELECT ARRAY(SELECT shard FROM mine), (SELECT count(*) FROM parts)`

// places are the first two columns of every table.
type places struct {
	shards []int16
	ns     []int64
}

func (p *places) add(shard uint16, n uint32) {
	p.shards, p.ns = append(p.shards, int16(shard)), append(p.ns, int64(n))
}

// statement gathers the columns of one commit.
type statement struct {
	shards                  []int16
	epochs, sequences       []int64
	goneResults, goneOthers places

	checkRows
	partRows
	thingRows
	seenRows
	runRows
}

// checkRows are checks that are stored whole.
type checkRows struct {
	checks                               places
	namespaces, entities, names          []string
	texts, states, outputs, hooks, pasts [][]byte
}

// partRows are checks of which some columns change.
type partRows struct {
	parts                                         places
	partStates, partOutputs, partHooks, partPasts [][]byte
}

// thingRows are records that are no check.
type thingRows struct {
	things                      places
	thingNamespaces, thingNames []string
	thingTexts                  [][]byte
}

// seenRows are checks of which only the time changes.
type seenRows struct {
	seen   places
	seenAt []int64
}

// runRows are lines of the history.
type runRows struct {
	runAt                                      []time.Time
	runNamespaces, runEntities, runNames, runs []string
	runStatus                                  []int64
	runOutputs                                 [][]byte
}

func (w *statement) add(shard uint16, c *change) {
	switch {
	case c.how == gone && c.entity:
		w.goneOthers.add(shard, c.n)
	case c.how == gone:
		w.goneResults.add(shard, c.n)
	case c.entity:
		if c.how == whole {
			w.things.add(shard, c.n)
			w.thingNamespaces, w.thingNames = append(w.thingNamespaces, plain(c.key.Namespace)),
				append(w.thingNames, plain(c.key.Entity))
			w.thingTexts = append(w.thingTexts, c.text)
		}
		w.seen.add(shard, c.n)
		w.seenAt = append(w.seenAt, c.seen)
	case c.how == whole:
		w.checks.add(shard, c.n)
		w.namespaces, w.entities, w.names = append(w.namespaces, plain(c.key.Namespace)),
			append(w.entities, plain(c.key.Entity)), append(w.names, plain(c.key.Check))
		w.texts, w.states, w.outputs, w.hooks = append(w.texts, c.text), append(w.states, c.state),
			append(w.outputs, c.output), append(w.hooks, c.hooks)
		w.pasts = append(w.pasts, c.past)
	default:
		w.parts.add(shard, c.n)
		w.partStates, w.partOutputs, w.partHooks = append(w.partStates, c.state), append(w.partOutputs, c.output),
			append(w.partHooks, c.hooks)
		w.partPasts = append(w.partPasts, c.past)
	}
}

func (w *statement) run(r *run) {
	w.runAt = append(w.runAt, r.at)
	w.runNamespaces, w.runEntities, w.runNames = append(w.runNamespaces, plain(r.key.Namespace)),
		append(w.runEntities, plain(r.key.Entity)), append(w.runNames, plain(r.key.Check))
	w.runStatus, w.runs, w.runOutputs = append(w.runStatus, int64(r.status)), append(w.runs, r.state),
		append(w.runOutputs, r.output)
}

func (w *statement) args(turn int64) []any {
	return []any{w.shards, w.epochs, w.sequences, turn, w.goneResults.shards, w.goneResults.ns, w.goneOthers.shards,
		w.goneOthers.ns,
		w.checks.shards, w.checks.ns, w.namespaces, w.entities, w.names, w.texts, w.states, w.outputs, w.hooks,
		w.parts.shards, w.parts.ns, w.partStates, w.partOutputs, w.partHooks,
		w.things.shards, w.things.ns, w.thingNamespaces, w.thingNames, w.thingTexts, w.seen.shards, w.seen.ns, w.seenAt,
		w.runAt, w.runNamespaces, w.runEntities, w.runNames, w.runStatus, w.runs, w.runOutputs, w.pasts, w.partPasts}
}

// expected counts the results that are to be changed in part, in shards that were written.
func (w *statement) expected(mine map[uint16]bool) (n int64) {
	for _, shard := range w.parts.shards {
		if mine[uint16(shard)] {
			n++
		}
	}
	return n
}

// The two statements by which a writer takes a shard: whoever had it before is fenced by what they change.
const (
	claimSQL = `WITH u AS (SELECT * FROM unnest($1::smallint[], $2::bigint[]) AS u(shard, epoch)),
old AS MATERIALIZED (SELECT s.shard, s.epoch, s.owner FROM corbel_event_shards s JOIN u USING (shard) ORDER BY shard FOR UPDATE OF s),
raised AS (INSERT INTO corbel_event_shards (shard, epoch, owner, turn, sequence) SELECT u.shard, u.epoch, $3, $4, 0 FROM u LEFT JOIN old USING (shard) WHERE old.shard IS NULL OR old.epoch <= u.epoch
  ON CONFLICT (shard) DO UPDATE SET epoch = EXCLUDED.epoch, owner = EXCLUDED.owner, turn = EXCLUDED.turn
  WHERE corbel_event_shards.epoch < EXCLUDED.epoch OR corbel_event_shards.epoch = EXCLUDED.epoch AND corbel_event_shards.turn <= EXCLUDED.turn
  RETURNING shard, epoch)
SELECT r.shard, COALESCE(o.owner = $3 AND o.epoch = r.epoch, false) FROM raised r LEFT JOIN old o USING (shard)`
	// sweepSQL removes what a shard's former owner had and this one has not.
	sweepSQL = `WITH mine AS (SELECT shard FROM corbel_event_shards WHERE shard = $1 AND turn = $2 FOR UPDATE),
a AS (DELETE FROM corbel_event_checks WHERE shard IN (SELECT shard FROM mine) AND NOT n = ANY($3::bigint[])),
b AS (DELETE FROM corbel_event_states WHERE shard IN (SELECT shard FROM mine) AND NOT n = ANY($3::bigint[])),
c AS (DELETE FROM corbel_event_entities WHERE shard IN (SELECT shard FROM mine) AND NOT n = ANY($4::bigint[]))
DELETE FROM corbel_event_seen WHERE shard IN (SELECT shard FROM mine) AND NOT n = ANY($4::bigint[])`
)

// numbers calls f with a shard's numbers in use.
func numbers(used []bool, f func(uint32)) {
	for n, used := range used {
		if used {
			f(uint32(n))
		}
	}
}
