// Package eventstoretest is the suite that every event store passes.
package eventstoretest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/runs"
)

// Open opens the store of one test anew, on what it wrote before.
type Open func(t testing.TB, l eventstore.Loaded) eventstore.Store

// Fleet is a small world whose changes a store keeps: it knows what the store must hold.
type Fleet struct {
	rng       *rand.Rand
	Results   map[eventstore.Number]*eventstore.Result
	Entities  map[eventstore.Number]*eventstore.Entity
	Sequences map[uint16]uint64
	kinds     []*monitor.Kind
	now       int64
}

// NewFleet makes an empty fleet whose changes follow from the seed.
func NewFleet(seed uint64) *Fleet {
	f := &Fleet{rng: rand.New(rand.NewPCG(seed, 1)), Results: map[eventstore.Number]*eventstore.Result{},
		Entities:  map[eventstore.Number]*eventstore.Entity{},
		Sequences: map[uint16]uint64{}, now: 1_700_000_000}
	for i, name := range []string{"check-0", "check-1", monitor.KeepaliveCheck, "check-3"} {
		c := &monitor.Check{Meta: monitor.Meta{Name: name, Namespace: "default"}, Interval: 10,
			LowFlapThreshold: uint32(i * 5), HighFlapThreshold: uint32(i * 10)}
		kind, err := monitor.NewKind(tagproto.Append(nil, c))
		if err != nil {
			panic(err)
		}
		f.kinds = append(f.kinds, kind)
	}
	return f
}

// Loaded returns an empty fleet, and what fills it when a store is opened.
func Loaded() (*Fleet, eventstore.Loaded) {
	f := NewFleet(0)
	return f, eventstore.Loaded{
		Result:   func(n eventstore.Number, r *eventstore.Result) { f.Results[n] = r },
		Entity:   func(n eventstore.Number, e *eventstore.Entity) { f.Entities[n] = e },
		Sequence: func(shard uint16, sequence uint64) { f.Sequences[shard] = sequence },
	}
}

// Change makes one change that is drawn, and puts it into the batch of a shard.
func (f *Fleet) Change(b eventstore.Batch, shard uint16) {
	n := eventstore.NumberOf(shard, uint32(f.rng.IntN(20)))
	f.now++
	f.Sequences[shard]++
	switch draw := f.rng.IntN(20); {
	case draw == 0:
		delete(f.Results, n)
		b.Delete(n)
	case draw < 3 && f.Entities[n] != nil:
		f.Entities[n].LastSeen = f.now
		b.Seen(n, f.now)
	case draw < 5:
		f.Entities[n] = &eventstore.Entity{Namespace: "default", Name: fmt.Sprint("e", f.rng.IntN(100)), Message: f.text(),
			LastSeen: f.now}
		b.PutEntity(n, f.Entities[n])
	case draw == 5:
		delete(f.Entities, n)
		b.DeleteEntity(n)
	default:
		f.result(b, n)
	}
}

func (f *Fleet) text() []byte {
	if n := f.rng.IntN(30); n > 0 {
		return bytes.Repeat([]byte{byte(n)}, n)
	}
	return nil
}

func (f *Fleet) result(b eventstore.Batch, n eventstore.Number) {
	var what eventstore.News
	kind := f.kinds[f.rng.IntN(len(f.kinds))]
	old := f.Results[n]
	if old == nil {
		old = &eventstore.Result{Key: &eventstore.Key{Namespace: "default", Entity: fmt.Sprint("e", n.Index()),
			Check: kind.Check.Name}, Rest: f.text(), ProcessedBy: "e"}
		what = eventstore.Whole
	} else if kind.Check.Name == old.Check && f.rng.IntN(10) == 0 {
		what = eventstore.Whole
	}
	for _, k := range f.kinds {
		if k.Check.Name == old.Check {
			kind = k
		}
	}
	r := *old // what was loaded or put is not changed
	r.Stable = kind.Stable
	res := monitor.Result{Executed: f.now, Issued: f.now - 1, Timestamp: f.now + 1, Sequence: int64(f.rng.IntN(9)),
		Duration: 0.5, Status: uint32(f.rng.IntN(2))}
	res.ID[3] = byte(f.now)
	silenced := r.State.Silenced
	r.State, _ = monitor.Step(r.State, res, kind.Thresholds, nil)
	r.State.Silenced = silenced
	r.Past.Add(res.Status, res.Executed)
	switch beat := f.rng.IntN(4) > 0; {
	case r.Check == monitor.KeepaliveCheck && beat:
		if !r.Beat {
			r.Output, r.Beat = nil, true
			what |= eventstore.NewBeat
		}
	case r.Check == monitor.KeepaliveCheck || !beat:
		r.Output, r.Beat = f.text(), false
		what |= eventstore.NewOutput
	}
	if f.rng.IntN(8) == 0 {
		r.Hooks = f.text()
		what |= eventstore.NewHooks
	}
	if f.rng.IntN(8) == 0 {
		r.State.Silenced = nil
		if f.rng.IntN(2) == 0 {
			r.State.Silenced = []string{"a:*", "b:*"}
		}
		what |= eventstore.NewSilences
	}
	f.Results[n] = &r
	b.Put(n, &r, what)
}

// Refresh puts what a store asks for again, as far as it is of the shard, and returns how many changes that were.
func (f *Fleet) Refresh(b eventstore.Batch, shard uint16, results, entities []eventstore.Number) (n int) {
	for _, number := range results {
		if r := f.Results[number]; r != nil && number.Shard() == shard {
			b.Put(number, r, eventstore.Whole)
			n++
		}
	}
	for _, number := range entities {
		if e := f.Entities[number]; e != nil && number.Shard() == shard {
			b.PutEntity(number, e)
			n++
		}
	}
	return n
}

// Equal fails the test unless got holds what f does.
func (f *Fleet) Equal(t testing.TB, got *Fleet) {
	t.Helper()
	if err := f.Differs(got); err != nil {
		t.Fatal(err)
	}
}

// Differs says what got holds that f does not, or the other way round.
func (f *Fleet) Differs(got *Fleet) error {
	for n, want := range f.Results {
		if !reflect.DeepEqual(normal(got.Results[n]), normal(want)) {
			return fmt.Errorf("result %d:\n got %+v\nwant %+v", n, got.Results[n], want)
		}
	}
	if len(got.Results) != len(f.Results) || len(got.Entities) != len(f.Entities) {
		return fmt.Errorf("%d results and %d entities, want %d and %d",
			len(got.Results), len(got.Entities), len(f.Results), len(f.Entities))
	}
	for n, want := range f.Entities {
		g := got.Entities[n]
		if g == nil || g.Name != want.Name || !bytes.Equal(g.Message, want.Message) || g.LastSeen != want.LastSeen {
			return fmt.Errorf("entity %d: %+v, want %+v", n, g, want)
		}
	}
	for shard, want := range f.Sequences {
		if got.Sequences[shard] != want {
			return fmt.Errorf("shard %d ends with %d, want %d", shard, got.Sequences[shard], want)
		}
	}
	return nil
}

// normal makes histories of equal runs and empty lists equal.
func normal(r *eventstore.Result) any {
	if r == nil {
		return nil
	}
	c := *r
	var history [][2]int64
	for i := range c.State.History.Len() {
		status, executed := c.State.History.At(i)
		history = append(history, [2]int64{int64(status), executed})
	}
	past := c.Past.Spans()
	c.State.History, c.Past = runs.History{}, runs.Past{}
	for _, list := range []*[]byte{&c.Stable, &c.Rest, &c.Hooks, &c.Output} {
		*list = append([]byte{}, *list...)
	}
	c.State.Silenced = append([]string{}, c.State.Silenced...)
	return []any{c, history, past}
}

// Run runs the suite. open of one t always opens the same store.
func Run(t *testing.T, fresh func(t *testing.T) Open) {
	t.Run("KeepsWhatWasCommitted", func(t *testing.T) { keeps(t, fresh(t)) })
	t.Run("Empty", func(t *testing.T) {
		open := fresh(t)
		for range 2 {
			got, l := Loaded()
			s := open(t, l)
			if err := s.Commit(t.Context(), nil, nil); err != nil {
				t.Fatal(err)
			}
			NewFleet(0).Equal(t, got)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func keeps(t *testing.T, open Open) {
	const shards, rounds, commits = 3, 6, 60
	f := NewFleet(7)
	for range rounds {
		got, l := Loaded()
		s := open(t, l)
		f.Equal(t, got)
		for range commits {
			var batches []eventstore.Batch
			var until []uint64
			results, entities := s.Refresh(10)
			for shard := range uint16(shards) {
				b := s.NewBatch(shard)
				for range f.rng.IntN(8) {
					f.Change(b, shard)
				}
				f.Sequences[shard] += uint64(f.Refresh(b, shard, results, entities))
				if b.Len() > 0 {
					batches, until = append(batches, b), append(until, f.Sequences[shard])
				}
			}
			if err := s.Commit(t.Context(), batches, until); err != nil {
				t.Fatal(err)
			}
		}
		info := s.Info()
		if info.Durability == "" || info.Type == "" || info.Changes == 0 {
			t.Fatalf("%+v", info)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	got, l := Loaded()
	s := open(t, l)
	f.Equal(t, got)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
