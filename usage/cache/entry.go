package cache

import (
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/sketch"
)

// Entry is a key's place while Do or Together has it.
type Entry struct {
	c   *Cache
	s   *shard
	key []byte
	it  *item // nil is missing
	now int64
}

// The errors of entries.
var (
	ErrKind  = errkind.New(errkind.Conflict, "the value is of another kind")
	ErrLarge = errkind.New(errkind.TooLarge, "the value is larger than a value may be")
	ErrPlain = errkind.New(errkind.Conflict, "the value is no sketch")
)

// A sketch is exact up to sketchExact hashes, and then has a standard error of 0.65 %.
const (
	sketchExact     = 256
	sketchPrecision = 14
)

func (e *Entry) find() {
	it := e.s.keys[string(e.key)]
	if it != nil && it.expires != 0 && it.expires <= e.now {
		e.s.remove(it)
		e.s.counts.expired.Add(1)
		it = nil
	}
	e.it = it
	if it == nil {
		if !e.s.quiet {
			e.s.counts.misses.Add(1)
		}
		return
	}
	if !e.s.quiet {
		e.s.counts.hits.Add(1)
	}
	it.tenant.use(it)
}

// settle counts what was changed.
func (e *Entry) settle() {
	if e.it == nil {
		return
	}
	if e.it.set != nil && e.it.set.Len() == 0 || e.it.hash != nil && e.it.hash.Len() == 0 ||
		e.it.expires != 0 && e.it.expires <= e.now {
		e.Delete()
		return
	}
	e.s.weigh(e.it)
	e.tell()
	e.s.quiet = false
	e.s.fit(e.now)
}

func (e *Entry) make() *item {
	if e.it == nil {
		e.s.journal.whole = true
		e.it = &item{key: string(e.key)}
		e.s.add(e.it)
	}
	return e.it
}

// Kind is what the value is.
func (e *Entry) Kind() Kind {
	if e.it == nil {
		return Missing
	}
	return e.it.kind()
}

// Room says whether n bytes more fit into the value.
func (e *Entry) Room(n int) error {
	if e.it != nil {
		n += int(e.it.measure())
	}
	if int64(n) > e.c.cfg.MaxValueBytes {
		return ErrLarge
	}
	return nil
}

// Text returns the value as a text; a sketch is told in its own form. ok is false where there is none.
func (e *Entry) Text() (text []byte, ok bool, err error) {
	switch e.Kind() {
	case Missing:
		return nil, false, nil
	case Text:
		return e.it.text, true, nil
	case SketchKind:
		return e.it.distinct.Append(nil), true, nil
	}
	return nil, false, ErrKind
}

// SetText makes the value a text, whatever it was. When it expires stays.
func (e *Entry) SetText(text []byte) error {
	if int64(len(text)) > e.c.cfg.MaxValueBytes {
		return ErrLarge
	}
	it := e.make()
	e.s.journal.whole = true
	it.set, it.hash, it.distinct = nil, nil, nil
	if cap(it.text) < len(text) || cap(it.text) > 2*len(text)+64 {
		it.text = nil
	}
	it.text = append(it.text[:0], text...)
	return nil
}

// Set returns the value as a set, or nil where there is none and it is not to be made. An empty one goes in the end.
func (e *Entry) Set(create bool) (*Set, error) {
	switch kind := e.Kind(); {
	case kind == Missing && create:
		e.make().set = &Set{}
	case kind == Missing:
		return nil, nil
	case kind != SetKind:
		return nil, ErrKind
	}
	e.it.set.log = e.s.log()
	return e.it.set, nil
}

// Hash returns the value as a hash, or nil where there is none and it is not to be made. An empty one goes in the end.
func (e *Entry) Hash(create bool) (*Hash, error) {
	switch kind := e.Kind(); {
	case kind == Missing && create:
		e.make().hash = &Hash{}
	case kind == Missing:
		return nil, nil
	case kind != HashKind:
		return nil, ErrKind
	}
	e.it.hash.log = e.s.log()
	return e.it.hash, nil
}

// Sketch returns the value as a sketch, or nil where there is none and it is not to be made. A text that has a
// sketch's own form becomes one. Who does not say create must not change it.
func (e *Entry) Sketch(create bool) (*sketch.Distinct, error) {
	d, err := e.sketch(create)
	if create {
		e.s.journal.whole = true
	}
	return d, err
}

// Count adds a hash to the value as a sketch, which it makes; false when that changed nothing.
func (e *Entry) Count(hash uint64) (bool, error) {
	d, err := e.sketch(true)
	if err != nil || !d.Add(hash, 0) {
		return false, err
	}
	e.s.log().number(opCount, hash)
	return true, nil
}

func (e *Entry) sketch(create bool) (*sketch.Distinct, error) {
	switch e.Kind() {
	case Missing:
		if !create {
			return nil, nil
		}
		e.make().distinct = NewSketch()
	case Text:
		r := pack.Read(e.it.text)
		d, err := sketch.ReadDistinct(r)
		if err != nil || r.Len() > 0 {
			return nil, ErrPlain
		}
		e.it.distinct, e.it.text = d, nil
		e.s.journal.whole = true
	case SketchKind:
	default:
		return nil, ErrKind
	}
	return e.it.distinct, nil
}

// NewSketch makes an empty sketch as entries have them.
func NewSketch() *sketch.Distinct { return sketch.NewDistinct(sketchExact, sketchPrecision) }

// Delete removes the value; false when there was none.
func (e *Entry) Delete() bool {
	if e.it == nil {
		return false
	}
	e.s.asked = true
	e.s.remove(e.it)
	e.s.asked = false
	e.it = nil
	return true
}

// Expires is when the value goes, in Unix milliseconds; 0 is never.
func (e *Entry) Expires() int64 {
	if e.it == nil {
		return 0
	}
	return e.it.expires
}

// ExpireAt sets when the value goes, in Unix milliseconds; 0 is never, and what has passed is at once.
func (e *Entry) ExpireAt(at int64) {
	if e.it != nil {
		e.s.journal.due = e.s.journal.due || e.it.expires != at
		e.s.expireAt(e.it, at)
	}
}
