package topic

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
)

// ErrReset tells a follower that events are missing: it must read the state
// anew and follow from that state's index.
var ErrReset = errors.New("topic: events before this are gone; read the state anew")

// ErrClosed tells a follower that the streams have ended.
var ErrClosed = errors.New("topic: closed")

// Event is one change, encoded once. Bytes is shared by all and must not be changed.
type Event struct {
	Index uint64
	Bytes []byte
}

// StreamConfig bounds each subject's ring. Zero means the default.
type StreamConfig struct {
	MaxEvents int           // 4,096
	MaxBytes  int           // 1 MiB; one larger event is kept alone
	MaxAge    time.Duration // 60 s; also how long a ring outlives its last follower
	Clock     clock.Clock
}

func (c *StreamConfig) complete() {
	if c.MaxEvents <= 0 {
		c.MaxEvents = 4096
	}
	if c.MaxBytes <= 0 {
		c.MaxBytes = 1 << 20
	}
	if c.MaxAge <= 0 {
		c.MaxAge = 60 * time.Second
	}
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
}

// Streams holds a ring of events for each subject that is, or lately was,
// followed. Publish must be called by one goroutine, in index order; everything
// else is safe for concurrent use.
type Streams[K comparable] struct {
	cfg    StreamConfig
	seed   maphash.Seed
	live   atomic.Int64
	shards [shardCount]streamShard[K]
}

// streamShard's lock guards the map and is taken before a ring's lock, never after.
type streamShard[K comparable] struct {
	mu    sync.Mutex
	rings map[K]*ring
}

// ring is the events of one subject, oldest first.
type ring struct {
	mu sync.Mutex
	// floor: every event of the subject after this index is in the list.
	floor     uint64
	events    []Event
	times     []time.Time
	base      uint64 // sequence number of events[0]
	bytes     int
	more      chan struct{} // closed by the next append; nil when nobody waits
	followers int
	idleSince time.Time
	closed    error
}

// NewStreams returns Streams without followers.
func NewStreams[K comparable](cfg StreamConfig) *Streams[K] {
	cfg.complete()
	s := &Streams[K]{cfg: cfg, seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].rings = make(map[K]*ring)
	}
	return s
}

func (s *Streams[K]) shard(key K) *streamShard[K] {
	return &s.shards[maphash.Comparable(s.seed, key)%shardCount]
}

// Len is the number of subjects that have a ring.
func (s *Streams[K]) Len() int { return int(s.live.Load()) }

// Followed tells whether an event of key would be kept: ask before encoding it.
func (s *Streams[K]) Followed(key K) bool {
	if s.live.Load() == 0 {
		return false
	}
	shard := s.shard(key)
	shard.mu.Lock()
	_, ok := shard.rings[key]
	shard.mu.Unlock()
	return ok
}

// Publish appends an event to the subject's ring, if there is one. The bytes
// belong to the ring from now on.
func (s *Streams[K]) Publish(key K, e Event) {
	shard := s.shard(key)
	shard.mu.Lock()
	r := shard.rings[key]
	shard.mu.Unlock()
	if r == nil {
		return
	}
	now := s.cfg.Clock.Now()
	r.mu.Lock()
	r.events, r.times = append(r.events, e), append(r.times, now)
	r.bytes += len(e.Bytes)
	r.trimLocked(&s.cfg, now)
	more := r.more
	r.more = nil
	r.mu.Unlock()
	if more != nil {
		close(more)
	}
}

// trimLocked drops the oldest events until the ring is within its bounds; the
// newest event always stays.
func (r *ring) trimLocked(cfg *StreamConfig, now time.Time) {
	n := 0
	for n < len(r.events)-1 {
		if len(r.events)-n <= cfg.MaxEvents && r.bytes <= cfg.MaxBytes && now.Sub(r.times[n]) <= cfg.MaxAge {
			break
		}
		r.bytes -= len(r.events[n].Bytes)
		r.floor = r.events[n].Index
		r.events[n] = Event{} // the array lives on for a while: let go of the bytes
		n++
	}
	if n > 0 {
		r.events, r.times, r.base = r.events[n:], r.times[n:], r.base+uint64(n)
	}
}

// Sweep drops the rings that nobody has followed for MaxAge. Call it now and then.
func (s *Streams[K]) Sweep() {
	now := s.cfg.Clock.Now()
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.Lock()
		for key, r := range shard.rings {
			r.mu.Lock()
			idle := r.followers == 0 && now.Sub(r.idleSince) > s.cfg.MaxAge
			r.mu.Unlock()
			if idle {
				delete(shard.rings, key)
				s.live.Add(-1)
			}
		}
		shard.mu.Unlock()
	}
}

// Reset ends every subscription with err (ErrReset or ErrClosed) and forgets all events.
func (s *Streams[K]) Reset(err error) {
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.Lock()
		old := shard.rings
		shard.rings = make(map[K]*ring)
		s.live.Add(-int64(len(old)))
		shard.mu.Unlock()
		for _, r := range old {
			r.mu.Lock()
			r.closed = err
			if r.more != nil {
				close(r.more)
				r.more = nil
			}
			r.mu.Unlock()
		}
	}
}

// Subscription is one follower's place in a ring. It belongs to one goroutine.
type Subscription struct {
	ring  *ring
	clock clock.Clock
	since uint64
	next  uint64 // sequence number of the event to read next
	reset bool
	done  bool
}

// Follow subscribes to the events of key after index since. newest is asked,
// once the ring exists, for the index up to which everything is visible: a
// ring that begins now holds every event after it. When the events after since
// are gone the first Next gives ErrReset.
func (s *Streams[K]) Follow(key K, since uint64, newest func() uint64) *Subscription {
	shard := s.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	r := shard.rings[key]
	if r == nil {
		r = &ring{}
		shard.rings[key] = r
		s.live.Add(1)
		r.floor = newest()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.followers++
	sub := &Subscription{ring: r, clock: s.cfg.Clock, since: since, next: r.base, reset: since < r.floor}
	for _, e := range r.events {
		if e.Index > since {
			break
		}
		sub.next++
	}
	return sub
}

// Next waits for the next event. After ErrReset, ErrClosed or the end of ctx
// the subscription is over; Close it.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	for {
		event, more, err := s.poll()
		if more == nil {
			return event, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}

// poll returns the next event, an error, or a channel that is closed when it is worth polling again.
func (s *Subscription) poll() (Event, <-chan struct{}, error) {
	r := s.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed != nil:
		return Event{}, nil, r.closed
	case s.reset || s.next < r.base:
		s.reset = true
		return Event{}, nil, ErrReset
	}
	for s.next < r.base+uint64(len(r.events)) {
		e := r.events[s.next-r.base]
		s.next++
		if e.Index > s.since { // an event may come after its state was seen
			return e, nil, nil
		}
	}
	if r.more == nil {
		r.more = make(chan struct{})
	}
	return Event{}, r.more, nil
}

// Close gives the place back; it may be called more than once.
func (s *Subscription) Close() {
	if s.done {
		return
	}
	s.done = true
	s.ring.mu.Lock()
	defer s.ring.mu.Unlock()
	if s.ring.followers--; s.ring.followers == 0 {
		s.ring.idleSince = s.clock.Now()
	}
}
