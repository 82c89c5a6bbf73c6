package monitor_test

import (
	"container/heap"
	"flag"
	"fmt"
	"maps"
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
	simTick   = 250    // of servers and their leader
	simLate   = 500    // unheard for so long a server's word is not built upon,
	simGone   = 1500   // its shards go to others,
	simLost   = 30_000 // and nobody waits for what it alone has
	simDelay  = 300    // the longest way of a message
	simWrite  = 20     // until a write is durable
	simWindow = 1200   // what the loss of a server may cost, with the way to the replica
)

// fleet is servers that own shards of events and follow others, agents whose results reach them over a network that
// delays, loses and repeats, and servers that are killed and come back, some of them with an empty disk. monitor.Step
// and shards.Plan are the product's; how they are fed is the model's. All that is random comes from one seed.
type fleet struct {
	rng     *rand.Rand
	now     int
	events  simEvents
	order   int
	servers []*simServer
	table   shards.Table
	version int
	former  shards.Table // as those see it whom the news has not reached
	agents  []*simAgent
	kills   []int // when, and when a server lost a shard that it may not have known to be lost
	err     error
}

type simServer struct {
	id          string
	up          bool
	incarnation int
	lacks       map[int]bool // agents of which its disk, which was empty at the start, was given nothing since
	mem, disk   map[int]record
	fed         map[followed]feed // of agents whose shard it owns
	// What the leader knows.
	since  int // when the oldest question was asked without an answer, -1 is none
	asking bool
	failed bool
	word
}

// word is what a server says of a table.
type word struct {
	version int
	void    map[int]bool      // agents that it lacks
	synced  map[followed]bool // who has everything
}

// followed is who follows an agent's shard.
type followed struct {
	agent int
	by    string
}

// feed is what an owner knows of it: its incarnation, and in which epoch it has had everything; 0 is in none.
type feed struct {
	incarnation int
	epoch       uint64
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
		f.servers = append(f.servers, &simServer{id: string(rune('a' + i)), up: true, since: -1, lacks: map[int]bool{},
			mem: map[int]record{}, disk: map[int]record{}, fed: map[followed]feed{}})
	}
	for i := range 4 {
		f.agents = append(f.agents, &simAgent{n: i, shard: f.rng.IntN(shards.Count), acked: map[int64]int{}})
	}
	f.plan()
	for _, a := range f.agents {
		f.after(f.rng.IntN(500), func() { f.result(a) })
	}
	f.after(simTick, f.tick)
	f.after(500+f.rng.IntN(2500), f.fault)
	return f
}

// tick is what servers and their leader do.
func (f *fleet) tick() {
	for _, s := range f.servers {
		if s.up {
			for _, a := range f.agents {
				of := f.table[a.shard]
				f.follow(s, a, of.Replica)
				f.follow(s, a, of.Next)
			}
		}
		f.ping(s)
	}
	f.plan()
	if f.now < simTime+simQuiet {
		f.after(simTick, f.tick)
	}
}

// ping is the leader's question, one at a time.
func (f *fleet) ping(s *simServer) {
	if s.since < 0 {
		s.since = f.now
	}
	if s.asking {
		return
	}
	s.asking = true
	f.after(f.rng.IntN(simDelay/2), func() {
		if !s.up {
			s.asking, s.failed = false, true
			return
		}
		w := word{f.version, maps.Clone(s.lacks), map[followed]bool{}}
		for _, a := range f.agents {
			for _, one := range f.servers {
				if f.fed(s, a, one.id) {
					w.synced[followed{a.n, one.id}] = true
				}
			}
		}
		f.after(f.rng.IntN(simDelay/2), func() { s.asking, s.failed, s.since, s.word = false, false, -1, w })
	})
}

// fed reports whether an owner knows that who follows it has everything.
func (f *fleet) fed(s *simServer, a *simAgent, by string) bool {
	of := f.table[a.shard]
	return of.Owner == s.id && s.fed[followed{a.n, by}].epoch == of.Epoch && (of.Replica == by || of.Next == by)
}

// plan is the leader's: the next table or, where there is none, orderly moves, before which the owner gives the
// replica all that it has.
func (f *fleet) plan() {
	var list []shards.Server
	fresh := map[string]bool{}
	for _, s := range f.servers {
		away := 0
		if s.since >= 0 {
			away = f.now - s.since
		}
		fresh[s.id] = s.version == f.version && !s.failed && away <= simLate
		one := shards.Server{ID: s.id, Gone: away > simGone, Lost: away > simLost, Unsure: !fresh[s.id]}
		if void := s.void; s.version == f.version && len(void) > 0 {
			one.Lacks = func(shard int) bool {
				return slices.ContainsFunc(f.agents, func(a *simAgent) bool { return a.shard == shard && void[a.n] })
			}
		}
		list = append(list, one)
	}
	next, hand := shards.Plan(f.table, list, func(shard int, by string) shards.Sync {
		of := f.table[shard]
		if !fresh[of.Owner] {
			return shards.Unknown
		}
		for _, a := range f.agents {
			if a.shard == shard && !f.server(of.Owner).synced[followed{a.n, by}] {
				return shards.Behind
			}
		}
		if by != of.Replica && by != of.Next {
			return shards.Behind
		}
		if !fresh[by] {
			return shards.Unknown
		}
		return shards.Complete
	})
	if next != f.table {
		if slices.ContainsFunc(f.agents, func(a *simAgent) bool { return next[a.shard].Owner != f.table[a.shard].Owner }) {
			f.kills = append(f.kills, f.now)
		}
		f.become(next)
		return
	}
	var able []int
	for _, shard := range hand {
		if f.release(shard) {
			able = append(able, shard)
		}
	}
	if len(able) > 0 {
		f.become(shards.HandOver(next, able))
	}
}

// release is the owner's part in an orderly move: it has given the replica, as it knows that, all there is.
func (f *fleet) release(shard int) bool {
	of := f.table[shard]
	from, to := f.server(of.Owner), f.server(of.Replica)
	if from == nil || to == nil || !from.up || !to.up {
		return false
	}
	for _, a := range f.agents {
		if a.shard != shard {
			continue
		}
		if !f.fed(from, a, to.id) {
			return false
		}
		if from.fed[followed{a.n, to.id}].incarnation == to.incarnation && !to.lacks[a.n] {
			to.mem[a.n] = from.mem[a.n]
			to.disk[a.n] = to.mem[a.n]
		}
	}
	return true
}

// become has servers take the roles of a table. Who has no part in a shard forgets it.
func (f *fleet) become(next shards.Table) {
	f.former, f.table = f.table, next
	f.version++
	for _, a := range f.agents {
		was, now := f.former[a.shard], next[a.shard]
		for _, s := range f.servers {
			if now.Owner != s.id {
				s.unfed(a)
			}
			for _, one := range f.servers {
				if now.Replica != one.id && now.Next != one.id {
					delete(s.fed, followed{a.n, one.id})
				}
			}
			part := now.Owner == s.id || now.Replica == s.id || now.Next == s.id
			switch {
			case !s.up:
			case !part:
				f.forget(s, a)
			case now.Owner == s.id && was.Owner == s.id && now.Epoch == was.Epoch+1:
				delete(s.lacks, a.n) // it begins anew
			}
		}
	}
}

// unfed forgets what is known of who follows an agent.
func (s *simServer) unfed(a *simAgent) {
	maps.DeleteFunc(s.fed, func(of followed, _ feed) bool { return of.agent == a.n })
}

func (f *fleet) forget(s *simServer, a *simAgent) {
	delete(s.lacks, a.n)
	delete(s.mem, a.n)
	delete(s.disk, a.n)
	s.unfed(a)
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
	r.State, _ = monitor.Step(r.State, monitor.Result{Sequence: n, Executed: int64(f.now), Status: a.status[n-1]},
		monitor.Thresholds{Low: 20, High: 50}, nil)
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

// copy sends who follows what the owner has of an agent now. A copy does not say that they have everything; follow
// does.
func (f *fleet) copy(s *simServer, a *simAgent) {
	of, r := f.table[a.shard], s.disk[a.n]
	if of.Owner != s.id {
		return
	}
	incarnation := s.incarnation
	for _, to := range []*simServer{f.server(of.Replica), f.server(of.Next)} {
		if to == nil {
			continue
		}
		key := followed{a.n, to.id}
		f.after(f.rng.IntN(simDelay), func() {
			now := f.table[a.shard]
			switch {
			case to.up && now.Epoch == of.Epoch && (now.Replica == to.id || now.Next == to.id) &&
				s.fed[key].incarnation == to.incarnation && !to.lacks[a.n]:
				f.write(to, a, r)
			case s.incarnation == incarnation:
				delete(s.fed, key) // it is given everything again
			}
		})
	}
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

// follow gives a follower that is new, or was started anew, everything, and learns that it has it. That it was
// started anew is found out in a while.
func (f *fleet) follow(s *simServer, a *simAgent, by string) {
	of := f.table[a.shard]
	to, key := f.server(by), followed{a.n, by}
	if of.Owner != s.id || to == nil || !to.up || s.lacks[a.n] {
		return
	}
	want := feed{to.incarnation, of.Epoch}
	if fed := s.fed[key]; fed == want || fed.epoch == of.Epoch && f.rng.IntN(5) > 0 {
		return
	}
	delete(s.fed, key)
	r, incarnation := s.disk[a.n], s.incarnation
	still := func() bool {
		now := f.table[a.shard]
		return to.up && to.incarnation == want.incarnation && now.Epoch == of.Epoch && (now.Replica == by || now.Next == by)
	}
	f.after(f.rng.IntN(simDelay), func() {
		if !still() {
			return
		}
		to.mem[a.n], to.disk[a.n] = r, r // whatever it had
		delete(to.lacks, a.n)
		f.after(simWrite+f.rng.IntN(simDelay), func() {
			if still() && s.up && s.incarnation == incarnation {
				s.fed[key] = want
				f.copy(s, a) // what came meanwhile
			}
		})
	})
}

// spare reports whether each shard of a server is elsewhere too, with a replica that the table says has everything,
// whatever anybody knows of it.
func (f *fleet) spare(s *simServer) bool {
	return !slices.ContainsFunc(f.agents, func(a *simAgent) bool {
		of := f.table[a.shard]
		to := f.server(of.Replica)
		return of.Owner == s.id && (!of.Complete || !f.fed(s, a, of.Replica) ||
			s.fed[followed{a.n, of.Replica}].incarnation != to.incarnation || to.lacks[a.n])
	})
}

// fault kills a server and lets it come back, with its disk or, only while all others live and have what it owns,
// without: often before anybody can have missed it.
func (f *fleet) fault() {
	if f.now > simTime {
		return
	}
	s := f.servers[f.rng.IntN(len(f.servers))]
	alone := !slices.ContainsFunc(f.servers, func(o *simServer) bool { return !o.up })
	if s.up && alone {
		wiped := f.rng.IntN(3) == 0 && f.spare(s)
		away := f.rng.IntN(5000)
		if wiped && f.rng.IntN(2) == 0 {
			away = f.rng.IntN(500)
		}
		s.up, s.mem, s.fed, s.lacks = false, map[int]record{}, map[followed]feed{}, map[int]bool{}
		s.incarnation++
		f.kills = append(f.kills, f.now)
		if wiped {
			s.disk = map[int]record{}
		}
		f.after(away, func() { f.start(s, wiped) })
	}
	f.after(simWindow+f.rng.IntN(2500), f.fault)
}

// start is a server that comes back, with what its disk has of what the table gives it.
func (f *fleet) start(s *simServer, empty bool) {
	s.up, s.mem = true, map[int]record{}
	for _, a := range f.agents {
		of := f.table[a.shard]
		switch {
		case of.Owner != s.id && of.Replica != s.id && of.Next != s.id:
			f.forget(s, a)
		case empty:
			s.lacks[a.n] = of.Replica != ""
		default:
			s.mem[a.n] = s.disk[a.n]
		}
	}
}

// judge says what is wrong at the end: everybody has the same, made by Step in an order that never went back, nothing
// that was acknowledged is lost but shortly before a kill, and what is known of the check is what an obvious count of
// its results says.
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
			near := slices.ContainsFunc(f.kills, func(kill int) bool {
				return at <= kill+simWrite+simDelay &&
					at > kill-simWindow
			})
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
		return fmt.Errorf("agent %d: status %d %d times in a row, watermark %d; its results say %d %d times", a.n, r.Status,
			r.Occurrences, r.Watermark, newest, row)
	}
	if want := min(len(r.taken), 21); r.History.Len() != want {
		return fmt.Errorf("agent %d: a history of %d, want %d", a.n, r.History.Len(), want)
	}
	return nil
}

// TestFleet is RELIABILITY's A10 for the event step and the table of owners. A failing seed is repeated by
// -monitor.seed.
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
