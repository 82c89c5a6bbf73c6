package aggregate

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"corbel.dev/corbel/usage/window"
)

// TestFrozen: what was frozen is encoded as it was, after all that changes a state; and
// the state is what it would have been.
func TestFrozen(t *testing.T) {
	list, r := products(t), rand.New(rand.NewPCG(7, 7))
	cfg := Config{Zone: zones}
	c, plain := New(cfg), New(cfg)
	at := time.Date(2026, 3, 28, 20, 0, 0, 0, time.UTC)
	order := uint64(0)
	step := func() {
		for range 300 {
			order++
			o := someObservation(t, r, list, at.Add(-time.Duration(r.IntN(3600))*time.Second))
			for _, to := range []*Counter{c, plain} {
				to.Apply(&o.Observation, order)
			}
		}
		at = at.Add(time.Duration(r.IntN(600)) * time.Minute)
		cleared := window.Range{From: at.Add(-2 * time.Hour).Truncate(time.Minute), To: at.Truncate(time.Minute)}
		for _, to := range []*Counter{c, plain} {
			to.Advance(at)
			to.Clear(Series{"berlin", "hosts", 1}, cleared)
		}
	}
	step()
	for range 12 {
		want := c.Append(nil)
		held, again := c.Freeze(), c.Freeze()
		step()
		if !bytes.Equal(held.Append(nil), want) {
			t.Fatal("what was frozen has changed")
		}
		held.Release()
		step()
		if !bytes.Equal(again.Append(nil), want) {
			t.Fatal("what was frozen twice has changed")
		}
		again.Release()
		if !bytes.Equal(c.Append(nil), plain.Append(nil)) {
			t.Fatal("a state that was frozen went another way")
		}
	}
}
