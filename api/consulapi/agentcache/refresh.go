// Package agentcache answers ?cached: on a client agent from answers of servers that one blocking query a question
// keeps up to date, on a server from the State, which is replicated anyhow, and on both from answers that are kept as
// they were fetched where a row does not block. It holds at most 2,048 questions and 64 MiB; past that the one that
// was not asked for the longest goes.
package agentcache

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/telemetry"
)

// Cache keeps answers of servers up to date on a client agent, for ?cached: one blocking query
// per question, whoever asks it and however often. Questions are told apart by token, and asked anew
// when the token has other rights than when its question was first asked. It holds at
// most cacheEntries answers of cacheBytes together; the one that was not asked for the longest goes first.
//
// Run owns the queries; before Run and after it requests go to a server each.
type Cache struct {
	*rows.Core
	kept keptAnswers

	mu      sync.Mutex // guards what follows and the entries; nothing waits under it
	ctx     context.Context
	entries map[string]*cacheEntry
	bytes   int
	wg      sync.WaitGroup

	fetched, failed, evicted, bypassed *telemetry.Counter
}

// New makes the cache; it starts nothing.
func New(core *rows.Core) *Cache {
	c, m := &Cache{Core: core}, core.Metrics
	if core.Registry != nil {
		return c
	}
	c.fetched, c.failed = m.Counter("cache.fetch_success"), m.Counter("cache.fetch_error")
	c.evicted, c.bypassed = m.Counter("cache.evict_expired"), m.Counter("cache.bypass")
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

// Run keeps answers up to date until ctx ends, and returns when the last query has ended.
func (c *Cache) Run(ctx context.Context) error {
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

// Running tells whether answers are kept up to date now.
func (c *Cache) Running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ctx != nil
}

// Len is how many questions are kept.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// enter finds the question or begins to ask it; nil while the cache does not run.
func (c *Cache) enter(q *rows.Request) (e *cacheEntry, known bool) {
	key, class, now := cacheKey(q), q.Grant.Class(), c.Clock.Now()
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
	r := detached(q, ctx)
	streams := Streams(q)
	c.wg.Go(func() {
		defer stop()
		c.refresh(ctx, e, r, streams)
		c.end(e)
	})
	return e, false
}

// evictLocked ends the question that was not asked for the longest.
func (c *Cache) evictLocked() {
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

func (c *Cache) dropLocked(e *cacheEntry) {
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
func (c *Cache) refresh(ctx context.Context, e *cacheEntry, r *http.Request, streams bool) {
	wait := backoff.Backoff{Min: cacheRetryMin, Max: cacheRetryMax}
	index := uint64(0)
	for ctx.Err() == nil {
		begun := c.Clock.Now()
		answer, err := c.fetch(ctx, r, index)
		if err != nil {
			c.failed.Add(1)
		} else {
			c.fetched.Add(1)
		}
		if err == nil && streams {
			answer.Header()["X-Consul-Query-Backend"] = streaming
		}
		if !c.publish(e, answer, err) {
			return
		}
		if err == nil {
			again := answer.index == index && c.Clock.Since(begun) < cacheRetryMin
			if answer.index < index {
				answer.index = 0 // the store began anew
			}
			if index = answer.index; !again {
				wait = backoff.Backoff{Min: cacheRetryMin, Max: cacheRetryMax}
				continue
			}
		}
		timer := c.Clock.NewTimer(wait.Next())
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// end lets those go who still wait for a change.
func (c *Cache) end(e *cacheEntry) {
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
func (c *Cache) fetch(ctx context.Context, r *http.Request, index uint64) (*kept, error) {
	one := r.Clone(ctx)
	if index > 0 {
		values := one.URL.Query()
		values.Set("index", strconv.FormatUint(index, 10))
		values.Set("wait", cacheWait.String())
		one.URL.RawQuery = values.Encode()
	}
	w := &kept{}
	if err := c.Forward.Forward(w, one, false); err != nil {
		return nil, err
	}
	w.WriteHeader(http.StatusOK)
	if w.Status >= http.StatusInternalServerError {
		return nil, answer.FailAs(w.Status, w.Header(), w.Body)
	}
	w.fetched = c.Clock.Now()
	w.index, _ = strconv.ParseUint(w.Header().Get("X-Consul-Index"), 10, 64) // without one: not a row that blocks
	return w, nil
}

// publish gives what was fetched to those who wait. false ends the entry.
func (c *Cache) publish(e *cacheEntry, answer *kept, err error) bool {
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
		if answer.Status != http.StatusOK || c.Clock.Since(e.used) > cacheIdle {
			c.dropLocked(e) // told once, kept never
		}
	}
	close(e.changed)
	e.changed = make(chan struct{})
	return c.entries[e.key] == e
}

var errEvicted = answer.Fail(http.StatusInternalServerError,
	"The agent's cache ended before its first answer: try again")

// view is what an entry holds now; changed is closed at the next change.
func (c *Cache) view(e *cacheEntry) (now cacheEntry, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *e, e.changed
}

// answerRefreshed answers on a client agent from what is kept up to date.
func (c *Cache) answerRefreshed(q *rows.Request, answer func(*rows.Request) error) error {
	block, err := httpx.ParseBlocking(q.Query, q.Wait)
	if err != nil {
		return err
	}
	e, hit := c.enter(q)
	if e == nil {
		return answer(q)
	}
	var expired <-chan time.Time
	if block.Index > 0 {
		timer := q.Clock.NewTimer(httpx.Jitter(block.Wait))
		defer timer.Stop()
		expired = timer.C
	}
	for {
		now, changed := c.view(e)
		if now.regrant {
			if err := q.Authenticate(); err != nil {
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
		if cur != nil && (now.ended || block.Index == 0 || cur.index != block.Index || cur.Status != http.StatusOK) {
			return sendRefreshed(q, cur, hit, now.failing)
		}
		select {
		case <-changed:
		case <-expired:
			if cur != nil {
				return sendRefreshed(q, cur, hit, now.failing)
			}
			expired = nil // the first answer is on its way, which has a deadline of its own
		case <-q.R.Context().Done():
			return rows.ErrAnswered
		}
	}
}

// sendRefreshed answers with what is kept, which has an age only while it cannot be kept up to date.
func sendRefreshed(q *rows.Request, k *kept, hit, failing bool) error {
	age := time.Duration(0)
	if failing {
		age = q.Clock.Since(k.fetched)
	}
	return send(q, k, hit, age)
}

var streaming = []string{"streaming"}

// Streams reports whether the contract's agents answer the request from an event stream.
func Streams(q *rows.Request) bool {
	return q.Registry == nil && strings.HasPrefix(q.Row.Pattern, "/v1/health/") &&
		(q.Row.Pattern == "/v1/health/service/" || q.Row.Pattern == "/v1/health/connect/" ||
			q.Row.Pattern == "/v1/health/ingress/") &&
		q.Query != "" && (q.Query.Has("cached") || q.Query.Has("index")) && !q.Query.Has("near") && !q.Query.Has("consistent")
}

// Streamed is a ResponseWriter that names the backend as the contract's agents do.
type Streamed struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (s Streamed) WriteHeader(status int) {
	s.Header()["X-Consul-Query-Backend"] = streaming
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap serves http.ResponseController.
func (s Streamed) Unwrap() http.ResponseWriter { return s.ResponseWriter }
