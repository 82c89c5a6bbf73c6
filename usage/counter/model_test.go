package counter

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/batch"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/eventlog/embedded"
	"corbel.dev/corbel/usage/logrecord"
	"corbel.dev/corbel/usage/window"
)

var histories = flag.Int("histories", 4, "how many random histories are judged")

// world is a counter that is killed now and then, and an exact model of what it was told.
type world struct {
	t         *testing.T
	seed      uint64
	r         *rand.Rand
	fs        *vfs.Mem
	key       usage.Key
	elsewhere *vfs.Mem // has copies of snapshots; nil has none
	cut       bool     // a place before it fails with what it is asked for
	products  []*usage.Product
	wrap      func(eventlog.Log) eventlog.Log // nil leaves the log as it is
	every     time.Duration                   // between snapshots; zero is 15 ms
	counter   *Counter
	stop      func()
	// The model: events that count, by tenant, source and id.
	truth    map[string]usage.Event
	next     int
	sequence uint64
	sent     []sent
}

// sent is a batch that may be sent again.
type sent struct {
	batch.Batch
	late bool
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 2)), fs: vfs.NewMem(), key: usage.NewKey([16]byte{1}),
		truth: map[string]usage.Event{}}
	for _, p := range []usage.Product{{Name: "hosts", Kind: usage.Unique, Identity: []string{"host"}},
		{Name: "bytes", Kind: usage.Sum}} {
		if err := p.Complete(); err != nil {
			t.Fatal(err)
		}
		p.Generation = 1
		w.products = append(w.products, &p)
	}
	return w
}

// make makes a counter of what is on the disk.
func (w *world) make() *Counter {
	for _, dir := range []string{"/log", "/state"} {
		if err := w.fs.MkdirAll(dir, 0o700); err != nil {
			w.t.Fatal(err)
		}
	}
	blobs, err := counterstate.NewFolder(w.fs, "/state")
	if err != nil {
		w.t.Fatal(err)
	}
	fs := w.fs
	var copies []*counterstate.Store
	if w.elsewhere != nil {
		other, err := counterstate.NewFolder(w.elsewhere, "/")
		if err != nil {
			w.t.Fatal(err)
		}
		if w.cut {
			copies = append(copies, counterstate.New(counterstate.Config{Blobs: cutOff{other}, PieceBytes: 256}))
		}
		copies = append(copies, counterstate.New(counterstate.Config{Blobs: other, PieceBytes: 256}))
	}
	return New(Config{
		Open: func() (eventlog.Log, error) {
			log, err := embedded.Open(embedded.Config{FS: fs, Dir: "/log", Partitions: 1, SegmentBytes: 1 << 16})
			if err != nil || w.wrap == nil {
				return log, err
			}
			return w.wrap(log), nil
		},
		Store: counterstate.New(counterstate.Config{Blobs: blobs}), Snapshot: cmp.Or(w.every, 15*time.Millisecond),
		Copies: copies, CopyEvery: 20 * time.Millisecond, Name: "s1",
		Key: func(context.Context) (usage.Key, error) { return w.key, nil }, Clock: clock.Real{},
	})
}

func (w *world) start() {
	w.counter = w.make()
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func(c *Counter) { done <- c.Run(ctx) }(w.counter)
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("seed %d: %v", w.seed, err)
		}
	}
	polltest.Until(w.t, w.counter.Warm, "the log to be read")
}

// kill leaves what a killed process, or a power loss, leaves, and begins anew.
func (w *world) kill() {
	after := w.fs.Killed()
	if w.elsewhere != nil {
		w.elsewhere = w.elsewhere.Killed() // what is copied from now on, nobody knows
	}
	if w.r.IntN(2) == 0 {
		after = w.fs.Crash(w.r)
	}
	w.stop()
	w.fs = after
	if w.cut && w.r.IntN(2) == 0 { // the folder is gone: a copy and the log are left
		w.wipe()
	}
	w.start()
}

// wipe empties the folder of snapshots.
func (w *world) wipe() {
	list, err := w.fs.ReadDir("/state")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range list {
		if err := w.fs.Remove("/state/" + e.Name()); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.fs.SyncDir("/state"); err != nil {
		w.t.Fatal(err)
	}
}

// cutOff is a place that lists what it has, and fails when it is asked for the last pieces of it.
type cutOff struct{ counterstate.Blobs }

func (c cutOff) Get(ctx context.Context, name string) ([]byte, error) {
	if counterstate.IsPiece(name) && !strings.HasSuffix(name, "00") {
		return nil, errkind.New(errkind.Denied, "the connection was cut")
	}
	return c.Blobs.Get(ctx, name)
}

// Put implements counterstate.Blobs: the place behind it has what is to be read.
func (c cutOff) Put(context.Context, string, []byte) error {
	return errkind.New(errkind.Denied, "it takes nothing")
}

func (w *world) event(late bool) usage.Event {
	w.next++
	ago := time.Duration(w.r.IntN(int(2 * time.Hour)))
	if late {
		ago = 25 * time.Hour
	}
	return usage.Event{ID: fmt.Sprint(w.next), Source: fmt.Sprint("s", w.r.IntN(2)), Tenant: fmt.Sprint("t", w.r.IntN(2)),
		Product: w.products[w.r.IntN(2)].Name, Time: time.Now().Add(-ago).UnixNano(),
		Identity: []usage.Field{{Name: "host", Value: fmt.Sprint("h", w.r.IntN(60))}},
		Value:    usage.Int(w.r.Int64N(1 << 50)), HasValue: true}
}

// take sends a batch; lost says that the answer does not count, as where the sender went away.
func (w *world) take(b batch.Batch, lost bool) (Verdicts, error) {
	rec := &logrecord.Record{At: time.Now(), Products: w.products, Batch: b}
	observed, err := rec.Observe(w.key)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	if lost {
		cancel()
	}
	defer cancel()
	return w.counter.Take(ctx, Intake{Tenant: observed[0].Tenant, Record: rec, Observed: observed})
}

func (w *world) send() {
	late := w.r.IntN(8) == 0
	b := sent{late: late}
	for range 1 + w.r.IntN(5) {
		b.Events = append(b.Events, w.event(late))
	}
	if w.r.IntN(2) == 0 {
		w.sequence++
		b.Producer, b.Epoch, b.Sequence = "p", 1, w.sequence
	}
	if w.r.IntN(4) == 0 { // nobody hears the answer, and perhaps nobody lives to give it
		if _, err := w.take(b.Batch, true); err != nil && !errkind.Is(err, errkind.Unknown) {
			w.t.Fatalf("seed %d: %v", w.seed, err)
		}
		if w.r.IntN(2) == 0 {
			w.kill()
		}
	}
	got, err := w.take(b.Batch, false)
	if err != nil {
		w.t.Fatalf("seed %d: %v", w.seed, err)
	}
	for i, v := range got.Of {
		if late && v != dedup.Late && v != dedup.Duplicate || !late && v != dedup.New && v != dedup.Duplicate {
			w.t.Fatalf("seed %d: event %d of a batch (late %v) is %v", w.seed, i, late, v)
		}
	}
	for _, e := range b.Events {
		if !late {
			w.truth[e.Tenant+"/"+e.Source+"/"+e.ID] = e
		}
	}
	w.sent = append(w.sent, b)
}

// again sends a former batch once more; one without a producer in other pieces.
func (w *world) again() {
	if len(w.sent) == 0 {
		return
	}
	b := w.sent[w.r.IntN(len(w.sent))]
	if b.Producer == "" {
		b.Events = b.Events[w.r.IntN(len(b.Events)):]
	}
	got, err := w.take(b.Batch, false)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, v := range got.Of {
		if v == dedup.New || !b.late && v != dedup.Duplicate {
			w.t.Fatalf("seed %d: an event that comes again is %v", w.seed, v)
		}
	}
}

// void takes a batch's events of one kind out.
func (w *world) void(id string) {
	if len(w.sent) == 0 {
		return
	}
	e := w.sent[w.r.IntN(len(w.sent))].Events[0]
	c := usage.Correction{ID: id, Kind: usage.Void, Tenant: e.Tenant, Product: e.Product, Source: e.Source,
		IDs:    []string{e.ID},
		Reason: "test"}
	in := Intake{Tenant: e.Tenant, Record: &logrecord.Record{At: time.Now(), Correction: &c}}
	for range 2 { // it is sent again too
		if err := w.counter.Correct(w.t.Context(), in); err != nil {
			w.t.Fatalf("seed %d: %v", w.seed, err)
		}
	}
	delete(w.truth, e.Tenant+"/"+e.Source+"/"+e.ID)
}

func (w *world) judge(step int) {
	now := time.Now()
	span := window.Range{From: now.Add(-30 * time.Hour).Truncate(time.Minute),
		To: now.Add(time.Minute).Truncate(time.Minute)}
	for _, p := range w.products {
		for _, tenant := range []string{"t0", "t1"} {
			want, seen := usage.Quantity{}, map[string]bool{}
			for _, e := range w.truth {
				switch {
				case e.Tenant != tenant || e.Product != p.Name:
				case p.Kind == usage.Unique:
					seen[e.Identity[0].Value] = true
					want = usage.Uint(uint64(len(seen)))
				default:
					want, _ = want.Add(e.Value)
				}
			}
			series := aggregate.Series{Tenant: tenant, Product: p.Name, Generation: 1}
			part := w.counter.Query(series, p, []window.Range{span}, -1)
			if got := part.Slices[0].Total(p.Kind); got.Quantity != want || !got.Exact {
				w.t.Fatalf("seed %d, step %d: %s of %s is %s, want %s\nreplay: go test ./usage/counter -run TestHistories",
					w.seed, step, p.Name, tenant, got.Quantity, want)
			}
		}
	}
}

// TestLostDisk: a counter on a new disk goes on from the copy of its state elsewhere, and knows what was sent before.
func TestLostDisk(t *testing.T) {
	w := newWorld(t, 1)
	w.elsewhere = vfs.NewMem()
	w.start()
	for range 20 {
		w.send()
	}
	w.stop() // a clean end makes a copy
	w.fs = vfs.NewMem()
	w.start()
	w.judge(0)
	for range 20 {
		w.send()
		w.again()
	}
	w.judge(1)
	w.kill()
	w.judge(2)
	w.stop()
}

// TestNextPlace: a place that cuts off a snapshot gives way to the next one, where the log goes on from there. On a new
// disk it does not: it may have a newer copy.
func TestNextPlace(t *testing.T) {
	w := newWorld(t, 3)
	w.elsewhere, w.cut = vfs.NewMem(), true
	w.start()
	for range 30 {
		w.send()
	}
	w.stop() // a clean end makes a copy
	w.wipe()
	w.start()
	w.judge(0)
	for range 10 {
		w.again()
		w.send()
	}
	w.judge(1)
	w.stop()
	w.fs = vfs.NewMem()
	w.counter, w.stop = nil, nil
	if err := w.tryStart(); !errkind.Is(err, errkind.Denied) {
		t.Errorf("it began without asking the first place: %v", err)
	}
}

// tryStart reads the snapshots and the log once, and says why that fails.
func (w *world) tryStart() error {
	c := w.make()
	log, err := c.cfg.Open()
	if err != nil {
		return err
	}
	defer log.Close()
	err = c.load(w.t.Context(), log, &saver{})
	return err
}

// TestHistories: through retries, duplicates, late events, corrections, answers that nobody hears, kills, power losses
// and snapshots that are gone here and cut off there, sums and sets are exactly those of a model.
func TestHistories(t *testing.T) {
	for seed := range uint64(*histories) {
		w := newWorld(t, seed)
		if seed%2 == 1 {
			w.elsewhere, w.cut = vfs.NewMem(), true
		}
		w.start()
		for step := range 120 {
			switch n := w.r.IntN(20); {
			case n < 12:
				w.send()
			case n < 16:
				w.again()
			case n < 18:
				w.void(fmt.Sprint("c", step))
			default:
				w.kill()
			}
			w.judge(step)
		}
		w.stop()
	}
}

// TestKilledAgainSoon: a counter that is killed each time before its next snapshot does not read ever more of its log:
// what a start has read that took long, as corrections do, is saved at once.
func TestKilledAgainSoon(t *testing.T) {
	w := newWorld(t, 3)
	w.every = time.Hour
	snapshots := func() int {
		list, err := w.fs.ReadDir("/state")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	w.start()
	for range 20 {
		w.send()
	}
	w.void("c1")
	crash := func() {
		after := w.fs.Killed()
		w.stop()
		w.fs = after
		w.start()
	}
	if n := snapshots(); n != 0 {
		t.Fatalf("there are %d snapshots before the first start has read anything", n)
	}
	crash()
	polltest.Until(t, func() bool { return snapshots() > 0 }, "what the start has read to be saved")
	w.judge(1)
	w.send()
	crash() // it begins with the snapshot, and has one record to read
	w.judge(2)
	w.stop()
}
