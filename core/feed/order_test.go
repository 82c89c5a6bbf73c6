package feed

import (
	"fmt"
	"testing"
	"testing/synctest"

	"corbel.dev/corbel/kit/polltest"
)

// TestWhatIsSaidAgain: a server that looked after two changes finds what there was before. Agents that have that are
// sent nothing; one that comes with what was between, from a server that looked earlier, is told that it is over.
func TestWhatIsSaidAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, early, late := newSite(t), newPress(), newPress()
		first := s.serve("s0", ServerConfig{Source: early})
		for _, p := range []*press{early, late} {
			p.publishAt("x", body(90, 0), 90)
		}
		var moved, stayed seen
		s.client("a", ClientConfig{}).Follow("x", "", moved.set, moved.failed)
		reaches(t, &moved, 90)
		early.publishAt("x", body(100, 0), 100)
		reaches(t, &moved, 100)

		s.serve("s1", ServerConfig{Source: late})
		only := func() []string { return []string{"s1:1"} }
		s.client("b", ClientConfig{Servers: only}).Follow("x", "", stayed.set, stayed.failed)
		reaches(t, &stayed, 90)
		first.stop()
		polltest.Until(t, func() bool { return late.count() == 2 }, "the agent to move to the server that is behind")
		if moved.last() != 100 {
			t.Errorf("index %d from a server that is behind", moved.last())
		}
		late.renew("x", 110)
		reaches(t, &moved, 110)
		synctest.Wait()
		if n, _ := stayed.counts(); n != 1 {
			t.Errorf("%d values of which the last is the first", n)
		}
		var came seen
		s.client("c", ClientConfig{Servers: only}).Follow("x", "", came.set, came.failed)
		reaches(t, &came, 110)
		late.publishAt("x", body(120, 0), 120)
		for _, who := range []*seen{&moved, &stayed, &came} {
			reaches(t, who, 120)
		}
	})
}

// TestHedgeHearsWhatIsSaidAgain: of two servers one told what is true, looked again and found it still, or again; the
// other told what was between, and then nothing more, since it lags or hangs. The client asks the first again.
func TestHedgeHearsWhatIsSaidAgain(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprint("hangs ", hangs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, early, late := newSite(t), newPress(), newPress()
				s.serve("s0", ServerConfig{Source: early})
				s.serve("s1", ServerConfig{Source: late})
				for _, p := range []*press{early, late} {
					p.publishAt("x", body(90, 0), 90)
				}
				var got seen
				s.client("a", ClientConfig{Hedge: true}).Follow("x", "", got.set, got.failed)
				polltest.Until(t, func() bool { return early.count() == 1 && late.count() == 1 }, "both servers to be asked")
				reaches(t, &got, 90)
				early.publishAt("x", body(100, 0), 100)
				reaches(t, &got, 100)
				if hangs {
					s.memory.Stall("s0", "a")
				}
				late.renew("x", 110)
				pause(4000)
				if got.last() != 110 {
					t.Errorf("index %d, want 110", got.last())
				}
				asked := late.follows
				pause(10_000)
				if late.follows > asked+2 {
					t.Errorf("asked %d times for what is known", late.follows-asked)
				}
			})
		})
	}
}

// TestNothingBeginsBeforeWhatIsKnown: who begins to follow a subject at a server that is behind what others told waits
// until that has caught up, or is all that there is.
func TestNothingBeginsBeforeWhatIsKnown(t *testing.T) {
	for _, catchesUp := range []bool{true, false} {
		t.Run(fmt.Sprint("catches up ", catchesUp), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ahead, behind := newSite(t), newPress(), newPress()
				first := s.serve("s0", ServerConfig{Source: ahead})
				for _, p := range []*press{ahead, behind} {
					p.publishAt("all", body(90, 0), 90)
					p.publishAt("own", body(90, 0), 90)
				}
				c := s.client("a", ClientConfig{})
				var all, own seen
				c.Follow("all", "", all.set, all.failed)
				reaches(t, &all, 90)
				ahead.publishAt("all", body(100, 0), 100)
				reaches(t, &all, 100)
				s.serve("s1", ServerConfig{Source: behind})
				first.stop()
				polltest.Until(t, func() bool { return behind.count() == 1 }, "the agent to move to the server that is behind")
				c.Follow("own", "", own.set, own.failed)
				pause(1500)
				if n, _ := own.counts(); n != 0 {
					t.Errorf("began with index %d after 100", own.last())
				}
				want := uint64(90)
				if catchesUp {
					behind.publishAt("own", body(95, 0), 95)
					behind.publishAt("all", body(101, 0), 101)
					want = 95
				}
				pause(1500)
				if catchesUp && own.last() != want {
					t.Errorf("index %d a heartbeat after the server caught up, want %d", own.last(), want)
				}
				pause(10_000)
				if own.last() != want {
					t.Errorf("index %d, want %d", own.last(), want)
				}
			})
		})
	}
}
