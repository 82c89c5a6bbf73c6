package pace

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/uplink"
	"corbel.dev/corbel/telemetry"
)

func registry() *telemetry.Registry { return telemetry.New(telemetry.Config{}) }

// TestLanes: however much is asked for by however many, over whichever lanes, no more goes than the rate and a burst;
// what waited and what went is counted.
func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, piece = 1 << 20, 1 << 20 / 10
		m := registry()
		b := New(Config{Rate: rate, Metrics: m})
		began, given := time.Now(), make(chan int, 1000)
		for i, name := range []string{"s3", "cache", "postgresql", Server} {
			lane := b.Lane(name)
			go func() {
				for range 50 {
					do := lane.Load
					if i%2 == 1 {
						do = lane.Send
					}
					if do(t.Context(), piece) != nil {
						return
					}
					given <- piece
				}
			}()
		}
		for sum := 0; sum < 200*piece; {
			sum += <-given
			if most := rate + int(time.Since(began).Seconds()*rate) + piece; sum > most {
				t.Fatalf("%d bytes in %s", sum, time.Since(began))
			}
		}
		if took := time.Since(began); took < 18*time.Second || took > 21*time.Second {
			t.Errorf("20 MiB took %s", took) // of the test's own time
		}
		for name, labels := range map[string][]string{LoadedBytes: {"from", "s3"}, SentBytes: {"to", "cache"}} {
			if got := m.Counter(name, labels...).Value(); got != 50*piece {
				t.Errorf("%s %s: %d", name, labels, got)
			}
		}
		for _, of := range []string{"s3", "postgresql", "saving", Server} {
			if ms := m.Counter(Waited, "of", of).Value(); ms < 10_000 || ms > 21_000 {
				t.Errorf("%s has waited for %d ms", of, ms)
			}
		}
	})
}

// TestGivesUp: who gives up takes nothing from those who wait, and without a rate nobody waits.
func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 1 << 20
		m := registry()
		b := New(Config{Rate: rate, Metrics: m})
		lane := b.Lane("s3")
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if lane.Load(short, 100*rate) == nil || m.Counter(LoadedBytes, "from", "s3").Value() != 0 {
			t.Error("who gave up has loaded something")
		}
		began := time.Now()
		if err := lane.Load(t.Context(), 2*rate); err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if cancel(); lane.Load(short, 1) == nil {
			t.Error("who does not wait any more may go")
		}
		began = time.Now()
		for _, free := range []*Lane{nil, New(Config{Metrics: m}).Lane("s3")} {
			if err := free.Send(t.Context(), 1<<40); err != nil || time.Since(began) > 0 {
				t.Errorf("there is no rate, and something waits: %v", err)
			}
		}
	})
}

// TestFolder: the server's own disk takes from the same bucket, an eighth for each byte.
func TestFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 1 << 20
		b := New(Config{Rate: rate, Metrics: registry()})
		began := time.Now()
		for range 32 {
			if err := b.Lane(Folder).Load(t.Context(), rate); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 3*time.Second { // 4 MiB, of which the first is free
			t.Errorf("32 MiB of the folder took %s", took)
		}
		if err := b.Lane("s3").Load(t.Context(), rate); err != nil || time.Since(began) != 4*time.Second {
			t.Errorf("a place beside it: after %s, %v", time.Since(began), err)
		}
	})
}

// TestShare: 30 % of the link's speed, half with each look that finds packets dropped, and back when there are none.
func TestShare(t *testing.T) {
	var s share
	now := time.Unix(1000, 0)
	for i, step := range []struct {
		after time.Duration
		link  uplink.State
		want  float64
	}{
		{0, uplink.State{Speed: 1e9, Dropped: 500}, 3e8},
		{time.Second, uplink.State{Speed: 1e9, Dropped: 501}, 1.5e8},
		{time.Second, uplink.State{Speed: 1e9, Dropped: 502}, 7.5e7},
		{time.Second, uplink.State{Speed: 1e9, Dropped: 502}, 9.375e7},
		{time.Minute, uplink.State{Speed: 1e9, Dropped: 900}, 3e8}, // while nothing went
		{time.Second, uplink.State{Dropped: 900}, 64 << 20},
		{time.Second, uplink.State{Speed: 1e6, Dropped: 900}, 1 << 20},
	} {
		if now = now.Add(step.after); !s.due(now) {
			t.Errorf("step %d is not due", i)
		}
		if got := s.next(now, step.link); got != step.want {
			t.Errorf("step %d: %.0f, want %.0f", i, got, step.want)
		}
		if s.due(now.Add(time.Millisecond)) {
			t.Errorf("step %d is due again", i)
		}
	}
	for range 10 {
		now = now.Add(time.Second)
		s.next(now, uplink.State{Speed: 1e9, Dropped: s.dropped + 1})
	}
	if now = now.Add(time.Second); s.next(now, uplink.State{Speed: 1e9, Dropped: s.dropped + 1}) != 3e8/16 {
		t.Error("it becomes less than a sixteenth")
	}
	b := New(Config{Rate: -1, Metrics: registry(), Link: func() uplink.State { return uplink.State{Speed: 1e9} }})
	if err := b.Lane(Server).Send(t.Context(), 1); err != nil || b.Rate() != 3e8 {
		t.Errorf("%v, at %.0f bytes a second", err, b.Rate())
	}
}
