// Package heartbeat says which nodes are silent, on the server that leads the jobs plane (NN-3, NN-4). Heartbeats are
// memory: none of them is a commit.
//
// Nodes beat each Every: as often as keeps all of them below Config.PerSecond, within bounds. A node is silent when
// nothing came for Every and Grace. Four things keep a slow server from taking a healthy fleet for a dead one:
//   - A new leader gives every node a whole period and grace from the moment at which it began.
//   - A pause of this process (a stalled disk, a stopped machine) is seen by Expire, which is called each Tick: what
//     it was late by is given to everybody.
//   - When fewer beats than are due came to this server lately, the cause is likely here or between: the grace grows
//     with what is missing, to six times as long where half of it is. It shrinks at a quarter of the speed of time:
//     who was cut off with others, and is heard a little later than they are, is not dead.
//   - Expire reports at most Most nodes or a twentieth of all in a call, the most silent first. The rest is asked
//     again.
//
// The package is pure: time comes in. A Beats belongs to one owner, who locks it.
package heartbeat

import (
	"bytes"
	"slices"
	"time"

	"corbel.dev/corbel/jobs"
)

// Config is how nodes are watched. Zero means the default.
type Config struct {
	PerSecond int           // beats of all nodes; 2,500
	Min, Max  time.Duration // bounds of Every; 4 s and 60 s
	Grace     time.Duration // beyond Every; 6 s
	Most      int           // nodes that one Expire reports, or a twentieth of all; 50
}

// Tick is how often Expire is to be called.
const Tick = 500 * time.Millisecond

// late is by how much a call of Expire may miss its time without being a pause of this process.
const late = time.Second

// Beats are the nodes that are expected to beat.
type Beats struct {
	cfg   Config
	last  map[jobs.ID]jobs.Time
	asked jobs.Time // Expire was called
	came  [slots]int
	slot  int64

	began   jobs.Time     // Expire was called first
	more    time.Duration // beyond the grace, for what was missing lately
	wasDeaf bool
}

// deafGrace is how many times more the grace is while this server hears half of what is due, or less.
const deafGrace = 5

// The beats of the last seconds, one slot each.
const slots = 8

// New begins without nodes.
func New(cfg Config) *Beats {
	def := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	if cfg.PerSecond == 0 {
		cfg.PerSecond = 2500
	}
	if cfg.Most == 0 {
		cfg.Most = 50
	}
	def(&cfg.Min, 4*time.Second)
	def(&cfg.Max, 60*time.Second)
	def(&cfg.Grace, 6*time.Second)
	return &Beats{cfg: cfg, last: map[jobs.ID]jobs.Time{}}
}

// Every is how often a node is to beat.
func (b *Beats) Every() time.Duration {
	return min(max(time.Duration(len(b.last))*time.Second/time.Duration(b.cfg.PerSecond), b.cfg.Min), b.cfg.Max)
}

// Len is how many nodes are expected to beat.
func (b *Beats) Len() int { return len(b.last) }

// Expect watches a node from now on. One that is watched already keeps its time.
func (b *Beats) Expect(id jobs.ID, now jobs.Time) {
	if _, ok := b.last[id]; !ok {
		b.last[id] = now
	}
}

// Forget watches a node no more.
func (b *Beats) Forget(id jobs.ID) { delete(b.last, id) }

// Beat notes that nodes live, and returns those that are not watched: they are to register again.
func (b *Beats) Beat(ids []jobs.ID, now jobs.Time) (unknown []jobs.ID) {
	b.roll(now)
	for _, id := range ids {
		if last, ok := b.last[id]; ok {
			b.last[id] = max(last, now)
			b.came[b.slot%slots]++
		} else {
			unknown = append(unknown, id)
		}
	}
	return unknown
}

// roll empties the slots of seconds in which nothing came.
func (b *Beats) roll(now jobs.Time) {
	second := int64(now) / int64(time.Second)
	if second-b.slot >= slots {
		b.came = [slots]int{}
	} else {
		for s := b.slot + 1; s <= second; s++ {
			b.came[s%slots] = 0
		}
	}
	b.slot = max(b.slot, second)
}

// heard is which part of the beats that are due came lately, at most 1; few nodes prove nothing.
func (b *Beats) heard(now jobs.Time) float64 {
	b.roll(now)
	sum := 0
	for _, n := range b.came {
		sum += n
	}
	if len(b.last) < 20 {
		return 1
	}
	due := float64(len(b.last)) * (slots - 1) / max(b.Every().Seconds(), 1)
	return min(float64(sum)/due, 1)
}

// patience is how many times more the grace is by what is heard: none for all of it and deafGrace for half, where the
// nodes' beats are that much further apart, and in between by the square of that. A tenth that died costs 40 % more.
func patience(heard float64) float64 {
	heard = max(heard, 0.5)
	return deafGrace * (1/(heard*heard) - 1) / 3
}

// Expire returns nodes that are silent, the longest first. They are still watched: Forget them once they are marked.
func (b *Beats) Expire(now jobs.Time) []jobs.ID {
	if b.asked > 0 {
		passed := now.Sub(b.asked)
		if over := passed - Tick; over > late {
			for id, last := range b.last {
				b.last[id] = last.Add(over)
			}
			passed = Tick
		}
		b.more -= passed / 4
	} else {
		b.began = now
	}
	b.asked = now
	was, heard := b.wasDeaf, b.heard(now)
	b.wasDeaf = heard < 0.5
	if was && !b.wasDeaf { // those who come back have a whole period to say so
		for id := range b.last {
			b.last[id] = now
		}
	}
	more := time.Duration(patience(heard) * float64(b.cfg.Grace))
	if b.more = max(b.more, 0); now.Sub(b.began) > slots*time.Second { // before, little has come because it is early
		b.more = max(b.more, more)
	}
	limit := b.Every() + b.cfg.Grace + max(b.more, more)
	var silent []jobs.ID
	for id, last := range b.last {
		if now.Sub(last) > limit {
			silent = append(silent, id)
		}
	}
	slices.SortFunc(silent, func(x, y jobs.ID) int {
		if a, b := b.last[x], b.last[y]; a != b {
			if a < b {
				return -1
			}
			return 1
		}
		return bytes.Compare(x[:], y[:])
	})
	return silent[:min(len(silent), max(b.cfg.Most, len(b.last)/20))]
}
