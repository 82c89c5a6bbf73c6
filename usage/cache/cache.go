// Package cache is the remote cache of the usage plane in memory: texts, sets, hashes and sketches by key, with times
// at which they go. api/respapi speaks the Redis protocol to it.
//
// What always holds:
//   - It never takes more than MaxBytes, as it counts them (all bytes of keys and values, and what the maps beside them
//     take, estimated). What has expired goes first, then what was used least recently.
//   - Fair: of what is too much, the tenant that has the most gives first. A tenant that has less than an equal share
//     loses nothing to others, however much they write.
//   - What expired is never told, and its memory comes back without anybody asking for it: see Sweep.
//   - Do is atomic for its key, and Together for all keys.
//
// Everything is in memory and gone with the process: it is a cache, and those who use it can make what was in it anew.
// All methods are for any goroutine. New starts none.
package cache

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/usage"
)

// Config of a cache.
type Config struct {
	// MaxBytes bounds it; zero means 256 MiB.
	MaxBytes int64
	// MaxValueBytes bounds one value; zero means 16 MiB, and never more than an eighth of a shard's part of MaxBytes.
	MaxValueBytes int64
	// Shards is how many locks there are, rounded up to a power of two; zero means 16.
	Shards int
	// Tenant says whose a key is; nil means what stands before the first colon.
	Tenant func(key string) string
	// Key hashes what sketches count: the same in all caches whose sketches are merged.
	Key   usage.Key
	Clock clock.Clock
	// Follower hears what changes; nil hears nothing.
	Follower Follower
}

// Cache is a cache. Make one with New.
type Cache struct {
	cfg    Config
	seed   maphash.Seed
	all    sync.RWMutex // held for writing by Together, for reading by Do
	shards []shard
	counts counts
	// versions tells the states of values apart, where somebody follows them.
	versions atomic.Uint64
}

type counts struct{ evicted, expired, hits, misses atomic.Uint64 }

// Stats is a reading.
type Stats struct {
	Keys, Expiring           int
	Bytes, Most              int64
	Tenants                  int
	Evicted, Expired         uint64
	Hits, Misses             uint64
	LargestTenant            string
	LargestTenantBytes, Free int64
}

// New makes an empty cache.
func New(cfg Config) *Cache {
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 256<<20)
	cfg.Shards = 1 << bits.Len(uint(cmp.Or(cfg.Shards, 16)-1))
	most := cfg.MaxBytes / int64(cfg.Shards)
	cfg.MaxValueBytes = min(cmp.Or(cfg.MaxValueBytes, 16<<20), most/8)
	if cfg.Tenant == nil {
		cfg.Tenant = func(key string) string { name, _, _ := strings.Cut(key, ":"); return name }
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	c := &Cache{cfg: cfg, seed: maphash.MakeSeed(), shards: make([]shard, cfg.Shards)}
	for i := range c.shards {
		c.shards[i].clear()
		c.shards[i].most, c.shards[i].counts, c.shards[i].owner = most, &c.counts, cfg.Tenant
		c.shards[i].follower = cfg.Follower
	}
	return c
}

func (c *Cache) shard(key []byte) *shard {
	return &c.shards[maphash.Bytes(c.seed, key)&uint64(len(c.shards)-1)]
}

func (c *Cache) now() int64 { return c.cfg.Clock.Now().UnixMilli() }

// Do gives fn the entry of a key, and nobody else has it meanwhile. The entry, and what it returned, is fn's until fn
// returns. fn must not call the cache.
func (c *Cache) Do(key []byte, fn func(e *Entry)) {
	c.all.RLock()
	defer c.all.RUnlock()
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.use(c, key, c.now(), fn)
}

// use is Do for who has the locks. The shard has one Entry for all, which is nobody's between two calls.
func (s *shard) use(c *Cache, key []byte, now int64, fn func(e *Entry)) {
	e := &s.entry
	*e = Entry{c: c, s: s, key: key, now: now}
	s.journal.begin()
	e.find()
	fn(e)
	e.settle()
	*e = Entry{}
}

// Together gives fn entries of any keys, and nobody else has any meanwhile. What one entry changed counts from the
// next one on.
func (c *Cache) Together(fn func(do func(key []byte, fn func(e *Entry)))) {
	c.all.Lock()
	defer c.all.Unlock()
	now := c.now()
	fn(func(key []byte, fn func(e *Entry)) {
		c.shard(key).use(c, key, now, fn)
	})
}

// Sweep removes what has expired, at most so much of each shard. It returns how many went: call it again at once when
// these were many.
func (c *Cache) Sweep(most int) (gone int) {
	c.all.RLock()
	defer c.all.RUnlock()
	now := c.now()
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		gone += s.expire(now, most)
		s.mu.Unlock()
	}
	return gone
}

// Clear removes everything.
func (c *Cache) Clear() {
	c.all.Lock()
	defer c.all.Unlock()
	for i := range c.shards {
		c.shards[i].clear()
	}
	if c.cfg.Follower != nil {
		c.cfg.Follower.Cleared()
	}
}

// Scan gives some keys to fn, and returns where to go on: at 0 all were given. A key that is there from the first
// call to the last is given at least once. Expired ones are passed over.
func (c *Cache) Scan(cursor uint64, count int, fn func(key string, kind Kind)) (next uint64) {
	c.all.RLock()
	defer c.all.RUnlock()
	now := c.now()
	// A cursor is the shard's number in the low bits, and above them how many of its keys are left, plus one.
	width := bits.Len(uint(len(c.shards) - 1))
	number, left := int(cursor&uint64(len(c.shards)-1)), int(cursor>>width)-1
	for ; number < len(c.shards); number, left = number+1, -1 {
		s := &c.shards[number]
		s.mu.Lock()
		if left < 0 || left > len(s.order) {
			left = len(s.order)
		}
		// From the end on: a key that goes is replaced by the last one, which was given already.
		for left > 0 && count > 0 {
			left--
			count--
			if it := s.order[left]; it.expires == 0 || it.expires > now {
				fn(it.key, it.kind())
			}
		}
		s.mu.Unlock()
		if left > 0 {
			return uint64(left+1)<<width | uint64(number)
		}
	}
	return 0
}

// Stats reads the cache.
func (c *Cache) Stats() Stats {
	st := Stats{Most: c.cfg.MaxBytes, Evicted: c.counts.evicted.Load(), Expired: c.counts.expired.Load(),
		Hits: c.counts.hits.Load(), Misses: c.counts.misses.Load()}
	tenants := map[string]int64{}
	c.all.RLock()
	defer c.all.RUnlock()
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		st.Keys += len(s.order)
		st.Expiring += len(s.soonest)
		st.Bytes += s.bytes
		for name, t := range s.tenants {
			tenants[name] += t.bytes
		}
		s.mu.Unlock()
	}
	st.Tenants = len(tenants)
	for name, n := range tenants {
		if n > st.LargestTenantBytes || n == st.LargestTenantBytes && name < st.LargestTenant {
			st.LargestTenant, st.LargestTenantBytes = name, n
		}
	}
	st.Free = st.Most - st.Bytes
	return st
}

// Keys is how many there are, with those that have expired and not gone yet.
func (c *Cache) Keys() (n int) {
	c.all.RLock()
	defer c.all.RUnlock()
	for i := range c.shards {
		c.shards[i].mu.Lock()
		n += len(c.shards[i].order)
		c.shards[i].mu.Unlock()
	}
	return n
}

// MaxBytes bounds the cache.
func (c *Cache) MaxBytes() int64 { return c.cfg.MaxBytes }

// MaxValueBytes bounds a value.
func (c *Cache) MaxValueBytes() int { return int(c.cfg.MaxValueBytes) }

// Hash is what a sketch counts of an element: never zero.
func (c *Cache) Hash(element []byte) uint64 { return max(c.cfg.Key.Sum(element).Hi, 1) }

// Now is the cache's time in Unix milliseconds.
func (c *Cache) Now() int64 { return c.now() }

// SweepEvery is how often who owns a cache calls Sweep.
const SweepEvery = 100 * time.Millisecond
