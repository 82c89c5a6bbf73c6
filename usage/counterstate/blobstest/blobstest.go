// Package blobstest is the kit that every place for snapshots of counters passes.
package blobstest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/pace"
)

// Run tests a place. open returns it empty; again opens the same one as another process does.
func Run(t *testing.T, open func(t *testing.T) counterstate.Blobs, again func(t *testing.T) counterstate.Blobs) {
	ctx := t.Context()
	b := open(t)
	if _, err := b.Get(ctx, "a@1"); !errkind.Is(err, errkind.NotFound) {
		t.Errorf("what is not there: %v", err)
	}
	if err := b.Delete(ctx, "a@1"); err != nil {
		t.Errorf("to remove what is not there: %v", err)
	}
	large := make([]byte, 3<<20)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range large {
		large[i] = byte(rng.Uint32())
	}
	blobs := map[string][]byte{"a@1": []byte("one"), "a@2": {}, "a-b@1": {0, 255, 10, 13}, "b@1": large}
	for name, data := range blobs {
		if err := b.Put(ctx, name, data); err != nil {
			t.Fatal(name, err)
		}
	}
	if err := b.Put(ctx, "a@1", []byte("another")); !errkind.Is(err, errkind.Conflict) {
		t.Errorf("a name that is taken: %v", err)
	}
	b = again(t)
	for name, data := range blobs {
		if got, err := b.Get(ctx, name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s has %d bytes, not %d: %v", name, len(got), len(data), err)
		}
	}
	for prefix, want := range map[string][]string{"": {"a-b@1", "a@1", "a@2", "b@1"}, "a@": {"a@1", "a@2"}, "c": nil} {
		if got, err := b.List(ctx, prefix); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, not %v: %v", prefix, got, want, err)
		}
	}
	if err := b.Delete(ctx, "a@1"); err != nil {
		t.Error(err)
	}
	if _, err := b.Get(ctx, "a@1"); !errkind.Is(err, errkind.NotFound) {
		t.Errorf("what was removed: %v", err)
	}
	owners(t, b, again(t))
	snapshots(t, b, again(t))
	paced(t, b, again(t))
}

// owners: of many who put the same name at once, one does.
func owners(t *testing.T, one, other counterstate.Blobs) {
	var won atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			err := []counterstate.Blobs{one, other}[i%2].Put(t.Context(), "race@1", fmt.Append(nil, i))
			switch {
			case err == nil:
				won.Add(1)
			case !errkind.Is(err, errkind.Conflict):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d have put the same name", won.Load())
	}
}

// snapshots: a store over it keeps the newest two, whoever of two owners saved them.
func snapshots(t *testing.T, one, other counterstate.Blobs) {
	stores := []*counterstate.Store{counterstate.New(counterstate.Config{Blobs: one}),
		counterstate.New(counterstate.Config{Blobs: other})}
	for i := range 5 {
		snap := counterstate.Snapshot{At: time.Unix(int64(i), 0).UTC(), State: fmt.Appendf(nil, "state %d", i)}
		if err := stores[i%2].Save(t.Context(), "p", snap); err != nil {
			t.Fatal(err)
		}
		if got, err := stores[(i+1)%2].Load(t.Context(), "p"); err != nil || string(got.State) != string(snap.State) {
			t.Errorf("%q, not %q: %v", got.State, snap.State, err)
		}
	}
	if names, err := one.List(t.Context(), "p@"); err != nil || len(names) != 2 {
		t.Error("two are kept: ", names, err)
	}
}

// paced: a large state goes and comes in pieces, no faster than the budget lets it, and none of it stays when it is
// old.
func paced(t *testing.T, one, other counterstate.Blobs) {
	const rate, piece, size = 256 << 10, 32 << 10, 700 << 10
	now, m := clock.NewFake(time.Time{}), telemetry.New(telemetry.Config{})
	lane := pace.New(pace.Config{Rate: rate, Clock: now, Metrics: m}).Lane("kit")
	began := now.Now()
	step := func(what string, counted *telemetry.Counter, do func() error) {
		t.Helper()
		done, before := make(chan error, 1), counted.Value()
		go func() { done <- do() }()
		for {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(what, err)
				}
				if went := counted.Value() - before; went < size || went > size+size/16 {
					t.Errorf("%s: %d bytes were counted", what, went)
				}
				return
			case <-now.Change():
			case <-time.After(10 * time.Millisecond): // the change may have come before
			}
			all := m.Counter(pace.LoadedBytes, "from", "kit").Value() + m.Counter(pace.SentBytes, "to", "kit").Value()
			if most := rate*(1+now.Since(began).Seconds()) + 2*piece; float64(all) > most {
				t.Fatalf("%s: %d bytes in %s", what, all, now.Since(began))
			}
			if now.Timers() > 0 {
				now.Advance(piece * time.Second / rate)
			}
		}
	}
	rng, want := rand.New(rand.NewPCG(5, 6)), make([]byte, size)
	for i := range want {
		want[i] = byte(rng.Uint32())
	}
	for range 2 {
		step("save", m.Counter(pace.SentBytes, "to", "kit"), func() error {
			return counterstate.New(counterstate.Config{Blobs: one, Lane: lane, PieceBytes: piece, Keep: 1}).Save(t.Context(),
				"large", counterstate.Snapshot{At: time.Unix(9, 0).UTC(), State: want})
		})
	}
	step("load", m.Counter(pace.LoadedBytes, "from", "kit"), func() error {
		got, err := counterstate.New(counterstate.Config{Blobs: other, Lane: lane}).Load(t.Context(), "large")
		if err == nil && !bytes.Equal(got.State, want) {
			t.Errorf("%d other bytes came back", len(got.State))
		}
		return err
	})
	if waited := m.Counter(pace.Waited, "of", "kit").Value(); waited < 1000 {
		t.Errorf("the load has waited for %d ms", waited)
	}
	names, err := one.List(t.Context(), "large@")
	if err != nil {
		t.Fatal(err)
	}
	if heads := slices.DeleteFunc(slices.Clone(names), counterstate.IsPiece); len(heads) != 1 || len(names) > 1+22 {
		t.Errorf("one is kept: %v", names)
	}
}
