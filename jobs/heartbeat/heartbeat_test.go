package heartbeat

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/jobs"
)

func id(n int) (id jobs.ID) { id[0], id[1], id[2] = byte(n), byte(n>>8), 1; return id }

// fleet has n nodes that beat when they are to, but for those that are dead.
type fleet struct {
	b    *Beats
	n    int
	now  jobs.Time
	dead map[jobs.ID]bool
}

func newFleet(n int) *fleet {
	f := &fleet{b: New(Config{}), n: n, now: jobs.Time(1e18), dead: map[jobs.ID]bool{}}
	for i := range n {
		f.b.Expect(id(i), f.now)
	}
	return f
}

// run moves time on; mute says that nothing reaches this server.
func (f *fleet) run(d time.Duration, mute bool) (silent []jobs.ID) {
	for end := f.now.Add(d); f.now < end; f.now = f.now.Add(Tick) {
		every := int(f.b.Every() / Tick)
		for i := range f.n {
			if (i+int(int64(f.now)/int64(Tick)))%every == 0 && !f.dead[id(i)] && !mute {
				f.b.Beat([]jobs.ID{id(i)}, f.now)
			}
		}
		for _, one := range f.b.Expire(f.now) {
			silent = append(silent, one)
			f.b.Forget(one)
		}
	}
	return silent
}

func TestDeadNodeIsNoticed(t *testing.T) {
	f := newFleet(10_000)
	if silent := f.run(30*time.Second, false); len(silent) > 0 {
		t.Fatalf("%d of a healthy fleet are silent", len(silent))
	}
	f.dead[id(17)] = true
	if silent := f.run(15*time.Second, false); !slices.Equal(silent, []jobs.ID{id(17)}) {
		t.Errorf("after 15 s %v are silent", silent)
	}
}

// TestTenthDies: many dead at once are noticed, within bounds for each call.
func TestTenthDies(t *testing.T) {
	f := newFleet(1000)
	f.run(20*time.Second, false)
	for i := range 100 {
		f.dead[id(i)] = true
	}
	if silent := f.run(20*time.Second, false); len(silent) != 100 {
		t.Errorf("%d of 100 dead were noticed", len(silent))
	}
}

// TestOurFault: a pause of the process and a deaf network kill nobody who comes back in time.
func TestOurFault(t *testing.T) {
	f := newFleet(200)
	f.run(20*time.Second, false)
	f.now = f.now.Add(time.Hour) // the process stood still
	if silent := f.run(10*time.Second, false); len(silent) > 0 {
		t.Errorf("%d are silent after a pause of this process", len(silent))
	}
	if silent := f.run(14*time.Second, true); len(silent) > 0 {
		t.Errorf("%d are silent when nothing reached this server for 14 s", len(silent))
	}
	if silent := f.run(20*time.Second, false); len(silent) > 0 {
		t.Errorf("%d are silent after it", len(silent))
	}
	if got := f.b.Beat([]jobs.ID{id(1), id(9999)}, f.now); !slices.Equal(got, []jobs.ID{id(9999)}) {
		t.Errorf("unknown: %v", got)
	}
}

// TestSlowFleet: on a host that is too slow each beat takes some tries, and comes three periods later at times. Nobody
// is silent for that, but who is dead.
func TestSlowFleet(t *testing.T) {
	const n, slowest = 3000, 12 * time.Second
	b, now, r := New(Config{}), jobs.Time(1e18), rand.New(rand.NewPCG(1, 2))
	due := make([]jobs.Time, n)
	for i := range n {
		b.Expect(id(i), now)
		due[i] = now.Add(time.Duration(r.Int64N(int64(slowest))))
	}
	noticed := false
	for end := now.Add(5 * time.Minute); now < end; now = now.Add(Tick) {
		for i := range n {
			if i > 0 && due[i] <= now {
				b.Beat([]jobs.ID{id(i)}, now)
				due[i] = now.Add(b.Every() + time.Duration(r.Int64N(int64(slowest-b.Every()))))
			}
		}
		for _, one := range b.Expire(now) {
			if one != id(0) {
				t.Fatalf("%v is silent, and was slow", one)
			}
			noticed = true
			b.Forget(one)
		}
	}
	if !noticed {
		t.Error("a dead node of a slow fleet was not noticed")
	}
}

// TestLastToComeBack: most of a fleet is cut off for 3 s. A few are heard only when all others have been heard for a
// while: they lost one attempt more. One that died in the cut is noticed all the same.
func TestLastToComeBack(t *testing.T) {
	const cut, late = 3 * time.Second, 8 * time.Second
	f := newFleet(3300)
	if silent := f.run(30*time.Second, false); len(silent) > 0 {
		t.Fatalf("%d of a healthy fleet are silent", len(silent))
	}
	away := func(from, to int, is bool) {
		for i := from; i < to; i++ {
			f.dead[id(i)] = is
		}
	}
	away(0, 3000, true)
	silent := f.run(cut, false)
	away(10, 3000, false)
	silent = append(silent, f.run(late, false)...)
	away(1, 10, false)
	silent = append(silent, f.run(10*time.Second, false)...)
	if slices.ContainsFunc(silent, func(one jobs.ID) bool { return one != id(0) }) {
		t.Errorf("%d nodes are silent that came back within %v", len(silent), cut+late)
	}
	if silent = append(silent, f.run(20*time.Second, false)...); !slices.Equal(silent, []jobs.ID{id(0)}) {
		t.Errorf("%v are silent, want the one that died", silent)
	}
}
