package records

import (
	"slices"
	"strings"
	"sync"
	"unsafe"

	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/secrets/storage"
)

// Apply returns the set after the operations. It keeps nothing of them.
func (s Set) Apply(ops []storage.Op) Set {
	c := changers.Get().(*changer)
	defer c.free()
	c.edit, c.count, c.bytes = s.blocks.Edit(), s.count, s.bytes
	for ops = inOrder(ops); len(ops) > 0; {
		old, ok, behind, more := c.edit.Around(at(ops[0].Key))
		if !ok && more { // before all there is
			old = behind
			_, _, behind, more = c.edit.Around(at(old.first()))
		}
		n := len(ops)
		if more {
			n = 1
			for end := behind.first(); n < len(ops) && ops[n].Key < end; {
				n++
			}
		} else {
			behind = ""
		}
		c.change(old, behind, ops[:n])
		ops = ops[n:]
	}
	return Set{blocks: c.edit.Done(), count: c.count, bytes: c.bytes}
}

// inOrder gives operations by their keys; of several on one key the last.
func inOrder(ops []storage.Op) []storage.Op {
	ascending := true
	for i := 1; i < len(ops) && ascending; i++ {
		ascending = ops[i-1].Key < ops[i].Key
	}
	if ascending {
		return ops
	}
	sorted := slices.Clone(ops)
	slices.SortStableFunc(sorted, func(a, b storage.Op) int { return strings.Compare(a.Key, b.Key) })
	kept := sorted[:0]
	for i, op := range sorted {
		if i+1 == len(sorted) || sorted[i+1].Key != op.Key {
			kept = append(kept, op)
		}
	}
	return kept
}

// changer is one Apply under way, with what it works in.
type changer struct {
	edit         table.Edit[block]
	count, bytes int
	packed       packer
	list         []entry
}

// entry is a record on its way to a block.
type entry struct{ key, value string }

var changers = sync.Pool{New: func() any { return new(changer) }}

func (c *changer) free() {
	c.edit = table.Edit[block]{}
	clear(c.list[:cap(c.list)])
	c.list, c.packed.first = c.list[:0], ""
	if cap(c.packed.buf) > 1<<20 || cap(c.list) > 1<<16 { // of a huge value, or a huge batch
		return
	}
	changers.Put(c)
}

// change brings the operations into the block that they belong to; old is "" in an empty set. behind is the block
// behind it, "" where there is none.
func (c *changer) change(old, behind block, ops []storage.Op) {
	if old != "" && c.splice(old, ops) {
		return
	}
	c.merge(old, ops)
	appends := len(c.list) > 0 && len(ops) > 0 && c.list[len(c.list)-1].key == ops[len(ops)-1].Key
	if old != "" {
		c.edit.Delete(old)
	}
	for _, e := range c.list {
		c.packed.add(e.key, e.value)
	}
	length := len(c.packed.buf)
	c.packed.buf = c.packed.buf[:0]
	if length < joinBytes && behind != "" && length+len(behind) <= blockBytes {
		c.edit.Delete(behind)
		for r := behind.cursor(); r.next(); {
			c.list = append(c.list, entry{r.key(), r.value})
		}
		length, appends = length+len(behind), false
	}
	c.pack(length, appends)
}

// pack makes blocks of the list, which is so many bytes long as one. Where records come at the end blocks are filled,
// since more will come there; else they get equal parts.
func (c *changer) pack(length int, appends bool) {
	cuts := (length - 1) / blockBytes
	limit := blockBytes
	if !appends && cuts > 0 {
		limit = length / (cuts + 1)
	}
	for _, e := range c.list {
		if n := len(c.packed.buf); n > 0 && n+c.longer(e) > limit {
			c.edit.Set(c.packed.take())
			if cuts--; cuts <= 0 {
				limit = blockBytes
			}
		}
		c.packed.add(e.key, e.value)
	}
	if len(c.packed.buf) > 0 {
		c.edit.Set(c.packed.take())
	}
}

// longer is about how much longer a record makes the block in the making.
func (c *changer) longer(e entry) int {
	return 4 + len(e.key) - common(c.packed.first, e.key) + len(e.value)
}

// splice makes the next block of old by copying it around what changes; false where it would not fit, or begin with
// another key.
func (c *changer) splice(old block, ops []storage.Op) bool {
	first := old.first()
	if ops[0].Key < first || ops[0].Key == first && ops[0].Value == nil {
		return false
	}
	count, bytes := 0, 0
	put := func(op storage.Op, same int) {
		if op.Value == nil {
			return
		}
		if len(c.packed.buf) == 0 {
			c.packed.head(first, text(op.Value))
		} else {
			c.packed.more(same, op.Key, text(op.Value))
		}
		count, bytes = count+1, bytes+len(op.Key)+len(op.Value)
	}
	r, have := old.cursor(), 0 // bytes of old before have are dealt with
	more := r.next()
	for _, op := range ops {
		same := common(op.Key, first)
		order := 1
		for more {
			if order = r.compare(op.Key, same); order <= 0 {
				break
			}
			more = r.next()
		}
		upto := r.begin
		if !more {
			upto = len(old)
		}
		c.packed.buf = append(c.packed.buf, old[have:upto]...)
		have = upto
		if more && order == 0 {
			count, bytes, have = count-1, bytes-r.size(), r.end
			more = r.next()
		}
		put(op, same)
	}
	c.packed.buf = append(c.packed.buf, old[have:]...)
	n := len(c.packed.buf)
	alone := len(ops) == 1 && ops[0].Key == first && old.single()
	if n > blockBytes && !alone || n < joinBytes && n < len(old) {
		c.packed.buf = c.packed.buf[:0]
		return false
	}
	c.edit.Set(c.packed.take())
	c.count, c.bytes = c.count+count, c.bytes+bytes
	return true
}

// merge makes the list of what the block holds after the operations.
func (c *changer) merge(old block, ops []storage.Op) {
	c.list = c.list[:0]
	put := func(op storage.Op) {
		if op.Value != nil {
			c.list = append(c.list, entry{op.Key, text(op.Value)})
			c.count, c.bytes = c.count+1, c.bytes+len(op.Key)+len(op.Value)
		}
	}
	if old != "" {
		for r := old.cursor(); r.next(); {
			key := r.key()
			for len(ops) > 0 && ops[0].Key < key {
				put(ops[0])
				ops = ops[1:]
			}
			if len(ops) > 0 && ops[0].Key == key {
				c.count, c.bytes = c.count-1, c.bytes-r.size()
				continue // and the operation stays in front, to be put before what comes next
			}
			c.list = append(c.list, entry{key, r.value})
		}
	}
	for _, op := range ops {
		put(op)
	}
}

// text is a value as a text, valid as long as that is not changed.
func text(value []byte) string { return unsafe.String(unsafe.SliceData(value), len(value)) }
