package consulapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/telemetry"
)

// AgentCache keeps answers of servers up to date on a client agent, for ?cached: one blocking query
// per question, whoever asks it and however often. Questions are told apart by token, and asked anew
// when the token has other rights than when its question was first asked. It holds at
// most cacheEntries answers of cacheBytes together; the one that was not asked for the longest goes first.
//
// Run owns the queries; before Run and after it requests go to a server each.
type AgentCache struct {
	api *API

	mu      sync.Mutex // guards what follows and the entries; nothing waits under it
	ctx     context.Context
	entries map[string]*cacheEntry
	bytes   int
	wg      sync.WaitGroup

	fetched, failed, evicted, bypassed *telemetry.Counter
}

func newAgentCache(a *API) *AgentCache {
	m := a.cfg.Metrics
	c := &AgentCache{api: a, fetched: m.Counter("cache.fetch_success"), failed: m.Counter("cache.fetch_error"),
		evicted: m.Counter("cache.evict_expired"), bypassed: m.Counter("cache.bypass")}
	m.GaugeFunc("cache.entries_count", func() float64 { return float64(c.Len()) })
	return c
}

// cacheEntry is one question. Guarded by AgentCache.mu except key, class and stop.
type cacheEntry struct {
	key     string
	class   string // of the rights that the token had
	stop    context.CancelFunc
	cur     *kept         // nil until the first answer
	err     error         // why there is none
	failing bool          // the last fetch failed
	ended   bool          // nothing new will come
	regrant bool          // ended because the token has other rights now
	changed chan struct{} // closed and replaced with each new answer
	used    time.Time
}

// Cache returns the agent's cache, nil on a server, whose State needs none.
func (a *API) Cache() *AgentCache { return a.agent }

// Run keeps answers up to date until ctx ends, and returns when the last query has ended.
func (c *AgentCache) Run(ctx context.Context) error {
	c.mu.Lock()
	c.ctx, c.entries, c.bytes = ctx, map[string]*cacheEntry{}, 0
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.ctx, c.entries = nil, nil
	c.mu.Unlock()
	c.wg.Wait()
	return nil
}

// Len is how many questions are kept.
func (c *AgentCache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// enter finds the question or begins to ask it; nil while the cache does not run.
func (c *AgentCache) enter(q *request) (e *cacheEntry, known bool) {
	key, class, now := q.cacheKey(), q.grant.Class(), c.api.cfg.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx == nil {
		c.bypassed.Add(1)
		return nil, false
	}
	switch e = c.entries[key]; {
	case e == nil:
	case e.class == class:
		e.used = now
		return e, e.cur != nil
	default: // the query under way would only be judged again at the next change
		e.regrant = true
		c.dropLocked(e)
	}
	if len(c.entries) >= cacheEntries {
		c.evictLocked()
	}
	ctx, stop := context.WithCancel(c.ctx)
	e = &cacheEntry{key: key, class: class, stop: stop, changed: make(chan struct{}), used: now}
	c.entries[key] = e
	r := q.detached(ctx)
	streams := q.streams()
	c.wg.Go(func() {
		defer stop()
		c.refresh(ctx, e, r, streams)
		c.end(e)
	})
	return e, false
}

// evictLocked ends the question that was not asked for the longest.
func (c *AgentCache) evictLocked() {
	var oldest *cacheEntry
	for _, e := range c.entries {
		if oldest == nil || e.used.Before(oldest.used) {
			oldest = e
		}
	}
	if oldest != nil {
		c.dropLocked(oldest)
	}
}

func (c *AgentCache) dropLocked(e *cacheEntry) {
	if c.entries[e.key] != e {
		return
	}
	delete(c.entries, e.key)
	c.evicted.Add(1)
	if e.cur != nil {
		c.bytes -= e.cur.size()
	}
	e.stop()
}

// refresh asks, and asks again when the answer changes, until nobody wants it any more.
func (c *AgentCache) refresh(ctx context.Context, e *cacheEntry, r *http.Request, streams bool) {
	wait := backoff.Backoff{Min: cacheRetryMin, Max: cacheRetryMax}
	index := uint64(0)
	for ctx.Err() == nil {
		begun := c.api.cfg.Clock.Now()
		answer, err := c.fetch(ctx, r, index)
		if err != nil {
			c.failed.Add(1)
		} else {
			c.fetched.Add(1)
		}
		if err == nil && streams {
			answer.header["X-Consul-Query-Backend"] = streaming
		}
		if !c.publish(e, answer, err) {
			return
		}
		if err == nil {
			again := answer.index == index && c.api.cfg.Clock.Since(begun) < cacheRetryMin
			if answer.index < index {
				answer.index = 0 // the store began anew
			}
			if index = answer.index; !again {
				wait = backoff.Backoff{Min: cacheRetryMin, Max: cacheRetryMax}
				continue
			}
		}
		timer := c.api.cfg.Clock.NewTimer(wait.Next())
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// end lets those go who still wait for a change.
func (c *AgentCache) end(e *cacheEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(e)
	e.ended = true
	if e.cur == nil && e.err == nil {
		e.err = errEvicted
	}
	close(e.changed)
	e.changed = make(chan struct{})
}

// fetch asks a server once; with an index it waits for a change.
func (c *AgentCache) fetch(ctx context.Context, r *http.Request, index uint64) (*kept, error) {
	one := r.Clone(ctx)
	if index > 0 {
		values := one.URL.Query()
		values.Set("index", strconv.FormatUint(index, 10))
		values.Set("wait", cacheWait.String())
		one.URL.RawQuery = values.Encode()
	}
	w := &capture{kept: kept{header: http.Header{}}}
	if err := c.api.cfg.Forward.Forward(w, one, false); err != nil {
		return nil, err
	}
	w.WriteHeader(http.StatusOK)
	if w.status >= http.StatusInternalServerError {
		return nil, answer.FailAs(w.status, w.header, w.body)
	}
	w.fetched = c.api.cfg.Clock.Now()
	w.index, _ = strconv.ParseUint(w.header.Get("X-Consul-Index"), 10, 64) // without one: not a row that blocks
	return &w.kept, nil
}

// publish gives what was fetched to those who wait. false ends the entry.
func (c *AgentCache) publish(e *cacheEntry, answer *kept, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[e.key] != e {
		return false // evicted
	}
	e.failing = err != nil
	if err != nil {
		e.err = err
		if e.cur != nil {
			return true // what is known stays
		}
		c.dropLocked(e)
	} else {
		if e.cur != nil {
			c.bytes -= e.cur.size()
		}
		e.cur, e.err = answer, nil
		c.bytes += answer.size()
		for c.bytes > cacheBytes && len(c.entries) > 1 {
			c.evictLocked()
		}
		if answer.status != http.StatusOK || c.api.cfg.Clock.Since(e.used) > cacheIdle {
			c.dropLocked(e) // told once, kept never
		}
	}
	close(e.changed)
	e.changed = make(chan struct{})
	return c.entries[e.key] == e
}

var errEvicted = answer.Fail(http.StatusInternalServerError, "The agent's cache ended before its first answer: try again")

// view is what an entry holds now; changed is closed at the next change.
func (c *AgentCache) view(e *cacheEntry) (now cacheEntry, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *e, e.changed
}

// answerRefreshed answers on a client agent from what is kept up to date.
func (q *request) answerRefreshed(answer func(*request) error) error {
	block, err := httpx.ParseBlocking(q.q, q.api.cfg.Wait)
	if err != nil {
		return err
	}
	c := q.api.agent
	e, hit := c.enter(q)
	if e == nil {
		return answer(q)
	}
	var expired <-chan time.Time
	if block.Index > 0 {
		timer := q.api.cfg.Clock.NewTimer(httpx.Jitter(block.Wait))
		defer timer.Stop()
		expired = timer.C
	}
	for {
		now, changed := c.view(e)
		if now.regrant {
			if err := q.authenticate(); err != nil {
				return err
			}
			if e, hit = c.enter(q); e == nil {
				return answer(q)
			}
			continue
		}
		cur := now.cur
		if cur == nil && now.err != nil {
			return now.err
		}
		if cur != nil && (now.ended || block.Index == 0 || cur.index != block.Index || cur.status != http.StatusOK) {
			return q.sendRefreshed(cur, hit, now.failing)
		}
		select {
		case <-changed:
		case <-expired:
			if cur != nil {
				return q.sendRefreshed(cur, hit, now.failing)
			}
			expired = nil // the first answer is on its way, which has a deadline of its own
		case <-q.r.Context().Done():
			return errAnswered
		}
	}
}

// sendRefreshed answers with what is kept, which has an age only while it cannot be kept up to date.
func (q *request) sendRefreshed(k *kept, hit, failing bool) error {
	age := time.Duration(0)
	if failing {
		age = q.api.cfg.Clock.Since(k.fetched)
	}
	return q.send(k, hit, age)
}

var streaming = []string{"streaming"}

// streams reports whether the contract's agents answer the request from an event stream.
func (q *request) streams() bool {
	return q.api.cfg.Registry == nil && strings.HasPrefix(q.route.pattern, "/v1/health/") &&
		(q.route.pattern == "/v1/health/service/" || q.route.pattern == "/v1/health/connect/" || q.route.pattern == "/v1/health/ingress/") &&
		q.q != "" && (q.q.Has("cached") || q.q.Has("index")) && !q.q.Has("near") && !q.q.Has("consistent")
}

// streamed is a ResponseWriter that names the backend as the contract's agents do.
type streamed struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (s streamed) WriteHeader(status int) {
	s.Header()["X-Consul-Query-Backend"] = streaming
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap serves http.ResponseController.
func (s streamed) Unwrap() http.ResponseWriter { return s.ResponseWriter }
