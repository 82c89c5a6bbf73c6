package memory

import (
	"testing"
	"time"
)

func TestHeadroomShrinksWithTheLiveHeap(t *testing.T) {
	for _, c := range []struct {
		liveMiB, scanMiB uint64
		want             int
	}{
		{0, 0, 2400}, {4, 4, 2400}, {24, 24, 400}, {24, 1, 400}, {96, 96, 100}, {112, 112, 86}, {1024, 1024, 80},
		{300, 20, 32}, {1024, 128, 23}, {1024, 512, 47}, {8, 1024, 1200},
	} {
		if got := gcPercent(c.liveMiB<<20, c.scanMiB<<20, 1<<40, 0); got != c.want {
			t.Errorf("%d MiB live, %d of them to be looked through: %d %%, want %d", c.liveMiB, c.scanMiB, got, c.want)
		}
	}
}

func TestHeadroomIsWhatTheGarbageNeeds(t *testing.T) {
	for _, c := range []struct {
		liveMiB, scanMiB, perSecond uint64
		want                        int
	}{
		{24, 24, 0, 50}, {60, 40, 2 << 20, 20}, {60, 40, 20 << 20, 67}, {60, 40, 1 << 30, 160}, {1024, 512, 1 << 20, 2},
		{1024, 512, 1 << 30, 47}, {0, 0, 0, 300},
	} {
		if got := gcPercent(c.liveMiB<<20, c.scanMiB<<20, c.perSecond, 0); got != c.want {
			t.Errorf("%d MiB live, %d of them to be looked through, %d bytes a second: %d %%, want %d", c.liveMiB, c.scanMiB,
				c.perSecond, got, c.want)
		}
	}
}

func TestHeadroomShrinksWithWhatRequestsHold(t *testing.T) {
	for held, want := range map[uint64]int{0: 400, 48 << 20: 200, 84 << 20: 50, 1 << 30: 50} {
		if got := gcPercent(24<<20, 24<<20, 1<<40, held); got != want {
			t.Errorf("%d bytes are held: %d %%, want %d", held, got, want)
		}
	}
	for held, want := range map[uint64]int{0: 80, 100 << 20: 70, 1 << 40: 40} {
		if got := gcPercent(1<<30, 1<<30, 1<<40, held); got != want {
			t.Errorf("%d bytes are held beside a live heap of 1 GiB: %d %%, want %d", held, got, want)
		}
	}
}

func TestGarbageRisesFastAndFallsSlowly(t *testing.T) {
	var g garbage
	var total uint64
	after := func(periods int, perSecond uint64) float64 {
		for range periods {
			total += perSecond / 10
			g.add(total, 100*time.Millisecond)
		}
		return g.perSecond / float64(100<<20)
	}
	if got := after(10, 100<<20); got < 0.95 {
		t.Errorf("after a second of garbage it is taken for %.2f of it", got)
	}
	if got := after(10, 0); got < 0.7 {
		t.Errorf("a second later it is taken for %.2f", got)
	}
	if got := after(150, 0); got > 0.1 {
		t.Errorf("long after it is taken for %.2f", got)
	}
}
