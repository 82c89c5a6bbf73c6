// Package ingest turns results of checks into what is known of them.
//
// Entities are spread over shards by their names; a shard's state is in memory, under a lock that is held
// for less than a microsecond, by whoever brings a result: nothing is handed over between goroutines, so
// an unchanged result wakes nobody. Changes gather in a batch for each shard; one goroutine commits all batches
// together, and only then is a result stored, published or counted.
//
// Invariants: results of one entity are taken in the order of the calls. What Publish is given is
// durable. What waits to be committed is bounded: beyond it callers wait, which is what
// agents expect of a backend that is behind. A read sees what was taken, durable or not.
package ingest

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/frame"
)

// Shards is into how many parts entities are spread.
const Shards = 256

// Config of an Ingest.
type Config struct {
	// Open opens the store and gives what it holds.
	Open func(eventstore.Loaded) (eventstore.Store, error)
	Log  *slog.Logger
	Now  func() time.Time
	// Policy decides over results, and Sink gets what they led to; nil is Discard. Meter is told how long it took; nil is
	// not told.
	Policy Policy
	Sink   Sink
	Meter  Meter
	// Shared says that other servers have shards too: none is owned before Own. Otherwise all are.
	Shared bool
	// HistoryRuns is how many spans of a check's past are kept, 0 for 100, at most runs.PastMost; HistoryAge after
	// what time they go, 0 for 30 days.
	HistoryRuns int
	HistoryAge  time.Duration
	// Gather is how long the first change waits for others before a commit, 0 for 15 ms.
	Gather time.Duration
	// PendingBytes bounds what waits to be committed, 0 for 16 MiB.
	PendingBytes int64
	// StallAfter is for how long a commit may take before the store counts as stalled, 0 for 3 s.
	StallAfter time.Duration
}

// Ingest holds the state of all shards. All methods may be called from any goroutine.
type Ingest struct {
	cfg     Config
	started time.Time
	hearing
	store  eventstore.Store
	blank  bool          // the store held nothing
	ready  chan struct{} // closed when New is done
	kinds  kinds
	shards [Shards]shard
	frames sync.Pool

	taken []taken // of the newest commit, for use again; Run's
	stall

	admission
	failed atomic.Pointer[error]
	tail   atomic.Pointer[Tail]

	counts
}

// admission bounds what waits to be committed.
type admission struct {
	pending atomic.Int64
	wake    chan struct{} // one token: something waits to be committed
	roomMu  sync.Mutex
	room    chan struct{} // closed and replaced after each commit
}

// counts are what Stats tells.
type counts struct {
	results   atomic.Uint64
	alive     atomic.Uint64
	steady    atomic.Uint64
	published atomic.Uint64
}

// hearing is for how long agents were refused.
type hearing struct {
	// deaf is for how long, in nanoseconds, agents were refused; lastLook is when Watch looked last.
	deaf     atomic.Int64
	lastLook time.Time
}

// stall is what is done while the store takes nothing.
type stall struct {
	// backlog is what gathered while the store was stalled, in order; Run's. hangs says that it is, and wary until when,
	// since born, it is not trusted.
	backlog [][]taken
	born    time.Time
	hangs   atomic.Bool
	wary    atomic.Int64
}

// shard is a part of the entities.
type shard struct {
	number uint16

	mu sync.Mutex
	standing
	slots
	gathering
	sequence uint64
	deadlines
	text []byte // for use again

	progress
}

// standing is what this server does with a shard.
type standing struct {
	owned  bool
	frozen bool  // owned, and takes nothing at the moment
	froze  int64 // the second since which it is
	queued bool  // events of it wait for their turn
	resend bool  // all of it goes to Replicate with the next commit
}

// slots are a shard's entities and checks, by number.
type slots struct {
	byName   map[name]*entity
	entities []*entity // by number; nil is free
	keys     []*key
	freeE    []uint32
	freeK    []uint32
}

// gathering is what the next commit takes.
type gathering struct {
	batch  eventstore.Batch // what gathers
	opened time.Time        // when batch was begun
	spare  eventstore.Batch // the one before it, for use again
	after  []func()         // to be done when the batch is stored
}

// deadlines are when results are missed.
type deadlines struct {
	due    map[int64][]uint32 // numbers of keys by the second at which they are due
	looked int64              // up to which second
}

// progress is how far a shard's changes have come.
type progress struct {
	confirmed uint64        // the sequence that a replica had when the shard was handed over
	stored    atomic.Uint64 // the sequence that is durable
	told      atomic.Uint64 // the sequence up to which Replicate was given everything
}

type name struct{ namespace, entity string }

// entity is one entity and its checks.
type entity struct {
	name
	n uint32
	// the message without the time at which the entity was seen last is what is before head, and from
	// tail on
	head, tail uint32
	message    []byte // replaced, never changed
	sum        uint64 // of the parts, as sumOf has it
	lastSeen   int64
	checks     checks
}

// key is one check on one entity. There are hundreds of thousands, and the collector goes over such as have at most
// 512 bytes in one sweep, and over larger ones one by one, at several times the cost.
type key struct {
	n    uint32
	kind *monitor.Kind
	res  eventstore.Result

	heard  int64 // the second of the newest result that was not our own; 0 since the start
	due    int64 // the second of the next alarm; 0 is never
	listed int64 // where shard.due has it; 0 is nowhere
}

// New opens the store and takes what it holds. Run must be called for anything to be stored.
func New(cfg Config) (*Ingest, error) {
	if cfg.Gather == 0 {
		cfg.Gather = 15 * time.Millisecond
	}
	if cfg.PendingBytes == 0 {
		cfg.PendingBytes = 16 << 20
	}
	if cfg.StallAfter == 0 {
		cfg.StallAfter = 3 * time.Second
	}
	if cfg.HistoryRuns == 0 {
		cfg.HistoryRuns = 100
	}
	if cfg.HistoryAge == 0 {
		cfg.HistoryAge = 30 * 24 * time.Hour
	}
	if cfg.Policy == nil {
		cfg.Policy = Discard{}
	}
	if cfg.Sink == nil {
		cfg.Sink = Discard{}
	}
	in := &Ingest{cfg: cfg, started: cfg.Now(), hearing: hearing{lastLook: cfg.Now()}, stall: stall{born: time.Now()},
		admission: admission{wake: make(chan struct{}, 1),
			room: make(chan struct{})}, ready: make(chan struct{})}
	in.frames.New = func() any { return new(frame.Frame) }
	in.kinds.byStable = map[string]*counted{}
	for i := range in.shards {
		in.shards[i].number = uint16(i)
		in.shards[i].byName = map[name]*entity{}
		in.shards[i].due = map[int64][]uint32{}
		in.shards[i].owned = !cfg.Shared
	}
	var l loading
	store, err := cfg.Open(eventstore.Loaded{Result: l.result, Entity: l.entity, Sequence: l.sequence,
		Late: copies{in}.late})
	if err != nil {
		return nil, err
	}
	defer close(in.ready)
	in.store, in.blank = store, len(l.sequences)+len(l.results)+len(l.entities) == 0
	if err := l.into(in); err != nil {
		return nil, err
	}
	return in, nil
}

// shardOf returns the shard of an entity. The hash must be the same in every process: stores keep numbers that hold it.
func (in *Ingest) shardOf(n name) *shard { return &in.shards[shardNumber(n)] }

func shardNumber(n name) uint16 { return shardOf(n.namespace, n.entity) }

func shardOf[T string | []byte](namespace string, entity T) uint16 {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(namespace) {
		h = (h ^ uint64(namespace[i])) * 1099511628211
	}
	h = (h ^ 0xff) * 1099511628211
	for i := range len(entity) {
		h = (h ^ uint64(entity[i])) * 1099511628211
	}
	h = (h ^ 0xff) * 1099511628211
	return uint16((h ^ h>>32) % Shards)
}

// Frame takes an event as an agent sent it, in protobuf. namespace is the agent's; the entity is the one that the
// event names. ctx bounds the wait for room, Patient where it has no deadline.
//
// Errors: Invalid, what is wrong with the event; Unavailable, nothing can be stored.
func (in *Ingest) Frame(ctx context.Context, namespace string, b []byte) error {
	f := in.frames.Get().(*frame.Frame)
	defer in.frames.Put(f)
	_, err := in.Take(ctx, namespace, b, f, false)
	return err
}

// Take is Frame with a frame for use again, in which the event is cut, and tells which shard the event belongs to
// when that is not taken here: ErrElsewhere. Unless it is the turn of the event, one of a shard for which others wait
// (Queue) is not taken either.
func (in *Ingest) Take(ctx context.Context, namespace string, b []byte, f *frame.Frame, turn bool) (shard uint16,
	err error) {
	w := intake{in}.sampled()
	if err := f.Cut(b); err != nil {
		return 0, errkind.E(errkind.Invalid, "event", err)
	}
	if len(f.Proxy) > 0 {
		message, err := in.cfg.Policy.Proxy(ctx, namespace, string(f.Proxy))
		if err != nil {
			return 0, err
		}
		if message != nil {
			if err := f.SetEntity(message); err != nil {
				return 0, errkind.E(errkind.Invalid, "event", err)
			}
		}
	}
	return intake{in}.take(ctx, namespace, f, turn, w)
}

func (in intake) take(ctx context.Context, namespace string, f *frame.Frame, turn bool, w watch) (uint16, error) {
	if !in.hasRoom() {
		alarms(in).hearEarly(namespace, f)
	}
	if err := in.admit(ctx); err != nil {
		return 0, err
	}
	if !f.HasCheck {
		return 0, in.metrics(namespace, f)
	}
	s := &in.shards[shardOf(namespace, f.Parts.Name)]
	s.mu.Lock()
	if !s.takes() || s.queued && !turn {
		s.mu.Unlock()
		return s.number, ErrElsewhere
	}
	if e := s.byName[name{namespace, string(f.Parts.Name)}]; e != nil {
		if k := find(e.checks, f.Check); k != nil && string(k.kind.Stable) == string(f.Stable) {
			w.begins()
			alarms(in).heard(s, k)
			in.step(s, e, k, f, 0)
			w.ends(in.Ingest)
			s.mu.Unlock()
			return s.number, nil
		}
	}
	s.mu.Unlock()
	return s.number, in.unknown(namespace, s, f)
}

// unknown takes a result of a check that is new, or has another configuration than before.
func (in intake) unknown(namespace string, s *shard, f *frame.Frame) error {
	whole, err := f.Event()
	if err == nil {
		err = whole.Validate()
	}
	if err != nil {
		return errkind.E(errkind.Invalid, "event", err)
	}
	if whole.Entity.Namespace != namespace {
		return errkind.Errorf(errkind.Invalid, "event: its entity is of namespace %q, and its agent of %q",
			whole.Entity.Namespace, namespace)
	}
	kind, err := in.kinds.of(f.Stable)
	if err != nil {
		return errkind.E(errkind.Invalid, "event", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.takes() {
		in.kinds.drop(kind)
		return ErrElsewhere
	}
	e := in.entityOf(s, name{namespace, whole.Entity.Name}, f)
	k := find(e.checks, whole.Check.Name)
	if k == nil {
		k = s.newKey()
		k.res.Key = &eventstore.Key{Namespace: e.namespace, Entity: e.entity, Check: kind.Check.Name}
		e.checks.add(k)
	} else {
		if k.kind.Catalog != kind.Catalog {
			in.statusChanged(s, e)
		}
		in.kinds.drop(k.kind)
	}
	k.kind, k.res.Stable = kind, kind.Stable
	alarms(in).heard(s, k)
	in.step(s, e, k, f, eventstore.Whole)
	return nil
}

// step takes a result to the state of its check. The shard's lock is held.
func (in intake) step(s *shard, e *entity, k *key, f *frame.Frame, what eventstore.News) {
	now := in.cfg.Now().Unix()
	if f.Timestamp == 0 {
		f.Timestamp = now
	}
	var silences []*monitor.Silenced
	if x := in.cfg.Policy.Silences(e.namespace); !x.Empty() {
		silences = x.Of(in.subject(e, k), now)
	}
	fresh := what&eventstore.Whole != 0
	before, was := k.res.State.Silenced, k.res.State.Status
	state, out := monitor.Step(k.res.State, f.Result, k.kind.Thresholds, silences)
	k.res.State = state
	if k.res.Past.Add(f.Status, f.Executed) {
		in.trim(k)
	}
	in.results.Add(1)
	if k.res.Check == monitor.KeepaliveCheck {
		in.alive.Add(1)
	}
	if out.Steady {
		in.steady.Add(1)
	}
	if !slices.Equal(before, state.Silenced) {
		what |= eventstore.NewSilences
	}
	output := f.Output
	if limit := k.kind.Check.MaxOutputSize; limit > 0 && int64(len(output)) > limit {
		f.Rest = append(slices.Clone(f.Rest), truncatedLabel(int64(len(output))-limit)...)
		output = output[:limit]
	}
	switch {
	case s.isBeat(k, output):
		if !k.res.Beat {
			k.res.Output, k.res.Beat = nil, true
			what |= eventstore.NewBeat
		}
	case k.res.Check == monitor.KeepaliveCheck || string(k.res.Output) != string(output):
		// who read the former one may have folded it
		k.res.Output, k.res.Beat = append([]byte(nil), output...), false
		what |= eventstore.NewOutput
	}
	if string(k.res.Hooks) != string(f.Hooks) {
		k.res.Hooks = append([]byte(nil), f.Hooks...)
		what |= eventstore.NewHooks
	}
	if string(k.res.Rest) != string(f.Rest) || k.res.ProcessedBy != string(f.ProcessedBy) {
		k.res.Rest, k.res.ProcessedBy = append([]byte(nil), f.Rest...), e.text(f.ProcessedBy)
		what |= eventstore.Whole
	}
	in.put(s, e, f)
	b := s.open(in.Ingest)
	size := b.Bytes()
	b.Put(eventstore.NumberOf(s.number, k.n), &k.res, what)
	in.changed(s, b, size)
	if !k.kind.Catalog.Empty() && (was != state.Status || fresh) {
		in.statusChanged(s, e)
	}
	if len(out.Lifted) > 0 {
		namespace := e.namespace
		s.after = append(s.after, func() { in.cfg.Sink.Lift(namespace, out.Lifted) })
	}
	if (k.kind.Handled || len(f.Rest) > 0 || f.Metrics != nil) && in.cfg.Policy.Wants(e.namespace, k.kind, out) {
		in.publish(s, e, k, f, out)
	}
	in.tell(s, e, k, f, out)
}

// trim lets spans of the past go that are over the limits. The lock is held.
func (in intake) trim(k *key) {
	k.res.Past.Trim(in.cfg.HistoryRuns, in.cfg.Now().Add(-in.cfg.HistoryAge).Unix())
}

// statusChanged reports an entity, once what was taken so far is stored. The lock is held.
func (in intake) statusChanged(s *shard, e *entity) {
	namespace, entity := e.namespace, e.entity
	s.after = append(s.after, func() { in.cfg.Sink.StatusChanged(namespace, entity) })
}

// truncatedLabel is what is added to an event whose output was cut, as a part of its message.
func truncatedLabel(cut int64) []byte {
	return tagproto.Append(nil,
		&monitor.Event{Meta: monitor.Meta{Labels: map[string]string{"sensu.io/output_truncated_bytes": strconv.FormatInt(cut,
			10)}}})
}

// put keeps what the event says of its entity, where that is new.
func (in intake) put(s *shard, e *entity, f *frame.Frame) {
	if f.Entity == nil || e.is(f.Parts) {
		return
	}
	e.set(append([]byte(nil), f.Entity...))
	b := s.open(in.Ingest)
	size := b.Bytes()
	b.PutEntity(eventstore.NumberOf(s.number, e.n), &eventstore.Entity{Namespace: e.namespace, Name: e.entity,
		Message: e.message, LastSeen: e.lastSeen})
	in.changed(s, b, size)
}

// changed counts a change of a batch that had size bytes before, and asks for a commit.
func (in intake) changed(s *shard, b eventstore.Batch, size int) {
	s.sequence++
	in.pending.Add(int64(b.Bytes() - size))
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// patience is how long an event waits whose sender did not say.
const patience = 30 * time.Second

// Patient gives a context without a deadline one, for the rare event that has to wait.
func Patient(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, patience)
}

// hasRoom reports whether another change may be made at once.
func (in intake) hasRoom() bool {
	return in.failed.Load() == nil && in.pending.Load() < in.cfg.PendingBytes
}

// admit waits until there is room for another change.
func (in intake) admit(ctx context.Context) error {
	if in.hasRoom() {
		return nil
	}
	ctx, cancel := Patient(ctx)
	defer cancel()
	for {
		if err := in.failed.Load(); err != nil {
			return errkind.E(errkind.Unavailable, "events cannot be stored", *err)
		}
		in.roomMu.Lock()
		room := in.room
		in.roomMu.Unlock()
		if in.pending.Load() < in.cfg.PendingBytes {
			return nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return errkind.E(errkind.Overloaded, "events come faster than they are stored", ctx.Err())
		}
	}
}
