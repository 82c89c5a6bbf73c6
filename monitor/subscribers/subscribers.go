// Package subscribers shows events to those who follow them, as they are stored.
//
// While nobody follows, ingest asks nothing. Each follower has a bounded queue: whoever takes its events more slowly
// than they come is cut off and told so, and neither ingest nor another follower waits for it. Events are shared, and
// put together by whoever reads them.
package subscribers

import (
	"context"
	"sync"
	"sync/atomic"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
)

// Defaults of Config.
const (
	QueueEvents  = 4096
	MaxFollowers = 1000
)

// ErrSlow ends a follower that took its events too slowly.
var ErrSlow = errkind.New(errkind.Overloaded, "events came faster than they were read: this follower missed some")

// Config of a Subscribers. Zero fields mean the defaults.
type Config struct {
	QueueEvents, MaxFollowers int
}

// Filter says which events a follower wants. Empty fields are all.
type Filter struct {
	Namespace, Entity, Check string
	Changes                  bool // such alone as fail, or end an incident
}

func (f *Filter) wants(namespace, entity, check string, out monitor.Outcome) bool {
	return (f.Namespace == "" || f.Namespace == namespace) && (f.Entity == "" || f.Entity == entity) && (f.Check == "" ||
		f.Check == check) &&
		(!f.Changes || out.Incident || out.Resolution)
}

// Subscribers is all followers. All methods may be called from any goroutine.
type Subscribers struct {
	cfg    Config
	attach func(ingest.Tail)

	mu        sync.Mutex // guards changes of followers
	followers atomic.Pointer[[]*Follower]
	cut       atomic.Uint64
}

// New returns a Subscribers without followers; attach is ingest.Ingest.Follow.
func New(cfg Config, attach func(ingest.Tail)) *Subscribers {
	if cfg.QueueEvents == 0 {
		cfg.QueueEvents = QueueEvents
	}
	if cfg.MaxFollowers == 0 {
		cfg.MaxFollowers = MaxFollowers
	}
	t := &Subscribers{cfg: cfg, attach: attach}
	t.followers.Store(new([]*Follower))
	return t
}

// Follower is somebody who follows. Close must be called. Next belongs to one goroutine.
type Follower struct {
	tail   *Subscribers
	filter Filter
	queue  chan *ingest.Published
	slow   chan struct{} // closed when the queue was full
	once   sync.Once
	stop   context.CancelFunc // of who follows other servers; nil where nobody does
	beside sync.WaitGroup
}

// Follow begins. Errors: Overloaded, there are too many followers.
func (t *Subscribers) Follow(filter Filter) (*Follower, error) {
	f := &Follower{tail: t, filter: filter, queue: make(chan *ingest.Published, t.cfg.QueueEvents),
		slow: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *t.followers.Load()
	if len(old) >= t.cfg.MaxFollowers {
		return nil, errkind.Errorf(errkind.Overloaded, "there are %d followers already", len(old))
	}
	next := append(append(make([]*Follower, 0, len(old)+1), old...), f)
	t.followers.Store(&next)
	if len(old) == 0 {
		t.attach(t)
	}
	return f, nil
}

// Close ends following.
func (f *Follower) Close() {
	if f.stop != nil {
		f.stop()
		f.beside.Wait()
	}
	t := f.tail
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *t.followers.Load()
	next := make([]*Follower, 0, len(old))
	for _, other := range old {
		if other != f {
			next = append(next, other)
		}
	}
	t.followers.Store(&next)
	if len(next) == 0 && len(old) > 0 {
		t.attach(nil)
	}
}

// Next waits for an event. Errors: ErrSlow, once what was queued before has been read; the context's.
func (f *Follower) Next(ctx context.Context) (*ingest.Published, error) {
	select {
	case p := <-f.queue:
		return p, nil
	default:
	}
	select {
	case p := <-f.queue:
		return p, nil
	case <-f.slow:
		select {
		case p := <-f.queue:
			return p, nil
		default:
			return nil, ErrSlow
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Wants implements ingest.Tail.
func (t *Subscribers) Wants(namespace, entity, check string, out monitor.Outcome) bool {
	for _, f := range *t.followers.Load() {
		if f.filter.wants(namespace, entity, check, out) {
			return true
		}
	}
	return false
}

// Publish implements ingest.Tail.
func (t *Subscribers) Publish(p *ingest.Published) {
	for _, f := range *t.followers.Load() {
		if f.filter.wants(p.Namespace, p.Entity, p.Check, p.Outcome) {
			f.put(p)
		}
	}
}

// put queues an event; after the first one that found no room there are no more, so that what a follower saw is
// without holes.
func (f *Follower) put(p *ingest.Published) {
	select {
	case <-f.slow:
		return
	default:
	}
	select {
	case f.queue <- p:
	default:
		f.cutOff()
	}
}

func (f *Follower) cutOff() { f.once.Do(func() { close(f.slow); f.tail.cut.Add(1) }) }

// Stats returns how many follow, and how many were cut off since the start.
func (t *Subscribers) Stats() (followers int, cut uint64) {
	return len(*t.followers.Load()), t.cut.Load()
}

// Waiting returns how many events a follower has not read.
func (f *Follower) Waiting() int { return len(f.queue) }
