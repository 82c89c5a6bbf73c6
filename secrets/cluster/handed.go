package cluster

import (
	"context"
	"errors"
	"sync"
	"time"
)

// leadershipGrace is how long a former active server may take to answer what it was handed: a live one refuses what it
// cannot finish at once, one that hangs or is cut off never answers.
const leadershipGrace = time.Second

var errLeadershipOver = errors.New("another server has become the active one")

// handings are the requests that the active servers have from here. A server that is stopped or cut off keeps its
// connections open and silent; who waits on one would wait until its client gave up.
type handings struct {
	mu  sync.Mutex
	all map[string]*handing // by the id of the server that has them; none has none
}

// handing is what one server has.
type handing struct {
	leadership context.Context
	end        context.CancelCauseFunc
	requests   int
	server     Server
	heard      time.Time // when it answered last, or got its first request
	over       time.Time // since when another one is known to lead; zero is none
}

// begin gives a request to a server: ctx ends, too, when the server leads no more. done is to be called at the
// request's end.
func (h *handings) begin(ctx context.Context, server Server, now func() time.Time) (_ context.Context, done func()) {
	id := server.ID
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.all[id]
	if one == nil {
		one = &handing{server: server, heard: now()}
		one.leadership, one.end = context.WithCancelCause(context.Background())
		if h.all == nil {
			h.all = map[string]*handing{}
		}
		h.all[id] = one
	}
	one.requests++
	client := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(one.leadership, func() { cancel(context.Cause(one.leadership)) })
	return ctx, func() {
		stop()
		cancel(nil)
		h.mu.Lock()
		defer h.mu.Unlock()
		if client.Err() == nil && one.leadership.Err() == nil {
			one.heard = now()
		}
		if one.requests--; one.requests == 0 && h.all[id] == one {
			one.end(nil)
			delete(h.all, id)
		}
	}
}

// answered notes that a server lives.
func (h *handings) answered(id string, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.all[id]; one != nil {
		one.heard = at
	}
}

// any reports whether a server has anything.
func (h *handings) any() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all) > 0
}

// look is told from time to time who leads, and ends what others have had for leadershipGrace since.
func (h *handings) look(now time.Time, active string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, one := range h.all {
		switch {
		case id == active:
			one.over = time.Time{}
		case one.over.IsZero():
			one.over = now
		case now.Sub(one.over) >= leadershipGrace:
			one.end(errLeadershipOver)
			delete(h.all, id)
		}
	}
}

// watchHanded looks who leads while any server has a request from here. That nobody is known ends nothing: storage
// that does not answer hides an active server that lives.
func (c *Cluster) watchHanded(ctx context.Context) {
	for ctx.Err() == nil {
		c.sleep(ctx, leaderAge)
		if !c.handed.any() {
			continue
		}
		within, cancel := context.WithTimeout(ctx, leadershipGrace)
		if s, ok := c.Leader(within); ok {
			c.handed.look(c.cfg.Clock.Now(), s.ID)
		}
		cancel()
	}
}
