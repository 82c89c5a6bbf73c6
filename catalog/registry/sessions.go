package registry

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// CreateSession stores a session under a new ID, which it returns.
func (r *Registry) CreateSession(ctx context.Context, s catalog.Session) (string, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return "", errkind.E(errkind.Internal, "make session id", err)
	}
	s.ID = id.String()
	result, err := r.Apply(ctx, &catalog.SessionCreate{Session: s})
	if err == nil {
		err = result.Err
	}
	if err != nil {
		return "", err
	}
	return s.ID, nil
}

// RenewSession puts off a session's expiry and returns the session. It writes
// nothing to the log. An unknown session gives an error of kind NotFound.
func (r *Registry) RenewSession(ctx context.Context, id string) (*catalog.Session, error) {
	start := time.Now()
	if _, err := r.Read(ctx, Default); err != nil {
		return nil, err
	}
	s := r.State().Session(id)
	if s == nil || !r.ttl.renew(s) {
		return nil, errkind.Errorf(errkind.NotFound, "Session id '%s' not found", id)
	}
	r.meters.renew.Observe(time.Since(start))
	return s, nil
}

// DestroySession ends a session; one that is not there is no error.
func (r *Registry) DestroySession(ctx context.Context, id string) error {
	result, err := r.Apply(ctx, &catalog.SessionDestroy{ID: id})
	if err == nil {
		err = result.Err
	}
	return err
}

// ttlOf is the session's TTL, 0 for none.
func ttlOf(s *catalog.Session) time.Duration {
	d, err := time.ParseDuration(s.TTL)
	if err != nil || d < 0 {
		return 0
	}
	return d
}

// ttlTimers holds the deadlines of the sessions with a TTL while this server
// leads: twice the TTL after the last renewal. A renewal only moves a deadline;
// the heap finds out when the entry comes up. One goroutine waits for the earliest.
// Times are counted from base by the monotonic clock.
type ttlTimers struct {
	clock   clock.Clock
	base    time.Time
	mu      sync.Mutex // guards all below
	leading bool
	byID    map[string]*ttlEntry
	ending  map[string]struct{} // their end is being proposed: they cannot be renewed any more
	due     ttlHeap
	notify  chan struct{} // capacity 1: the earliest deadline may be earlier than thought
}

type ttlEntry struct {
	id       string
	deadline time.Duration
	at       time.Duration // its place in the heap: never after deadline
	gone     bool
}

type ttlHeap []*ttlEntry

func (h ttlHeap) Len() int           { return len(h) }
func (h ttlHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h ttlHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *ttlHeap) Push(x any) { *h = append(*h, x.(*ttlEntry)) }

// Pop implements heap.Interface.
func (h *ttlHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}

func newTTLTimers(c clock.Clock) *ttlTimers {
	return &ttlTimers{clock: c, base: c.Now(), notify: make(chan struct{}, 1)}
}

func (t *ttlTimers) now() time.Duration { return t.clock.Since(t.base) }

func (t *ttlTimers) active() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID)
}

// lead starts all timers at twice the TTL; changes that are applied from now on are noted too.
func (t *ttlTimers) lead(state func() *statestore.State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leading = true
	t.startLocked(state())
}

func (t *ttlTimers) startLocked(s *statestore.State) {
	t.byID, t.ending, t.due = make(map[string]*ttlEntry), make(map[string]struct{}), nil
	for session := range s.Sessions() {
		t.putLocked(session)
	}
}

func (t *ttlTimers) follow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leading, t.byID, t.ending, t.due = false, nil, nil, nil
}

// replaced starts over after a restore.
func (t *ttlTimers) replaced(s *statestore.State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leading {
		t.startLocked(s)
	}
}

func (t *ttlTimers) changed(list []catalog.Change[catalog.Session]) {
	if len(list) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.leading {
		return
	}
	for _, c := range list {
		if c.After != nil {
			t.putLocked(c.After)
		} else if e := t.byID[c.Before.ID]; e != nil {
			e.gone = true // it leaves the heap when it comes up
			delete(t.byID, e.id)
		}
	}
}

// renew puts the session's end off. It is false when the end is being proposed.
func (t *ttlTimers) renew(s *catalog.Session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ending := t.ending[s.ID]; ending {
		return false
	}
	if t.leading {
		t.putLocked(s)
	}
	return true
}

// claim begins a session's end, unless it was renewed since it ran out. What is
// claimed is given back by ended.
func (t *ttlTimers) claim(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.leading || t.byID[id] != nil {
		return false
	}
	t.ending[id] = struct{}{}
	return true
}

// ended takes back what claim gave.
func (t *ttlTimers) ended(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ending, id)
}

func (t *ttlTimers) putLocked(s *catalog.Session) {
	ttl := ttlOf(s)
	if ttl == 0 {
		return
	}
	t.putAtLocked(s.ID, t.now()+2*ttl)
}

func (t *ttlTimers) putAtLocked(id string, deadline time.Duration) {
	if e := t.byID[id]; e != nil && e.at <= deadline {
		e.deadline = deadline
		return
	}
	e := &ttlEntry{id: id, deadline: deadline, at: deadline}
	if old := t.byID[id]; old != nil {
		old.gone = true
	}
	t.byID[id] = e
	heap.Push(&t.due, e)
	if t.due[0] == e {
		select {
		case t.notify <- struct{}{}:
		default:
		}
	}
}

// expired takes the sessions that are past their deadline and tells how long
// until the next one may be.
func (t *ttlTimers) expired() (ids []string, next time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.due) > 0 {
		e, now := t.due[0], t.now()
		switch {
		case e.gone:
			heap.Pop(&t.due)
		case e.at > now:
			return ids, e.at - now
		case e.deadline > now:
			e.at = e.deadline
			heap.Fix(&t.due, 0)
		default:
			heap.Pop(&t.due)
			delete(t.byID, e.id)
			ids = append(ids, e.id)
		}
	}
	return ids, time.Hour
}

// retry brings back sessions whose end could not be proposed.
func (t *ttlTimers) retry(id string, after time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leading && t.byID[id] == nil {
		t.putAtLocked(id, t.now()+after)
	}
}

// expireWorkers bounds how many endings of sessions are in the log's queue at once.
const expireWorkers = 32

// expireSessions ends sessions that were not renewed, until ctx ends.
func (r *Registry) expireSessions(ctx context.Context) {
	ids := make(chan string)
	var workers sync.WaitGroup
	for range expireWorkers {
		workers.Go(func() {
			for id := range ids {
				r.expire(ctx, id)
			}
		})
	}
	defer workers.Wait()
	defer close(ids)
	timer := r.cfg.Clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.ttl.notify:
		case <-timer.C:
		}
		expired, next := r.ttl.expired()
		for _, id := range expired {
			select {
			case ids <- id:
			case <-ctx.Done():
				return
			}
		}
		timer.Reset(next)
	}
}

func (r *Registry) expire(ctx context.Context, id string) {
	if r.State().Session(id) == nil || !r.ttl.claim(id) {
		return
	}
	defer r.ttl.ended(id)
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.cfg.ProposeTimeout)
	defer cancel()
	if err := r.DestroySession(ctx, id); err != nil {
		r.cfg.Logger.Warn("an expired session could not be ended; trying again", "session", id, "err", err)
		r.ttl.retry(id, time.Second)
		return
	}
	r.meters.expire.Observe(time.Since(start))
}
