package node

import "testing"

func TestHeadroomShrinksWithTheLiveHeap(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 2400, 4 << 20: 2400, 24 << 20: 400, 96 << 20: 100, 112 << 20: 85, 1 << 30: 80,
	} {
		if got := gcPercent(live); got != want {
			t.Errorf("live %d MiB: %d %%, want %d", live>>20, got, want)
		}
	}
}
