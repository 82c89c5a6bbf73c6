package agentcache

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/httpx"
)

// cacheKind says how ?cached answers of a row are kept.
type cacheKind uint8

const (
	uncached cacheKind = iota
	// kept up to date in the background: by replication on a server, by a blocking query on a client
	// agent
	refreshed
	simple // kept as it was fetched; Cache-Control says how old it may be
)

// cachedRows are the patterns whose answers may come from the agent's cache.
var cachedRows = map[string]cacheKind{
	"/v1/health/service/": refreshed, "/v1/health/connect/": refreshed, "/v1/health/ingress/": refreshed,
	"/v1/catalog/services": refreshed, "/v1/catalog/service/": refreshed, "/v1/catalog/connect/": refreshed,
	"/v1/connect/intentions/match": refreshed, "/v1/discovery-chain/": refreshed, "/v1/config/": refreshed,
	"/v1/catalog/datacenters": simple, "/v1/query/": simple,
}

// The bounds of what a cache keeps; the least recently used entry goes first.
const (
	cacheEntries  = 2048 // on a client agent each is a blocking query at a server
	cacheBytes    = 64 << 20
	cacheIdle     = 72 * time.Hour // the contract's time to live of an entry that nobody asks for
	cacheWait     = 10 * time.Minute
	cacheRetryMin = time.Second
	cacheRetryMax = time.Minute
)

// cacheControl is what a client allows of kept answers.
type cacheControl struct {
	maxAge       time.Duration // -1: any age
	staleIfError time.Duration
}

func parseCacheControl(header []string) (cacheControl, error) {
	c := cacheControl{maxAge: -1}
	for _, line := range header {
		for part := range strings.SplitSeq(strings.ToLower(line), ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			switch name {
			case "must-revalidate":
				c.maxAge = 0
			case "max-age", "stale-if-error":
				n, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31)
				if err != nil {
					return c, answer.Invalidf("Invalid Cache-Control header.")
				}
				if name == "max-age" {
					c.maxAge = time.Duration(n) * time.Second
				} else {
					c.staleIfError = time.Duration(n) * time.Second
				}
			}
		}
	}
	return c, nil
}

// kindOf is how this request may be answered from the cache.
func kindOf(q *rows.Request) (cacheKind, cacheControl, error) {
	if q.Registry == nil && q.Row.Pattern == "/v1/agent/connect/ca/roots" {
		return refreshed, cacheControl{maxAge: -1}, nil // the contract's agents keep them for everybody
	}
	if q.Query == "" || q.NoCache || !q.Query.Has("cached") {
		return uncached, cacheControl{}, nil
	}
	kind := cachedRows[q.Row.Pattern]
	if q.Row.Pattern == "/v1/query/" && !strings.HasSuffix(q.Rest, "/execute") || q.Row.Methods != "GET" {
		kind = uncached
	}
	if kind == uncached {
		return uncached, cacheControl{}, nil
	}
	if q.Query.Has("consistent") {
		return uncached, cacheControl{}, rows.ErrCachedConsistent
	}
	control, err := parseCacheControl(q.R.Header["Cache-Control"])
	return kind, control, err
}

// Answer answers by handle, or from the cache where the client allows that.
func (c *Cache) Answer(q *rows.Request, handle func(*rows.Request) error) error {
	kind, control, err := kindOf(q)
	switch {
	case err != nil:
		return err
	case kind == uncached:
		return handle(q)
	case q.Registry == nil: // a server judges the questions, and this agent who may have the kept answers
		if err := q.Authenticate(); err != nil {
			return err
		}
	}
	return c.answerCached(q, kind, control, handle)
}

// answerCached answers a request that asked for the cache. answer is how it is answered without.
func (c *Cache) answerCached(q *rows.Request, kind cacheKind, control cacheControl,
	answer func(*rows.Request) error) error {
	switch {
	case kind == simple:
		return c.answerKept(q, control, answer)
	case q.Registry != nil:
		// The replicated State is what the contract's agents keep: it may be read without a leader.
		q.Cached = rows.CacheMiss
		if c.kept.seen(cacheKey(q)) {
			q.Cached = rows.CacheHit
		}
		return answer(q)
	}
	return c.answerRefreshed(q, answer)
}

// cacheKey names the question: who asks, for what. Waiting is no part of it.
func cacheKey(q *rows.Request) string {
	var b strings.Builder
	b.WriteString(q.Token())
	for _, part := range []string{q.R.URL.Path, strconv.FormatBool(httpx.AcceptsGzip(q.R)), question(q).RawQuery} {
		b.WriteByte(0)
		b.WriteString(part)
	}
	return b.String()
}

// question is the request's URL without what says how to wait and what may be old.
func question(q *rows.Request) *url.URL {
	values := q.R.URL.Query()
	for _, name := range []string{"cached", "index", "wait", "token", "stale", "max_stale", "leader"} {
		values.Del(name)
	}
	u := *q.R.URL
	u.RawQuery = values.Encode()
	return &u
}

// kept is a captured answer.
type kept struct {
	rows.Recorder
	class   string // of the rights that it was given to
	index   uint64
	fetched time.Time
}

func (k *kept) size() int { return len(k.Body) + 1024 }

// send copies a kept answer.
func send(q *rows.Request, k *kept, hit bool, age time.Duration) error {
	h := q.W.Header()
	maps.Copy(h, k.Header())
	rows.CacheHeaders(h, hit, age)
	q.W.WriteHeader(k.Status)
	_, _ = q.W.Write(k.Body) // a client that left is noticed by the server
	return rows.ErrAnswered
}

// answerKept answers from what was fetched before, when it is young enough, else fetches it.
func (c *Cache) answerKept(q *rows.Request, control cacheControl, answer func(*rows.Request) error) error {
	key, now := cacheKey(q), q.Clock.Now()
	old := c.kept.get(key)
	if old != nil && old.class != q.Grant.Class() {
		old = nil // the token has other rights now
	}
	if old != nil && (control.maxAge < 0 || now.Sub(old.fetched) < control.maxAge) {
		return send(q, old, true, now.Sub(old.fetched))
	}
	w, fresh := q.W, &kept{fetched: now}
	q.W = fresh
	maps.Copy(fresh.Header(), w.Header())
	err := answer(q)
	q.W = w
	if err != nil && err != rows.ErrAnswered || fresh.Status >= http.StatusInternalServerError {
		if old != nil && now.Sub(old.fetched) <= control.staleIfError {
			return send(q, old, true, now.Sub(old.fetched))
		}
		if err != nil && err != rows.ErrAnswered {
			return err
		}
	}
	fresh.WriteHeader(http.StatusOK)
	fresh.class = q.Grant.Class()
	if fresh.Status == http.StatusOK {
		c.kept.put(key, fresh)
	}
	return send(q, fresh, false, 0)
}

// keptAnswers holds captured answers, and which questions were asked before. The zero value is ready.
type keptAnswers struct {
	mu    sync.Mutex // guards what follows
	by    map[string]*kept
	bytes int
	asked map[string]struct{}
}

func (c *keptAnswers) get(key string) *kept {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[key]
}

// put keeps an answer. A full cache begins anew: what is asked for often is back at once.
func (c *keptAnswers) put(key string, k *kept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.by[key]; old != nil {
		c.bytes -= old.size() + len(key)
	}
	if c.by == nil || len(c.by) >= cacheEntries || c.bytes+k.size() > cacheBytes {
		c.by, c.bytes = map[string]*kept{}, 0
	}
	c.by[key] = k
	c.bytes += k.size() + len(key)
}

// seen reports whether the question was asked before, and remembers it.
func (c *keptAnswers) seen(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.asked[key]; ok {
		return true
	}
	if c.asked == nil || len(c.asked) >= cacheEntries {
		c.asked = map[string]struct{}{}
	}
	c.asked[key] = struct{}{}
	return false
}

// detached is the request for a background fetch: the same question by the same caller.
func detached(q *rows.Request, ctx context.Context) *http.Request {
	r := q.R.Clone(ctx)
	r.Body, r.ContentLength = nil, 0
	r.URL = question(q)
	if t := q.Token(); t != "" {
		r.Header.Set("X-Consul-Token", t)
	}
	return r
}
