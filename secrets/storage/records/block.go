package records

import (
	"strings"
	"unsafe"

	"corbel.dev/corbel/secrets/storage"
)

// block is a run of records in the order of their keys, as one text. There are millions of
// records, most of some hundred bytes, and keys that stand beside each other begin alike: in blocks
// they have no pointer each for the collector to follow, and what keys share is there once.
//
// The first record is the length of its key in two bytes, the key, and the value; each
// further one is how many bytes of its key are those of the first key, the rest of the key, and the value.
// Numbers are unsigned varints; rests and values have their length before them.
type block string

const (
	// blockBytes is how long a block may be that has more than one record. A commit copies each block that it
	// touches: by BenchmarkApply a longer one costs time, and a shorter one memory.
	blockBytes = 1536
	// joinBytes is below what a block joins the one behind it, where there is room.
	joinBytes = blockBytes / 4
	// maxKeyBytes is what two bytes can say; backends take far shorter keys.
	maxKeyBytes = 1<<16 - 1
)

// first is the first record's key.
func (b block) first() string { return string(b[2 : 2+(int(b[0])<<8|int(b[1]))]) }

// single reports whether there is one record.
func (b block) single() bool {
	r := b.cursor()
	return r.next() && r.end == len(b)
}

// compareBlocks orders blocks as their first keys.
func compareBlocks(a, b block) int { return strings.Compare(a.first(), b.first()) }

// cursor goes through the records of a block. Its key is first[:shared] and rest.
type cursor struct {
	text, first string
	shared      int
	rest, value string
	begin, end  int // of the record in text
}

func (b block) cursor() cursor { return cursor{text: string(b), first: b.first()} }

// next goes to the next record, false where there is none.
func (c *cursor) next() bool {
	at := c.end
	if at == len(c.text) {
		return false
	}
	c.begin = at
	if at == 0 {
		at = 2 + len(c.first)
		c.shared, c.rest = len(c.first), ""
	} else {
		c.shared, at = number(c.text, at)
		c.rest, at = piece(c.text, at)
	}
	c.value, c.end = piece(c.text, at)
	return true
}

// number reads a varint of text, which a block's builder wrote.
func number(text string, at int) (n, next int) {
	for shift := 0; ; shift += 7 {
		b := text[at]
		at++
		if n |= int(b&0x7f) << shift; b < 0x80 {
			return n, at
		}
	}
}

func piece(text string, at int) (part string, next int) {
	n, at := number(text, at)
	return text[at : at+n], at + n
}

// compare compares a key with the record's. same is how many bytes key and first have in common.
func (c *cursor) compare(key string, same int) int {
	switch {
	case c.shared > same: // the record's key begins as first does where key is another
		if same == len(key) || key[same] < c.first[same] {
			return -1
		}
		return 1
	case c.shared < same: // it is behind first where key is still the same
		return -1
	}
	return strings.Compare(key[same:], c.rest)
}

// seek goes to the first record whose key is not less than key, false where there is none.
func (c *cursor) seek(key string) (equal, ok bool) {
	same := common(key, c.first)
	for c.next() {
		if order := c.compare(key, same); order <= 0 {
			return order == 0, true
		}
	}
	return false, false
}

// key is the record's key, as a text of its own.
func (c *cursor) key() string {
	if c.shared == len(c.first) && c.rest == "" {
		return c.first
	}
	return c.first[:c.shared] + c.rest
}

// bytes is the value, which is not to be changed, as no value of a backend is.
func (c *cursor) bytes() []byte {
	if c.value == "" {
		return []byte{}
	}
	return unsafe.Slice(unsafe.StringData(c.value), len(c.value))
}

func (c *cursor) record() storage.Record { return storage.Record{Key: c.key(), Value: c.bytes()} }

// size is the length of key and value.
func (c *cursor) size() int { return c.shared + len(c.rest) + len(c.value) }

// common is how many bytes two texts have in common at their beginning.
func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// packer puts records together to blocks. They come in the order of their keys. The zero value is ready.
type packer struct {
	first string
	buf   []byte
}

// add adds a record behind those that are there.
func (p *packer) add(key, value string) {
	if len(p.buf) == 0 {
		p.head(key, value)
		return
	}
	p.more(common(p.first, key), key, value)
}

func (p *packer) head(key, value string) {
	if len(key) > maxKeyBytes {
		panic("records: a key that no backend takes")
	}
	p.first = key
	p.buf = append(append(p.buf, byte(len(key)>>8), byte(len(key))), key...)
	p.piece(value)
}

// more adds a record behind the first.
func (p *packer) more(same int, key, value string) {
	if len(key) > maxKeyBytes {
		panic("records: a key that no backend takes")
	}
	p.number(same)
	p.piece(key[same:])
	p.piece(value)
}

func (p *packer) number(n int) {
	for ; n >= 0x80; n >>= 7 {
		p.buf = append(p.buf, byte(n)|0x80)
	}
	p.buf = append(p.buf, byte(n))
}

func (p *packer) piece(part string) {
	p.number(len(part))
	p.buf = append(p.buf, part...)
}

// take gives the block of what was added, and begins anew.
func (p *packer) take() block {
	b := block(p.buf) // a copy of exactly that length
	p.buf = p.buf[:0]
	return b
}

// longerBytes is how much longer a record makes a block at most, whatever its key has in common.
func longerBytes(key, value string) int { return len(key) + len(value) + 9 }
