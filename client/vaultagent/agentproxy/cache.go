package agentproxy

import (
	"container/heap"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The bounds of a cache: an answer with a lease is some 500 bytes.
const (
	maxEntries    = 10_000
	maxCacheBytes = 64 << 20
	maxPlain      = 4096
)

// kept is an answer. Only its times change once it is in the cache, under the cache's lock.
type kept struct {
	key, path, namespace string
	token                string // whom it belongs to
	lease                string // of a secret
	made, accessor       string // the token that the answer brought
	header               http.Header
	body                 []byte
	at                   time.Time
	life                 life
	place                int // in the heap; -1: not in the cache
}

// life is how long an answer lives, and when something is to be done about it.
type life struct {
	full      time.Duration
	end, due  time.Time
	renewable bool
}

// started is the life of what was given now.
func started(now time.Time, ttl time.Duration, renewable bool) life {
	return life{full: ttl}.given(now, ttl, renewable)
}

// given is the life after the server gave it ttl. What got less than a third of what it had first has come to its
// longest.
func (l life) given(now time.Time, ttl time.Duration, renewable bool) life {
	l.end, l.renewable = now.Add(ttl), renewable && ttl > l.full/3
	l.due = now.Add(ttl * 2 / 3)
	if !l.renewable {
		l.due = now.Add(ttl * 9 / 10)
	}
	return l
}

// failed is the life after the server could not be asked: soon again, unless it ends before.
func (l life) failed(now time.Time) (next life, ends bool) {
	l.due = now.Add(max(l.full/20, time.Second))
	return l, !l.due.Before(l.end)
}

// cache holds answers. It is safe for concurrent use.
type cache struct {
	mu     sync.Mutex // guards all
	byKey  map[string]*kept
	order  dueHeap
	bytes  int
	plain  map[string]bool // keys of requests whose answers are not for keeping
	notify chan struct{}   // holds one: the order has changed
}

func newCache() *cache {
	return &cache{byKey: map[string]*kept{}, plain: map[string]bool{}, notify: make(chan struct{}, 1)}
}

// get is the answer to a request, nil where there is none; plain: there will be none.
func (c *cache) get(key string, now time.Time) (k *kept, plain bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.byKey[key]; k != nil && now.Before(k.life.end) {
		return k, false
	}
	return nil, c.plain[key]
}

// put keeps an answer and reports whether there was room.
func (c *cache) put(k *kept) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.byKey[k.key]; before != nil {
		c.remove(before)
	}
	if len(c.byKey) >= maxEntries || c.bytes+len(k.body) > maxCacheBytes {
		return false
	}
	c.byKey[k.key] = k
	c.bytes += len(k.body)
	heap.Push(&c.order, k)
	c.wake()
	return true
}

// isPlain remembers that the answer to a request is not for keeping.
func (c *cache) isPlain(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.plain) >= maxPlain {
		clear(c.plain)
	}
	c.plain[key] = true
}

func (c *cache) remove(k *kept) {
	heap.Remove(&c.order, k.place)
	delete(c.byKey, k.key)
	c.bytes -= len(k.body)
	k.place = -1
}

func (c *cache) wake() {
	select {
	case c.notify <- struct{}{}:
	default:
	}
}

// knows reports whether a token came through here and lives.
func (c *cache) knows(token string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.byKey {
		if k.made != "" && k.made == token {
			return true
		}
	}
	return false
}

// drop takes out what fits, and what belongs to tokens that go with it.
func (c *cache) drop(fits func(k *kept) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.byKey {
		if fits(k) {
			c.withHeirs(k)
		}
	}
}

// withHeirs takes out k and what belongs to the token that it brought.
func (c *cache) withHeirs(k *kept) {
	if k.place < 0 {
		return
	}
	c.remove(k)
	if k.made != "" {
		c.heirs(k.made)
	}
}

func (c *cache) heirs(token string) {
	for _, k := range c.byKey {
		if k.token == token {
			c.withHeirs(k)
		}
	}
}

// dropToken takes out a token and what belongs to it.
func (c *cache) dropToken(token string) {
	if token == "" {
		return
	}
	c.drop(func(k *kept) bool { return k.made == token || k.token == token })
}

// dropOrphaning takes out a token and its leases; tokens that it made live on.
func (c *cache) dropOrphaning(token string) {
	if token == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.byKey {
		switch {
		case k.made == token, k.token == token && k.made == "":
			c.remove(k)
		case k.token == token:
			k.token = ""
		}
	}
}

func (c *cache) dropAccessor(accessor string) {
	if accessor == "" {
		return
	}
	c.drop(func(k *kept) bool { return k.accessor == accessor })
}

func (c *cache) dropPrefix(lease string) {
	c.drop(func(k *kept) bool { return k.lease != "" && strings.HasPrefix(k.lease, lease) })
}

// job is a renewal, with what holds when it begins.
type job struct {
	k     *kept
	token string
	life  life
}

// next takes what is due, and says when the next is; zero: there is none. What was taken is put back by lives or ends.
func (c *cache) next(now time.Time, most int) (due []job, then time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.order) > 0 && len(due) < most {
		k := c.order[0]
		if k.life.due.After(now) {
			return due, k.life.due
		}
		due = append(due, job{k, k.token, k.life})
		k.life.due = now.Add(time.Minute) // until its renewal ends, which has a deadline before
		heap.Fix(&c.order, 0)
	}
	if len(c.order) > 0 {
		then = c.order[0].life.due
	}
	return due, then
}

// lives sets the life of an answer that is still there.
func (c *cache) lives(k *kept, l life) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.place >= 0 {
		k.life = l
		heap.Fix(&c.order, k.place)
		c.wake()
	}
}

// ends takes an answer out.
func (c *cache) ends(k *kept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withHeirs(k)
}

// dueHeap orders answers by when something is to be done about them.
type dueHeap []*kept

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].life.due.Before(h[j].life.due) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *dueHeap) Push(x any) {
	k := x.(*kept)
	k.place = len(*h)
	*h = append(*h, k)
}

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	old := *h
	k := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return k
}
