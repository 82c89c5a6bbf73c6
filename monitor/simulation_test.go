package monitor_test

import (
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/shards"
)

var (
	simSeeds = flag.Uint64("monitor.seeds", 500, "how many seeds the simulation of servers that own events runs")
	simSeed  = flag.Uint64("monitor.seed", 0, "the one seed of it to run")
)

// Milliseconds of simulated time.
const (
	simTime   = 10_000 // of results and faults
	simQuiet  = 12_000 // without faults, until all is as it should be
	simGone   = 1500   // unheard for so long a server's shards go to others,
	simLost   = 30_000 // and nobody waits for what it alone has
	simDelay  = 300    // the longest way of a message
	simWrite  = 20     // until a write is durable
	simWindow = 1200   // what the loss of a server may cost, with the way to the replica
)

// fleet is servers that own shards of events and follow others, agents whose results reach them over a network that delays, loses and
// repeats, and servers that are killed and come back, some of them with an empty disk. monitor.Step and shards.Plan are the product's;
// how they are fed is the model's. All that is random comes from one seed.
type fleet struct {
	rng     *rand.Rand
	now     int
	events  simEvents
	order   int
	servers []*simServer
	table   shards.Table
	former  shards.Table // as those see it whom the news has not reached
	agents  []*simAgent
	kills   []int // when
	err     error
}

type simServer struct {
	id          string
	up          bool
	since       int // it was heard of last
	incarnation int
	lacks       map[int]bool // agents of which its disk, which was empty at the start, was given nothing since
	mem, disk   map[int]record
	// Of each agent's shard that it owns: whom it follows up, that replica's incarnation, and whether it has had everything.
	fed map[int]feed
}

type feed struct {
	replica     string
	incarnation int
	epoch       uint64
	complete    bool
}

// record is what a server knows of an agent's check, with the numbers of the results that made it.
type record struct {
	monitor.State
	taken []int64
}

type simAgent struct {
	n, shard int
	next     int64
	status   []uint32      // of each result, by number less one
	acked    map[int64]int // when
}

type simEvent struct {
	at, order int
	do        func()
}

type simEvents []simEvent

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (e simEvents) Len() int { return len(e) }
func (e simEvents) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e simEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *simEvents) Push(x any)   { *e = append(*e, x.(simEvent)) }
func (e *simEvents) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (f *fleet) after(d int, do func()) {
	f.order++
	heap.Push(&f.events, simEvent{f.now + d, f.order, do})
}

func (f *fleet) server(id string) *simServer {
	for _, s := range f.servers {
		if s.id == id {
			return s
		}
	}
	return nil
}

func newFleet(seed uint64) *fleet {
	f := &fleet{rng: rand.New(rand.NewPCG(seed, 0xa10))}
	for i := range 2 + f.rng.IntN(3) {
		f.servers = append(f.servers, &simServer{id: string(rune('a' + i)), up: true, lacks: map[int]bool{}, mem: map[int]record{}, disk: map[int]record{}, fed: map[int]feed{}})
	}
	for i := range 4 {
		f.agents = append(f.agents, &simAgent{n: i, shard: f.rng.IntN(shards.Count), acked: map[int64]int{}})
	}
	f.plan()
	for _, a := range f.agents {
		f.after(f.rng.IntN(500), func() { f.result(a) })
	}
	f.after(500, f.tick)
	f.after(500+f.rng.IntN(2500), f.fault)
	return f
}

// tick is what servers and their leader do twice a second.
func (f *fleet) tick() {
	for _, s := range f.servers {
		if s.up {
			s.since = f.now
			for _, a := range f.agents {
				f.follow(s, a)
			}
		}
	}
	f.plan()
	if f.now < simTime+simQuiet {
		f.after(500, f.tick)
	}
}

// plan is the leader's: the next table, and orderly moves, before which the owner gives the replica all that it has.
func (f *fleet) plan() {
	var list []shards.Server
	for _, s := range f.servers {
		away := f.now - s.since
		one := shards.Server{ID: s.id, Gone: away > simGone, Lost: away > simLost}
		if len(s.lacks) > 0 {
			one.Lacks = func(shard int) bool {
				return slices.ContainsFunc(f.agents, func(a *simAgent) bool { return a.shard == shard && s.lacks[a.n] })
			}
		}
		list = append(list, one)
	}
	next, hand := shards.Plan(f.table, list, func(shard int) shards.Sync {
		for _, a := range f.agents {
			if a.shard != shard {
				continue
			}
			s, of := f.server(f.table[shard].Owner), f.table[shard]
			if s == nil || !s.up {
				return shards.Unknown
			}
			if fed := s.fed[a.n]; !fed.complete || fed.replica != of.Replica || fed.epoch != of.Epoch {
				return shards.Behind
			}
		}
		return shards.Complete
	})
	var able []int
	for _, shard := range hand {
		from, to := f.server(next[shard].Owner), f.server(next[shard].Replica)
		if from == nil || to == nil || !from.up || !to.up {
			continue
		}
		for _, a := range f.agents {
			if a.shard == shard {
				to.keep(a.n, from.mem[a.n])
				to.disk[a.n] = to.mem[a.n]
			}
		}
		able = append(able, shard)
	}
	f.former, f.table = f.table, shards.HandOver(next, able)
	for _, a := range f.agents {
		if of := f.table[a.shard]; of.Epoch != f.former[a.shard].Epoch {
			delete(f.server(of.Owner).lacks, a.n) // it has it all now, or begins anew
		}
	}
}

// keep takes a record that is newer than what is there.
func (s *simServer) keep(agent int, r record) {
	if r.Sequence >= s.mem[agent].Sequence {
		s.mem[agent] = r
	}
}

// result is an agent's next one. It sends the next when this one is acknowledged, or after having tried for a while.
func (f *fleet) result(a *simAgent) {
	a.next++
	status := uint32(0)
	if f.rng.IntN(4) == 0 {
		status = uint32(1 + f.rng.IntN(2))
	}
	a.status = append(a.status, status)
	f.send(a, a.next, 0)
	if f.now < simTime+simQuiet-4000 {
		gap := 100 + f.rng.IntN(400)
		if f.now > simTime {
			gap *= 10
		}
		f.after(gap, func() { f.result(a) })
	}
}

// send passes a result to the owner as the sender knows it, some of them twice, and again while nobody acknowledges it.
func (f *fleet) send(a *simAgent, n int64, tries int) {
	if _, done := a.acked[n]; done || tries == 40 {
		return
	}
	seen := f.table[a.shard]
	if f.rng.IntN(4) == 0 {
		seen = f.former[a.shard]
	}
	for range 1 + f.rng.IntN(8)/7 {
		if f.rng.IntN(10) > 0 { // else it is lost
			f.after(f.rng.IntN(simDelay), func() { f.arrive(a, n, seen) })
		}
	}
	f.after(2*simDelay, func() { f.send(a, n, tries+1) })
}

// arrive is a result at a server that takes it only as the owner, in the epoch that the sender means.
func (f *fleet) arrive(a *simAgent, n int64, seen shards.Shard) {
	s, of := f.server(seen.Owner), f.table[a.shard]
	if s == nil || !s.up || of.Owner != s.id || of.Epoch != seen.Epoch || s.lacks[a.n] {
		return
	}
	ack := func() { f.after(f.rng.IntN(simDelay), func() { f.acknowledge(a, n) }) }
	r := s.mem[a.n]
	if n <= r.Sequence { // it came before, or has been overtaken
		if slices.Contains(s.disk[a.n].taken, n) {
			ack()
		}
		return
	}
	r.State, _ = monitor.Step(r.State, monitor.Result{Sequence: n, Executed: int64(f.now), Status: a.status[n-1]}, monitor.Thresholds{Low: 20, High: 50}, nil)
	r.taken = append(slices.Clone(r.taken), n)
	s.mem[a.n] = r
	incarnation := s.incarnation
	f.after(simWrite, func() {
		if !s.up || s.incarnation != incarnation {
			return
		}
		if r.Sequence > s.disk[a.n].Sequence {
			s.disk[a.n] = r
		}
		ack()
		f.copy(s, a)
	})
}

func (f *fleet) acknowledge(a *simAgent, n int64) {
	if _, done := a.acked[n]; !done {
		a.acked[n] = f.now
	}
}

// copy sends the replica what the owner has of an agent now. A copy does not say that the replica has everything; follow does.
func (f *fleet) copy(s *simServer, a *simAgent) {
	of, r := f.table[a.shard], s.disk[a.n]
	to := f.server(of.Replica)
	if of.Owner != s.id || to == nil {
		return
	}
	incarnation := s.incarnation
	f.after(f.rng.IntN(simDelay), func() {
		now := f.table[a.shard]
		switch {
		case to.up && now.Epoch == of.Epoch && now.Replica == to.id:
			f.write(to, a, r)
		case s.incarnation == incarnation:
			s.fed[a.n] = feed{} // it is given everything again
		}
	})
}

func (f *fleet) write(to *simServer, a *simAgent, r record) {
	to.keep(a.n, r)
	incarnation := to.incarnation
	f.after(simWrite, func() {
		if to.incarnation == incarnation && r.Sequence > to.disk[a.n].Sequence {
			to.disk[a.n] = r
		}
	})
}

// follow gives a replica that is new, or was started anew, everything, and learns that it has it.
func (f *fleet) follow(s *simServer, a *simAgent) {
	of := f.table[a.shard]
	to := f.server(of.Replica)
	if of.Owner != s.id || to == nil || !to.up || s.lacks[a.n] {
		return
	}
	want := feed{to.id, to.incarnation, of.Epoch, true}
	if s.fed[a.n] == want {
		return
	}
	s.fed[a.n] = feed{}
	r, incarnation := s.disk[a.n], s.incarnation
	f.after(f.rng.IntN(simDelay), func() {
		if !to.up || to.incarnation != want.incarnation || f.table[a.shard].Epoch != of.Epoch || f.table[a.shard].Replica != to.id {
			return
		}
		f.write(to, a, r)
		delete(to.lacks, a.n)
		f.after(simWrite+f.rng.IntN(simDelay), func() {
			if s.up && s.incarnation == incarnation && to.incarnation == want.incarnation {
				s.fed[a.n] = want
			}
		})
	})
}

// fault kills a server and lets it come back, with its disk or, rarely and only while all others live, without.
func (f *fleet) fault() {
	if f.now > simTime {
		return
	}
	s := f.servers[f.rng.IntN(len(f.servers))]
	alone := !slices.ContainsFunc(f.servers, func(o *simServer) bool { return !o.up })
	if s.up && alone {
		wiped := f.rng.IntN(5) == 0 && !slices.ContainsFunc(f.agents, func(a *simAgent) bool {
			return f.table[a.shard].Owner == s.id && (!f.table[a.shard].Complete || !s.fed[a.n].complete)
		})
		s.up, s.mem, s.fed = false, map[int]record{}, map[int]feed{}
		s.incarnation++
		f.kills = append(f.kills, f.now)
		if wiped {
			s.disk = map[int]record{}
		}
		f.after(f.rng.IntN(5000), func() {
			s.up, s.mem = true, map[int]record{}
			for n := range f.agents {
				if wiped {
					s.lacks[n] = true
				}
			}
			for n, r := range s.disk {
				s.mem[n] = r
			}
		})
	}
	f.after(simWindow+f.rng.IntN(2500), f.fault)
}

// judge says what is wrong at the end: everybody has the same, made by Step in an order that never went back, nothing that was acknowledged is
// lost but shortly before a kill, and what is known of the check is what an obvious count of its results says.
func (f *fleet) judge() error {
	if f.err != nil {
		return f.err
	}
	for _, a := range f.agents {
		of := f.table[a.shard]
		owner, replica := f.server(of.Owner), f.server(of.Replica)
		if owner == nil || !owner.up {
			return fmt.Errorf("agent %d: nobody owns its shard: %+v", a.n, of)
		}
		r := owner.mem[a.n]
		if r.Sequence != a.next {
			return fmt.Errorf("agent %d: the newest is %d of %d", a.n, r.Sequence, a.next)
		}
		if replica == nil || replica.mem[a.n].Sequence != r.Sequence || !of.Complete {
			return fmt.Errorf("agent %d: its replica %q does not have everything", a.n, of.Replica)
		}
		if !slices.IsSorted(r.taken) || len(slices.Compact(slices.Clone(r.taken))) != len(r.taken) {
			return fmt.Errorf("agent %d: taken in the order %v", a.n, r.taken)
		}
		for n, at := range a.acked {
			near := slices.ContainsFunc(f.kills, func(kill int) bool { return at <= kill+simDelay && at > kill-simWindow })
			if _, there := slices.BinarySearch(r.taken, n); !there && !near {
				return fmt.Errorf("agent %d: result %d was acknowledged at %d ms and is lost; kills at %v", a.n, n, at, f.kills)
			}
		}
		if err := f.count(a, &r); err != nil {
			return err
		}
	}
	return nil
}

// count compares a state with its results, counted backwards.
func (f *fleet) count(a *simAgent, r *record) error {
	newest := a.status[r.taken[len(r.taken)-1]-1]
	row := int64(0)
	for i := len(r.taken) - 1; i >= 0 && a.status[r.taken[i]-1] == newest; i-- {
		row++
	}
	if r.Status != newest || r.Occurrences != row || r.Watermark < row && newest != 0 {
		return fmt.Errorf("agent %d: status %d %d times in a row, watermark %d; its results say %d %d times", a.n, r.Status, r.Occurrences, r.Watermark, newest, row)
	}
	if want := min(len(r.taken), 21); r.History.Len() != want {
		return fmt.Errorf("agent %d: a history of %d, want %d", a.n, r.History.Len(), want)
	}
	return nil
}

// TestFleet is RELIABILITY's A10 for the event step and the table of owners. A failing seed is repeated by -monitor.seed.
func TestFleet(t *testing.T) {
	run := func(seed uint64) {
		f := newFleet(seed)
		for len(f.events) > 0 && f.err == nil {
			e := heap.Pop(&f.events).(simEvent)
			f.now = e.at
			e.do()
		}
		if err := f.judge(); err != nil {
			t.Errorf("seed %d: %v\nrepeat it with: go test ./monitor -run TestFleet -monitor.seed %d", seed, err, seed)
		}
	}
	if *simSeed != 0 {
		run(*simSeed)
		return
	}
	for seed := uint64(1); seed <= *simSeeds && !t.Failed(); seed++ {
		run(seed)
	}
}
