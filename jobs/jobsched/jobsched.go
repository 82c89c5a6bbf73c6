package jobsched

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/heartbeat"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/life"
)

// Group is the plane's Raft group, as far as the leader's work asks it.
type Group interface {
	LeaseHeld() bool
	LeaderChanges() <-chan struct{}
}

// Config is what a Sched needs. Zero means the default.
type Config struct {
	Group   Group
	Store   func() *jobstore.View
	Propose func(ctx context.Context, c *jobstore.Command) (*jobstore.Result, error)
	Clock   clock.Clock
	Log     *slog.Logger
	Meters  *Meters
	Workers int           // 1
	Window  time.Duration // in which gains and what is to be stored are collected; 25 ms
	History History
	Beats   heartbeat.Config
}

// The bounds of a pass.
const (
	MaxEvals      = 512
	MaxPlacements = 20_000
)

// Sched is the leader's work.
type Sched struct {
	cfg  Config
	term atomic.Pointer[term] // nil while another server leads
}

// New makes a Sched.
func New(cfg Config) *Sched {
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Meters == nil {
		cfg.Meters = NewMeters(nil)
	}
	if cfg.Workers == 0 {
		cfg.Workers = 1
	}
	if cfg.Window == 0 {
		cfg.Window = 25 * time.Millisecond
	}
	cfg.History.complete()
	return &Sched{cfg: cfg}
}

// Leads reports whether this server's term runs.
func (s *Sched) Leads() bool { return s.term.Load() != nil }

// Applied is jobstore.Config.Applied. changes is nil when a snapshot replaced everything.
func (s *Sched) Applied(_, after *jobstore.View, changes []jobstore.Changed) {
	t := s.term.Load()
	if t == nil {
		return
	}
	if changes == nil {
		t.cancel() // the next term begins with what the snapshot has
		return
	}
	t.changed(after, changes)
}

// Beat notes heartbeats. False when this server does not lead.
func (s *Sched) Beat(ids []jobs.ID) (every time.Duration, unknown []jobs.ID, ok bool) {
	t := s.term.Load()
	if t == nil {
		return 0, nil, false
	}
	return t.beat(ids)
}

// Every is how often nodes are to beat now.
func (s *Sched) Every() time.Duration {
	if t := s.term.Load(); t != nil {
		t.beats.Lock()
		defer t.beats.Unlock()
		return t.beats.Every()
	}
	return heartbeat.New(s.cfg.Beats).Every()
}

// Collect sweeps what is over, however young.
func (s *Sched) Collect(ctx context.Context) error {
	return s.sweep(ctx, true)
}

func (s *Sched) now() jobs.Time { return jobs.Time(s.cfg.Clock.Now().UnixNano()) }

// Seed is chance for a command or a pass.
func Seed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.LittleEndian.Uint64(b[:])
}

// head begins a command.
func (s *Sched) head(kind string) jobstore.Head {
	return jobstore.Head{Now: s.now(), Seed: Seed(), Kind: kind}
}

// leaseCheck is how often a leader that is new looks whether it holds the lease.
const leaseCheck = 20 * time.Millisecond

// Run works in terms until ctx ends.
func (s *Sched) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		changes := s.cfg.Group.LeaderChanges()
		if s.cfg.Group.LeaseHeld() {
			s.lead(ctx)
			continue
		}
		t := s.cfg.Clock.NewTimer(leaseCheck)
		select {
		case <-ctx.Done():
		case <-changes:
		case <-t.C:
		}
		t.Stop()
	}
	return nil
}

// lead runs one term.
func (s *Sched) lead(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := newTerm(s, cancel)
	// From here on Applied collects; what it tells of before the View that begin reads is told twice, which is nothing
	// new.
	s.term.Store(t)
	defer s.term.Store(nil)
	t.begin(s.cfg.Store())
	s.cfg.Log.Info("this server leads the jobs plane", "evaluations", t.stats().Ready, "blocked", t.stats().Blocked)
	var parts life.Group
	parts.Add("term", func(ctx context.Context) error { defer cancel(); return t.watchLease(ctx) })
	for range s.cfg.Workers {
		parts.Add("worker", t.work)
	}
	parts.Add("flush", t.flushLoop)
	parts.Add("queue clock", t.tickLoop)
	parts.Add("deployments", t.rolloutLoop)
	parts.Add("drains", t.drainLoop)
	parts.Add("periodic jobs", t.launchLoop)
	parts.Add("heartbeats", t.beatLoop)
	parts.Add("sweeper", func(ctx context.Context) error { return s.sweepLoop(ctx) })
	if err := parts.Run(ctx); err != nil && ctx.Err() == nil {
		s.cfg.Log.Error("the jobs plane's leader stopped a term", "error", err)
	}
	if ctx.Err() == nil {
		s.cfg.Log.Info("another server leads the jobs plane")
	}
}

// watchLease ends the term when this server leads no more.
func (t *term) watchLease(ctx context.Context) error {
	s := t.s
	for ctx.Err() == nil {
		changes := s.cfg.Group.LeaderChanges()
		if !s.cfg.Group.LeaseHeld() {
			return nil
		}
		timer := s.cfg.Clock.NewTimer(time.Second)
		select {
		case <-ctx.Done():
		case <-changes:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// locked is a value with its lock.
type locked[T any] struct {
	sync.Mutex
	v T
}
