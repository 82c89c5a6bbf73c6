package copies

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/usage/cache"
	"corbel.dev/corbel/usage/slots"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var (
	seeds = flag.Int("seeds", 1, "how many random histories are judged")
	steps = flag.Int("steps", 8, "how many things go wrong in each of them")
)

// entry is a host as the catalog has it.
type entry struct {
	incarnation    uint64
	named          map[string]uint64
	failed, drains bool
	since          uint64
}

// decided is the catalog as of an index.
type decided struct {
	at      time.Time
	entries map[string]entry
}

// world is some hosts of a cache, and a catalog that each of them hears of a little later.
type world struct {
	t testing.TB

	mu      sync.Mutex // guards what follows
	history []decided  // by index
	hosts   map[string]*process
	cut     map[string]bool // pairs of hosts, or of a host and "catalog", that do not reach each other
	r       *rand.Rand
}

// process is a life of a host.
type process struct {
	w     *world
	id    string
	host  *Host
	cache *cache.Cache
	stop  func()
	dead  bool
	seen  int // index of the catalog
	view  *View
	cutAt time.Time // since when it hears nothing from the catalog
}

func newWorld(t testing.TB, seed uint64, hosts ...string) *world {
	w := &world{t: t, hosts: map[string]*process{}, cut: map[string]bool{}, r: rand.New(rand.NewPCG(seed, 9)),
		history: []decided{{at: time.Now(), entries: map[string]entry{}}}}
	for _, id := range hosts {
		w.start(id)
	}
	t.Cleanup(func() {
		for id := range w.hosts {
			w.kill(id)
		}
	})
	return w
}

// decide changes the catalog. It needs mu.
func (w *world) decide(id string, f func(e *entry)) int {
	now := w.history[len(w.history)-1]
	next := decided{at: time.Now(), entries: maps.Clone(now.entries)}
	e := next.entries[id]
	was := e
	f(&e)
	if was.failed != e.failed || was.drains != e.drains {
		e.since = uint64(len(w.history))
	}
	next.entries[id] = e
	w.history = append(w.history, next)
	return len(w.history) - 1
}

func (w *world) start(id string) *process {
	p := &process{w: w, id: id}
	p.host = New(Config{Self: id, View: p.sees, Age: p.age, Call: p.call, Name: p.name, Patience: 300 * time.Millisecond,
		Silence: 400 * time.Millisecond, Limit: 3 * time.Second})
	p.cache = cache.New(cache.Config{Follower: p.host})
	p.host.Use(p.cache)
	w.mu.Lock()
	w.hosts[id] = p
	p.seen = max(0, len(w.history)-1-w.r.IntN(5)) // it reads its log first
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.host.Run(ctx) }()
	p.stop = sync.OnceFunc(func() { cancel(); <-done })
	return p
}

// kill ends a host as kill -9 does.
func (w *world) kill(id string) {
	w.mu.Lock()
	p := w.hosts[id]
	p.dead = true
	w.mu.Unlock()
	p.stop()
}

// sees is the catalog's word as of some milliseconds ago.
func (p *process) sees() *View {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	last := len(w.history) - 1
	if !w.cut[p.id+"catalog"] {
		for p.seen < last && time.Since(w.history[p.seen+1].at) > time.Duration(w.r.IntN(20))*time.Millisecond {
			p.seen++
		}
	}
	if p.view != nil && p.view.Index == uint64(p.seen) {
		return p.view
	}
	d := w.history[p.seen]
	v := &View{Index: uint64(p.seen), Since: d.entries[p.id].since, Incarnation: d.entries[p.id].incarnation,
		Named: map[string]map[string]uint64{}}
	var nodes []slots.Node
	for id, e := range d.entries {
		if v.Named[id] = e.named; !e.failed {
			nodes = append(nodes, slots.Node{ID: id, Host: id, Port: 1, Draining: e.drains})
		}
	}
	v.Map = slots.Assign(nodes, 2)
	p.view = v
	return v
}

// age is how long ago the oldest change was made that the host has not heard of, or since when it hears nothing.
func (p *process) age() time.Duration {
	p.sees()
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	var age time.Duration
	if p.seen+1 < len(p.w.history) {
		age = time.Since(p.w.history[p.seen+1].at)
	}
	if p.w.cut[p.id+"catalog"] {
		age = max(age, time.Since(p.cutAt))
	}
	return age
}

func (p *process) name(ctx context.Context, incarnation uint64, named map[string]uint64) error {
	w := p.w
	w.mu.Lock()
	if p.dead || w.cut[p.id+"catalog"] {
		w.mu.Unlock()
		return errkind.New(errkind.Unavailable, "the catalog does not answer")
	}
	index := w.decide(p.id, func(e *entry) { e.incarnation, e.named = incarnation, named })
	w.mu.Unlock()
	for p.sees().Index < uint64(index) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

func (p *process) call(ctx context.Context, to, method string, req []byte) ([]byte, error) {
	reach := func() *process {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		other := p.w.hosts[to]
		if p.dead || other == nil || other.dead || p.w.cut[p.id+to] || p.w.cut[to+p.id] {
			return nil
		}
		return other
	}
	other := reach()
	if other == nil {
		return nil, errkind.New(errkind.Unavailable, "nobody answers")
	}
	reply, err := other.host.Methods()[method](ctx, append([]byte{}, req...))
	if reach() != other {
		return nil, errkind.New(errkind.Unknown, "the connection ended")
	}
	return reply, err
}

// at gives f the host that owns a key, wherever that is known, and says whether it was answered.
func (w *world) at(key string, write bool, f func(c *cache.Cache)) bool {
	w.mu.Lock()
	ids := make([]string, 0, len(w.hosts))
	for _, id := range []string{"a", "b", "c", "d"} {
		if p := w.hosts[id]; p != nil && !p.dead {
			ids = append(ids, id)
		}
	}
	to := ids[w.r.IntN(len(ids))]
	w.mu.Unlock()
	for range 5 {
		w.mu.Lock()
		p := w.hosts[to]
		dead := p == nil || p.dead
		w.mu.Unlock()
		if dead {
			return false
		}
		addr, err := p.host.Where(slots.Of([]byte(key)))
		if err != nil {
			return false
		}
		if addr != "" {
			to = addr[:1]
			continue
		}
		began := p.host.Begin()
		if write {
			p.host.Touch([]byte(key))
		}
		f(p.cache)
		if write && p.host.Settle(began) != nil {
			return false
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return !p.dead // or the answer has not left it
	}
	return false
}

func text(key string, n int64) func(c *cache.Cache) {
	return func(c *cache.Cache) {
		c.Do([]byte(key), func(e *cache.Entry) { _ = e.SetText(strconv.AppendInt(nil, n, 10)) })
	}
}

// read is the number at a key; 0 is none.
func read(key string, n *int64) func(c *cache.Cache) {
	return func(c *cache.Cache) {
		c.Do([]byte(key), func(e *cache.Entry) {
			b, _, _ := e.Text()
			*n, _ = strconv.ParseInt(string(b), 10, 64)
		})
	}
}

// whole says whether all hosts that are up have copies that miss nothing, and nothing comes over.
func (w *world) whole(hosts int) bool {
	w.mu.Lock()
	var up []*process
	for _, p := range w.hosts {
		if !p.dead {
			up = append(up, p)
		}
	}
	last := uint64(len(w.history) - 1)
	w.mu.Unlock()
	owned := 0
	for _, p := range up {
		t, s := p.host.table.Load(), p.host.Status()
		if t.view == nil || t.view.Index != last || len(s.Copies) == 0 && s.Owned > 0 || s.Giving {
			return false
		}
		for b, own := range t.own {
			if own == mine && (t.imports[b] != nil || len(t.feeds[b]) == 0) {
				return false
			}
		}
		for _, state := range s.Copies {
			if s.Owned > 0 && state != stateWhole {
				return false
			}
		}
		owned += s.Owned
	}
	return owned == slots.Blocks && len(up) == hosts
}

// fill writes keys, and returns when all are acknowledged.
func (w *world) fill(n int) {
	for i := range n {
		key := fmt.Sprint("k", i)
		polltest.Within(w.t, time.Minute, func() bool { return w.at(key, true, text(key, int64(i+1))) }, "%s is written",
			key)
	}
}

// count reads all keys: how many are there, and how many are not what was written.
func (w *world) count(n int) (hits, wrong int) {
	for i := range n {
		key, got := fmt.Sprint("k", i), int64(0)
		polltest.Within(w.t, time.Minute, func() bool { return w.at(key, false, read(key, &got)) }, "%s is read", key)
		switch got {
		case int64(i + 1):
			hits++
		case 0:
		default:
			wrong++
		}
	}
	return hits, wrong
}

// TestCopies: the keys of a host that is killed, that drains, that comes back, and of those that make room for a new
// one: all are there, and none is another one.
func TestCopies(t *testing.T) {
	const keys = 2000
	for name, f := range map[string]func(w *world) (hosts int){
		"killed": func(w *world) int {
			w.kill("b")
			w.mu.Lock()
			w.decide("b", func(e *entry) { e.failed = true })
			w.mu.Unlock()
			return 2
		},
		"killed, and back at once": func(w *world) int {
			w.kill("b")
			w.start("b")
			return 3
		},
		"killed, and back later": func(w *world) int {
			w.kill("b")
			w.mu.Lock()
			w.decide("b", func(e *entry) { e.failed = true })
			w.mu.Unlock()
			polltest.Within(w.t, time.Minute, func() bool { return w.whole(2) }, "two hosts go on")
			w.start("b")
			w.mu.Lock()
			w.decide("b", func(e *entry) { e.failed = false })
			w.mu.Unlock()
			return 3
		},
		"drains": func(w *world) int {
			w.mu.Lock()
			w.decide("b", func(e *entry) { e.drains = true })
			w.mu.Unlock()
			return 3
		},
		"drains, and does not": func(w *world) int {
			w.mu.Lock()
			w.decide("b", func(e *entry) { e.drains = true })
			w.mu.Unlock()
			polltest.Within(w.t, time.Minute, func() bool { return w.whole(3) }, "the others go on")
			w.mu.Lock()
			w.decide("b", func(e *entry) { e.drains = false })
			w.mu.Unlock()
			return 3
		},
		"a new one": func(w *world) int { w.start("d"); return 4 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1, "a", "b", "c")
			polltest.Within(t, time.Minute, func() bool { return w.whole(3) }, "copies of all keys")
			w.fill(keys)
			n := f(w)
			polltest.Within(t, time.Minute, func() bool { return w.whole(n) }, "copies of all keys: %s", name)
			if hits, wrong := w.count(keys); hits != keys || wrong != 0 {
				t.Errorf("%d of %d keys are there, and %d are wrong", hits, keys, wrong)
			}
		})
	}
}

// TestHistory: hosts are killed, come back, drain, and lose each other or the catalog, while keys are written, deleted
// and read. No answer is older than what a client was told before.
func TestHistory(t *testing.T) {
	for seed := range uint64(*seeds) {
		w := newWorld(t, seed, "a", "b", "c")
		polltest.Within(t, time.Minute, func() bool { return w.whole(3) }, "copies of all keys")
		var stop atomic.Bool
		var wg sync.WaitGroup
		var written, hits, misses, wrong atomic.Int64
		for i := range 12 {
			key := fmt.Sprint("h", i)
			var told, tried atomic.Int64 // even numbers are deletions
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				for n := int64(1); !stop.Load(); n += 2 {
					<-time.After(time.Duration(r.IntN(1500)) * time.Microsecond) // the rate of a client
					what, number := text(key, n), n
					if r.IntN(5) == 0 {
						number = n + 1
						what = func(c *cache.Cache) { c.Do([]byte(key), func(e *cache.Entry) { e.Delete() }) }
					}
					tried.Store(number)
					if w.at(key, true, what) {
						told.Store(number)
						written.Add(1)
					}
				}
			})
			wg.Go(func() {
				for !stop.Load() {
					<-time.After(300 * time.Microsecond) // the rate of a client
					before, got := told.Load(), int64(0)
					if !w.at(key, false, read(key, &got)) {
						continue
					}
					switch {
					case got == 0:
						misses.Add(1)
					case got < before || got > tried.Load():
						wrong.Add(1)
						t.Errorf("seed %d: %s is %d, and %d was acknowledged before: replay with -seeds %d", seed, key, got,
							before, seed+1)
						stop.Store(true)
					default:
						hits.Add(1)
					}
				}
			})
		}
		for range *steps {
			if stop.Load() {
				break
			}
			w.harm()
		}
		polltest.Within(t, time.Minute, func() bool { return stop.Load() || w.whole(3) }, "copies of all keys")
		stop.Store(true)
		wg.Wait()
		t.Logf("seed %d: %d writes, %d hits, %d misses, %d wrong", seed, written.Load(), hits.Load(), misses.Load(),
			wrong.Load())
		if written.Load() == 0 || hits.Load() == 0 {
			t.Errorf("seed %d: nothing was tried", seed)
		}
		for id := range w.hosts {
			w.kill(id)
		}
	}
}

// harm does one thing, waits as long as the catalog would, and mends it.
func (w *world) harm() {
	w.mu.Lock()
	id, other := []string{"a", "b", "c"}[w.r.IntN(3)], []string{"a", "b", "c"}[w.r.IntN(3)]
	what, wait := w.r.IntN(6), time.Duration(w.r.IntN(300))*time.Millisecond
	w.mu.Unlock()
	set := func(f func(e *entry)) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.decide(id, f)
	}
	switch what {
	case 0: // it is back before the catalog notices
		w.kill(id)
		<-time.After(wait) // how long it takes to start is the history's
		w.start(id)
	case 1: // others take over
		w.kill(id)
		<-time.After(wait)
		set(func(e *entry) { e.failed = true })
		<-time.After(wait)
		w.start(id)
		set(func(e *entry) { e.failed = false })
	case 2:
		set(func(e *entry) { e.drains = true })
		<-time.After(2 * wait)
		set(func(e *entry) { e.drains = false })
	case 3: // two hosts do not reach each other
		w.sever(id+other, true)
		<-time.After(3 * wait)
		w.sever(id+other, false)
	case 4: // a host does not reach the catalog, which takes it for gone
		w.sever(id+"catalog", true)
		<-time.After(500 * time.Millisecond) // longer than Silence
		set(func(e *entry) { e.failed = true })
		<-time.After(wait)
		w.sever(id+"catalog", false)
		set(func(e *entry) { e.failed = false })
	case 5: // the catalog takes a host for gone that is not
		set(func(e *entry) { e.failed = true })
		<-time.After(wait)
		set(func(e *entry) { e.failed = false })
	}
	<-time.After(wait)
}

func (w *world) sever(pair string, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[pair] = is
	if is && len(pair) > 2 {
		w.hosts[pair[:1]].cutAt = time.Now()
	}
}
