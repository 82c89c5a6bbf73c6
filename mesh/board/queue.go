package board

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
	queued        // in Board.urgent or Board.ready
	held          // in Board.waiting
	running       // with a worker
)

// markLocked notes that a change, none before from, touched the cell. A mark stands for the
// first change and those after it. Batches come in order, so the list's front is the oldest.
func (b *Board) markLocked(c *cell, from uint64, now time.Time) {
	if c.mark != nil {
		return
	}
	c.mark = b.log.marks.PushBack(&mark{index: from, at: now})
	if c.place == resting {
		b.sendLocked(c, now)
	}
}

// sendLocked has a marked cell built: at once after a quiet time, else when its window is over.
func (b *Board) sendLocked(c *cell, now time.Time) {
	c.edge.Window = b.windowLocked(c)
	if b.cfg.Window < 0 || c.edge.Change(now) {
		b.readyLocked(c)
		return
	}
	c.place = held
	b.queue.waiting = append(b.queue.waiting, c)
	if due, _ := c.edge.Due(); b.queue.wakeAt.IsZero() || due.Before(b.queue.wakeAt) {
		notify(b.due)
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
func (b *Board) windowLocked(c *cell) time.Duration {
	inLine := len(b.queue.urgent) + len(b.queue.ready) + len(b.queue.waiting) + 1
	return min(max(b.cfg.Window, share*c.cost*time.Duration(inLine)), slowest*b.cfg.Window)
}

// readyLocked puts a cell in line. Endpoints go first: they are what requests fail for, and a
// change of what all services share puts thousands of others in line at once.
func (b *Board) readyLocked(c *cell) {
	c.place = queued
	if c.subject.Kind == mesh.SubjectEndpoints {
		b.queue.urgent = append(b.queue.urgent, c)
	} else {
		b.queue.ready = append(b.queue.ready, c)
	}
	b.queue.idle.Broadcast()
}

// take waits for a cell to build, an urgent one if only those are wanted; false when the board has stopped.
func (b *Board) take(onlyUrgent bool) (*cell, *list.Element, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		for len(b.queue.urgent) == 0 && (onlyUrgent || len(b.queue.ready) == 0) && !b.stopped {
			b.queue.idle.Wait()
		}
		if b.stopped {
			return nil, nil, false
		}
		queue := &b.queue.urgent
		if len(*queue) == 0 {
			queue = &b.queue.ready
		}
		c := (*queue)[0]
		(*queue)[0] = nil
		*queue = (*queue)[1:]
		m := c.mark
		c.mark, c.place = nil, running
		if c.refs > 0 {
			return c, m, true
		}
		b.log.marks.Remove(m) // nobody follows it any more
		b.advanceLocked()
	}
}

// done ends a cell's turn.
func (b *Board) done(c *cell, m *list.Element, cost time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.cost = cost
	b.log.marks.Remove(m)
	b.advanceLocked()
	c.place = resting
	if c.mark != nil {
		b.sendLocked(c, b.cfg.Clock.Now())
	}
}

// work builds cells, one after the other.
func (b *Board) work(onlyUrgent bool) {
	var crowd []*follower // used again and again
	for {
		c, m, ok := b.take(onlyUrgent)
		if !ok {
			return
		}
		begin := b.cfg.Clock.Now()
		if v := b.build(c, m.Value.(*mark).at); v != nil {
			crowd = b.tell(c, v, crowd)
		}
		b.done(c, m, b.cfg.Clock.Since(begin))
	}
}

// leastHold bounds how often held cells are looked through.
const leastHold = 2 * time.Millisecond

// release lets held cells go when their windows are over.
func (b *Board) release(ctx context.Context) {
	timer := b.cfg.Clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.due:
		case <-timer.C:
		}
		if next, any := b.releaseDue(); any {
			timer.Stop()
			timer.Reset(next)
		}
	}
}

// releaseDue sends what is due, and tells how long the next has to wait.
func (b *Board) releaseDue() (next time.Duration, any bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Clock.Now()
	keep := b.queue.waiting[:0]
	for _, c := range b.queue.waiting {
		if c.edge.Fire(now) {
			b.readyLocked(c)
			continue
		}
		keep = append(keep, c)
		if due, ok := c.edge.Due(); ok && (!any || due.Sub(now) < next) {
			next, any = due.Sub(now), true
		}
	}
	clear(b.queue.waiting[len(keep):])
	b.queue.waiting, b.queue.wakeAt = keep, time.Time{}
	if any {
		next = max(next, leastHold)
		b.queue.wakeAt = now.Add(next)
	}
	return next, any
}
