package nodeclient

import (
	"context"
	"sync"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/backoff"
)

// queue has the newest update of each allocation that the servers do not have yet. Its size is bounded by the number
// of allocations.
type queue struct {
	mu    sync.Mutex // guards all but fresh
	wait  map[jobs.ID]noderpc.Update
	flies []noderpc.Update // of the batch that has no answer yet
	last  jobs.Order       // that an update got
	fresh chan struct{}    // capacity 1
}

// init begins the agent's life.
func (q *queue) init(life uint64) {
	q.wait, q.fresh, q.last = map[jobs.ID]noderpc.Update{}, make(chan struct{}, 1), jobs.Order{Life: life}
}

// put replaces an older update.
func (q *queue) put(u noderpc.Update) {
	q.mu.Lock()
	q.last.Seq++
	u.Order = q.last
	q.wait[u.Alloc] = u
	q.mu.Unlock()
	select {
	case q.fresh <- struct{}{}:
	default:
	}
}

// all takes everything, at most what a message may have.
func (q *queue) all() (list []noderpc.Update) {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := 0
	for id, u := range q.wait {
		if size += len(u.TaskStates) + 512; len(list) == noderpc.MaxUpdates || size > noderpc.MaxMessageBytes/2 {
			break
		}
		list = append(list, u)
		delete(q.wait, id)
	}
	q.flies = list
	return list
}

// landed ends a batch. What was not taken is put back, but for what has newer updates: a server may take it yet.
func (q *queue) landed(taken bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.flies
	if q.flies = nil; taken {
		return
	}
	for _, u := range list {
		if _, newer := q.wait[u.Alloc]; !newer {
			q.wait[u.Alloc] = u
		}
	}
}

// untaken are the allocations whose newest updates the servers may not have yet.
func (q *queue) untaken() map[jobs.ID]bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make(map[jobs.ID]bool, len(q.wait)+len(q.flies))
	for id := range q.wait {
		all[id] = true
	}
	for i := range q.flies {
		all[q.flies[i].Alloc] = true
	}
	return all
}

// len is how many wait.
func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.wait)
}

// sendLimit bounds a call with updates, and lastLimit the last one of a process that ends.
const (
	sendLimit = 30 * time.Second
	lastLimit = 2 * time.Second
)

// send sends updates in batches.
func (c *Client) send(ctx context.Context) {
	retry := backoff.Backoff{Min: 500 * time.Millisecond, Max: 5 * time.Second} // NK-5
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLimit)
			_ = c.flush(last)
			cancel()
			return
		case <-c.queue.fresh:
		}
		if !c.pause(ctx, noderpc.BatchEvery) {
			continue
		}
		for c.queue.len() > 0 && ctx.Err() == nil {
			limited, cancel := context.WithTimeout(ctx, sendLimit)
			err := c.flush(limited)
			cancel()
			if err == nil {
				retry.Reset()
				continue
			}
			c.cfg.Log.Debug("the servers do not take updates of allocations", "error", err)
			c.pause(ctx, retry.Next())
		}
	}
}

// flush sends one batch.
func (c *Client) flush(ctx context.Context) error {
	list := c.queue.all()
	if len(list) == 0 {
		return nil
	}
	_, err := c.cfg.Servers.Call(ctx, noderpc.MethodUpdate, noderpc.Bytes(&noderpc.Updates{Key: c.key, List: list}))
	c.queue.landed(err == nil)
	return err
}

// pause waits; false when ctx ended it.
func (c *Client) pause(ctx context.Context, d time.Duration) bool {
	timer := c.cfg.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
