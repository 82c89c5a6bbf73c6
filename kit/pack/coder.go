package pack

import (
	"maps"
	"math"
	"slices"
)

// Coder passes the fields of a message in their order, one way or the other: it appends them, or sets them from what
// was appended. So a message has its fields written down once, and is read as it was written. While it appends it
// changes nothing that it is given, so values that others read may be passed.
type Coder struct {
	out   []byte
	in    Reader // of the record that is being read
	reads bool
}

// AppendFields appends what fields passes.
func AppendFields(b []byte, fields func(*Coder)) []byte {
	c := Coder{out: b}
	fields(&c)
	return c.out
}

// ReadFields sets what fields passes; damage shows in r.Err.
func ReadFields(r *Reader, fields func(*Coder)) {
	c := Coder{in: *r, reads: true}
	fields(&c)
	*r = c.in
}

// AppendRecord appends a record with what fields passes.
func AppendRecord(b []byte, fields func(*Coder)) []byte {
	c := Coder{out: b}
	c.Record(fields)
	return c.out
}

// ReadRecord sets what fields passes from the next record of r; damage shows in r.Err.
func ReadRecord(r *Reader, fields func(*Coder)) {
	c := Coder{in: *r, reads: true}
	c.Record(fields)
	*r = c.in
}

// Reads tells whether fields are set, not appended.
func (c *Coder) Reads() bool { return c.reads }

// Fail ends reading with err; the first failure stays.
func (c *Coder) Fail(err error) {
	if c.reads && c.in.err == nil {
		c.in.failWith(err)
	}
}

// Record passes a record, which may gain fields at its end.
func (c *Coder) Record(fields func(*Coder)) {
	if !c.reads {
		b, mark := Begin(c.out)
		c.out = b
		fields(c)
		c.out = End(c.out, mark)
		return
	}
	outer := c.in
	c.in = outer.record()
	fields(c)
	outer.Merge(&c.in)
	c.in = outer
}

// String passes texts.
func (c *Coder) String(list ...*string) {
	for _, p := range list {
		if !c.reads {
			c.out = String(c.out, *p)
		} else {
			*p = c.in.String()
		}
	}
}

// Bool passes truths.
func (c *Coder) Bool(list ...*bool) {
	for _, p := range list {
		if !c.reads {
			c.out = Bool(c.out, *p)
		} else {
			*p = c.in.Bool()
		}
	}
}

// Bytes passes bytes. Those that are read still belong to the input.
func (c *Coder) Bytes(list ...*[]byte) {
	for _, p := range list {
		if !c.reads {
			c.out = Bytes(c.out, *p)
		} else {
			*p = c.in.Bytes()
		}
	}
}

// Copy passes bytes, and reads them into memory of their own.
func (c *Coder) Copy(list ...*[]byte) {
	c.Bytes(list...)
	if c.reads {
		for _, p := range list {
			*p = slices.Clone(*p)
		}
	}
}

// Strings passes a list of texts.
func (c *Coder) Strings(p *[]string) {
	if !c.reads {
		c.out = Strings(c.out, *p)
	} else {
		*p = c.in.Strings()
	}
}

// Any, as the most elements that may come, is as many as the input holds: each has at least one byte.
const Any = math.MaxInt

type integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// Signed passes integers in the form of Int.
func Signed[T integer](c *Coder, list ...*T) {
	for _, p := range list {
		if !c.reads {
			c.out = Int(c.out, int64(*p))
		} else {
			*p = T(c.in.Int())
		}
	}
}

// Unsigned passes integers in the form of Uint.
func Unsigned[T integer](c *Coder, list ...*T) {
	for _, p := range list {
		if !c.reads {
			c.out = Uint(c.out, uint64(*p))
		} else {
			*p = T(c.in.Uint())
		}
	}
}

// count passes the length of something, and fails with ErrTooMany where more than most are read.
func (c *Coder) count(n, most int) int {
	if !c.reads {
		c.out = Uint(c.out, uint64(n))
		return n
	}
	if n = c.in.Count(); n > most {
		c.Fail(ErrTooMany)
		return 0
	}
	return n
}

// List passes at most most elements; an empty list is read as nil.
func List[T any](c *Coder, list *[]T, most int, element func(*T)) {
	n := c.count(len(*list), most)
	if !c.reads {
		for i := range *list {
			element(&(*list)[i])
		}
		return
	}
	*list = nil
	for ; n > 0 && c.in.err == nil; n-- {
		var x T
		element(&x)
		*list = append(*list, x)
	}
}

// Map passes at most most entries in the order of their names; an empty map is read as nil.
func Map[T any](c *Coder, m *map[string]T, most int, value func(*T)) {
	n := c.count(len(*m), most)
	if !c.reads {
		if n == 0 {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(*m)) {
			x := (*m)[name]
			c.String(&name)
			value(&x)
		}
		return
	}
	*m = nil
	if n > 0 {
		*m = make(map[string]T, min(n, 64))
	}
	for ; n > 0 && c.in.err == nil; n-- {
		var x T
		name := c.in.String()
		value(&x)
		(*m)[name] = x
	}
}

// Optional passes whether there is a value, and then the value.
func Optional[T any](c *Coder, p **T, value func(*T)) {
	there := *p != nil
	c.Bool(&there)
	if c.reads {
		*p = nil
		if there {
			*p = new(T)
		}
	}
	if there {
		value(*p)
	}
}
