// Package snapshot has the stream in which a state is kept and sent: compressed, in pieces, with a checksum at its end.
// Whoever reads one learns of damage anywhere in it before it is used up.
package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"

	"corbel.dev/corbel/kit/errkind"
)

// A snapshot stream: "CRBLSNP", version byte; then pieces of a zstd stream, each
// with its length before it (4 bytes, little endian, at most pieceBytes); a
// length of zero; the CRC32C of everything before it; "END1".
const (
	snapMagic   = "CRBLSNP"
	snapVersion = 1
	snapEnd     = "END1"
	pieceBytes  = 256 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Write writes state to w. Nothing is held in memory but buffers.
func Write(w io.Writer, state io.WriterTo) error {
	pieces := &pieceWriter{w: bufio.NewWriterSize(w, 64<<10), sum: crc32.New(castagnoli)}
	if err := pieces.raw(append([]byte(snapMagic), snapVersion)); err != nil {
		return err
	}
	z, err := zstd.NewWriter(pieces, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(z, 64<<10)
	if _, err := state.WriteTo(buffered); err != nil {
		_ = z.Close() // frees it; the first error is the one to report
		return err
	}
	if err := errors.Join(buffered.Flush(), z.Close()); err != nil {
		return err
	}
	return pieces.finish()
}

type pieceWriter struct {
	w   *bufio.Writer
	sum hash.Hash32
}

func (p *pieceWriter) raw(b []byte) error {
	_, _ = p.sum.Write(b) // a hash never fails
	_, err := p.w.Write(b)
	return err
}

// Write implements io.Writer for the compressor.
func (p *pieceWriter) Write(b []byte) (int, error) {
	written := 0
	for len(b) > 0 {
		piece := b[:min(len(b), pieceBytes)]
		var head [4]byte
		binary.LittleEndian.PutUint32(head[:], uint32(len(piece)))
		if err := p.raw(head[:]); err != nil {
			return written, err
		}
		if err := p.raw(piece); err != nil {
			return written, err
		}
		written += len(piece)
		b = b[len(piece):]
	}
	return written, nil
}

func (p *pieceWriter) finish() error {
	if err := p.raw(make([]byte, 4)); err != nil {
		return err
	}
	tail := binary.LittleEndian.AppendUint32(nil, p.sum.Sum32())
	if _, err := p.w.Write(append(tail, snapEnd...)); err != nil {
		return err
	}
	return p.w.Flush()
}

// pieceReader gives the compressed bytes; it returns io.EOF only after the checksum at the end fits.
type pieceReader struct {
	r    *bufio.Reader
	sum  hash.Hash32
	left int
	done bool
}

// Damaged is the error of what is not as it was written.
func Damaged(what string) error { return errkind.New(errkind.Corrupt, "snapshot: "+what) }

func newPieceReader(r io.Reader) (*pieceReader, error) {
	p := &pieceReader{r: bufio.NewReaderSize(r, 64<<10), sum: crc32.New(castagnoli)}
	head := make([]byte, len(snapMagic)+1)
	if err := p.full(head); err != nil {
		return nil, err
	}
	if string(head[:len(snapMagic)]) != snapMagic {
		return nil, errkind.New(errkind.Invalid, "snapshot: this is not a snapshot")
	}
	if head[len(snapMagic)] != snapVersion {
		return nil, errkind.Errorf(errkind.Invalid, "snapshot: version %d is not known here", head[len(snapMagic)])
	}
	return p, nil
}

func (p *pieceReader) full(b []byte) error {
	if _, err := io.ReadFull(p.r, b); err != nil {
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return Damaged("it ends early")
		}
		return err
	}
	_, _ = p.sum.Write(b) // a hash never fails
	return nil
}

// Read implements io.Reader for the decompressor.
func (p *pieceReader) Read(b []byte) (int, error) {
	if p.done {
		return 0, io.EOF
	}
	if p.left == 0 {
		if err := p.next(); err != nil {
			return 0, err
		}
	}
	n, err := p.r.Read(b[:min(len(b), p.left)])
	_, _ = p.sum.Write(b[:n])
	p.left -= n
	if err == io.EOF {
		err = Damaged("it ends early")
	}
	return n, err
}

// next opens the next piece, or checks the end.
func (p *pieceReader) next() error {
	var head [4]byte
	if err := p.full(head[:]); err != nil {
		return err
	}
	p.left = int(binary.LittleEndian.Uint32(head[:]))
	if p.left > pieceBytes {
		return Damaged("a piece is too long")
	}
	if p.left > 0 {
		return nil
	}
	want := p.sum.Sum32()
	var tail [8]byte
	if err := p.full(tail[:]); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(tail[:]) != want || string(tail[4:]) != snapEnd {
		return Damaged("checksum mismatch")
	}
	p.done = true
	return io.EOF
}

// Read gives the state's bytes to f, whose reader fails instead of ending when the stream is damaged anywhere.
func Read(r io.Reader, f func(io.Reader) error) error {
	pieces, err := newPieceReader(r)
	if err != nil {
		return err
	}
	z, err := zstd.NewReader(pieces, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(64<<20))
	if err != nil {
		return err
	}
	defer z.Close()
	if err := f(z); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, z); err != nil { // a Machine that did not read to the end
		return err
	}
	_, err = io.Copy(io.Discard, pieces)
	return err
}

// Verify reads the stream to its end and checks it.
func Verify(r io.Reader) error {
	pieces, err := newPieceReader(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, pieces)
	return err
}
