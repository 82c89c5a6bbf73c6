package snapcache

import (
	"container/list"
	"context"
	"time"

	"corbel.dev/corbel/mesh"
)

// place is where a cell stands on its way from a change to its followers.
type place uint8

const (
	resting place = iota
	queued        // in Cache.urgent or Cache.ready
	held          // in Cache.waiting
	running       // with a worker
)

// markLocked notes that a change, none before from, touched the cell. A mark stands for the
// first change and those after it. Batches come in order, so the list's front is the oldest.
func (sc *Cache) markLocked(c *cell, from uint64, now time.Time) {
	if c.mark != nil {
		return
	}
	c.mark = sc.log.marks.PushBack(&mark{index: from, at: now})
	if c.place == resting {
		sc.sendLocked(c, now)
	}
}

// sendLocked has a marked cell built: at once after a quiet time, else when its window is over.
func (sc *Cache) sendLocked(c *cell, now time.Time) {
	c.edge.Window = sc.windowLocked(c)
	if sc.cfg.Window < 0 || c.edge.Change(now) {
		sc.readyLocked(c)
		return
	}
	c.place = held
	sc.queue.waiting = append(sc.queue.waiting, c)
	if due, _ := c.edge.Due(); sc.queue.wakeAt.IsZero() || due.Before(sc.queue.wakeAt) {
		notify(sc.due)
	}
}

// Of the time of one processor the builds of what changes all the time get a quarter at most:
// the log, which is applied meanwhile, is to have the rest. But none waits longer than slowest windows.
const (
	share   = 4
	slowest = 50
)

// windowLocked is the cell's window: the configured one, or a longer one when many that cost
// much are in line. It is for what changes again and again: after a quiet time no cell waits.
func (sc *Cache) windowLocked(c *cell) time.Duration {
	inLine := len(sc.queue.urgent) + len(sc.queue.ready) + len(sc.queue.waiting) + 1
	return min(max(sc.cfg.Window, share*c.cost*time.Duration(inLine)), slowest*sc.cfg.Window)
}

// readyLocked puts a cell in line. Endpoints go first: they are what requests fail for, and a
// change of what all services share puts thousands of others in line at once.
func (sc *Cache) readyLocked(c *cell) {
	c.place = queued
	if c.subject.Kind == mesh.SubjectEndpoints {
		sc.queue.urgent = append(sc.queue.urgent, c)
	} else {
		sc.queue.ready = append(sc.queue.ready, c)
	}
	sc.queue.idle.Broadcast()
}

// take waits for a cell to build, an urgent one if only those are wanted; false when the cache has stopped.
func (sc *Cache) take(onlyUrgent bool) (*cell, *list.Element, bool) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for {
		for len(sc.queue.urgent) == 0 && (onlyUrgent || len(sc.queue.ready) == 0) && !sc.stopped {
			sc.queue.idle.Wait()
		}
		if sc.stopped {
			return nil, nil, false
		}
		queue := &sc.queue.urgent
		if len(*queue) == 0 {
			queue = &sc.queue.ready
		}
		c := (*queue)[0]
		(*queue)[0] = nil
		*queue = (*queue)[1:]
		m := c.mark
		c.mark, c.place = nil, running
		if c.refs > 0 {
			return c, m, true
		}
		sc.log.marks.Remove(m) // nobody follows it any more
		sc.advanceLocked()
	}
}

// done ends a cell's turn.
func (sc *Cache) done(c *cell, m *list.Element, cost time.Duration) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	c.cost = cost
	sc.log.marks.Remove(m)
	sc.advanceLocked()
	c.place = resting
	if c.mark != nil {
		sc.sendLocked(c, sc.cfg.Clock.Now())
	}
}

// work builds cells, one after the other.
func (sc *Cache) work(onlyUrgent bool) {
	var followers []*follower // used again and again
	for {
		c, m, ok := sc.take(onlyUrgent)
		if !ok {
			return
		}
		begin := sc.cfg.Clock.Now()
		if v := sc.build(c, m.Value.(*mark).at); v != nil {
			followers = sc.tell(c, v, followers)
		}
		sc.done(c, m, sc.cfg.Clock.Since(begin))
	}
}

// leastHold bounds how often held cells are looked through.
const leastHold = 2 * time.Millisecond

// release lets held cells go when their windows are over.
func (sc *Cache) release(ctx context.Context) {
	timer := sc.cfg.Clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sc.due:
		case <-timer.C:
		}
		if next, any := sc.releaseDue(); any {
			timer.Stop()
			timer.Reset(next)
		}
	}
}

// releaseDue sends what is due, and tells how long the next has to wait.
func (sc *Cache) releaseDue() (next time.Duration, any bool) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	now := sc.cfg.Clock.Now()
	keep := sc.queue.waiting[:0]
	for _, c := range sc.queue.waiting {
		if c.edge.Fire(now) {
			sc.readyLocked(c)
			continue
		}
		keep = append(keep, c)
		if due, ok := c.edge.Due(); ok && (!any || due.Sub(now) < next) {
			next, any = due.Sub(now), true
		}
	}
	clear(sc.queue.waiting[len(keep):])
	sc.queue.waiting, sc.queue.wakeAt = keep, time.Time{}
	if any {
		next = max(next, leastHold)
		sc.queue.wakeAt = now.Add(next)
	}
	return next, any
}
