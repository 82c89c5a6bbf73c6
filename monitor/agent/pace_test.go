package agent

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(10, 10)
		begin := time.Now()
		for range 10 {
			if err := p.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(begin); d != 0 {
			t.Fatalf("a burst took %s", d)
		}
		for range 20 {
			if err := p.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(begin); d != 2*time.Second {
			t.Fatalf("20 after the burst took %s", d)
		}
		time.Sleep(time.Hour)
		begin = time.Now()
		for range 11 {
			_ = p.wait(t.Context())
		}
		if d := time.Since(begin); d != 100*time.Millisecond {
			t.Fatalf("11 after a rest took %s", d)
		}
		var none *pace
		if none.wait(t.Context()) != nil || newPace(-1, 0) != nil {
			t.Fatal("no rate is no wait")
		}
	})
}

func TestPauses(t *testing.T) {
	timing := Timing{RetryMin: time.Second, RetryMax: 120 * time.Second, RetryMultiplier: 2}
	pause, sum := time.Duration(0), time.Duration(0)
	for range 9 {
		pause = nextPause(pause, &timing)
		sum += pause
	}
	if pause != 120*time.Second || sum != (1+2+4+8+16+32+64+120+120)*time.Second {
		t.Fatalf("%s, %s", pause, sum)
	}
}
