package cluster

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// An active server that is frozen holds its lock, in PostgreSQL for 15 s, and its connections, open and silent. So
// while it has requests from here and answers none, it is asked for its status, which costs it nothing; one that does
// not answer that either gets no more requests, until it does.
const (
	silenceStep = 250 * time.Millisecond
	askAfter    = 500 * time.Millisecond  // without an answer to any request
	askTimeout  = 1400 * time.Millisecond // for the answer
	// parkedSilent is how long a request waits from its beginning, when the active server is silent.
	parkedSilent = 2800 * time.Millisecond
)

var errSilent = errors.New("the active server is silent")

// silence is which server does not answer; one at a time, as one is active.
type silence struct {
	mu     sync.Mutex // guards server
	server Server
}

func (s *silence) of(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return id != "" && s.server.ID == id
}

func (s *silence) set(server Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = server
}

func (s *silence) get() Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server
}

// waiting is the server that has had requests since before then and has answered none since; no ID: none.
func (h *handings) waiting(then time.Time) Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.all {
		if one.heard.Before(then) {
			return one.server
		}
	}
	return Server{}
}

// cut ends what a server has, but not when it has answered since.
func (h *handings) cut(id string, since time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.all[id]
	if one == nil || one.heard.After(since) {
		return false
	}
	one.end(errSilent)
	delete(h.all, id)
	return true
}

// watchSilence asks servers that have requests from here for a sign of life until ctx ends.
func (c standby) watchSilence(ctx context.Context) {
	client := &http.Client{Transport: &http.Transport{DialContext: c.proxy.Transport.(*http.Transport).DialContext,
		IdleConnTimeout: time.Minute}}
	defer client.CloseIdleConnections()
	last := c.cfg.Clock.Now()
	for ctx.Err() == nil {
		c.sleep(ctx, silenceStep)
		now := c.cfg.Clock.Now()
		stood := now.Sub(last) > 3*silenceStep // this process did not run: answers wait to be read
		last = now
		doubted := c.silent.get()
		server := doubted
		if server.ID == "" && !stood {
			server = c.handed.waiting(now.Add(-askAfter))
		}
		if server.ID == "" {
			continue
		}
		err := c.alive(ctx, client, server)
		last = c.cfg.Clock.Now()
		switch {
		case ctx.Err() != nil:
		case err == nil && doubted.ID != "":
			c.silent.set(Server{})
			c.cfg.Log.Info("secrets: the silent server answers again", "server", server.ClusterAddr)
		case err == nil:
			c.handed.answered(server.ID, last)
		case doubted.ID != "":
			if l, ok := c.Leader(ctx); ok && l.ID != server.ID {
				c.silent.set(Server{})
			}
		case last.Sub(now) <= askTimeout+2*silenceStep && c.handed.cut(server.ID, now):
			c.silent.set(server)
			c.known.Store(nil)
			c.cfg.Log.Warn("secrets: the active server is silent; sending it no requests until it answers", "server",
				server.ClusterAddr, "error", err)
		}
	}
}

// alive asks a server for its status. That it cannot be dialled is not silence: requests fail by themselves then.
func (c standby) alive(ctx context.Context, client *http.Client, s Server) error {
	within, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(within, http.MethodGet, "http://"+s.ClusterAddr+statusPath, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	var timeout net.Error
	if err != nil && within.Err() == nil && !(errors.As(err, &timeout) && timeout.Timeout()) {
		return nil
	}
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}
