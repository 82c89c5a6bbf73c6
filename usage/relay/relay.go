// Package relay takes usage events on a host and sends them on to servers. A sender is answered when its events are on
// this host's disk, so it does not wait for servers, and does not notice when they are away.
//
// What always holds:
//   - Take answers only when all that it accepted was fsynced. What was accepted is kept until a server has stored it:
//     a buffer that is full refuses to take more (Overloaded), and drops nothing.
//   - An event with an id is never counted twice: this host drops repeats that it remembers, and servers those that it
//     does not, because ids go on with their events. A batch with a producer's name, epoch and sequence goes on as it
//     came, so servers know it, whichever way it comes the next time.
//   - Events without either are merged (usage/merge) and get a name here: the producer Config.Name, an epoch that was
//     made with the folder, and the place in the buffer as the sequence. What such a batch consists of is written down
//     before it is sent, so that it is the same after a crash.
//   - "Seen" is never known before "stored": a request is judged when all before it are on disk, or have failed.
//
// Bounds: Config.MaxBytes on disk, pendingBytes of requests that wait, Config.IDs that are remembered, and one delivery
// at a time. Run owns all goroutines. A Relay is for any goroutine.
package relay

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/batch"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/eventlog/embedded"
	"corbel.dev/corbel/usage/router"
)

// MethodDeliver is the RPC by which an agent hands a batch to a server, MethodProducts the one by which it learns how
// to judge events. Both come with the agent's own token, which needs usage:write on the tenants; the tokens of senders
// were judged by the agent.
const (
	MethodDeliver  = "usage.deliver"
	MethodProducts = "usage.products"
)

const (
	// pendingBytes is what may wait to be written: as much as two of the largest requests.
	pendingBytes = 32 << 20
	// LeastBytes is the smallest buffer on disk: it goes in segments, of which two must fit beside a large request.
	LeastBytes = 32 << 20
)

// Config of a Relay.
type Config struct {
	FS  vfs.FS
	Dir string // its own; made when missing
	// Name is that of this host as a producer, unlike all others'.
	Name string
	// MaxBytes bounds the buffer on disk; zero means 256 MiB, and LeastBytes is the least.
	MaxBytes int64
	// IDs bounds what is remembered against repeats, about 52 bytes each; zero means 500,000. Window is for how long;
	// zero means 24 h.
	IDs    int
	Window time.Duration
	// Gather is how long events wait for company before they are sent; zero means a second.
	Gather time.Duration
	// Product is the definition of a name; it fails with kind NotFound for one that servers do not know, and with another
	// one where nobody can tell.
	Product func(ctx context.Context, name string) (*usage.Product, error)
	// Deliver has a server store a batch. It may be called again with the same batch, after any error.
	Deliver func(ctx context.Context, b *batch.Batch) (router.Answer, error)
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *telemetry.Registry
}

func (c Config) complete() Config {
	c.MaxBytes = cmp.Or(c.MaxBytes, 256<<20)
	c.IDs = cmp.Or(c.IDs, 500_000)
	c.Window = cmp.Or(c.Window, usage.DefaultLate)
	c.Gather = cmp.Or(c.Gather, time.Second)
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Relay is the owner. Make one with New.
type Relay struct {
	cfg    Config
	key    usage.Key // of this process's own memory
	meters *meters

	mu      sync.Mutex // guards what follows
	waiting []*request
	bytes   int           // of them
	arrived chan struct{} // has one element when something waits
	log     eventlog.Log  // nil while none is open
	sent    uint64        // the offset up to which all is stored elsewhere
	oldest  time.Time     // when the oldest event that is still here came; zero where none is
}

// New makes a Relay and starts nothing.
func New(cfg Config) *Relay {
	cfg = cfg.complete()
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // it never fails
	r := &Relay{cfg: cfg, key: usage.NewKey(secret), arrived: make(chan struct{}, 1)}
	r.meters = newMeters(cfg.Metrics)
	return r
}

// Run takes and sends until ctx ends. After a failure of the disk it opens the buffer again.
func (r *Relay) Run(ctx context.Context) error {
	pause := backoff.Backoff{Min: 100 * time.Millisecond, Max: 10 * time.Second}
	for {
		began := r.cfg.Clock.Now()
		err := r.once(ctx)
		r.fail(errkind.E(errkind.Unavailable, "usage: this agent's buffer is not open", err))
		if ctx.Err() != nil {
			return err
		}
		if r.cfg.Clock.Since(began) > time.Minute {
			pause = backoff.Backoff{Min: pause.Min, Max: pause.Max}
		}
		r.cfg.Log.Error("usage: the buffer of events is opened again", "error", err)
		if !r.sleep(ctx, pause.Next()) {
			return nil
		}
	}
}

// sleep waits, and reports whether ctx goes on.
func (r *Relay) sleep(ctx context.Context, d time.Duration) bool {
	t := r.cfg.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// groups of the log: what servers have, what the next delivery consists of, and the epoch in a note.
const (
	groupSent   = "sent"
	groupSealed = "sealed"
	groupEpoch  = "epoch"
)

// once is Run until something fails.
func (r *Relay) once(ctx context.Context) (err error) {
	if err := r.cfg.FS.MkdirAll(r.cfg.Dir, 0o700); err != nil {
		return err
	}
	log, err := embedded.Open(embedded.Config{FS: r.cfg.FS, Dir: r.cfg.Dir, Partitions: 1,
		SegmentBytes: min(8<<20, r.cfg.MaxBytes/8), MaxBytes: r.cfg.MaxBytes, Clock: r.cfg.Clock, Log: r.cfg.Log})
	if err != nil {
		return err
	}
	defer func() {
		r.opened(nil, 0)
		if failed := log.Close(); err == nil {
			err = failed
		}
	}()
	s, err := newSending(ctx, r, log)
	if err != nil {
		return err
	}
	memory, err := r.remember(ctx, log, s.from)
	if err != nil {
		return err
	}
	r.opened(log, s.from)
	var parts life.Group
	parts.Add("buffer", func(ctx context.Context) error { return r.store(ctx, log, memory) })
	parts.Add("deliver", s.run)
	parts.Add("janitor", eventlog.Janitor{Log: log, Groups: []string{groupSent}, Keep: time.Nanosecond,
		Every: time.Second, Clock: r.cfg.Clock, Logger: r.cfg.Log}.Run)
	parts.Add("meters", r.measure)
	return parts.Run(ctx)
}

func (r *Relay) opened(log eventlog.Log, sent uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log, r.sent = log, sent
}

// remember makes the memory against repeats anew, of what servers do not have yet; they know the rest.
func (r *Relay) remember(ctx context.Context, log eventlog.Log, from uint64) (*memory, error) {
	m := r.newMemory()
	bounds, err := log.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	err = scan(ctx, log, from, bounds[0].Next, func(_ uint64, rec *record) error {
		r.aged(rec.at)
		m.replay(rec)
		return nil
	})
	return m, err
}

// aged notes when the oldest event that is still here came.
func (r *Relay) aged(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.oldest.IsZero() {
		r.oldest = at
	}
}

// State is what a Relay has.
type State struct {
	// Records are those that no server has yet; Oldest is when the oldest of them came, zero where there is none.
	Records uint64    `json:"records"`
	Oldest  time.Time `json:"oldest"`
	// Bytes is what the buffer takes, and Most what it may take.
	Bytes int64 `json:"bytes"`
	Most  int64 `json:"max_bytes"`
	Open  bool  `json:"open"`
}

// State tells how much waits.
func (r *Relay) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := State{Oldest: r.oldest, Most: r.cfg.MaxBytes, Open: r.log != nil}
	if r.log == nil {
		return s
	}
	s.Bytes = r.log.Info().Bytes
	if bounds, err := r.log.Bounds(context.Background()); err == nil { // the embedded log answers from memory
		s.Records = bounds[0].Next - min(r.sent, bounds[0].Next)
	}
	return s
}

// Flush returns when servers have all that was accepted before, or ctx ends.
func (r *Relay) Flush(ctx context.Context) {
	for {
		if s := r.State(); s.Open && s.Records == 0 || !r.sleep(ctx, 20*time.Millisecond) {
			return
		}
	}
}

func (r *Relay) newMemory() *memory {
	cfg := dedup.Config{Window: r.cfg.Window, Capacity: r.cfg.IDs}
	return &memory{cfg: cfg, ids: dedup.NewState(cfg), key: r.key}
}
