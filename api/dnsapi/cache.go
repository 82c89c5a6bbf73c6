package dnsapi

import (
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/miekg/dns"

	"corbel.dev/corbel/catalog/statestore"
)

const (
	cacheShards = 16
	// shardLimit bounds the cache at 16,384 answers; a shard that is full is emptied, which costs each
	// of its names one slow answer.
	shardLimit = 1024
	// encodedLimit keeps an answer of thousands of instances from being held for each type.
	encodedLimit = 1 << 20
)

// encoded is a result's records in wire form, ready to be put in any order.
type encoded struct {
	groups []encodedGroup
	soa    bool // Authority is the zone's SOA
	zone   *zone
}

// encodedGroup is one answer without its owner name, which is the question's, and its
// Additional records.
type encodedGroup struct {
	rr     []byte // type, class, ttl, length, data
	extra  []encodedExtra
	size   int // of rr with its owner
	extras int // of extra with their owners
}

type encodedExtra struct {
	ofTarget bool // the owner is the target of the answer's SRV; else the question's name
	rr       []byte
}

// entry is a cached answer and what it depends on.
type entry struct {
	encoded
	settings *settled
	access   uint64
	indexOf  func(*statestore.State) uint64
	index    uint64
	// seen is the State.Index at which the entry was last found to hold.
	seen atomic.Uint64
}

// holds tells that the entry is still what the slow path would say.
func (e *entry) holds(c *settled, state *statestore.State, access uint64) bool {
	if e.settings != c || e.access != access {
		return false
	}
	now, seen := state.Index(), e.seen.Load()
	if now == seen {
		return true
	}
	if now < seen || e.indexOf(state) != e.index { // the index goes back when a snapshot is restored
		return false
	}
	e.seen.Store(now)
	return true
}

// cache holds answers by question: the name as encoded, in lower case, and the type.
type cache struct{ shards [cacheShards]cacheShard }

type cacheShard struct {
	mu      sync.RWMutex // guards entries; a leaf
	entries map[string]*entry
}

func newCache() *cache {
	c := &cache{}
	for i := range c.shards {
		c.shards[i].entries = make(map[string]*entry)
	}
	return c
}

func (c *cache) shard(key []byte) *cacheShard { return &c.shards[xxhash.Sum64(key)%cacheShards] }

func (c *cache) get(key []byte) *entry {
	shard := c.shard(key)
	shard.mu.RLock()
	e := shard.entries[string(key)]
	shard.mu.RUnlock()
	return e
}

func (c *cache) put(key []byte, e *entry) {
	shard := c.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if len(shard.entries) >= shardLimit {
		clear(shard.entries)
	}
	shard.entries[string(key)] = e
}

// encode writes a result's records; ok is false when they cannot be kept.
func encode(r *result, z *zone) (out encoded, ok bool) {
	if r.rcode != dns.RcodeSuccess || len(r.extra) > 0 || len(r.ns) > 0 {
		return out, false
	}
	out.soa, out.zone = r.soa, z
	total := 0
	for _, g := range r.groups {
		rr, ok := encodeRR(g.rr)
		if !ok {
			return out, false
		}
		eg := encodedGroup{rr: rr, size: len(rr) + 2}
		for _, x := range g.extra {
			rr, ok := encodeRR(x)
			if !ok {
				return out, false
			}
			srv, isSRV := g.rr.(*dns.SRV)
			eg.extra = append(eg.extra, encodedExtra{ofTarget: isSRV && x.Header().Name == srv.Target, rr: rr})
			eg.extras += len(rr) + 2
		}
		if total += eg.size + eg.extras; total > encodedLimit {
			return out, false
		}
		out.groups = append(out.groups, eg)
	}
	return out, true
}

// encodeRR packs a record and drops its owner, which is put in as a pointer later.
func encodeRR(rr dns.RR) ([]byte, bool) {
	bare := dns.Copy(rr)
	bare.Header().Name = "."
	b := make([]byte, dns.Len(bare)+1)
	n, err := dns.PackRR(bare, b, 0, nil, false)
	if err != nil {
		return nil, false
	}
	return b[1:n:n], true
}
