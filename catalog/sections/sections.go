// Package sections is the frame of a catalog snapshot: a magic text, then records of kit/pack
// (four bytes of length before each). A section is a record {id, count} and count records; the
// section End carries the CRC-32C of all bytes before it and ends the stream.
//
// Invariants:
//   - A Reader never gives a record that is longer than the input, and needs no more memory than
//     there is input.
//   - The first error sticks: after it nothing is written, and all that is read is empty.
//
// A Writer and a Reader are each for one goroutine.
package sections

import (
	"bufio"
	"encoding/binary"
	"hash/crc32"
	"io"

	"corbel.dev/corbel/kit/pack"
)

// End is the id of the last section.
const End = 0

// maxRecordBytes is far above any object that the front doors let in (512 KiB values).
const maxRecordBytes = 64 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Writer writes records and keeps count and checksum.
type Writer struct {
	w       *bufio.Writer
	buf     []byte
	written int64
	sum     uint32
	err     error
}

// NewWriter begins a stream.
func NewWriter(w io.Writer, magic string) *Writer {
	out := &Writer{w: bufio.NewWriterSize(w, 256<<10)}
	out.buf = append(out.buf, magic...)
	out.flush()
	return out
}

func (w *Writer) flush() {
	if w.err != nil {
		return
	}
	n, err := w.w.Write(w.buf)
	w.written += int64(n)
	w.sum = crc32.Update(w.sum, castagnoli, w.buf[:n])
	w.err = err
	w.buf = w.buf[:0]
}

// Record writes what fill appends.
func (w *Writer) Record(fill func(b []byte) []byte) {
	b, mark := pack.Begin(w.buf[:0])
	w.buf = pack.End(fill(b), mark)
	w.flush()
}

// Section begins a section of count records.
func (w *Writer) Section(id, count int) {
	w.Record(func(b []byte) []byte { return pack.Uint(pack.Uint(b, uint64(id)), uint64(count)) })
}

// Close ends the stream and returns the bytes written.
func (w *Writer) Close() (int64, error) {
	sum := w.sum
	w.Record(func(b []byte) []byte { return pack.Uint(pack.Uint(b, End), uint64(sum)) })
	if w.err == nil {
		w.err = w.w.Flush()
	}
	return w.written, w.err
}

// Reader reads what a Writer wrote.
type Reader struct {
	r   *bufio.Reader
	buf []byte
	sum uint32
	err error
}

// NewReader is false when the input does not begin with the magic text.
func NewReader(r io.Reader, magic string) (*Reader, bool) {
	in := &Reader{r: bufio.NewReaderSize(r, 256<<10)}
	in.fill(len(magic))
	in.sum = crc32.Update(0, castagnoli, in.buf)
	return in, in.err == nil && string(in.buf) == magic
}

// Err is the first error.
func (r *Reader) Err() error { return r.err }

// Fail says that what was read is damaged.
func (r *Reader) Fail() {
	if r.err == nil {
		r.err = pack.ErrDamaged
	}
}

// fill reads n bytes after those in buf, in steps, so that a damaged length
// costs no more memory than there is input.
func (r *Reader) fill(n int) {
	for n > 0 && r.err == nil {
		step, at := min(n, 1<<20), len(r.buf)
		if cap(r.buf)-at < step {
			r.buf = append(make([]byte, 0, max(2*cap(r.buf), at+step)), r.buf...)
		}
		r.buf = r.buf[:at+step]
		if _, err := io.ReadFull(r.r, r.buf[at:]); err != nil {
			r.err = err
			r.buf = r.buf[:0]
			return
		}
		n -= step
	}
}

// Next reads one record; its fields are valid until the following call. At the
// end of damaged input it is empty.
func (r *Reader) Next() *pack.Reader {
	r.buf = r.buf[:0]
	r.fill(4)
	if r.err != nil {
		return pack.Read(nil)
	}
	n := binary.LittleEndian.Uint32(r.buf)
	if n > maxRecordBytes {
		r.Fail()
		return pack.Read(nil)
	}
	r.fill(int(n))
	if r.err != nil {
		return pack.Read(nil)
	}
	r.sum = crc32.Update(r.sum, castagnoli, r.buf)
	return pack.Read(r.buf[4:])
}

// Section reads the head of the next section. Of the section End, whole says that the checksum is right.
func (r *Reader) Section() (id, count uint64, whole bool) {
	sum := r.sum
	head := r.Next()
	id, count = head.Uint(), head.Uint()
	if head.Err() != nil {
		r.Fail()
	}
	return id, count, id == End && count == uint64(sum) && r.err == nil
}
