package httpx

import (
	"net/http"
	"strconv"
	"sync"
)

// DefaultCacheBytes bounds a BodyCache that does not say otherwise.
const DefaultCacheBytes = 64 << 20

// entryOverheadBytes is what an entry costs beside its key and bytes.
const entryOverheadBytes = 256

// BodyCache keeps encoded answers by query. An entry stands for one version of
// one query's result: it is used as long as the caller asks with the same
// version, and replaced by the first who asks with another. When many ask at
// once (watchers that a change woke), one encodes and the others wait for it.
//
// The least recently used entries go when the bytes pass the bound. The zero
// value is ready and holds DefaultCacheBytes.
type BodyCache struct {
	// MaxBytes bounds keys, bodies and compressed twins together; an answer over
	// an eighth of it is encoded but not kept.
	MaxBytes int

	mu      sync.Mutex // guards what follows; never held while encoding
	entries map[string]*Body
	head    Body // ring of entries, most recently used first
	bytes   int
}

// Version identifies the content of an answer: the generation of the state
// store (a restore begins another) and the index of the query's result.
type Version struct{ Generation, Index uint64 }

// Body is one encoded answer. It is immutable once ready.
type Body struct {
	version    Version
	data       []byte
	length     []string
	gzipOnce   sync.Once
	gzipped    []byte
	gzipLength []string
	marked     bool

	key        string
	ready      chan struct{}
	failed     bool
	prev, next *Body
	cost       int
}

// Bytes returns the encoded answer; the caller may not change it.
func (b *Body) Bytes() []byte { return b.data }

// Marked tells what the encoder of GetMarked said about the body.
func (b *Body) Marked() bool { return b.marked }

// Get returns the body for key at version, calling encode (with a nil slice to append to)
// unless it is known. Key may be a scratch buffer: it is copied when kept.
func (c *BodyCache) Get(key []byte, v Version, encode func([]byte) []byte) *Body {
	return c.GetMarked(key, v, func(b []byte) ([]byte, bool) { return encode(b), false })
}

// GetMarked is Get with an encoder that also says one thing about the body.
func (c *BodyCache) GetMarked(key []byte, v Version, encode func([]byte) ([]byte, bool)) *Body {
	c.mu.Lock()
	if e := c.entries[string(key)]; e != nil && e.version == v {
		c.moveToFrontLocked(e)
		c.mu.Unlock()
		<-e.ready
		if !e.failed {
			return e
		}
		c.mu.Lock() // the one who encoded panicked: try in this request
	}
	e := &Body{version: v, key: string(key), ready: make(chan struct{}), failed: true}
	c.insertLocked(e)
	c.mu.Unlock()
	defer func() {
		c.account(e) // before ready: nobody else reads or grows e yet
		close(e.ready)
	}()
	e.data, e.marked = encode(nil)
	e.length = []string{strconv.Itoa(len(e.data))}
	e.failed = false
	return e
}

// Clear forgets everything.
func (c *BodyCache) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries, c.bytes = nil, 0
	c.head.next, c.head.prev = &c.head, &c.head
}

// Bytes returns what the cache holds at the moment.
func (c *BodyCache) Bytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

func (c *BodyCache) limit() int {
	if c.MaxBytes > 0 {
		return c.MaxBytes
	}
	return DefaultCacheBytes
}

func (c *BodyCache) insertLocked(e *Body) {
	if c.entries == nil {
		c.entries = map[string]*Body{}
		c.head.next, c.head.prev = &c.head, &c.head
	}
	if old := c.entries[e.key]; old != nil {
		c.removeLocked(old)
	}
	c.entries[e.key] = e
	e.cost = len(e.key) + entryOverheadBytes
	c.bytes += e.cost
	e.next, e.prev = c.head.next, &c.head
	e.next.prev, c.head.next = e, e
}

func (c *BodyCache) removeLocked(e *Body) {
	if e.next == nil || c.entries[e.key] != e {
		return
	}
	delete(c.entries, e.key)
	e.prev.next, e.next.prev = e.next, e.prev
	e.next, e.prev = nil, nil
	c.bytes -= e.cost
}

func (c *BodyCache) moveToFrontLocked(e *Body) {
	if c.head.next == e || e.next == nil {
		return
	}
	e.prev.next, e.next.prev = e.next, e.prev
	e.next, e.prev = c.head.next, &c.head
	e.next.prev, c.head.next = e, e
}

// account books what e has grown to and makes room.
func (c *BodyCache) account(e *Body) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[e.key] != e {
		return // replaced or cleared meanwhile
	}
	cost := len(e.key) + entryOverheadBytes + cap(e.data) + cap(e.gzipped)
	c.bytes += cost - e.cost
	e.cost = cost
	if e.failed || cost > c.limit()/8 {
		c.removeLocked(e)
	}
	for c.bytes > c.limit() && c.head.prev != &c.head {
		c.removeLocked(c.head.prev)
	}
}

// WriteTo answers with the body as JSON, from its compressed twin when the client takes that.
func (c *BodyCache) WriteTo(w http.ResponseWriter, r *http.Request, e *Body) {
	h := w.Header()
	h["Content-Type"] = JSONType
	h["Vary"] = varyValue
	data, compressed := c.Encoded(e, len(e.data) > GzipMinBytes && AcceptsGzip(r))
	h["Content-Length"] = e.length
	if compressed {
		h["Content-Encoding"] = gzipValue
		h["Content-Length"] = e.gzipLength
	}
	WriteBounded(w, data)
}

// Encoded returns what to send of e, which may not be changed: for a client that takes gzip
// the compressed twin, made by the first who asks, when compressing is worth it.
func (c *BodyCache) Encoded(e *Body, gzip bool) (data []byte, compressed bool) {
	if !gzip || len(e.data) <= GzipMinBytes {
		return e.data, false
	}
	e.gzipOnce.Do(func() {
		e.gzipped = Gzip(e.data)
		e.gzipLength = []string{strconv.Itoa(len(e.gzipped))}
		c.account(e)
	})
	return e.gzipped, true
}
