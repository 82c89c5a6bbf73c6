package ingest

import (
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
)

// While the store is stalled the replica is given everything, once and in order; actions wait until it has that, or
// the store answers.
func TestStalledStoreHandsOn(t *testing.T) {
	t.Parallel()
	faulty := vfs.NewFaulty(vfs.NewMem())
	replica := start(t, vfs.NewMem(), func(c *Config) { c.Shared = true })
	shard := ShardOf("default", "e")
	var mu sync.Mutex
	told := uint64(0)
	w := start(t, faulty, func(c *Config) {
		c.StallAfter = 200 * time.Millisecond
		hooksOf(c).copies = func(n uint16, reset bool, until uint64, records []byte) {
			mu.Lock()
			defer mu.Unlock()
			if n != shard {
				return
			}
			if err := replica.Apply(n, reset, until, records); err != nil {
				t.Error(err)
			}
			told = until
		}
	})
	arrived := func(executed int64) {
		t.Helper()
		polltest.Until(t, func() bool {
			mu.Lock() // who owns it takes no records
			defer mu.Unlock()
			replica.Own(shard) // only owners tell
			defer replica.Leave(shard)
			got, err := replica.Get("default", "e", "c")
			return err == nil && got.Check.Executed == executed && got.Check.Occurrences == executed
		}, "result %d at the replica", executed)
	}
	published := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.published)
	}
	w.send(t, event("e", "c", 1, 1))
	w.settled(t)
	if w.Stalled() || !w.Settled(shard) {
		t.Fatal("all was well so far")
	}
	faulty.Inject(vfs.Rule{Name: "hangs", Ops: vfs.OpWrite | vfs.OpSync, Stall: true})
	defer faulty.LiftAll()
	stored := w.Stored()[shard]
	for run := int64(2); run <= 4; run++ { // the first is in the commit that hangs
		w.send(t, event("e", "c", 1, run))
		arrived(run)
	}
	if got := w.Stored()[shard]; got != stored || published() != 1 || !w.Stalled() || !w.Settled(shard) {
		t.Fatalf("sequence %d is stored, %d before; %d published; stalled %v", got, stored, published(), w.Stalled())
	}
	w.HandedOver(shard)
	polltest.Until(t, func() bool { return published() == 4 }, "what the replica has to be published")
	w.send(t, event("e", "c", 1, 5))
	arrived(5)
	faulty.LiftAll()
	w.settled(t)
	polltest.Until(t, func() bool { return published() == 5 && !w.Stalled() }, "the rest to be published")
	mu.Lock()
	defer mu.Unlock()
	if got := w.Stored()[shard]; got != told {
		t.Errorf("sequence %d is stored, the replica was told of %d", got, told)
	}
	w.stop()
	again := start(t, faulty)
	if got, err := again.Get("default", "e", "c"); err != nil || got.Check.Executed != 5 || got.Check.Occurrences != 5 {
		t.Errorf("after the restart: %+v, %v", got, err)
	}
}
