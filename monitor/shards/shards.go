// Package shards decides which server owns which part of the events, and which one follows as its replica.
//
// It is pure: a table and what is known of the servers make the next table. What always holds of a planned table:
// a shard has one owner, and a replica that is another server; a shard whose owner is gone, or has nothing of it any
// more, goes to its replica, if that has everything; only with a new owner, or one that begins anew, does the epoch
// rise, by one. Shards move to even out the load by few at a time, and only by way of a replica that has everything;
// and no replica that has everything is given up for another one before that has it.
package shards

import (
	"cmp"
	"slices"
)

// Count is into how many parts entities are spread.
const Count = 256

// Shard is who has a part. Names are those of Server.
type Shard struct {
	Owner   string
	Replica string // "" is none
	// Next gets everything too, and is the replica once it has it; "" is none.
	Next  string
	Epoch uint64 // of the owner
	// Complete says that the replica has everything but what is on its way to it: by the table itself, so that a leader
	// that has just been elected knows it too. A replica that is not complete takes nothing over while its owner may
	// come back.
	Complete bool
}

// heir is who is to be the replica.
func (s *Shard) heir() string { return cmp.Or(s.Next, s.Replica) }

// goTo gives a shard to an owner who has nobody that follows yet.
func (s *Shard) goTo(owner string) {
	*s = Shard{Owner: owner, Epoch: s.Epoch + 1}
}

// Sync is what an owner told of who follows a shard under the table that holds.
type Sync uint8

// What it may have told.
const (
	Unknown Sync = iota
	Behind
	Complete
)

// Table is all shards.
type Table [Count]Shard

// Server is what is known of one.
type Server struct {
	ID string
	// Gone: it was not heard of for so long that its shards go to others. Lost: for so long that nobody waits for what
	// it alone has.
	Gone, Lost bool
	// Unsure: its newest word is late, or of another table. It may have been started anew since, without its store, so
	// nothing is taken over by it.
	Unsure bool
	// Leaving: it is to end, and its shards go to others in order.
	Leaving bool
	// Lacks says of which shards it has nothing, though the table says that it has everything: its store is gone. nil is
	// of none.
	Lacks func(shard int) bool
}

// moving bounds how many replicas may be behind while shards are moved for the load's sake.
const moving = 16

// plan is a table that is worked on.
type plan struct {
	was      Table // of which told is
	table    Table
	servers  []Server // by name
	known    map[string]Server
	owners   map[string]int
	replicas map[string]int // that are or are to be
	behind   int
	taken    map[int]bool // shards that move to another owner, so nothing else is done with them
	told     Told
}

// Told says what a shard's owner told of a server that follows it.
type Told func(shard int, follower string) Sync

// Plan returns the next table, and the shards whose owner should hand over to their replica in order. Servers that
// are not listed are as if they were lost.
func Plan(t Table, servers []Server, told Told) (next Table, handOver []int) {
	p := &plan{told: told, was: t, table: t, servers: slices.Clone(servers), known: map[string]Server{},
		owners: map[string]int{}, replicas: map[string]int{},
		taken: map[int]bool{}}
	slices.SortFunc(p.servers, func(a, b Server) int { return cmp.Compare(a.ID, b.ID) })
	for _, s := range p.servers {
		p.known[s.ID] = s
	}
	for i := range p.table {
		if s := &p.table[i]; p.gone(s.Next) {
			s.Next = ""
		}
	}
	if p.least(p.owners) == "" {
		return p.table, nil // nobody to give anything to
	}
	for i := range p.table {
		s := &p.table[i]
		p.judge(i, s)
		if s.Replica != "" && p.known[s.Next].Leaving {
			s.Next = "" // it may never have everything, and would have to go again
		}
		p.owners[s.Owner]++
		p.replicas[s.heir()]++
		// nobody waits for who leaves to catch up
		if s.Next != "" || s.Replica != "" && !p.known[s.Replica].Leaving && !p.synced(i) {
			p.behind++
		}
	}
	p.adopt()
	p.pair()
	handOver = p.even()
	p.evenReplicas()
	return p.table, handOver
}

// judge does what is not for the load's sake.
func (p *plan) judge(i int, s *Shard) {
	switch {
	case p.lacks(s.Owner, i) && !p.gone(s.Replica) && !p.lacks(s.Replica, i):
		s.goTo(s.Replica)
	case p.lacks(s.Owner, i) && (p.lost(s.Replica) || p.lacks(s.Replica, i)): // nobody has anything
		s.goTo(s.Owner)
	case p.lacks(s.Owner, i): // the replica may come back
	case p.gone(s.Owner) && !p.gone(s.Replica) && (s.Complete && p.sure(s.Replica, i) || p.lost(s.Owner)):
		s.goTo(s.Replica)
	case p.gone(s.Owner): // it may come back
	case s.Next != "" && (p.gone(s.Replica) || p.has(i, s.Next)):
		s.Replica, s.Next, s.Complete = s.Next, "", p.has(i, s.Next)
	case p.gone(s.Replica):
		s.Replica, s.Complete = "", false
	case p.lacks(s.Replica, i): // whatever its owner, which may not have noticed, tells of it
		s.Complete = false
	case p.told(i, s.Replica) != Unknown:
		s.Complete = p.has(i, s.Replica)
	}
}

// gone reports whether a server has no part in anything for now.
func (p *plan) gone(id string) bool {
	s, ok := p.known[id]
	return !ok || s.Gone
}

// lost reports whether nobody waits for a server.
func (p *plan) lost(id string) bool {
	s, ok := p.known[id]
	return !ok || s.Lost
}

// lacks reports whether a server that is there has nothing of a shard that the table says it has.
func (p *plan) lacks(id string, shard int) bool {
	s, ok := p.known[id]
	return ok && !s.Gone && s.Lacks != nil && s.Lacks(shard)
}

// sure reports whether a replica may take a shard over without a word of its owner.
func (p *plan) sure(id string, shard int) bool { return !p.known[id].Unsure && !p.lacks(id, shard) }

// has reports whether who follows a shard has everything.
func (p *plan) has(shard int, follower string) bool {
	return p.told(shard, follower) == Complete && !p.lacks(follower, shard)
}

// synced reports whether a shard's replica has everything. What another owner told says nothing.
func (p *plan) synced(shard int) bool {
	s := p.table[shard]
	return s.Owner == p.was[shard].Owner && s.Replica != "" && p.has(shard, s.Replica)
}

// free reports whether a shard may get another replica for the load's sake: its owner is heard, has what it is to
// have, and gives nobody else everything already.
func (p *plan) free(shard int) bool {
	s := p.table[shard]
	return s.Next == "" && s.Owner == p.was[shard].Owner && !p.gone(s.Owner) && !p.lacks(s.Owner, shard) &&
		p.told(shard, s.Replica) != Unknown
}

// follow has a server be the replica of a shard once it has everything.
func (p *plan) follow(shard int, id string) {
	s := &p.table[shard]
	p.replicas[s.heir()]--
	s.Next = id
	p.replicas[id]++
	p.behind++
}

// least returns the server with the fewest shards of a count that may get more, but not those named; "" is nobody.
func (p *plan) least(counts map[string]int, but ...string) (id string) {
	for _, s := range p.servers {
		if !s.Gone && !s.Leaving && !slices.Contains(but, s.ID) && (id == "" || counts[s.ID] < counts[id]) {
			id = s.ID
		}
	}
	return id
}

// adopt gives shards an owner of which nobody who has anything would come back.
func (p *plan) adopt() {
	for i := range p.table {
		s := &p.table[i]
		if !p.lost(s.Owner) || s.Replica != "" && !p.lost(s.Replica) {
			continue
		}
		p.owners[s.Owner]--
		p.replicas[s.heir()]--
		s.goTo(cmp.Or(s.Next, p.least(p.owners))) // the next one has something, it may be
		p.owners[s.Owner]++
		p.replicas[""]++
	}
}

// pair gives shards a replica that have none.
func (p *plan) pair() {
	for i := range p.table {
		s := &p.table[i]
		if s.Replica != "" || p.gone(s.Owner) {
			continue
		}
		p.replicas[""]--
		s.Replica = p.least(p.replicas, s.Owner)
		p.replicas[s.Replica]++
	}
}

// most returns the server with the most of a count, one that leaves before all others; "" is nobody with any.
func (p *plan) most(counts map[string]int) (id string, leaving bool) {
	for _, s := range p.servers {
		switch n := counts[s.ID]; {
		case s.Gone || n == 0 || leaving && !s.Leaving:
		case id == "" || s.Leaving && !leaving || n > counts[id]:
			id, leaving = s.ID, s.Leaving
		}
	}
	return id, leaving
}

// even moves shards from those who own many to those who own few: by handing over to a replica that has
// everything, or, where it has not, by making it the replica first.
//
// What it takes, evenReplicas leaves alone: else that would give back what follows here so that it may own, without
// end.
func (p *plan) even() (handOver []int) {
	for {
		from, leaving := p.most(p.owners)
		to := p.least(p.owners, from)
		if from == "" || to == "" || !leaving && p.owners[from]-p.owners[to] < 2 {
			return handOver
		}
		at := p.pick(from, to)
		if at < 0 {
			return handOver
		}
		p.taken[at] = true
		switch s := &p.table[at]; {
		case s.Replica == to && p.synced(at):
			handOver = append(handOver, at)
		case s.Replica != to && s.Next != to:
			p.follow(at, to)
		}
		p.owners[from]--
		p.owners[to]++
	}
}

// pick returns the shard of from that is best moved to to; -1 when none is for now.
func (p *plan) pick(from, to string) int {
	other := -1
	for i, s := range p.table {
		if s.Owner != from || p.taken[i] {
			continue
		}
		if s.Replica == to && p.synced(i) {
			return i
		}
		if s.heir() == to || other < 0 && s.Replica != to && p.free(i) {
			other = i
		}
	}
	if other >= 0 && p.table[other].heir() != to && p.behind >= moving {
		return -1
	}
	return other
}

// evenReplicas moves replicas from servers that follow many shards to those that follow few, of owners that are heard.
func (p *plan) evenReplicas() {
	for p.behind < moving {
		at, to := p.unevenest()
		if at < 0 {
			return
		}
		p.follow(at, to)
	}
}

// unevenest returns the shard whose replica is best moved, and to whom; -1 where that makes nothing more even.
func (p *plan) unevenest() (at int, to string) {
	at, most := -1, 1
	for i, s := range p.table {
		if s.Replica == "" || p.taken[i] || !p.free(i) {
			continue
		}
		id := p.least(p.replicas, s.Owner, s.Replica)
		if id == "" {
			continue
		}
		gain := p.replicas[s.Replica] - p.replicas[id]
		if p.known[s.Replica].Leaving {
			gain += Count
		}
		if gain > most {
			at, to, most = i, id, gain
		}
	}
	return at, to
}

// Now lists, in order, which of a plan's shards may be handed over while the plan is not the table yet, so that a
// table that changes often keeps nobody who is to go: those of which the owner and its replica stay. It is none where
// a shard gets another owner at once, for that must not wait for them.
func Now(t, next Table, handOver []int) (list []int) {
	for i := range t {
		if t[i].Owner != next[i].Owner || t[i].Epoch != next[i].Epoch {
			return nil
		}
	}
	for _, i := range handOver {
		if t[i].Replica == next[i].Replica {
			list = append(list, i)
		}
	}
	slices.Sort(list)
	return list
}

// HandOver makes the replicas of shards their owners, and the owners their replicas.
func HandOver(t Table, list []int) Table {
	for _, i := range list {
		if s := &t[i]; s.Replica != "" {
			s.Owner, s.Replica, s.Next, s.Epoch = s.Replica, s.Owner, "", s.Epoch+1
			s.Complete = true // who handed it over has everything
		}
	}
	return t
}
