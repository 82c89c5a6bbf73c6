package pgevents

import (
	"strings"
	"time"

	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/eventstore/eventrecord"
	"corbel.dev/corbel/monitor/runs"
)

// How a slot changed.
const (
	gone  = iota
	whole // all columns
	part  // of a result: its state, and its output and hooks where they are not nil; of an entity: when it was seen
)

// slot is one number of a shard.
type slot struct {
	n      uint32
	entity bool
}

// change is the newest of a slot; what is nil stays as it is in the table.
type change struct {
	slot
	how                              uint8
	key                              eventstore.Key
	text, state, output, hooks, past []byte
	seen                             int64
}

// run is an entry of the history.
type run struct {
	key    eventstore.Key
	at     time.Time
	status uint32
	state  string
	output []byte
}

// Batch holds the newest change of each slot, and the same changes as records for the shard's replica.
type Batch struct {
	*eventrecord.Batch
	s       *Store
	index   map[slot]int
	changes []change
	runs    []run
	arena   []byte
}

var _ eventstore.Batch = (*Batch)(nil)

// NewBatch makes an empty batch.
func (s *Store) NewBatch(shard uint16) eventstore.Batch {
	return &Batch{Batch: eventrecord.NewBatch(shard), s: s, index: map[slot]int{}}
}

// Reset implements eventstore.Batch. What a commit took may still be on its way, so it is not used again.
func (b *Batch) Reset() {
	b.Batch.Reset()
	clear(b.index)
	b.changes, b.runs, b.arena = make([]change, 0, len(b.changes)), nil, nil
}

// at returns the change of a slot, a new one where there is none.
func (b *Batch) at(k slot) (c *change, known bool) {
	i, known := b.index[k]
	if !known {
		i = len(b.changes)
		b.index[k] = i
		b.changes = append(b.changes, change{slot: k})
	}
	return &b.changes[i], known
}

const arenaBytes = 16 << 10

// room returns an empty slice that n bytes can be appended to.
func (b *Batch) room(n int) []byte {
	if cap(b.arena)-len(b.arena) < n {
		b.arena = make([]byte, 0, max(arenaBytes, n))
	}
	return b.arena[len(b.arena):len(b.arena):cap(b.arena)]
}

// keep copies text; it is never nil.
func (b *Batch) keep(text []byte) []byte {
	if len(text) == 0 {
		return []byte{}
	}
	out := append(b.room(len(text)), text...)
	b.arena = b.arena[:len(b.arena)+len(out)]
	return out[:len(out):len(out)]
}

// stateBytes is what a state and the newest span of its past take at most, but for the names of silences.
const stateBytes = 512

func (b *Batch) state(r *eventstore.Result) []byte {
	newest := r.Past.Newest()
	out := eventrecord.AppendState(b.room(stateBytes), &r.State)
	out = pack.Int(pack.Int(pack.Int(out, newest.First), newest.Last), newest.Runs)
	out = pack.Uint(out, uint64(newest.Status))
	if len(out) > stateBytes { // it may have moved elsewhere
		return out
	}
	b.arena = b.arena[:len(b.arena)+len(out)]
	return out[:len(out):len(out)]
}

// Put implements eventstore.Batch.
func (b *Batch) Put(n eventstore.Number, r *eventstore.Result, what eventstore.News) {
	b.Batch.Put(n, r, what)
	c, known := b.at(slot{n.Index(), false})
	if what&eventstore.Whole != 0 {
		c.how, c.key = whole, *r.Key
		c.text = b.keep(packed(r))
		what |= eventstore.NewOutput | eventstore.NewHooks
	} else if !known {
		c.how = part
	}
	c.state = b.state(r)
	if what&eventstore.NewOutput != 0 || r.Beat { // a keepalive's says when it came
		c.output = b.keep(r.Text())
	}
	if what&eventstore.NewHooks != 0 {
		c.hooks = b.keep(r.Hooks)
	}
	if what&eventstore.Whole != 0 || r.Past.Newest().Runs == 1 {
		older := r.Past.Older()
		c.past = b.keep(runs.AppendPast(nil, &older))
	}
	if r.State.Occurrences == 1 {
		// Results tell seconds. Changes of one second are kept apart, and in order, by microseconds.
		at := b.s.within(r.State.Executed).Add(time.Duration(r.Past.Again()) * time.Microsecond)
		b.runs = append(b.runs, run{*r.Key, at, r.State.Status, r.State.Condition.String(), b.keep(r.Text())})
	}
}

// packed is what of a result seldom changes.
func packed(r *eventstore.Result) []byte {
	p := pack.String(nil, r.Namespace)
	p = pack.String(p, r.Entity)
	p = pack.String(p, r.Check)
	p = pack.Bytes(p, r.Stable)
	p = pack.Bytes(p, r.Rest)
	return pack.String(p, r.ProcessedBy)
}

// PutEntity implements eventstore.Batch.
func (b *Batch) PutEntity(n eventstore.Number, e *eventstore.Entity) {
	b.Batch.PutEntity(n, e)
	c, _ := b.at(slot{n.Index(), true})
	c.how, c.key, c.seen = whole, eventstore.Key{Namespace: e.Namespace, Entity: e.Name}, e.LastSeen
	c.text = b.keep(pack.Bytes(pack.String(pack.String(nil, e.Namespace), e.Name), e.Message))
}

// Seen implements eventstore.Batch.
func (b *Batch) Seen(n eventstore.Number, at int64) {
	b.Batch.Seen(n, at)
	c, known := b.at(slot{n.Index(), true})
	if !known {
		c.how = part
	}
	c.seen = at
}

// Delete implements eventstore.Batch.
func (b *Batch) Delete(n eventstore.Number) {
	b.Batch.Delete(n)
	c, _ := b.at(slot{n.Index(), false})
	*c = change{slot: c.slot}
}

// DeleteEntity implements eventstore.Batch.
func (b *Batch) DeleteEntity(n eventstore.Number) {
	b.Batch.DeleteEntity(n)
	c, _ := b.at(slot{n.Index(), true})
	*c = change{slot: c.slot}
}

// within returns when a run began, as the history has it: agents whose clocks are wrong make no partitions of other
// years.
func (s *Store) within(executed int64) time.Time {
	now := s.cfg.Now()
	if at := time.Unix(executed, 0); at.After(now.Add(-s.cfg.Retention)) && at.Before(now.Add(time.Hour)) {
		return at
	}
	return now.Truncate(time.Second)
}

// plain is text as PostgreSQL takes it.
func plain(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
