package dedup

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"corbel.dev/corbel/usage"
)

// TestFrozen: what was frozen is encoded as it was, after the state went on; and the state is
// what it would have been.
func TestFrozen(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s, plain := NewState(Config{Capacity: 5000}), NewState(Config{Capacity: 5000})
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	step := func() {
		at = at.Add(time.Duration(r.IntN(90)) * time.Minute)
		for range 1000 {
			id := usage.Hash{Hi: r.Uint64(), Lo: r.Uint64()}
			name, sequence := fmt.Sprint("p", r.IntN(20)), uint64(r.IntN(3000))
			for _, to := range []*State{s, plain} {
				to.Advance(at)
				to.Event(id, at, time.Hour)
				to.Batch(name, 1, sequence)
			}
		}
	}
	step()
	for range 12 {
		want := s.Append(nil)
		held, again := s.Freeze(), s.Freeze()
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
		if !bytes.Equal(s.Append(nil), plain.Append(nil)) {
			t.Fatal("a state that was frozen went another way")
		}
	}
}
