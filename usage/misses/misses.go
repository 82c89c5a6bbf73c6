// Package misses asks for single keys of parts whose counter is not warm: a key is a series of a tenant and product in
// a range, and who is asked is the server that has the part's copy. So questions about them are answered before the
// bulk of the state is loaded.
//
// What always holds:
//   - A key that many wait for is asked for once. Keys of one part travel together.
//   - What waits is bounded in keys and in time. What is not at hand by then is an error of kind Unavailable: the
//     answer is given without it, and says so.
//   - What comes takes from the host's budget (package pace), like snapshots; the next batch waits until there is room.
//   - What comes is handed to who waits, and kept nowhere: no state takes it in, so nothing is counted twice when the
//     snapshot arrives.
//
// Run owns all goroutines; Get is for any.
package misses

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/pace"
	"corbel.dev/corbel/usage/window"
)

// Key is what is asked for of a part.
type Key struct {
	aggregate.Series
	window.Range
}

// Config of Misses.
type Config struct {
	// Fetch asks for keys of a part, and answers in their order; nil is what is not at hand. It must return when its
	// context ends.
	Fetch func(ctx context.Context, part string, keys []Key) ([][]byte, error)
	Lane  *pace.Lane
	// Batch is how many keys are asked for at once, zero means 64; Queue how many wait, zero means 1024; Workers how many
	// batches are under way, zero means 2.
	Batch, Queue, Workers int
	// Wait bounds how long a key is waited for; zero means 2 s.
	Wait    time.Duration
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *telemetry.Registry
}

// Misses is the owner of the queue. Make one with New.
type Misses struct {
	cfg     Config
	meters  meters
	arrived chan struct{} // has an element when something waits

	mu    sync.Mutex // guards what follows
	queue []*miss    // the oldest first
	known map[asked]*miss
}

// asked is a key of a part.
type asked struct {
	part string
	key  Key
}

// miss is a key that is waited for. data and err are written before done is closed.
type miss struct {
	asked
	since   time.Time
	waiters int // the lock guards it
	done    chan struct{}
	data    []byte
	err     error
}

type meters struct{ asked, coalesced, refused, batches, fetched, failed *telemetry.Counter }

// New makes Misses, and starts nothing.
func New(cfg Config) *Misses {
	cfg.Batch, cfg.Queue = cmp.Or(cfg.Batch, 64), cmp.Or(cfg.Queue, 1024)
	cfg.Workers, cfg.Wait = cmp.Or(cfg.Workers, 2), cmp.Or(cfg.Wait, 2*time.Second)
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	m := &Misses{cfg: cfg, arrived: make(chan struct{}, cfg.Workers), known: map[asked]*miss{}}
	r := cfg.Metrics
	counter := func(name, help string) *telemetry.Counter {
		r.Declare(telemetry.KindCounter, name, help)
		return r.Counter(name)
	}
	m.meters = meters{
		asked:     counter("usage.misses.asked", "Single keys that were wanted of parts that are not warm."),
		coalesced: counter("usage.misses.coalesced", "Of these, those that somebody waited for already."),
		refused:   counter("usage.misses.refused", "Of these, those for which the queue had no room."),
		batches:   counter("usage.misses.batches", "Batches in which single keys were asked for."),
		fetched:   counter("usage.misses.fetched", "Single keys that came."),
		failed:    counter("usage.misses.failed", "Single keys that were not at hand.")}
	r.Declare(telemetry.KindGauge, "usage.misses.waiting", "Single keys that wait to be asked for.")
	r.Declare(telemetry.KindGauge, "usage.misses.oldest_ms", "How long the oldest of them has waited.")
	r.GaugeFunc("usage.misses.waiting", func() float64 { n, _ := m.waiting(); return float64(n) })
	r.GaugeFunc("usage.misses.oldest_ms", func() float64 {
		_, age := m.waiting()
		return float64(age) / float64(time.Millisecond)
	})
	return m
}

// waiting is the length of the queue and the age of what has waited longest.
func (m *Misses) waiting() (n int, age time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) > 0 {
		age = m.cfg.Clock.Since(m.queue[0].since)
	}
	return len(m.queue), age
}

var (
	errFull   = errkind.New(errkind.Unavailable, "usage: too many keys of parts that are warming are waited for")
	errLate   = errkind.New(errkind.Unavailable, "usage: the key was not at hand in time")
	errAbsent = errkind.New(errkind.Unavailable, "usage: no other server has the key at hand")
)

// Get waits for a key of a part.
func (m *Misses) Get(ctx context.Context, part string, key Key) ([]byte, error) {
	one, err := m.join(asked{part, key})
	if err != nil {
		return nil, err
	}
	defer m.leave(one)
	t := m.cfg.Clock.NewTimer(m.cfg.Wait)
	defer t.Stop()
	select {
	case <-one.done:
		return one.data, one.err
	case <-t.C:
		return nil, errLate
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// join finds who waits for a key already, or queues it.
func (m *Misses) join(what asked) (*miss, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.meters.asked.Add(1)
	if one := m.known[what]; one != nil {
		one.waiters++
		m.meters.coalesced.Add(1)
		return one, nil
	}
	if len(m.queue) >= m.cfg.Queue {
		m.meters.refused.Add(1)
		return nil, errFull
	}
	one := &miss{asked: what, since: m.cfg.Clock.Now(), waiters: 1, done: make(chan struct{})}
	m.known[what], m.queue = one, append(m.queue, one)
	m.wake()
	return one, nil
}

// leave forgets a key that nobody waits for any more, where it has not been asked for.
func (m *Misses) leave(one *miss) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if one.waiters--; one.waiters > 0 {
		return
	}
	if at := slices.Index(m.queue, one); at >= 0 {
		m.queue = slices.Delete(m.queue, at, at+1)
		delete(m.known, one.asked)
	}
}

func (m *Misses) wake() {
	select {
	case m.arrived <- struct{}{}:
	default:
	}
}

// Run asks for keys until ctx ends. Whoever waits then is told.
func (m *Misses) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range m.cfg.Workers {
		wg.Go(func() { m.work(ctx) })
	}
	wg.Wait()
	for batch := m.take(); len(batch) > 0; batch = m.take() {
		m.end(batch, nil, errAbsent)
	}
	return nil
}

func (m *Misses) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.arrived:
		}
		if m.cfg.Lane.Load(ctx, 0) != nil { // until what came before is paid for; meanwhile more keys gather
			return
		}
		if batch := m.take(); len(batch) > 0 {
			m.fetch(ctx, batch)
		}
	}
}

// take takes the oldest key, and others of its part.
func (m *Misses) take() (batch []*miss) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) == 0 {
		return nil
	}
	part := m.queue[0].part
	m.queue = slices.DeleteFunc(m.queue, func(one *miss) bool {
		if one.part != part || len(batch) == m.cfg.Batch {
			return false
		}
		batch = append(batch, one)
		return true
	})
	if len(m.queue) > 0 {
		m.wake()
	}
	return batch
}

func (m *Misses) fetch(ctx context.Context, batch []*miss) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Wait)
	defer cancel()
	keys := make([]Key, len(batch))
	for i, one := range batch {
		keys[i] = one.key
	}
	m.meters.batches.Add(1)
	list, err := m.cfg.Fetch(ctx, batch[0].part, keys)
	if err == nil && len(list) != len(batch) {
		err = errkind.Errorf(errkind.Internal, "usage: %d keys were asked for, and %d came", len(batch), len(list))
	}
	if err != nil {
		m.cfg.Log.Debug("usage: single keys of a part that is not warm", "part", batch[0].part, "error", err)
	}
	bytes := 0
	for _, data := range list {
		bytes += len(data)
	}
	m.cfg.Lane.Charge(bytes)
	m.end(batch, list, err)
}

// end tells those who wait.
func (m *Misses) end(batch []*miss, list [][]byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, one := range batch {
		switch {
		case err != nil:
			one.err = err
		case list[i] == nil:
			one.err = errAbsent
		default:
			one.data = list[i]
		}
		if one.err != nil {
			m.meters.failed.Add(1)
		} else {
			m.meters.fetched.Add(1)
		}
		delete(m.known, one.asked)
		close(one.done)
	}
}
