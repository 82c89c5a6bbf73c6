package parts

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/aggregator"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/eventlog/embedded"
	"corbel.dev/corbel/usage/logrecord"
	"corbel.dev/corbel/usage/window"
)

var (
	seeds = flag.Int("seeds", 1, "how many random histories are judged")
	steps = flag.Int("steps", 3, "how many servers each of them loses")
)

// world is a plane of three servers, whose Raft group is a list of commands.
type world struct {
	t       *testing.T
	seed    uint64
	product *usage.Product
	unsure  atomic.Int64          // answers after which nobody knows whether an event is stored
	doubt   atomic.Pointer[doubt] // the last of them
	// patience is how long who sends waits for an answer.
	patience time.Duration
	failover time.Duration
	back     time.Duration // how long parts wait for a server that was stopped by plan

	mu       sync.Mutex // guards what follows
	commands [][]byte
	servers  map[string]*server
	cold     map[string]chan struct{} // until it is closed, the counters of a server load
	far      atomic.Pointer[farAway]  // where snapshots are; nil: nowhere but at the servers
	r        *rand.Rand
	frozen   func(ctx context.Context, to, method string) // is called before each call; nil: nothing is frozen
	stuck    chan struct{}                                // until it is closed, the group decides nothing; nil: it decides
	waiting  int                                          // how many wait for it then
}

// doubt is an answer after which nobody knows, and what the group had decided then.
type doubt struct {
	err  error
	told []string
}

// events are the last commands.
func (w *world) events() (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range w.commands[max(0, len(w.commands)-6):] {
		list = append(list, string(text))
	}
	return list
}

type server struct {
	w       *world
	id      string
	fs      *vfs.Mem
	defs    *definitions.Definitions
	parts   *Parts
	methods map[string]func(context.Context, []byte) ([]byte, error)
	metrics *telemetry.Registry
	asks    *aggregator.Aggregator
	stop    func()
	applied int
	down    bool
}

// Propose implements definitions.Proposer: the group decides, and this server shows it.
func (s *server) Propose(ctx context.Context, cmd []byte) (any, error) {
	if err := s.w.decides(ctx); err != nil {
		return nil, err
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.down {
		return nil, errkind.New(errkind.Unavailable, "this server is down")
	}
	s.w.commands = append(s.w.commands, cmd)
	var out any
	for _, other := range s.w.servers {
		if other.down {
			continue
		}
		if got := other.show(); other == s {
			out = got
		}
	}
	return out, nil
}

// decides waits while the group decides nothing.
func (w *world) decides(ctx context.Context) error {
	w.mu.Lock()
	stuck := w.stuck
	if stuck != nil {
		w.waiting++
	}
	w.mu.Unlock()
	if stuck == nil {
		return nil
	}
	select {
	case <-stuck:
		return nil
	case <-ctx.Done():
		return errkind.E(errkind.Unknown, "the group decides nothing", ctx.Err())
	}
}

// show applies what the group has decided.
func (s *server) show() (last any) {
	if s.applied < len(s.w.commands) {
		out := s.defs.ApplyBatch(s.w.commands[s.applied:])
		s.applied, last = len(s.w.commands), out[len(out)-1]
	}
	return last
}

func newWorld(t *testing.T, seed uint64) *world { return newWorldOf(t, seed, 800*time.Millisecond) }

func newWorldOf(t *testing.T, seed uint64, failover time.Duration, more ...func(*world)) *world {
	w := &world{t: t, seed: seed, patience: 2 * time.Second, failover: failover, servers: map[string]*server{},
		cold: map[string]chan struct{}{},
		r:    rand.New(rand.NewPCG(seed, 7)), product: &usage.Product{Name: "bytes", Kind: usage.Sum}}
	for _, set := range more {
		set(w)
	}
	if err := w.product.Complete(); err != nil {
		t.Fatal(err)
	}
	w.product.Generation = 1
	for _, id := range []string{"a", "b", "c"} {
		w.start(id, vfs.NewMem())
	}
	_, err := w.servers["a"].defs.Do(t.Context(), definitions.Command{Owners: []string{"a", "b", "c"}})
	if err == nil {
		_, err = w.servers["a"].defs.Do(t.Context(), definitions.Command{At: time.Now(), Put: w.product})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, s := range w.servers {
			if !s.down {
				s.stop()
			}
		}
	})
	return w
}

// start starts a server, whose table is an old one for a while.
func (w *world) start(id string, fs *vfs.Mem) {
	s := &server{w: w, id: id, fs: fs, defs: definitions.New(), metrics: telemetry.New(telemetry.Config{})}
	s.defs.Use(s)
	signal := counter.NewSignal(time.Now())
	var err error
	s.parts, err = New(Config{Self: id, Definitions: s.defs, Open: s.open(signal), Call: s.call, Copies: 2,
		Alone: 300 * time.Millisecond, Failover: w.failover, Return: w.back, Log: slog.New(slog.DiscardHandler),
		Voters: func() []string { return []string{"a", "b", "c"} }, Leads: s.leads, Metrics: s.metrics}, signal)
	if err != nil {
		w.t.Fatal(err)
	}
	s.methods = s.parts.Methods()
	answer := s.answers()
	w.mu.Lock()
	w.servers[id] = s
	if n := len(w.commands); n > 0 {
		s.applied = w.r.IntN(n)
		s.defs.ApplyBatch(w.commands[:s.applied])
	}
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		var wg sync.WaitGroup
		wg.Go(func() { answer(ctx) })
		err := s.parts.Run(ctx)
		wg.Wait()
		done <- err
	}()
	s.stop = sync.OnceFunc(func() { cancel(); <-done })
	time.AfterFunc(100*time.Millisecond, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !s.down {
			s.show()
		}
	})
}

// leads: the first server that is up is the group's leader.
func (s *server) leads() bool {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	for _, id := range []string{"a", "b", "c"} {
		if other := s.w.servers[id]; other != nil && !other.down {
			return id == s.id
		}
	}
	return false
}

func (s *server) call(ctx context.Context, to, method string, req []byte) ([]byte, error) {
	s.w.mu.Lock()
	other := s.w.servers[to]
	cut := s.down || other == nil || other.down
	frozen := s.w.frozen
	s.w.mu.Unlock()
	if frozen != nil {
		frozen(ctx, to, method)
	}
	if cut {
		return nil, errkind.New(errkind.Unavailable, "nobody answers")
	}
	if err := ctx.Err(); err != nil {
		return nil, errkind.E(errkind.Unavailable, "nobody answers", err)
	}
	reply, err := other.methods[method](ctx, slices.Clone(req))
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.down || other.down { // the answer of a server that was killed meanwhile
		return nil, errkind.New(errkind.Unknown, "the connection ended")
	}
	return reply, err
}

func (s *server) open(signal *counter.Signal) func(string) (Place, error) {
	return func(part string) (Place, error) {
		dir := "/" + part
		for _, d := range []string{dir, dir + "/log", dir + "/state"} {
			if err := s.fs.MkdirAll(d, 0o700); err != nil {
				return Place{}, err
			}
		}
		blobs, err := counterstate.NewFolder(s.fs, dir+"/state")
		if err != nil {
			return Place{}, err
		}
		store := counterstate.New(counterstate.Config{Blobs: blobs})
		folder := embedded.Config{FS: s.fs, Dir: dir + "/log", Partitions: 1, SegmentBytes: 1 << 14}
		var copies []*counterstate.Store
		if s.w != nil {
			copies = s.w.distant(blobs)
		}
		c := counter.New(counter.Config{Store: store, Follows: true, Signal: signal, Snapshot: 50 * time.Millisecond,
			Keep: time.Millisecond, Metrics: s.metrics, Copies: copies, CopyEvery: time.Hour,
			Open: func() (eventlog.Log, error) { return embedded.Open(folder) },
			Key:  s.key})
		return Place{Counter: c, Begin: func(ctx context.Context, first uint64) (eventlog.Log, error) {
			return s.begin(ctx, folder, dir, first)
		}, Save: func(ctx context.Context, state [][]byte, next uint64) error {
			return store.Save(ctx, counter.SnapshotName, counterstate.Snapshot{At: time.Now(), More: state,
				Positions: []eventlog.Position{{Offset: next}}})
		}}, nil
	}
}

// key waits while the server is kept cold.
func (s *server) key(ctx context.Context) (usage.Key, error) {
	if s.w != nil {
		s.w.mu.Lock()
		gate := s.w.cold[s.id]
		s.w.mu.Unlock()
		if gate != nil {
			select {
			case <-gate:
			case <-ctx.Done():
				return usage.Key{}, ctx.Err()
			}
		}
	}
	return usage.NewKey([16]byte{1}), nil
}

func (s *server) begin(ctx context.Context, folder embedded.Config, dir string, first uint64) (eventlog.Log, error) {
	for _, d := range []string{dir + "/log", dir + "/state"} {
		entries, err := s.fs.ReadDir(d)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if err := s.fs.Remove(filepath.Join(d, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	log, err := embedded.Open(folder)
	if err == nil && first > 0 {
		err = log.BeginAt(ctx, []uint64{first})
	}
	return log, err
}

// lose ends a server as kill -9 does, and returns what is on its disk then.
func (w *world) lose(id string) *vfs.Mem {
	w.mu.Lock()
	s := w.servers[id]
	s.down = true
	left := s.fs.Killed()
	w.mu.Unlock()
	s.stop()
	return left
}

// lead is the counter that takes the events of a part, as some server says.
func (w *world) lead(part string) *counter.Counter {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.servers {
		if s.down {
			continue
		}
		if lead := w.servers[s.parts.Lead(part)]; !lead.down {
			return lead.parts.Local(part)
		}
	}
	return nil
}

// send sends an event until it is acknowledged.
func (w *world) send(ctx context.Context, part string, e usage.Event) error {
	for ctx.Err() == nil {
		if c := w.lead(part); c != nil {
			rec := &logrecord.Record{At: time.Now(), Products: []*usage.Product{w.product}}
			rec.Events = []usage.Event{e}
			observed, err := rec.Observe(usage.NewKey([16]byte{1}))
			if err != nil {
				return err
			}
			one, cancel := context.WithTimeout(ctx, w.patience)
			_, err = c.Take(one, counter.Intake{Tenant: e.Tenant, Record: rec, Observed: observed})
			cancel()
			if err == nil {
				return nil
			}
			if !errkind.Is(err, errkind.NotLeader) {
				w.doubt.Store(&doubt{err, w.events()})
				w.unsure.Add(1) // whoever cannot send it again has lost it, or counts it twice
			}
			switch errkind.Of(err) {
			case errkind.Unavailable, errkind.Unknown, errkind.NotLeader:
			default:
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return errors.New("not acknowledged in time")
}

// whole says whether each part has a lead that takes events, and a copy.
func (w *world) whole() bool { return w.lacks() == nil }

// lacks says what whole waits for.
func (w *world) lacks() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, part := range []string{"a", "b", "c"} {
		for _, s := range w.servers {
			now := s.defs.View().Part(part)
			c := w.servers[now.Lead].parts.Local(part)
			switch {
			case s.down:
				return fmt.Errorf("server %s is down", s.id)
			case !s.parts.settled.Load() || s.applied != len(w.commands):
				return fmt.Errorf("server %s knows %d of %d commands, settled: %v", s.id, s.applied, len(w.commands),
					s.parts.settled.Load())
			case now.Copy == "":
				return fmt.Errorf("part %s has no copy: %+v", part, now)
			case c == nil || !c.Leads():
				return fmt.Errorf("part %s is not led by %s, which has it: %v: %+v", part, now.Lead, c != nil, now)
			}
		}
	}
	return nil
}

// TestServersAreLost: servers are killed one after the other, some with their disks wiped, while events come. What was
// acknowledged is counted, once, whoever counts it.
func TestServersAreLost(t *testing.T) {
	for seed := range uint64(*seeds) {
		w := newWorld(t, seed)
		polltest.Within(t, time.Minute, w.whole, "copies of all parts")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		var wg sync.WaitGroup
		var mu sync.Mutex
		sent, begun, stop := map[string]int64{}, map[string]int64{}, make(chan struct{})
		wg.Go(func() {
			w.curious(stop, func(part string) int64 {
				mu.Lock()
				defer mu.Unlock()
				return begun[part]
			})
		})
		for i := range 6 {
			wg.Go(func() {
				part, source := []string{"a", "b", "c"}[i%3], fmt.Sprint("s", i)
				for n := int64(1); ; n++ {
					select {
					case <-stop:
						return
					case <-time.After(2 * time.Millisecond):
					}
					mu.Lock()
					begun[part] += n
					mu.Unlock()
					if err := w.send(ctx, part, usage.Event{ID: fmt.Sprint(n), Source: source, Tenant: part,
						Product: "bytes", Time: time.Now().UnixNano(), Value: usage.Int(n), HasValue: true}); err != nil {
						t.Errorf("seed %d: %v", seed, err)
						return
					}
					mu.Lock()
					sent[part] += n
					mu.Unlock()
				}
			})
		}
		for range *steps {
			id := []string{"a", "b", "c"}[w.r.IntN(3)]
			left := w.lose(id)
			if w.r.IntN(2) == 0 {
				left = vfs.NewMem()
			}
			if w.r.IntN(2) == 0 { // others take over before it is back
				polltest.Within(t, time.Minute, func() bool { return w.moved(id) }, "the parts of %s to move", id)
			}
			w.start(id, left)
			polltest.Within(t, time.Minute, w.whole, "all parts to be whole after %s was lost (seed %d)", id, seed)
		}
		close(stop)
		wg.Wait()
		cancel()
		w.judge(sent)
		for _, s := range w.servers {
			s.stop()
		}
		w.mu.Lock()
		for _, s := range w.servers {
			s.down = true
		}
		w.mu.Unlock()
	}
}

// moved says that others lead all parts of a server.
func (w *world) moved(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.servers {
		for _, part := range []string{"a", "b", "c"} {
			if !s.down && s.parts.Lead(part) == id {
				return false
			}
		}
	}
	return true
}

// judge compares what each lead has counted, and each copy, with what was acknowledged. A copy that a busy machine kept
// from answering until the last event is made again first.
func (w *world) judge(sent map[string]int64) {
	w.t.Helper()
	polltest.Within(w.t, time.Minute, w.whole, "all parts to be whole, so that they can be judged")
	span := window.Range{From: time.Now().Add(-time.Hour).Truncate(time.Minute),
		To: time.Now().Add(2 * time.Minute).Truncate(time.Minute)}
	for part, want := range sent {
		now := w.servers["a"].defs.View().Part(part)
		for _, id := range []string{now.Lead, now.Copy} {
			c := w.servers[id].parts.find(part).Counter
			got := c.Query(aggregate.Series{Tenant: part, Product: "bytes", Generation: 1}, w.product,
				[]window.Range{span}, -1).Slices[0].Total(usage.Sum)
			if got.Quantity != usage.Int(want) {
				w.t.Errorf("seed %d: part %s on %s (lead %s) has %s, want %d\n"+
					"replay: go test ./usage/parts -run TestServersAreLost", w.seed, part, id, now.Lead, got.Quantity, want)
			}
		}
	}
}
