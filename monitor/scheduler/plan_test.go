package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"corbel.dev/corbel/monitor"
)

// plannerClock drives a plan as the scheduler's loop does, by a wall clock that can be set.
type plannerClock struct {
	t    *testing.T
	plan *plan
	now  moment
	runs map[checkKey][]moment
	dues map[checkKey][]time.Time
}

func newPlanner(t *testing.T) *plannerClock {
	return &plannerClock{t: t, plan: newPlan(), now: moment{wall: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)},
		runs: map[checkKey][]moment{}, dues: map[checkKey][]time.Time{}}
}

func (c *plannerClock) add(name string, interval uint32, cron string) checkKey {
	c.t.Helper()
	s, err := monitor.NewSchedule(name, interval, cron)
	if err != nil {
		c.t.Fatal(err)
	}
	key := checkKey{"default", name}
	c.plan.set(key, s, c.now)
	return key
}

func (c *plannerClock) run() {
	c.plan.run(c.now, func(key checkKey, due time.Time) {
		c.runs[key] = append(c.runs[key], c.now)
		c.dues[key] = append(c.dues[key], due)
	})
}

// pass lets time pass, with the loop running.
func (c *plannerClock) pass(d time.Duration) {
	for end := c.now.mono + d; c.now.mono < end; c.run() {
		step := min(max(c.plan.wait(c.now), time.Millisecond), end-c.now.mono)
		c.now.mono += step
		c.now.wall = c.now.wall.Add(step)
	}
}

// set sets the wall clock; the loop sees it within a second.
func (c *plannerClock) set(by time.Duration) { c.now.wall = c.now.wall.Add(by) }

// pause stops the process.
func (c *plannerClock) pause(d time.Duration) {
	c.now.mono += d
	c.now.wall = c.now.wall.Add(d)
	c.run()
}

func TestPlanRunsEachTickOnce(t *testing.T) {
	c := newPlanner(t)
	ten, minute := c.add("ten", 10, ""), c.add("minute", 0, "* * * * *")
	c.pass(10 * time.Minute)
	if len(c.runs[ten]) != 60 || len(c.runs[minute]) != 10 {
		t.Fatal(len(c.runs[ten]), len(c.runs[minute]))
	}
	for i, due := range c.dues[ten][1:] {
		if due.Sub(c.dues[ten][i]) != 10*time.Second ||
			turn(c.plan.byKey[ten].schedule, due) != turn(c.plan.byKey[ten].schedule, c.dues[ten][i])+1 {
			t.Fatal(i, due)
		}
	}
	c.plan.remove(ten)
	c.plan.remove(ten)
	c.pass(time.Minute)
	if len(c.runs[ten]) != 60 || len(c.runs[minute]) != 11 {
		t.Fatal("after its removal:", len(c.runs[ten]), len(c.runs[minute]))
	}
}

// A check that becomes a rarer one runs when that is due, however short ago it ran; one that is written again as it
// was does not run twice.
func TestPlanChanges(t *testing.T) {
	c := newPlanner(t)
	key := c.add("check", 10, "")
	c.pass(time.Minute)
	hourly, err := monitor.NewSchedule("check", 3600, "")
	if err != nil {
		t.Fatal(err)
	}
	for !hourly.Next(c.now.wall).Before(c.now.wall.Add(5 * time.Minute)) {
		c.pass(10 * time.Second)
	}
	clear(c.runs)
	c.plan.set(key, hourly, c.now)
	if c.pass(6 * time.Minute); len(c.runs[key]) != 1 {
		t.Errorf("%d runs, the hour's tick was within", len(c.runs[key]))
	}
	c.add("check", 3600, "")
	c.set(-10 * time.Minute)
	if c.pass(20 * time.Minute); len(c.runs[key]) != 1 {
		t.Errorf("%d runs of one tick", len(c.runs[key]))
	}
}

// most returns the largest number of runs within a time.
func (c *plannerClock) most(within time.Duration) (most int) {
	var all []time.Duration
	for _, list := range c.runs {
		for _, m := range list {
			all = append(all, m.mono)
		}
	}
	for _, from := range all {
		n := 0
		for _, at := range all {
			if at >= from && at < from+within {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// A pause, a clock that is set forth or back: no burst, nothing run twice, nothing left out for long.
func TestPlanJumps(t *testing.T) {
	for name, jump := range map[string]func(*plannerClock){
		"an hour forth": func(c *plannerClock) { c.set(time.Hour) },
		"an hour back":  func(c *plannerClock) { c.set(-time.Hour) },
		"a step back":   func(c *plannerClock) { c.set(-1500 * time.Millisecond) },
		"a little back": func(c *plannerClock) { c.set(-300 * time.Millisecond) },
		"a pause":       func(c *plannerClock) { c.pause(7 * time.Second) },
		"a long pause":  func(c *plannerClock) { c.pause(40 * time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newPlanner(t)
			var keys []checkKey
			for i := range 600 {
				keys = append(keys, c.add(fmt.Sprint("often-", i), 60, ""))
			}
			for i := range 100 {
				keys = append(keys, c.add(fmt.Sprint("rare-", i), 3600, ""))
			}
			c.pass(2 * time.Minute)
			clear(c.runs)
			jump(c)
			begin := c.now.mono
			c.pass(3 * time.Minute)
			if n := c.most(time.Second); n > 60 { // 10 a second in order
				t.Errorf("%d runs within a second", n)
			}
			for _, k := range keys {
				runs := c.runs[k]
				if k.name[0] == 'r' {
					continue
				}
				if len(runs) < 2 || len(runs) > 5 || runs[0].mono-begin > 95*time.Second {
					t.Fatalf("%s: %d runs in 3 minutes, first after %v", k.name, len(runs), runs)
				}
				for i, r := range runs[1:] {
					if r.mono-runs[i].mono < 15*time.Second {
						t.Errorf("%s ran twice within %v", k.name, r.mono-runs[i].mono)
					}
				}
			}
			rare := 0
			for _, k := range keys[600:] {
				rare += len(c.runs[k])
				if len(c.runs[k]) > 1 {
					t.Errorf("%s ran %d times", k.name, len(c.runs[k]))
				}
			}
			if name == "an hour forth" && rare < 90 {
				t.Errorf("%d of 100 hourly checks ran, all of which the jump went over", rare)
			}
		})
	}
}

// Whatever the clock does, a check never runs sooner than a quarter of its period after its last run, and runs again
// once the clock is sound.
func TestPlanRandomClock(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newPlanner(t)
		keys := []checkKey{c.add("a", 10, ""), c.add("b", 47, ""), c.add("c", 600, ""), c.add("d", 0, "*/5 * * * *"),
			c.add("e", 0, "CRON_TZ=Europe/Berlin 30 2 * * *")}
		quarter := []time.Duration{2500 * time.Millisecond, 11 * time.Second, 150 * time.Second, 75 * time.Second, time.Hour}
		for range 30 {
			d := time.Duration(rng.Int64N(int64(2 * time.Hour)))
			switch rng.IntN(4) {
			case 0:
				c.set(d - time.Hour)
			case 1:
				c.pause(d)
			default:
				c.pass(d / 40)
			}
		}
		for i, k := range keys {
			for j := 1; j < len(c.runs[k]); j++ {
				if gap := c.runs[k][j].mono - c.runs[k][j-1].mono; gap < quarter[i] {
					t.Fatalf("seed %d: %s ran twice within %v", seed, k.name, gap)
				}
			}
		}
		clear(c.runs)
		c.pass(13 * time.Minute)
		for i, k := range keys[:4] {
			if n := len(c.runs[k]); n < []int{60, 12, 1, 2}[i] {
				t.Fatalf("seed %d: %s ran %d times in 13 minutes", seed, k.name, n)
			}
		}
	}
}
