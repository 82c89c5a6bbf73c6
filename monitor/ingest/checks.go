package ingest

import (
	"slices"

	"corbel.dev/corbel/monitor"
)

// checks are an entity's. Most entities have few, and each map that holds one takes as much as half a check: so they
// are in the order of a hash of their names, which is looked for without a look at the checks themselves.
type checks []check

type check struct {
	hash uint32
	key  *key
}

func hashOf[T string | []byte](name T) uint32 {
	h := uint32(2166136261) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return h
}

// from returns where checks of a hash begin.
func (c checks) from(hash uint32) int {
	low, high := 0, len(c)
	for low < high {
		if middle := int(uint(low+high) >> 1); c[middle].hash < hash {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// find returns the check of a name; nil where there is none.
func find[T string | []byte](c checks, name T) *key {
	hash := hashOf(name)
	for i := c.from(hash); i < len(c) && c[i].hash == hash; i++ {
		if c[i].key.res.Check == string(name) {
			return c[i].key
		}
	}
	return nil
}

// add puts a check in, in the place of one of its name.
func (c *checks) add(k *key) {
	hash := hashOf(k.res.Check)
	i := c.from(hash)
	for ; i < len(*c) && (*c)[i].hash == hash; i++ {
		if (*c)[i].key.res.Check == k.res.Check {
			(*c)[i].key = k
			return
		}
	}
	*c = slices.Insert(*c, i, check{hash, k})
}

// drop takes a check out, and nothing where another one has its name.
func (c *checks) drop(k *key) {
	*c = slices.DeleteFunc(*c, func(x check) bool { return x.key == k })
}

// of has a result that was read share with its entity and its kind what these have too.
func (k *key) of(e *entity) {
	r := &k.res
	r.Stable, r.Namespace, r.Entity = k.kind.Stable, e.namespace, e.entity
	if r.Check == k.kind.Check.Name {
		r.Check = k.kind.Check.Name
	}
	r.ProcessedBy = e.text([]byte(r.ProcessedBy))
}

// text returns a text, the entity's own name where it is that.
func (e *entity) text(b []byte) string {
	if string(b) == e.entity {
		return e.entity
	}
	return string(b)
}

// isBeat reports whether the output of k's newest result is what a keepalive's is always. The lock is held.
func (s *shard) isBeat(k *key, output []byte) bool {
	if k.res.Check != monitor.KeepaliveCheck {
		return false
	}
	s.text = monitor.AppendKeepaliveOutput(s.text[:0], k.res.Entity, k.res.State.Executed)
	return string(s.text) == string(output)
}
