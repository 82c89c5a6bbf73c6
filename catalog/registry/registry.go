package registry

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/topic"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/telemetry"
)

// Proposer is the log: *group.Group, or a fake in tests.
type Proposer interface {
	// Propose returns what ApplyBatch gave for the command, once it is committed and applied.
	Propose(ctx context.Context, cmd []byte) (any, error)
	VerifyLeader(ctx context.Context) error
	LeaseHeld() bool
	IsLeader() bool
	Leader() (id, addr string)
	LastContact() time.Duration
	// LeaderChanges is closed and replaced at each change.
	LeaderChanges() <-chan struct{}
}

// Config says what a Registry is made of. Zero values mean the defaults that are named.
type Config struct {
	// Proposer may be set later with SetProposer: the group needs the Registry first.
	Proposer Proposer
	// Fsyncs counts the fsyncs of the log so far, for the account of what requests cost; nil: not counted.
	Fsyncs func() uint64
	// Members is the gossip pool; nil: nodes are registered by hand only.
	Members Members
	// NodeName is this server's name in the pool: the leader never deregisters itself.
	NodeName   string
	Datacenter string // "dc1"
	// Version is the product's version for the metadata of nodes whose member tags tell none.
	Version string

	ReconcileInterval time.Duration // 60 s
	TombstoneTTL      time.Duration // 15 min
	TombstoneStep     time.Duration // 30 s
	ProposeTimeout    time.Duration // 10 s, for the leader's own proposals
	Stream            topic.StreamConfig

	Clock   clock.Clock
	Logger  *slog.Logger
	Metrics *telemetry.Registry
}

func (c *Config) complete() {
	set := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	set(&c.ReconcileInterval, 60*time.Second)
	set(&c.TombstoneTTL, 15*time.Minute)
	set(&c.TombstoneStep, 30*time.Second)
	set(&c.ProposeTimeout, 10*time.Second)
	if c.Datacenter == "" {
		c.Datacenter = "dc1"
	}
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.Stream.Clock == nil {
		c.Stream.Clock = c.Clock
	}
}

// Registry is the replicated catalog.
type Registry struct {
	cfg      Config
	proposer Proposer
	meters   *meters
	charged  uint64 // fsyncs accounted for; owned by the applying goroutine

	state   atomic.Pointer[statestore.State]
	watched watching

	past     restores
	stopped  chan struct{} // closed when Run begins to end
	stopOnce sync.Once
	onApply  []func(*statestore.State, *catalog.Changes)

	applied appliedTimes
	delays  lockDelays
	ttl     *ttlTimers
	leases  leases
	members reconciler
}

// watching is who waits for changes.
type watching struct {
	waiters  *topic.Waiters[Subject]
	prefixes topic.Lengths // lengths of the watched prefixes
	streams  *topic.Streams[Subject]
	followed topic.Lengths // lengths of the followed prefixes; they stay until the process ends
}

// restores is what readers must know of restores.
type restores struct {
	// restored is closed and replaced when the State is replaced by a snapshot.
	restored   atomic.Pointer[chan struct{}]
	generation atomic.Uint64
	// outdone is the highest index that a restore of an older snapshot took away: clients may still hold it.
	outdone atomic.Uint64
}

// New builds a Registry with an empty State. It starts nothing.
func New(cfg Config) (*Registry, error) {
	cfg.complete()
	r := &Registry{
		cfg: cfg, proposer: cfg.Proposer,
		watched: watching{waiters: topic.NewWaiters[Subject](), streams: topic.NewStreams[Subject](cfg.Stream)},
		stopped: make(chan struct{}), ttl: newTTLTimers(cfg.Clock),
	}
	r.members = reconciler{r, newMemberList(cfg.Clock)}
	r.delays.clock, r.leases.clock = cfg.Clock, cfg.Clock
	r.state.Store(statestore.Empty())
	generation := make(chan struct{})
	r.past.restored.Store(&generation)
	r.meters = newMeters(r, cfg.Metrics)
	return r, nil
}

// SetProposer gives the log; before Run and before the first request.
func (r *Registry) SetProposer(p Proposer) { r.proposer = p }

// State is the newest applied State.
func (r *Registry) State() *statestore.State { return r.state.Load() }

// Generation grows with each Restore. Indexes of one generation say nothing
// about another. Read it before State: what is made of the pair is then never
// found under a later generation than its State's.
func (r *Registry) Generation() uint64 { return r.past.generation.Load() }

// Counts tells how much the catalog holds.
func (r *Registry) Counts() statestore.Counts { return r.State().Counts() }

// Watched tells how many subjects are waited for and how many are followed.
func (r *Registry) Watched() (waited, followed int) {
	return r.watched.waiters.Len(), r.watched.streams.Len()
}

// Run does the leader's duties and the housekeeping until ctx ends. Then it
// lets all waiters go and ends all subscriptions.
func (r *Registry) Run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { r.keepHouse(ctx) })
	group.Go(func() { r.followLeadership(ctx) })
	group.Go(func() { r.members.follow(ctx) })
	<-ctx.Done()
	r.stopOnce.Do(func() { close(r.stopped) })
	r.watched.streams.Reset(topic.ErrClosed)
	group.Wait()
	return nil
}

// keepHouse forgets what has run out of time.
func (r *Registry) keepHouse(ctx context.Context) {
	timer := r.cfg.Clock.NewTimer(10 * time.Second)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			r.watched.streams.Sweep()
			r.delays.sweep()
			timer.Reset(10 * time.Second)
		}
	}
}
