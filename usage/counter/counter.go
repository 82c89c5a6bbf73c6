// Package counter owns what one server has counted: its log of events, what has been seen, and what that adds up to.
//
// What always holds:
//   - Take answers only when the events are durable in the log and counted: "seen" is never known before "stored".
//   - The state is a function of the log's records, in their order. A start loads the newest snapshot and applies what
//     stands behind it; the same answers come out.
//   - After a write whose outcome is unknown nothing is taken until the log has been opened and read again.
//   - A correction reads the log beside everything else, and clears and counts again in one step. Until then snapshots
//     and exports wait, for they would have records behind it, and not what it does.
//   - Who stores has the turn, and waits for other servers and the disk with it; the role is behind a lock that is held
//     for moments, so that it can be asked and changed meanwhile.
//   - What waits is bounded in bytes, with a share for each tenant (limits.Fair); what does not fit is refused with an
//     error of kind Overloaded, and nothing of it is stored.
//
// Run owns all goroutines: one appends what has gathered, one applies in the order of the log and answers, one saves
// snapshots, and one at a time corrects. All other methods are for any goroutine.
package counter

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/limits"
	"corbel.dev/corbel/usage/logrecord"
	"corbel.dev/corbel/usage/pace"
)

// Group is the name under which the counter commits how far it has come.
const Group = "counter"

// SnapshotName is that of its snapshots in its own store.
const SnapshotName = "counter"

// Config of a Counter.
type Config struct {
	// Open opens the log, once at the start and again after a failure. It has one partition.
	Open  func() (eventlog.Log, error)
	Store *counterstate.Store
	// Copies are other places to which snapshots go, too, each CopyEvery (zero means 5 min) and at a clean end. They are
	// asked where Store has none: in another folder, or on another server. Name is whose snapshots these are.
	Copies    []*counterstate.Store
	CopyEvery time.Duration
	Name      string
	// Key waits for the key of all hashes.
	Key       func(ctx context.Context) (usage.Key, error)
	Dedup     dedup.Config
	Aggregate aggregate.Config
	// Follows has the counter begin as one that takes nothing but what Feed gives it, until Lead is called.
	Follows bool
	// Signal is told of changes; nil is one of its own. Counters of several parts share one.
	Signal *Signal
	// QueueBytes bounds what waits to be stored; zero means 64 MiB. A tenant has a quarter.
	QueueBytes int
	// Snapshot is how often the state is saved; zero means a minute.
	Snapshot time.Duration
	// Keep is how long records stay in the log; zero means a week.
	Keep    time.Duration
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *telemetry.Registry
}

// Counter is the owner. Make one with New.
type Counter struct {
	cfg   Config
	meter meters

	queueMu sync.Mutex // guards queue, door, ages
	queue   *limits.Fair[*waiting]
	door    door
	ages    ages
	arrived chan struct{} // has one element when something waits

	role role
	jobs sync.WaitGroup // corrections under way

	mu      sync.Mutex // guards state and log; held while records are applied
	state   *state
	log     eventlog.Log
	warm    atomic.Bool // all of the log has been applied
	pending atomic.Int64
	encoded atomic.Int64 // about how many bytes a snapshot has
}

type meters struct {
	accepted, duplicate, late, refused *telemetry.Counter
	append, apply                      *telemetry.Timing
	log                                *telemetry.Counter // bytes of warm-ups that came from the log
}

// New makes a Counter and starts nothing.
func New(cfg Config) *Counter {
	cfg.QueueBytes = cmp.Or(cfg.QueueBytes, 64<<20)
	cfg.Snapshot = cmp.Or(cfg.Snapshot, time.Minute)
	cfg.Keep = cmp.Or(cfg.Keep, 7*24*time.Hour)
	cfg.CopyEvery = cmp.Or(cfg.CopyEvery, 5*time.Minute)
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Signal == nil {
		cfg.Signal = NewSignal(cfg.Clock.Now())
	}
	c := &Counter{cfg: cfg, queue: newQueue(cfg.QueueBytes), arrived: make(chan struct{}, 1), state: newState(cfg),
		door: door{opened: make(chan struct{})}, role: newRole()}
	m := cfg.Metrics
	c.meter = meters{accepted: m.Counter("usage.events.accepted"), duplicate: m.Counter("usage.events.duplicate"),
		late: m.Counter("usage.events.late"), refused: m.Counter("usage.events.refused"),
		append: m.Timing("usage.log.append"), apply: m.Timing("usage.counter.apply"),
		log: m.Counter(pace.LoadedBytes, "from", "log")}
	return c
}

func newQueue(bytes int) *limits.Fair[*waiting] {
	return limits.NewFair[*waiting](bytes, bytes/4, 256<<10)
}

// Backlog is how many bytes of events wait to be stored or applied.
func (c *Counter) Backlog() int64 { return c.pending.Load() }

// Warm says whether everything that is stored has been counted since the start.
func (c *Counter) Warm() bool { return c.warm.Load() }

// Version grows with each change of what has been counted.
func (c *Counter) Version() uint64 { return c.cfg.Signal.Version() }

// Changed is closed with the next change.
func (c *Counter) Changed() <-chan struct{} { return c.cfg.Signal.Changed() }

// Intake is a batch that the router has checked: each event is understood by a product.
type Intake struct {
	// Tenant is whose turn of the queue it takes: of the first event.
	Tenant   string
	Record   *logrecord.Record
	Observed []usage.Observation
}

// Verdicts are what became of the events of an Intake, in their order.
type Verdicts struct {
	Offset uint64
	Of     []dedup.Verdict
}

// waiting is an Intake on its way. outcome and err are written by the goroutine that closes done.
type waiting struct {
	Intake
	data    []byte
	since   time.Time
	offset  uint64
	outcome Verdicts
	err     error
	done    chan struct{}
}

func (w *waiting) end(err error) {
	w.err = err
	close(w.done)
}

// errStarting is the answer while the log is being read.
var errStarting = errkind.New(errkind.Unavailable, "usage: the log is being read: send the events again")

// errNotTaken is the answer where events are certainly not stored: they may go to whoever leads next.
var errNotTaken = errkind.New(errkind.NotLeader, "usage: this server does not count these events now: send them again")

// errFull is the answer where the queue has no room.
var errFull = errkind.New(errkind.Overloaded, "usage: too many events wait to be stored: send them again later")

// Take stores a batch and counts it. After an error of kind Unknown or Unavailable it may be stored: the sender sends
// it again. After one of kind NotLeader it is not.
func (c *Counter) Take(ctx context.Context, in Intake) (Verdicts, error) {
	w := &waiting{Intake: in, data: logrecord.Append(nil, in.Record), done: make(chan struct{})}
	if len(w.data) > eventlog.MaxEntryBytes {
		return Verdicts{}, errkind.Errorf(errkind.TooLarge, "usage: a batch has %d bytes, the most is %d", len(w.data),
			eventlog.MaxEntryBytes)
	}
	if err := c.push(w); err != nil {
		return Verdicts{}, err
	}
	select {
	case <-w.done:
		return w.outcome, w.err
	case <-ctx.Done():
		return Verdicts{}, errkind.E(errkind.Unknown, "usage: the events may be stored", ctx.Err())
	}
}

func (c *Counter) push(w *waiting) error {
	c.queueMu.Lock()
	defer c.queueMu.Unlock()
	if !c.door.open {
		return errNotTaken
	}
	if !c.queue.Push(w.Tenant, len(w.data), w) {
		c.meter.refused.Add(uint64(len(w.Observed)))
		return errFull
	}
	c.pending.Add(int64(len(w.data)))
	c.ages.add(w, c.cfg.Clock.Now())
	select {
	case c.arrived <- struct{}{}:
	default:
	}
	return nil
}

// gather takes what has arrived, up to what one Append may have.
func (c *Counter) gather() (list []*waiting) {
	c.queueMu.Lock()
	defer c.queueMu.Unlock()
	for bytes := 0; bytes < maxAppend && len(list) < maxTogether; {
		_, w, ok := c.queue.Pop()
		if !ok {
			return list
		}
		bytes += len(w.data)
		list = append(list, w)
	}
	select { // more may be left
	case c.arrived <- struct{}{}:
	default:
	}
	return list
}

const (
	maxAppend   = 4 << 20 // with one entry more below what a log takes at once
	maxTogether = 4096
)

// shut refuses what comes, and what waits.
func (c *Counter) shut() {
	c.queueMu.Lock()
	c.door.set(false)
	queue := c.queue
	c.queue = newQueue(c.cfg.QueueBytes)
	c.queueMu.Unlock()
	for {
		_, w, ok := queue.Pop()
		if !ok {
			return
		}
		c.pending.Add(-int64(len(w.data)))
		w.end(errNotTaken)
	}
}
