package kafkalog

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/logrecord"
	"corbel.dev/corbel/usage/parts"
	"corbel.dev/corbel/usage/window"
)

var moves = flag.Int("moves", 3, "how many servers are lost while parts move")

var moveIDs = []string{"a", "b", "c"}

// plane is three servers whose logs brokers have, and whose Raft group is a list of commands.
type plane struct {
	t       *testing.T
	cfg     Config
	product *usage.Product
	shared  *counterstate.Folder // the place that has copies of snapshots

	mu       sync.Mutex // guards what follows
	commands [][]byte
	servers  map[string]*planeServer
	deaf     string // the server that hears nothing of the others, nor they of it; brokers it reaches
}

type planeServer struct {
	w       *plane
	id      string
	fs      *vfs.Mem
	defs    *definitions.Definitions
	parts   *parts.Parts
	methods map[string]func(context.Context, []byte) ([]byte, error)
	stop    func()
	applied int
	down    bool
}

// Propose implements definitions.Proposer.
func (s *planeServer) Propose(_ context.Context, cmd []byte) (any, error) {
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.down || w.deaf == s.id {
		return nil, errkind.New(errkind.Unavailable, "the group does not answer")
	}
	w.commands = append(w.commands, cmd)
	var out any
	for _, other := range w.servers {
		if other.down || w.deaf == other.id {
			continue
		}
		if got := other.show(); other == s {
			out = got
		}
	}
	return out, nil
}

// show applies what the group has decided. It needs the plane's mu.
func (s *planeServer) show() (last any) {
	if s.applied < len(s.w.commands) {
		out := s.defs.ApplyBatch(s.w.commands[s.applied:])
		s.applied, last = len(s.w.commands), out[len(out)-1]
	}
	return last
}

func (w *plane) start(id string, fs *vfs.Mem) {
	s := &planeServer{w: w, id: id, fs: fs, defs: definitions.New()}
	s.defs.Use(s)
	signal := counter.NewSignal(time.Now())
	var err error
	s.parts, err = parts.New(parts.Config{Self: id, Definitions: s.defs, Call: s.call, Copies: 1, Shared: true,
		Failover: time.Second, Log: slog.New(slog.DiscardHandler), Voters: func() []string { return moveIDs },
		Leads: s.leads, Open: func(part string) (parts.Place, error) { return s.open(part, signal) }}, signal)
	if err != nil {
		w.t.Fatal(err)
	}
	s.methods = s.parts.Methods()
	w.mu.Lock()
	w.servers[id] = s
	s.show()
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.parts.Run(ctx) }()
	s.stop = sync.OnceFunc(func() { cancel(); <-done })
}

func (s *planeServer) leads() bool {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	for _, id := range moveIDs {
		if other := s.w.servers[id]; other != nil && !other.down && s.w.deaf != id {
			return id == s.id
		}
	}
	return false
}

func (s *planeServer) call(ctx context.Context, to, method string, req []byte) ([]byte, error) {
	s.w.mu.Lock()
	other := s.w.servers[to]
	cut := s.down || other == nil || other.down || s.w.deaf == s.id || s.w.deaf == to
	s.w.mu.Unlock()
	if cut {
		return nil, errkind.New(errkind.Unavailable, "nobody answers")
	}
	return other.methods[method](ctx, slices.Clone(req))
}

func (s *planeServer) open(part string, signal *counter.Signal) (parts.Place, error) {
	dir := "/" + part
	if err := s.fs.MkdirAll(dir, 0o700); err != nil {
		return parts.Place{}, err
	}
	blobs, err := counterstate.NewFolder(s.fs, dir)
	if err != nil {
		return parts.Place{}, err
	}
	cfg := s.w.cfg
	cfg.Topic += "." + part
	c := counter.New(counter.Config{Name: part, Store: counterstate.New(counterstate.Config{Blobs: blobs}),
		Copies: []*counterstate.Store{counterstate.New(counterstate.Config{Blobs: s.w.shared})}, CopyEvery: time.Second,
		Follows: true, Signal: signal, Snapshot: 200 * time.Millisecond, Keep: time.Millisecond,
		Log:  slog.New(slog.DiscardHandler),
		Open: func() (eventlog.Log, error) { return Open(context.Background(), cfg) },
		Key:  func(context.Context) (usage.Key, error) { return usage.NewKey([16]byte{1}), nil }})
	return parts.Place{Counter: c}, nil
}

// lose ends a server as kill -9 does, and returns what is on its disk then.
func (w *plane) lose(id string) *vfs.Mem {
	w.mu.Lock()
	s := w.servers[id]
	s.down = true
	left := s.fs.Killed()
	w.mu.Unlock()
	s.stop()
	return left
}

// counters are those that take events of a part, as each server believes: two while a part moves.
func (w *plane) counters(part string) (list []*counter.Counter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range moveIDs {
		if s := w.servers[id]; !s.down {
			if c := s.parts.Local(part); c != nil && c.Leads() {
				list = append(list, c)
			}
		}
	}
	return list
}

// send sends an event, wherever it is taken, until it is acknowledged.
func (w *plane) send(ctx context.Context, r *rand.Rand, part string, e usage.Event) error {
	for ctx.Err() == nil {
		if list := w.counters(part); len(list) > 0 {
			rec := &logrecord.Record{At: time.Now(), Products: []*usage.Product{w.product}}
			rec.Events = []usage.Event{e}
			observed, err := rec.Observe(usage.NewKey([16]byte{1}))
			if err != nil {
				return err
			}
			one, cancel := context.WithTimeout(ctx, 3*time.Second)
			_, err = list[r.IntN(len(list))].Take(one, counter.Intake{Tenant: e.Tenant, Record: rec, Observed: observed})
			cancel()
			if err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return errors.New("not acknowledged in time")
}

// settled says whether each part is led by one server: by its home, where all are up.
func (w *plane) settled() bool {
	for _, part := range moveIDs {
		if len(w.counters(part)) != 1 {
			return false
		}
		w.mu.Lock()
		for _, s := range w.servers {
			if !s.down && s.defs.View().Part(part).Lead != part {
				w.mu.Unlock()
				return false
			}
		}
		w.mu.Unlock()
	}
	return true
}

// moved says that others lead the part of a server.
func (w *plane) moved(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.servers {
		if lead := s.defs.View().Part(id).Lead; !s.down && w.deaf != s.id && lead != id && w.servers[lead].parts != nil {
			c := w.servers[lead].parts.Local(id)
			return c != nil && c.Leads()
		}
	}
	return false
}

// TestPartsMove: servers are killed, lose their disks, or lose each other but not the brokers, and others lead their
// parts, until they have them back. What was acknowledged is counted once. CORBEL_KAFKA names real brokers, else they
// are in this process.
func TestPartsMove(t *testing.T) {
	cfg := Config{Topic: fmt.Sprintf("moves-%d", time.Now().UnixNano()), Partitions: 1, Timeout: 10 * time.Second}
	if brokers := os.Getenv("CORBEL_KAFKA"); brokers != "" {
		cfg.Brokers = strings.Split(brokers, ",")
	} else {
		t.Log("CORBEL_KAFKA names no brokers: NOT RUN with real ones, they are in this process")
		_, own := cluster(t)
		cfg.Brokers = own.Brokers
	}
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/copies", 0o700); err != nil {
		t.Fatal(err)
	}
	place, err := counterstate.NewFolder(mem, "/copies")
	if err != nil {
		t.Fatal(err)
	}
	w := &plane{t: t, cfg: cfg, shared: place, servers: map[string]*planeServer{},
		product: &usage.Product{Name: "bytes", Kind: usage.Sum}}
	if err := w.product.Complete(); err != nil {
		t.Fatal(err)
	}
	w.product.Generation = 1
	for _, id := range moveIDs {
		w.start(id, vfs.NewMem())
	}
	defer func() {
		for _, s := range w.servers {
			s.stop()
		}
	}()
	if _, err := w.servers["a"].defs.Do(t.Context(), definitions.Command{Owners: moveIDs}); err != nil {
		t.Fatal(err)
	}
	polltest.Within(t, 2*time.Minute, w.settled, "all parts to be led")
	w.load(t)
}

func (w *plane) load(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	sent, stop := map[string]int64{}, make(chan struct{})
	for i := range 3 {
		wg.Go(func() {
			part, source, r := moveIDs[i], fmt.Sprint("s", i), rand.New(rand.NewPCG(1, uint64(i)))
			for n := int64(1); ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				if err := w.send(ctx, r, part, usage.Event{ID: fmt.Sprint(n), Source: source, Tenant: part,
					Product: "bytes", Time: time.Now().UnixNano(), Value: usage.Int(n), HasValue: true}); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				sent[part] += n
				mu.Unlock()
			}
		})
	}
	for n := range *moves {
		id := moveIDs[n%3]
		switch n % 3 {
		case 0: // it is killed, and comes back with its disk
			left := w.lose(id)
			polltest.Within(t, 2*time.Minute, func() bool { return w.moved(id) }, "the part of %s to move", id)
			w.start(id, left)
		case 1: // and without
			w.lose(id)
			polltest.Within(t, 2*time.Minute, func() bool { return w.moved(id) }, "the part of %s to move", id)
			w.start(id, vfs.NewMem())
		case 2: // it does not hear that another one leads its part, and goes on taking events
			w.hear(id)
			polltest.Within(t, 2*time.Minute, func() bool { return w.moved(id) }, "the part of %s to move", id)
			w.hear("")
		}
		polltest.Within(t, 2*time.Minute, w.settled, "all parts to be at home after %s was lost", id)
	}
	close(stop)
	wg.Wait()
	span := window.Range{From: time.Now().Add(-time.Hour).Truncate(time.Minute),
		To: time.Now().Add(2 * time.Minute).Truncate(time.Minute)}
	for part, want := range sent {
		got := usage.Int(0)
		polltest.Within(t, 2*time.Minute, func() bool {
			list := w.counters(part)
			if len(list) != 1 {
				return false
			}
			got = list[0].Query(aggregate.Series{Tenant: part, Product: "bytes", Generation: 1}, w.product,
				[]window.Range{span}, -1).Slices[0].Total(usage.Sum).Quantity
			return got == usage.Int(want)
		}, "part %s to have %d", part, want)
		t.Logf("part %s has %s of %d", part, got, want)
	}
}

// hear has one server hear nothing of the others, or with "" all hear what they have missed.
func (w *plane) hear(but string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaf = but
	for _, s := range w.servers {
		if !s.down && w.deaf != s.id {
			s.show()
		}
	}
}
