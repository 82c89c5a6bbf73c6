package runs

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The ring agrees with a plain list, whatever the clocks do.
func TestHistoryAgainstAList(t *testing.T) {
	type one struct {
		status   uint32
		executed int64
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var h History
		var list, got []one
		at := int64(1_700_000_000)
		for range rng.IntN(60) {
			at += rng.Int64N(100_000) - 40_000 // also back
			status := uint32(rng.IntN(4))
			h.Add(status, at)
			list = append(list, one{status, at})
			list = list[max(0, len(list)-HistoryLength):]
		}
		for i := range h.Len() {
			status, executed := h.At(i)
			got = append(got, one{status, executed})
		}
		if !slices.Equal(got, list) {
			t.Fatalf("%v\nwant %v", got, list)
		}
	}
}

// Times that no history can hold together become the nearest ones.
func TestHistoryOfBrokenClocks(t *testing.T) {
	var h History
	for _, at := range []int64{0, 1 << 62, -1 << 62, 1_700_000_000} {
		h.Add(1, at)
		if _, got := h.At(h.Len() - 1); got != at {
			t.Fatalf("the newest run is at %d, not %d", got, at)
		}
	}
}
