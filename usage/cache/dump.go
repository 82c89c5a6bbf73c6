package cache

import (
	"math/bits"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/sketch"
)

// Dump appends the keys of which in says so to b, from a cursor on, until about so many bytes are there, and returns
// where to go on: at 0 all were given. It gives what Scan would: a key that is there from the first call to the last
// is given at least once. in must not call the cache.
func (c *Cache) Dump(b []byte, cursor uint64, bytes int, in func(key string) bool) (_ []byte, next uint64) {
	c.all.RLock()
	defer c.all.RUnlock()
	now, began := c.now(), len(b)
	width := bits.Len(uint(len(c.shards) - 1))
	number, left := int(cursor&uint64(len(c.shards)-1)), int(cursor>>width)-1
	for ; number < len(c.shards); number, left = number+1, -1 {
		s := &c.shards[number]
		s.mu.Lock()
		if left < 0 || left > len(s.order) {
			left = len(s.order)
		}
		for looked := 0; left > 0 && len(b)-began < bytes && looked < dumpKeys; looked++ {
			left--
			if it := s.order[left]; (it.expires == 0 || it.expires > now) && in(it.key) {
				b = it.append(b)
			}
		}
		s.mu.Unlock()
		if left > 0 {
			return b, uint64(left+1)<<width | uint64(number)
		}
		if len(b)-began >= bytes && number+1 < len(c.shards) {
			return b, uint64(number + 1) // all that the next one has
		}
	}
	return b, 0
}

// dumpKeys bounds the keys that are looked at while others wait for the shard.
const dumpKeys = 4096

// append encodes an item.
func (it *item) append(b []byte) []byte {
	b, mark := pack.Begin(b)
	b = pack.Uint(pack.String(b, it.key), uint64(it.kind()))
	b = pack.Int(b, it.expires)
	switch it.kind() {
	case SetKind:
		b = pack.Uint(b, uint64(it.set.Len()))
		for _, m := range it.set.Members() {
			b = pack.String(b, m)
		}
	case HashKind:
		b = pack.Uint(b, uint64(it.hash.Len()))
		it.hash.All(func(field string, value []byte) { b = pack.Bytes(pack.String(b, field), value) })
	case SketchKind:
		b = it.distinct.Append(b)
	default:
		b = pack.Bytes(b, it.text)
	}
	return pack.End(b, mark)
}

// ErrDump is the answer to bytes that Dump has not made.
var ErrDump = errkind.New(errkind.Invalid, "these bytes are no part of a snapshot")

// Restore takes in what Dump of another cache gave, and returns how many keys that were. What is here is newer: a text
// or a field that is there stays, sets and sketches become the union, and the later time to go holds. A value for which
// there is no room is left out.
func (c *Cache) Restore(chunk []byte) (keys int, err error) {
	return c.Take(chunk, func(string) bool { return true })
}

// Take is Restore of the keys of which may says so. It is asked while nobody else has the key, and must not call the
// cache.
func (c *Cache) Take(chunk []byte, may func(key string) bool) (keys int, err error) {
	for r := pack.Read(chunk); r.Len() > 0; keys++ {
		one := r.Record()
		key, kind, expires := one.String(), Kind(one.Uint()), one.Int()
		if one.Err() != nil || r.Err() != nil || kind < Text || kind > SketchKind || expires < 0 {
			return keys, ErrDump
		}
		c.Do([]byte(key), func(e *Entry) {
			fresh := e.Kind() == Missing
			if !may(key) || !fresh && e.Kind() != kind {
				return // it is another thing now
			}
			if err = e.restore(one, kind); err == nil {
				if was := e.Expires(); fresh || was != 0 && (expires == 0 || expires > was) {
					e.ExpireAt(expires)
				}
			} else if fresh {
				e.Delete()
			}
		})
		if errkind.Is(err, errkind.TooLarge) {
			err = nil
		}
		if err != nil {
			return keys, ErrDump
		}
	}
	return keys, nil
}

// restore takes a value in.
func (e *Entry) restore(r *pack.Reader, kind Kind) error {
	switch kind {
	case SetKind:
		set, err := e.Set(true)
		for n := r.Count(); n > 0 && err == nil; n-- {
			member := r.Bytes()
			if err = e.Room(len(member) + elementBytes); err == nil && r.Err() == nil {
				set.Add(member)
			}
		}
		return first(r.Err(), err)
	case HashKind:
		hash, err := e.Hash(true)
		for n := r.Count(); n > 0 && err == nil; n-- {
			field, value := r.Bytes(), r.Bytes()
			if _, had := hash.Get(field); !had && r.Err() == nil {
				if err = e.Room(len(field) + len(value) + 2*elementBytes); err == nil {
					hash.Put(field, value)
				}
			}
		}
		return first(r.Err(), err)
	case SketchKind:
		other, err := sketch.ReadDistinct(r)
		if err != nil {
			return err
		}
		own, err := e.Sketch(true)
		if err == nil {
			own.Merge(other, ^uint64(0), -1)
		}
		return err
	}
	text := r.Bytes()
	if r.Err() != nil || e.Kind() == Text {
		return r.Err()
	}
	return e.SetText(text)
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
