package shards

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// cluster plays the leader of a table and its servers, tick by tick: what is written, servers speak of later, and who
// follows newly has everything later still, while the leader plans in each tick.
type cluster struct {
	failer
	table Table
	list  []Server
	fill  int // ticks until who follows newly has everything, at most
	rng   *rand.Rand
	// filled is in which tick who follows has everything, and spoken from when on servers speak of the table.
	filled [Count]map[string]int
	tick   int
	spoken int
	// deaf takes nothing as a follower, as a server whose store has hung for long; "" is none.
	deaf string
	most int // how many shards are handed over at once
	// resting hands over only when the table needs no other change, as leaders did once: so a plan that never rests is
	// found.
	resting bool
}

func (c *cluster) has(i int, follower string) bool {
	at, follows := c.filled[i][follower]
	return follows && at <= c.tick && follower != c.deaf
}

// told is what a shard's owner says.
func (c *cluster) told(i int, follower string) Sync {
	if c.tick < c.spoken {
		return Unknown
	}
	return told(c.has(i, follower))
}

// write makes a table hold.
func (c *cluster) write(next Table) {
	for i, s := range next {
		filled := map[string]int{}
		for _, id := range []string{s.Replica, s.Next} {
			at, follows := c.filled[i][id]
			if !follows || s.Owner != c.table[i].Owner {
				at = c.tick + c.rng.IntN(c.fill+1)
			}
			filled[id] = at
		}
		c.filled[i] = filled
	}
	c.table, c.spoken = next, c.tick+2
}

// step is one tick of the leader; true is that nothing is left to be done.
func (c *cluster) step() (rests bool) {
	c.Helper()
	c.tick++
	next, hand := Plan(c.table, c.list, c.told)
	check(c, c.table, next, c.list)
	hand = Now(c.table, next, hand)
	if c.resting && next != c.table {
		hand = nil
	}
	for _, i := range hand {
		if s := c.table[i]; !c.has(i, s.Replica) || s.Owner != next[i].Owner || s.Replica != next[i].Replica {
			c.Fatalf("shard %d is handed over to who lacks something: %+v, %+v", i, s, next[i])
		}
	}
	if next = HandOver(next, hand[:min(len(hand), c.most)]); next == c.table {
		return c.tick > c.spoken+c.fill
	}
	c.write(next)
	return false
}

// rest plans until nothing changes.
func (c *cluster) rest() {
	c.Helper()
	for until := c.tick + 600; !c.step(); {
		if c.tick > until {
			owners, replicas := counts(c.table)
			c.Fatalf("the plan does not come to rest: owners %v, replicas %v", owners, replicas)
		}
	}
}

// TestOneLeaves: a server that is to go, since it leaves or its store hangs, soon owns nothing, however the shards
// were dealt and however long replicas take, also when it follows nothing any more; once it is back, all is even.
func TestOneLeaves(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 0))
		n := 2 + rng.IntN(4)
		c := &cluster{failer: t, rng: rng, list: servers(n), fill: rng.IntN(4), most: []int{16, Count}[rng.IntN(2)],
			resting: rng.IntN(2) == 0}
		var table Table
		for i := range table { // in any way
			owner, beside := rng.IntN(n), 1+rng.IntN(n-1)
			table[i] = Shard{Owner: c.list[owner].ID, Replica: c.list[(owner+beside)%n].ID, Complete: true, Epoch: 1}
		}
		c.write(table)
		if rng.IntN(2) == 0 {
			c.rest()
		}
		for range rng.IntN(10) {
			c.step()
		}
		c.without(t, &c.list[rng.IntN(n)], rng.IntN(2) == 0)
	}
}

// TestOneOfThreeLeaves is the same where all was even: then what makes owners even and what makes replicas even want
// different things.
func TestOneOfThreeLeaves(t *testing.T) {
	for i := range 3 {
		c := &cluster{failer: t, rng: rand.New(rand.NewPCG(0, 0)), list: servers(3), most: 16, resting: true}
		var table Table
		for n := range c.list {
			table = settle(t, table, c.list[:n+1])
		}
		c.write(table)
		c.without(t, &c.list[i], false)
	}
}

// without has a server go, and come back.
func (c *cluster) without(t *testing.T, s *Server, deaf bool) {
	t.Helper()
	s.Leaving = true
	if deaf {
		c.deaf = s.ID
	}
	c.rest()
	if owners, replicas := counts(c.table); owners[s.ID] > 0 || len(c.list) > 2 && replicas[s.ID] > 0 {
		t.Fatalf("%s is to go: owners %v, replicas %v", s.ID, owners, replicas)
	}
	for i, one := range c.table {
		if one.Next != "" {
			t.Fatalf("shard %d waits for ever: %+v", i, one)
		}
	}
	s.Leaving, c.deaf = false, ""
	c.rest()
	even(t, c.table, c.list)
}

// TestNextLeaves: what was to follow does not, once it is to go, so that others can.
func TestNextLeaves(t *testing.T) {
	list := servers(4)
	table := settle(t, Table{}, list[:3])
	for i := range moving {
		table[i].Next = "s3"
	}
	list[3].Leaving = true
	next, _ := Plan(table, list, func(_ int, who string) Sync { return told(who != "s3") })
	check(t, table, next, list)
	for i, s := range next {
		if s.Next == "s3" {
			t.Fatalf("shard %d: %+v", i, s)
		}
	}
}

// TestNow: what follows newly by a plan gets nothing before the plan is the table, and nothing waits where an owner
// is gone.
func TestNow(t *testing.T) {
	list := servers(3)
	table := settle(t, Table{}, list)
	next := table
	next[5].Replica, next[7].Next = "new", "new"
	if got := Now(table, next, []int{7, 6, 5}); !slices.Equal(got, []int{6, 7}) {
		t.Errorf("%v", got)
	}
	next[200].Owner, next[200].Epoch = next[200].Replica, next[200].Epoch+1
	if got := Now(table, next, []int{7, 6, 5}); len(got) > 0 {
		t.Errorf("%v", got)
	}
}
