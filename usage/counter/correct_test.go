package counter

import (
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/batch"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/logrecord"
)

// gate is a log whose readers wait once it is shut.
type gate struct {
	eventlog.Log
	shut    atomic.Bool
	waits   chan struct{} // a reader has come
	release chan struct{}
}

func (g *gate) Reader(from map[int]uint64) (eventlog.Reader, error) {
	if g.shut.Load() {
		g.waits <- struct{}{}
		<-g.release
	}
	return g.Log.Reader(from)
}

// TestAddingGoesOn: while a correction reads the log, events are counted and questions answered; the totals are right
// afterwards, and after a kill in the middle.
func TestAddingGoesOn(t *testing.T) {
	for name, killed := range map[string]bool{"to the end": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 7)
			g := &gate{waits: make(chan struct{}), release: make(chan struct{})}
			w.wrap = func(log eventlog.Log) eventlog.Log { g.Log = log; return g }
			w.start()
			at := time.Now().Add(-30 * time.Minute).UnixNano() // all are in what is cleared
			add := func() usage.Event {
				t.Helper()
				e := w.event(false)
				e.Time = at
				got, err := w.take(batch.Batch{Events: []usage.Event{e}}, false)
				if err != nil || got.Of[0] != dedup.New {
					t.Fatal(got, err)
				}
				w.truth[e.Tenant+"/"+e.Source+"/"+e.ID] = e
				return e
			}
			first := add()
			for range 40 {
				add()
			}
			g.shut.Store(true)
			c := usage.Correction{ID: "c", Kind: usage.Void, Tenant: first.Tenant, Product: first.Product,
				Source: first.Source, IDs: []string{first.ID}, Reason: "test"}
			corrected := make(chan error, 1)
			go func() {
				corrected <- w.counter.Correct(t.Context(), Intake{Tenant: first.Tenant,
					Record: &logrecord.Record{At: time.Now(), Correction: &c}})
			}()
			<-g.waits // for where the event is
			for range 40 {
				add()
			}
			w.judge(0) // the event is still there
			g.release <- struct{}{}
			<-g.waits // for what is counted again
			for range 40 {
				add()
			}
			w.judge(1)
			if err := (&saver{c: w.counter}).save(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			after := w.fs.Killed()
			g.shut.Store(false)
			g.release <- struct{}{}
			if err := <-corrected; err != nil {
				t.Fatal(err)
			}
			delete(w.truth, first.Tenant+"/"+first.Source+"/"+first.ID)
			w.judge(2)
			w.stop()
			if killed {
				w.fs = after
			}
			w.start()
			w.judge(3)
			add()
			w.judge(4)
			w.stop()
		})
	}
}
