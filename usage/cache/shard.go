package cache

import (
	"container/heap"
	"sync"

	"corbel.dev/corbel/usage/sketch"
)

// shard is a part of the keys.
type shard struct {
	mu      sync.Mutex
	keys    map[string]*item
	order   []*item // all items, for Scan; item.at is the place
	tenants map[string]*tenant
	fattest tenantHeap
	soonest itemHeap // those that expire
	bytes   int64
	most    int64
	entry   Entry
	counts  *counts
	owner   func(key string) string

	follower Follower // nil where nobody follows
	quiet    bool     // what changes now is told to nobody
	asked    bool     // what goes now was deleted
	journal  journal
}

// item is a key with its value: one of text, set, hash and distinct.
type item struct {
	key      string
	text     []byte
	set      *Set
	hash     *Hash
	distinct *sketch.Distinct

	tenant      *tenant
	newer, past *item // in its tenant's order of use
	size        int64
	expires     int64  // Unix milliseconds; 0 is never
	version     uint64 // of the state that was told last; 0 is none
	at, due     int    // places in order and soonest
}

// tenant is what one has in a shard.
type tenant struct {
	name           string
	bytes          int64
	oldest, newest *item // by use
	place          int   // in fattest
}

// What a key, a tenant and an element take beside their bytes: measured with maps of a million.
const (
	itemBytes    = 240
	tenantBytes  = 160
	elementBytes = 72
)

func (s *shard) clear() {
	s.keys, s.tenants = map[string]*item{}, map[string]*tenant{}
	s.order, s.fattest, s.soonest, s.bytes = nil, nil, nil, 0
}

// Kind is what a value is.
type Kind uint8

// The kinds. Missing is no value.
const (
	Missing Kind = iota
	Text
	SetKind
	HashKind
	SketchKind
)

func (it *item) kind() Kind {
	switch {
	case it.set != nil:
		return SetKind
	case it.hash != nil:
		return HashKind
	case it.distinct != nil:
		return SketchKind
	}
	return Text
}

// measure is what an item takes.
func (it *item) measure() int64 {
	n := int64(itemBytes+len(it.key)) + int64(cap(it.text))
	switch {
	case it.set != nil:
		n += it.set.bytes
	case it.hash != nil:
		n += it.hash.bytes
	case it.distinct != nil:
		n += int64(it.distinct.Bytes())
	}
	return n
}

// add puts a new item into the shard.
func (s *shard) add(it *item) {
	name := s.owner(it.key)
	t := s.tenants[name]
	if t == nil {
		t = &tenant{name: name, bytes: tenantBytes + int64(len(name))}
		s.tenants[name] = t
		heap.Push(&s.fattest, t)
		s.bytes += t.bytes
	}
	it.tenant, it.at, it.due = t, len(s.order), -1
	s.keys[it.key] = it
	s.order = append(s.order, it)
	t.use(it)
}

// use makes an item its tenant's newest one.
func (t *tenant) use(it *item) {
	if t.newest == it {
		return
	}
	t.unlink(it)
	it.past, it.newer = t.newest, nil
	if t.newest != nil {
		t.newest.newer = it
	}
	t.newest = it
	if t.oldest == nil {
		t.oldest = it
	}
}

func (t *tenant) unlink(it *item) {
	if it.past != nil {
		it.past.newer = it.newer
	} else if t.oldest == it {
		t.oldest = it.newer
	}
	if it.newer != nil {
		it.newer.past = it.past
	} else if t.newest == it {
		t.newest = it.past
	}
	it.past, it.newer = nil, nil
}

// weigh counts what an item takes now.
func (s *shard) weigh(it *item) {
	size := it.measure()
	if size == it.size {
		return
	}
	s.bytes += size - it.size
	it.tenant.bytes += size - it.size
	it.size = size
	heap.Fix(&s.fattest, it.tenant.place)
}

// remove takes an item out.
func (s *shard) remove(it *item) {
	s.tellGone(it.key, s.asked)
	s.expireAt(it, 0)
	last := s.order[len(s.order)-1]
	s.order[it.at], last.at = last, it.at
	s.order[len(s.order)-1] = nil
	s.order = s.order[:len(s.order)-1]
	delete(s.keys, it.key)
	t := it.tenant
	t.unlink(it)
	t.bytes -= it.size
	s.bytes -= it.size
	if t.oldest != nil {
		heap.Fix(&s.fattest, t.place)
		return
	}
	heap.Remove(&s.fattest, t.place)
	delete(s.tenants, t.name)
	s.bytes -= t.bytes
}

// expireAt sets when an item goes; 0 is never.
func (s *shard) expireAt(it *item, at int64) {
	it.expires = at
	switch {
	case at == 0 && it.due >= 0:
		heap.Remove(&s.soonest, it.due)
	case at != 0 && it.due >= 0:
		heap.Fix(&s.soonest, it.due)
	case at != 0:
		heap.Push(&s.soonest, it)
	}
}

// expire removes what has expired, at most so many.
func (s *shard) expire(now int64, most int) (gone int) {
	for ; gone < most && len(s.soonest) > 0 && s.soonest[0].expires <= now; gone++ {
		s.remove(s.soonest[0])
	}
	s.counts.expired.Add(uint64(gone))
	return gone
}

// fit makes the shard small enough. The tenant that has the most gives what it used least recently.
func (s *shard) fit(now int64) {
	if s.bytes <= s.most {
		return
	}
	s.expire(now, len(s.soonest))
	for s.bytes > s.most && len(s.fattest) > 0 {
		s.remove(s.fattest[0].oldest)
		s.counts.evicted.Add(1)
	}
}

// tenantHeap has the tenant with the most bytes first.
type tenantHeap []*tenant

func (h tenantHeap) Len() int           { return len(h) }
func (h tenantHeap) Less(i, j int) bool { return h[i].bytes > h[j].bytes }
func (h tenantHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].place, h[j].place = i, j }

// Push implements heap.Interface.
func (h *tenantHeap) Push(x any) {
	t := x.(*tenant)
	t.place = len(*h)
	*h = append(*h, t)
}

// Pop implements heap.Interface.
func (h *tenantHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return t
}

// itemHeap has the item first that expires first.
type itemHeap []*item

func (h itemHeap) Len() int           { return len(h) }
func (h itemHeap) Less(i, j int) bool { return h[i].expires < h[j].expires }
func (h itemHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].due, h[j].due = i, j }

// Push implements heap.Interface.
func (h *itemHeap) Push(x any) {
	it := x.(*item)
	it.due = len(*h)
	*h = append(*h, it)
}

// Pop implements heap.Interface.
func (h *itemHeap) Pop() any {
	old := *h
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*h, it.due = old[:len(old)-1], -1
	return it
}
