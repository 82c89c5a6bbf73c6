package consulapi

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
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/registry"
)

// cacheKind says how ?cached answers of a row are kept.
type cacheKind uint8

const (
	uncached  cacheKind = iota
	refreshed           // kept up to date in the background: by replication on a server, by a blocking query on a client agent
	simple              // kept as it was fetched; Cache-Control says how old it may be
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

// cacheKind is how this request may be answered from the cache.
func (q *request) cacheKind() (cacheKind, cacheControl, error) {
	if q.api.cfg.Registry == nil && q.route.pattern == agentRootsPattern {
		return refreshed, cacheControl{maxAge: -1}, nil // the contract's agents keep them for everybody
	}
	if q.q == "" || q.api.cfg.NoCache || !q.q.Has("cached") {
		return uncached, cacheControl{}, nil
	}
	kind := cachedRows[q.route.pattern]
	if q.route.pattern == "/v1/query/" && !strings.HasSuffix(q.rest, "/execute") || q.route.methods != "GET" {
		kind = uncached
	}
	if kind == uncached {
		return uncached, cacheControl{}, nil
	}
	if q.q.Has("consistent") {
		return uncached, cacheControl{}, errCachedConsistent
	}
	control, err := parseCacheControl(q.r.Header["Cache-Control"])
	return kind, control, err
}

// answerCached answers a request that asked for the cache. answer is how it is answered without.
func (q *request) answerCached(kind cacheKind, control cacheControl, answer func(*request) error) error {
	switch {
	case kind == simple:
		return q.answerKept(control, answer)
	case q.api.cfg.Registry != nil:
		// The replicated State is what the contract's agents keep: it may be read without a leader.
		q.cached = cacheMiss
		if q.api.kept.seen(q.cacheKey()) {
			q.cached = cacheHit
		}
		return answer(q)
	}
	return q.answerRefreshed(answer)
}

// What a request that asked for the cache gets.
const (
	cacheMiss = 1 + iota
	cacheHit
)

// cacheHeaders tell where an answer came from. Age is for hits only.
func cacheHeaders(h http.Header, hit bool, age time.Duration) {
	delete(h, "Age")
	if !hit {
		h["X-Cache"] = []string{"MISS"}
		return
	}
	h["X-Cache"] = []string{"HIT"}
	h["Age"] = []string{strconv.FormatInt(int64(max(age, 0)/time.Second), 10)}
}

// cacheKey names the question: who asks, for what. Waiting is no part of it.
func (q *request) cacheKey() string {
	var b strings.Builder
	b.WriteString(q.token())
	for _, part := range []string{q.r.URL.Path, strconv.FormatBool(httpx.AcceptsGzip(q.r)), q.question().RawQuery} {
		b.WriteByte(0)
		b.WriteString(part)
	}
	return b.String()
}

// question is the request's URL without what says how to wait and what may be old.
func (q *request) question() *url.URL {
	values := q.r.URL.Query()
	for _, name := range []string{"cached", "index", "wait", "token", "stale", "max_stale", "leader"} {
		values.Del(name)
	}
	u := *q.r.URL
	u.RawQuery = values.Encode()
	return &u
}

// kept is a captured answer.
type kept struct {
	class   string // of the rights that it was given to
	status  int
	header  http.Header
	body    []byte
	index   uint64
	fetched time.Time
}

func (k *kept) size() int { return len(k.body) + 1024 }

// capture is a ResponseWriter that keeps an answer.
type capture struct{ kept }

// Header implements http.ResponseWriter.
func (c *capture) Header() http.Header { return c.header }

// WriteHeader implements http.ResponseWriter.
func (c *capture) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
}

// Write implements http.ResponseWriter.
func (c *capture) Write(p []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	c.body = append(c.body, p...)
	return len(p), nil
}

// send copies a kept answer.
func (q *request) send(k *kept, hit bool, age time.Duration) error {
	h := q.w.Header()
	maps.Copy(h, k.header)
	cacheHeaders(h, hit, age)
	q.w.WriteHeader(k.status)
	_, _ = q.w.Write(k.body) // a client that left is noticed by the server
	return errAnswered
}

// answerKept answers from what was fetched before, when it is young enough, else fetches it.
func (q *request) answerKept(control cacheControl, answer func(*request) error) error {
	key, now := q.cacheKey(), q.api.cfg.Clock.Now()
	old := q.api.kept.get(key)
	if old != nil && old.class != q.grant.Class() {
		old = nil // the token has other rights now
	}
	if old != nil && (control.maxAge < 0 || now.Sub(old.fetched) < control.maxAge) {
		return q.send(old, true, now.Sub(old.fetched))
	}
	w := q.w
	c := &capture{kept: kept{header: http.Header{}}}
	q.w = c
	maps.Copy(c.header, w.Header())
	err := answer(q)
	q.w = w
	if err != nil && err != errAnswered || c.status >= http.StatusInternalServerError {
		if old != nil && now.Sub(old.fetched) <= control.staleIfError {
			return q.send(old, true, now.Sub(old.fetched))
		}
		if err != nil && err != errAnswered {
			return err
		}
	}
	c.WriteHeader(http.StatusOK)
	c.fetched, c.class = now, q.grant.Class()
	if c.status == http.StatusOK {
		q.api.kept.put(key, &c.kept)
	}
	return q.send(&c.kept, false, 0)
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

// staleWhenKept lets a hit on a server be read without a leader.
func (q *request) staleWhenKept() {
	if q.cached == cacheHit && q.mode == registry.Default {
		q.mode = registry.Stale
	}
}

// detached is the request for a background fetch: the same question by the same caller.
func (q *request) detached(ctx context.Context) *http.Request {
	r := q.r.Clone(ctx)
	r.Body, r.ContentLength = nil, 0
	r.URL = q.question()
	if t := q.token(); t != "" {
		r.Header.Set("X-Consul-Token", t)
	}
	return r
}
