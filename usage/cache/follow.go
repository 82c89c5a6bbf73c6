package cache

import (
	"math/bits"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// Follower hears each change of a value, in the order of the key's changes: what Apply of another cache takes. Its
// methods are called while nobody else has the key, so they must be quick, and must not call the cache.
type Follower interface {
	// Follows says whether anybody needs the changes of a key. asked says that somebody wanted this one; otherwise the
	// value expires, or goes because there is too much.
	Follows(key string, asked bool) bool
	// Changed tells a change. The bytes are the cache's again afterwards.
	Changed(key string, change []byte)
	// Cleared tells that everything is gone.
	Cleared()
}

// The kinds of changes.
const (
	changeWhole = iota + 1 // a value, whatever was there
	changeGone             // no value any more: deleted, expired or evicted
	changePart             // of a value of the version before
)

// The operations of a part.
const (
	opAdd    = iota + 1 // a member
	opRemove            // a member
	opPut               // a field, with its value
	opTake              // a field
	opCount             // a hash
)

// Gone says that a change takes a value away.
func Gone(change []byte) bool { return len(change) > 0 && change[0] == changeGone }

// KeyOf is the key of a change.
func KeyOf(change []byte) (string, error) {
	if len(change) == 0 {
		return "", ErrDump
	}
	r := pack.Read(change[1:])
	if change[0] == changeWhole {
		r.Uint()
		one := r.Record()
		key := one.String()
		return key, first(r.Err(), one.Err())
	}
	key := r.String()
	return key, r.Err()
}

// journal has what happened to one value while Do had it.
type journal struct {
	ops        []byte
	whole, due bool   // the value is to be told as a whole; its end is another one
	out        []byte // the change, for the follower
}

// mostOps bounds the operations that are told; beyond it, the value is.
const mostOps = 64 << 10

func (j *journal) begin() {
	j.ops, j.whole, j.due = j.ops[:0], false, false
	if cap(j.ops) > mostOps {
		j.ops = nil
	}
	if cap(j.out) > 4*mostOps {
		j.out = nil
	}
}

// element notes an operation; a nil journal notes nothing.
func (j *journal) element(op byte, name, value []byte) {
	if j == nil || j.whole {
		return
	}
	j.ops = pack.Bytes(append(j.ops, op), name)
	if op == opPut {
		j.ops = pack.Bytes(j.ops, value)
	}
	j.whole = len(j.ops) > mostOps
}

func (j *journal) number(op byte, n uint64) {
	if j != nil && !j.whole {
		j.ops = pack.Uint(append(j.ops, op), n)
		j.whole = len(j.ops) > mostOps
	}
}

// log is where values note their operations.
func (s *shard) log() *journal {
	if s.follower == nil || s.quiet {
		return nil
	}
	return &s.journal
}

// tell tells the follower what became of the entry's value.
func (e *Entry) tell() {
	s, it, j := e.s, e.it, &e.s.journal
	if s.follower == nil {
		return
	}
	if it.set != nil {
		it.set.log = nil
	}
	if it.hash != nil {
		it.hash.log = nil
	}
	if s.quiet || !j.whole && !j.due && len(j.ops) == 0 || !s.follower.Follows(it.key, true) {
		if j.whole || j.due || len(j.ops) > 0 {
			it.version = 0 // what was told is not what is here any more
		}
		return
	}
	was := it.version
	it.version = e.c.versions.Add(1)
	if j.whole || was == 0 {
		s.tellWhole(it)
		return
	}
	j.out = pack.String(append(j.out[:0], changePart), it.key)
	j.out = pack.Int(pack.Uint(pack.Uint(j.out, was), it.version), it.expires)
	j.out = append(j.out, j.ops...)
	s.follower.Changed(it.key, j.out)
}

func (s *shard) tellWhole(it *item) {
	j := &s.journal
	j.out = it.append(pack.Uint(append(j.out[:0], changeWhole), it.version))
	s.follower.Changed(it.key, j.out)
}

func (s *shard) tellGone(key string, asked bool) {
	if s.follower == nil || s.quiet || !s.follower.Follows(key, asked) {
		return
	}
	s.journal.out = pack.String(append(s.journal.out[:0], changeGone), key)
	s.follower.Changed(key, s.journal.out)
}

// Replay tells the follower some values as they are now, and returns where to go on: at 0 all were told of which in
// says so. A key that is there from the first call to the last is told at least once; one that comes meanwhile was told
// as it came. in must not call the cache.
func (c *Cache) Replay(cursor uint64, bytes int, in func(key string) bool) (next uint64) {
	c.all.RLock()
	defer c.all.RUnlock()
	now := c.now()
	width := bits.Len(uint(len(c.shards) - 1))
	number, left := int(cursor&uint64(len(c.shards)-1)), int(cursor>>width)-1
	for ; number < len(c.shards); number, left = number+1, -1 {
		s := &c.shards[number]
		s.mu.Lock()
		if left < 0 || left > len(s.order) {
			left = len(s.order)
		}
		for looked := 0; left > 0 && bytes > 0 && looked < dumpKeys; looked++ {
			left--
			it := s.order[left]
			if it.expires != 0 && it.expires <= now || !in(it.key) {
				continue
			}
			if it.version == 0 {
				it.version = c.versions.Add(1)
			}
			s.tellWhole(it)
			bytes -= len(s.journal.out)
		}
		s.mu.Unlock()
		if left > 0 {
			return uint64(left+1)<<width | uint64(number)
		}
		if bytes <= 0 && number+1 < len(c.shards) {
			return uint64(number + 1) // all that the next one has
		}
	}
	return 0
}

// Apply does what the follower of another cache was told. What does not fit what is here, since something between was
// not told, takes the value away: a value that is not there is never wrong. fits is false then. Nobody is told of it.
func (c *Cache) Apply(change []byte) (fits bool, err error) {
	if len(change) == 0 {
		return false, ErrDump
	}
	r := pack.Read(change[1:])
	switch change[0] {
	case changeWhole:
		version := r.Uint()
		one := r.Record()
		key, kind, expires := one.String(), Kind(one.Uint()), one.Int()
		if r.Err() != nil || one.Err() != nil || kind < Text || kind > SketchKind || expires < 0 {
			return false, ErrDump
		}
		c.quietly(key, func(e *Entry) {
			e.Delete()
			if err = e.restore(one, kind); err != nil {
				e.Delete() // too large for here, perhaps
				return
			}
			if e.it != nil {
				e.ExpireAt(expires)
				e.it.version, fits = version, true
			}
		})
		if errkind.Is(err, errkind.TooLarge) {
			err = nil
		}
	case changeGone:
		key := r.String()
		if r.Err() != nil {
			return false, ErrDump
		}
		c.quietly(key, func(e *Entry) { e.Delete() })
		fits = true
	case changePart:
		key, was, version, expires := r.String(), r.Uint(), r.Uint(), r.Int()
		if r.Err() != nil || expires < 0 {
			return false, ErrDump
		}
		c.quietly(key, func(e *Entry) {
			fits = e.it != nil && e.it.version == was && e.part(r)
			if !fits {
				e.Delete()
				return
			}
			e.ExpireAt(expires)
			e.it.version = version
		})
	default:
		return false, ErrDump
	}
	if err != nil {
		err = ErrDump
	}
	return fits, err
}

// part does the operations of a change; false where they are none of this value's.
func (e *Entry) part(r *pack.Reader) bool {
	for r.Len() > 0 {
		op := r.Uint()
		if op == opCount {
			hash := r.Uint()
			if r.Err() != nil || e.it.distinct == nil {
				return false
			}
			e.it.distinct.Add(hash, 0)
			continue
		}
		name := r.Bytes()
		switch set, hash := e.it.set, e.it.hash; {
		case r.Err() != nil:
			return false
		case op == opAdd && set != nil:
			set.Add(name)
		case op == opRemove && set != nil:
			set.Remove(name)
		case op == opPut && hash != nil:
			value := r.Bytes()
			if r.Err() != nil {
				return false
			}
			hash.Put(name, value)
		case op == opTake && hash != nil:
			hash.Remove(name)
		default:
			return false
		}
	}
	return r.Err() == nil && int64(e.it.measure()) <= e.c.cfg.MaxValueBytes
}

// quietly is Do without telling the follower of the key.
func (c *Cache) quietly(key string, fn func(e *Entry)) {
	c.all.RLock()
	defer c.all.RUnlock()
	s := c.shard([]byte(key))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = true // until the value is settled: what is evicted for it is told
	s.use(c, []byte(key), c.now(), fn)
	s.quiet = false
}

// Drop removes the values of which in says so, without telling the follower. in must not call the cache.
func (c *Cache) Drop(in func(key string) bool) (gone int) {
	c.all.RLock()
	defer c.all.RUnlock()
	for i := range c.shards {
		s := &c.shards[i]
		for left := -1; left != 0; {
			s.mu.Lock()
			if left < 0 || left > len(s.order) {
				left = len(s.order)
			}
			s.quiet = true
			for looked := 0; left > 0 && looked < dumpKeys; looked++ {
				left--
				if it := s.order[left]; in(it.key) {
					s.remove(it)
					gone++
				}
			}
			s.quiet = false
			s.mu.Unlock()
		}
	}
	return gone
}

// Pass returns when all that had a key when it was called has let it go.
func (c *Cache) Pass() {
	c.all.Lock()
	defer c.all.Unlock()
}
