package node

import "testing"

func TestHeadroomShrinksWithTheLiveHeap(t *testing.T) {
	for _, c := range []struct {
		liveMiB, scanMiB uint64
		want             int
	}{
		{0, 0, 2400}, {4, 4, 2400}, {24, 24, 400}, {24, 1, 400}, {96, 96, 100}, {112, 112, 86}, {1024, 1024, 80},
		{300, 20, 32}, {1024, 128, 23}, {1024, 512, 47}, {8, 1024, 1200},
	} {
		if got := gcPercent(c.liveMiB<<20, c.scanMiB<<20); got != c.want {
			t.Errorf("%d MiB live, %d of them to be looked through: %d %%, want %d", c.liveMiB, c.scanMiB, got, c.want)
		}
	}
}
