// Package limit bounds what callers may do: Rate limits how often per key, Gate
// how many at once.
//
// Rate is a sharded GCRA (a leaky bucket of one number per key) with bounded
// memory: an idle key is forgotten without changing any answer, and when more
// than MaxKeys are busy at once the least indebted of a sample is forgotten,
// which can only let somebody do more, never less.
//
// Gate hands out a fixed number of permits. Those who wait queue per key and are
// served round robin over the keys, so that one tenant's storm delays the others
// by one turn and not by its length. The queue is bounded, and who cannot be
// served before its deadline is refused at once.
package limit

import (
	"hash/maphash"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
)

const rateShards = 32

// RateConfig configures a Rate.
type RateConfig struct {
	// PerSecond is the sustained rate of one key; zero or less means no limit.
	PerSecond float64
	// Burst is how many may come at once; zero means 1.
	Burst int
	// MaxKeys bounds the keys remembered; zero means 65,536.
	MaxKeys int
	// Clock measures time; nil means the machine's.
	Clock clock.Clock
}

// Rate limits the rate per key. Safe for concurrent use.
type Rate struct {
	interval time.Duration // between two at the sustained rate; 0 means no limit
	slack    time.Duration // how far ahead of now a key's next time may lie
	perShard int
	clk      clock.Clock
	start    time.Time
	seed     maphash.Seed
	shards   [rateShards]rateShard
}

type rateShard struct {
	mu sync.Mutex // guards all below
	// next is, per key, when its debt is paid, as time since start.
	next map[string]time.Duration
	_    [48]byte // a cache line to each shard
}

// NewRate makes a limiter.
func NewRate(cfg RateConfig) *Rate {
	if cfg.Burst <= 0 {
		cfg.Burst = 1
	}
	if cfg.MaxKeys <= 0 {
		cfg.MaxKeys = 65536
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	r := &Rate{clk: cfg.Clock, start: cfg.Clock.Now(), seed: maphash.MakeSeed(),
		perShard: max(1, cfg.MaxKeys/rateShards)}
	if cfg.PerSecond > 0 {
		r.interval = max(1, time.Duration(float64(time.Second)/cfg.PerSecond))
		r.slack = r.interval * time.Duration(cfg.Burst)
	}
	for i := range r.shards {
		r.shards[i].next = map[string]time.Duration{}
	}
	return r
}

// Allow takes one for key. When it is too early it takes nothing and tells how long to wait.
func (r *Rate) Allow(key string) (ok bool, retryAfter time.Duration) {
	if r.interval == 0 {
		return true, 0
	}
	now := r.clk.Since(r.start)
	shard := &r.shards[maphash.String(r.seed, key)%rateShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	next, known := shard.next[key]
	next = max(next, now) + r.interval
	if ahead := next - now; ahead > r.slack {
		return false, ahead - r.slack
	}
	if !known && len(shard.next) >= r.perShard {
		shard.forgetLocked(now)
	}
	shard.next[key] = next
	return true, 0
}

// forgetLocked makes room: it drops idle keys among a sample, or else its least indebted one.
func (s *rateShard) forgetLocked(now time.Duration) {
	const sample = 16
	least, leastNext, seen, dropped := "", time.Duration(0), 0, 0
	for key, next := range s.next { // the order of a map is random enough for a sample
		if next <= now {
			delete(s.next, key)
			dropped++
		} else if least == "" || next < leastNext {
			least, leastNext = key, next
		}
		if seen++; seen >= sample {
			break
		}
	}
	if dropped == 0 {
		delete(s.next, least)
	}
}

// Keys counts the keys remembered.
func (r *Rate) Keys() int {
	n := 0
	for i := range r.shards {
		r.shards[i].mu.Lock()
		n += len(r.shards[i].next)
		r.shards[i].mu.Unlock()
	}
	return n
}
