// Package pack is Corbel's binary encoding for commands, snapshots and internal
// messages: fields in a fixed order, integers as varints, strings and bytes with
// a length before them, records framed by their length.
//
// Evolution rule: a record (Begin/End) may only gain fields at its end. A reader
// that meets a longer record ignores the rest; one that meets a shorter record
// gets zero values (Reader.More tells the difference). A field is never removed
// or given another meaning.
//
// Appending never fails. A Reader never panics on hostile input: the first
// damage sticks in Err, later reads return zero values, and no allocation is
// larger than the input that remains. Values are not safe for concurrent use.
package pack

import (
	"encoding/binary"
	"errors"
	"math"
)

// ErrDamaged tells that the input ended early or a length does not fit it.
var ErrDamaged = errors.New("pack: damaged or truncated input")

// ErrTooMany tells that a list is longer than its reader allows.
var ErrTooMany = errors.New("pack: too many elements")

// Uint appends v as an unsigned varint.
func Uint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

// Int appends v as a zig-zag varint.
func Int(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

// Float appends v as eight bytes, little endian.
func Float(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

// Bool appends one byte.
func Bool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// String appends the length and the bytes of s.
func String(b []byte, s string) []byte { return append(Uint(b, uint64(len(s))), s...) }

// Bytes appends the length and the bytes of p; nil and empty are not told apart.
func Bytes(b, p []byte) []byte { return append(Uint(b, uint64(len(p))), p...) }

// Strings appends a count and each string.
func Strings(b []byte, list []string) []byte {
	b = Uint(b, uint64(len(list)))
	for _, s := range list {
		b = String(b, s)
	}
	return b
}

// recordHeadBytes is the fixed width of a record's length: fixed, so that a
// record is written in place without knowing its length beforehand.
const recordHeadBytes = 4

// Begin opens a record and returns the mark that End needs. Records nest.
func Begin(b []byte) ([]byte, int) {
	b = append(b, 0, 0, 0, 0)
	return b, len(b)
}

// End closes the record that Begin opened at mark.
func End(b []byte, mark int) []byte {
	binary.LittleEndian.PutUint32(b[mark-recordHeadBytes:mark], uint32(len(b)-mark))
	return b
}

// Reader takes fields off a byte slice in the order in which they were appended.
type Reader struct {
	buf []byte
	err error
}

// Read returns a Reader over b, which it does not change or copy.
func Read(b []byte) *Reader { return &Reader{buf: b} }

// Err returns ErrDamaged after the first field that did not fit, else nil.
func (r *Reader) Err() error { return r.err }

// More reports whether bytes remain: false at the end of an older, shorter record.
func (r *Reader) More() bool { return r.err == nil && len(r.buf) > 0 }

// Len returns how many bytes remain.
func (r *Reader) Len() int { return len(r.buf) }

func (r *Reader) fail() { r.failWith(ErrDamaged) }

func (r *Reader) failWith(err error) { r.err, r.buf = err, nil }

// Uint reads an unsigned varint; zero at the end of the record.
func (r *Reader) Uint() uint64 {
	if len(r.buf) == 0 {
		return 0
	}
	v, n := binary.Uvarint(r.buf)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.buf = r.buf[n:]
	return v
}

// Int reads a zig-zag varint; zero at the end of the record.
func (r *Reader) Int() int64 {
	if len(r.buf) == 0 {
		return 0
	}
	v, n := binary.Varint(r.buf)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.buf = r.buf[n:]
	return v
}

// Float reads eight bytes; zero at the end of the record.
func (r *Reader) Float() float64 {
	if len(r.buf) == 0 {
		return 0
	}
	p := r.take(8)
	if p == nil {
		return 0
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(p))
}

// Bool reads one byte; false at the end of the record.
func (r *Reader) Bool() bool {
	if len(r.buf) == 0 {
		return false
	}
	v := r.buf[0]
	r.buf = r.buf[1:]
	return v != 0
}

func (r *Reader) take(n int) []byte {
	if n < 0 || n > len(r.buf) {
		r.fail()
		return nil
	}
	p := r.buf[:n:n]
	r.buf = r.buf[n:]
	return p
}

func (r *Reader) length() int {
	n := r.Uint()
	if n > uint64(len(r.buf)) {
		r.fail()
		return 0
	}
	return int(n)
}

// Bytes reads a byte field that still belongs to the input: copy it to keep it. Nil when empty.
func (r *Reader) Bytes() []byte {
	if n := r.length(); n > 0 {
		return r.take(n)
	}
	return nil
}

// String reads a string field (a copy).
func (r *Reader) String() string { return string(r.Bytes()) }

// Count reads the number of elements that follow, each of at least one byte.
func (r *Reader) Count() int { return r.length() }

// Strings reads a list; nil when empty.
func (r *Reader) Strings() []string {
	n := r.Count()
	if n == 0 {
		return nil
	}
	list := make([]string, 0, min(n, 1024))
	for range n {
		if r.err != nil {
			return nil
		}
		list = append(list, r.String())
	}
	return list
}

// Record opens the next record. At the end of the input it is empty, so every field of it reads as zero.
func (r *Reader) Record() *Reader {
	in := r.record()
	return &in
}

func (r *Reader) record() Reader {
	if len(r.buf) == 0 {
		return Reader{err: r.err}
	}
	head := r.take(recordHeadBytes)
	if head == nil {
		return Reader{err: ErrDamaged}
	}
	n := binary.LittleEndian.Uint32(head)
	if uint64(n) > uint64(len(r.buf)) {
		r.fail()
		return Reader{err: ErrDamaged}
	}
	return Reader{buf: r.take(int(n))}
}

// Merge keeps a nested record's damage, so that one check of the outer Err is enough.
func (r *Reader) Merge(inner *Reader) {
	if inner.err != nil && r.err == nil {
		r.failWith(inner.err)
	}
}
