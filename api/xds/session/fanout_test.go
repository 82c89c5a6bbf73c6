package session

import (
	"container/heap"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"

	"corbel.dev/corbel/kit/coalesce"
	"corbel.dev/corbel/mesh"
)

var seeds = flag.Uint64("session.seeds", fanSeeds, "how many seeds the simulation of the fan-out runs")

const (
	fanWindow = 20 * time.Millisecond
	fanTime   = 10 * time.Second // simulated, of changes and faults
)

// fanout is a source, hosts that hear of it over a network, and proxies on the hosts, in simulated time: changes are
// merged by coalesce.Edge, the newest values travel with their index, and a Session tells each proxy. All that is
// random comes from one seed.
type fanout struct {
	rng    *rand.Rand
	now    time.Time
	events events
	order  uint64
	trace  interface{ Write([]byte) (int, error) }

	source  sets // as it is
	told    sets // as it was published last
	index   uint64
	edge    coalesce.Edge
	acted   time.Time
	waiting time.Time // of the oldest change that is not published
	version int
	hosts   []*fanHost
	err     error
}

// fanHost has one proxy.
type fanHost struct {
	f     *fanout
	cut   bool
	index uint64
	sets  sets
	c     *client
	busy  bool // the proxy's answers are on their way
}

type event struct {
	at    time.Time
	order uint64
	what  string
	do    func()
}

type events []event

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (f *fanout) after(d time.Duration, what string, do func()) {
	f.order++
	heap.Push(&f.events, event{f.now.Add(d), f.order, what, do})
}

func (f *fanout) upTo(d time.Duration) time.Duration { return time.Duration(f.rng.Int64N(int64(d))) }

// change writes something at the source.
func (f *fanout) change() {
	f.version++
	t, name := mesh.Type(f.rng.IntN(typeCount)), string(rune('a'+f.rng.IntN(4)))
	if f.rng.IntN(5) == 0 {
		f.source[t] = f.source[t].Without(name)
	} else {
		f.source.put(made(t, name, fmt.Sprint("v", f.version)))
	}
	if f.waiting.IsZero() {
		f.waiting = f.now
	}
	if f.edge.Change(f.now) {
		f.publish()
	} else if due, ok := f.edge.Due(); ok {
		f.after(due.Sub(f.now), "due", func() {
			if f.edge.Fire(f.now) {
				f.publish()
			}
		})
	}
}

// publish tells all hosts. Its invariants are those of coalesce.Edge.
func (f *fanout) publish() {
	if gap := f.now.Sub(f.acted); !f.acted.IsZero() && gap < fanWindow {
		f.err = fmt.Errorf("published %v after the last time", gap)
	}
	if late := f.now.Sub(f.waiting); late > fanWindow {
		f.err = fmt.Errorf("a change waited for %v", late)
	}
	f.acted, f.waiting = f.now, time.Time{}
	f.index++
	f.told = sets{}
	for t, s := range f.source {
		f.told[t] = s
	}
	for _, h := range f.hosts {
		h.send()
	}
}

// send is the newest value on its way: it may be lost, late, and overtake others.
func (h *fanHost) send() {
	f, index, told := h.f, h.f.index, h.f.told
	if h.cut {
		return
	}
	f.after(f.upTo(50*time.Millisecond), "deliver", func() {
		if h.cut || index <= h.index {
			return
		}
		h.index, h.sets = index, told
		h.c.s.Changed(mesh.AllTypes)
		h.talk()
	})
}

// talk lets the proxy receive, and answer a little later.
func (h *fanHost) talk() {
	f := h.f
	if err := h.c.receive(h.sets); err != nil {
		f.err = err
	}
	if h.busy {
		return
	}
	h.busy = true
	c := h.c
	f.after(f.upTo(30*time.Millisecond), "answer", func() {
		h.busy = false
		if h.c != c {
			return // of a stream that is gone
		}
		open := false
		for t := range typeCount {
			if c.open[t] != nil {
				open = true
				c.answer(t, false)
			}
		}
		if open {
			h.talk()
		}
	})
}

// fault breaks or mends something of a host.
func (h *fanHost) fault() {
	f := h.f
	switch f.rng.IntN(3) {
	case 0: // the server's stream is cut; whoever comes back is told what is newer
		h.cut = true
		f.after(f.upTo(2*time.Second), "heal", func() {
			h.cut = false
			h.send()
		})
	case 1: // the proxy's stream ends, with what was not answered
		h.connect()
	case 2: // the host restarts: it knows nothing, and is told everything
		h.index = 0
		h.send()
	}
}

func (h *fanHost) connect() {
	h.c = newClient(h.c.world, h.c)
	for t := range typeCount {
		h.c.ask(t)
	}
	h.busy = false
	h.talk()
}

// runFanout runs one seed and returns a hash of all that happened.
func runFanout(seed uint64) (uint64, error) {
	sum := fnv.New64a()
	f := &fanout{rng: rand.New(rand.NewPCG(seed, 10)), now: time.Unix(1000, 0), trace: sum, source: sets{}, told: sets{},
		edge: coalesce.Edge{Window: fanWindow}}
	for i := range 3 + f.rng.IntN(6) {
		h := &fanHost{f: f, sets: sets{}, c: newClient(i%2 == 0, nil)}
		for t := range typeCount {
			if !wild(t) {
				for name := range 4 {
					h.c.names[t][string(rune('a'+name))] = true
				}
			}
		}
		f.hosts = append(f.hosts, h)
		h.connect()
	}
	for range 20 + f.rng.IntN(60) {
		f.after(f.upTo(fanTime), "change", f.change)
	}
	for range f.rng.IntN(12) {
		h := f.hosts[f.rng.IntN(len(f.hosts))]
		f.after(f.upTo(fanTime), "fault", h.fault)
	}
	for len(f.events) > 0 && f.err == nil {
		e := heap.Pop(&f.events).(event)
		f.now = e.at
		fmt.Fprint(f.trace, e.at.UnixNano(), e.what, e.order, f.index, "\n")
		e.do()
	}
	for i, h := range f.hosts {
		if f.err == nil && h.index != f.index {
			f.err = fmt.Errorf("host %d ends with index %d of %d", i, h.index, f.index)
		}
		if f.err == nil {
			f.err = h.c.compare(f.source)
		}
	}
	return sum.Sum64(), f.err
}

// TestFanOutEndsWithTheNewest is the fan-out from a source to proxies over a network that delays, loses and reorders:
// publications keep their window, nobody goes back, and in the end every proxy has what the source has. A seed
// repeats bit for bit.
func TestFanOutEndsWithTheNewest(t *testing.T) {
	for n := range *seeds {
		if *seed != 0 && n != *seed {
			continue
		}
		sum, err := runFanout(n)
		if n%100 == 0 {
			if again, _ := runFanout(n); again != sum {
				t.Fatalf("seed %d happened in another way the second time", n)
			}
		}
		if err != nil {
			t.Fatalf("%v\nagain: go test ./api/xds/session -run %s -session.seed %d", err, t.Name(), n)
		}
	}
	t.Logf("%d seeds, %v simulated each", *seeds, fanTime)
}
