package records

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/secrets/storage"
)

// Image is a State as it is written to a snapshot or a checkpoint: "CRBLREC" and a
// version byte; then frames, each its length, the CRC32C of length and content (4
// bytes each, little endian) and the content; an empty frame; the end of the stream.
// The first frame has epoch, sequence, and the number of records; the others hold
// records in the order of their keys, each a key and a value with their lengths
// before them. So what is cut, exchanged, doubled or changed is found.
type Image struct {
	State
	// Sequence is whatever number its owner needs beside the State: a journal's newest.
	Sequence uint64
}

const (
	imageMagic   = "CRBLREC"
	imageVersion = 1
	// frameBytes is how long a frame becomes before it is written.
	frameBytes = 64 << 10
	// maxFrameBytes is far above the largest value that a backend takes.
	maxFrameBytes = 128 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC32C of parts, one after the other.
func Checksum(parts ...[]byte) uint32 {
	sum := uint32(0)
	for _, p := range parts {
		sum = crc32.Update(sum, castagnoli, p)
	}
	return sum
}

// WriteTo implements io.WriterTo and group.Snapshot. It holds one frame in memory.
func (i Image) WriteTo(w io.Writer) (int64, error) {
	out := &frameWriter{w: w}
	out.raw(append([]byte(imageMagic), imageVersion))
	buf := pack.Uint(pack.Uint(pack.Uint(nil, uint64(i.Epoch)), i.Sequence), uint64(i.Len()))
	out.frame(buf)
	buf = buf[:0]
	for b := range i.blocks.All() {
		for r := b.cursor(); r.next(); {
			buf = pack.Uint(buf, uint64(r.shared+len(r.rest)))
			buf = append(append(buf, r.first[:r.shared]...), r.rest...)
			buf = pack.String(buf, r.value)
		}
		if len(buf) >= frameBytes {
			out.frame(buf)
			buf = buf[:0]
		}
		if out.err != nil {
			return out.written, out.err
		}
	}
	if len(buf) > 0 {
		out.frame(buf)
	}
	out.frame(nil)
	return out.written, out.err
}

type frameWriter struct {
	w       io.Writer
	written int64
	err     error
}

func (f *frameWriter) raw(b []byte) {
	if f.err == nil {
		var n int
		n, f.err = f.w.Write(b)
		f.written += int64(n)
	}
}

func (f *frameWriter) frame(content []byte) {
	var head [8]byte
	binary.LittleEndian.PutUint32(head[:4], uint32(len(content)))
	binary.LittleEndian.PutUint32(head[4:], Checksum(head[:4], content))
	f.raw(head[:])
	f.raw(content)
}

// ReadImage reads what WriteTo wrote, to the stream's end; damage is of kind Corrupt, with the offset.
func ReadImage(r io.Reader) (Image, error) {
	in := &frameReader{r: bufio.NewReaderSize(r, frameBytes)}
	image, err := in.image()
	if err != nil {
		offset := in.offset
		if at, ok := err.(misplaced); ok {
			offset, err = at.offset, at.error
		}
		return Image{}, errkind.E(errkind.Corrupt, fmt.Sprintf("storage image, offset %d", offset), err)
	}
	return image, nil
}

type frameReader struct {
	r      *bufio.Reader
	offset int64 // of the frame that is read
	next   int64
}

func (f *frameReader) image() (Image, error) {
	head := make([]byte, len(imageMagic)+1)
	if _, err := io.ReadFull(f.r, head); err != nil {
		return Image{}, fmt.Errorf("the head is cut: %w", err)
	}
	if string(head[:len(imageMagic)]) != imageMagic || head[len(imageMagic)] != imageVersion {
		return Image{}, fmt.Errorf("begins with %q, which is no image of version %d", head, imageVersion)
	}
	f.next = int64(len(head))
	first, err := f.frame()
	if err != nil {
		return Image{}, err
	}
	p := pack.Read(first)
	image := Image{State: State{Epoch: storage.Epoch(p.Uint())}, Sequence: p.Uint()}
	count := p.Uint()
	if err := p.Err(); err != nil {
		return Image{}, err
	}
	if image.Set, err = f.records(count); err != nil {
		return Image{}, err
	}
	if _, err := f.r.ReadByte(); !errors.Is(err, io.EOF) {
		return Image{}, fmt.Errorf("something follows its end: %v", err)
	}
	return image, nil
}

func (f *frameReader) frame() ([]byte, error) {
	f.offset = f.next
	var head [8]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return nil, fmt.Errorf("a frame is cut: %w", err)
	}
	n := binary.LittleEndian.Uint32(head[:4])
	if n > maxFrameBytes {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	content := make([]byte, n)
	if _, err := io.ReadFull(f.r, content); err != nil {
		return nil, fmt.Errorf("a frame is cut: %w", err)
	}
	if Checksum(head[:4], content) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, errors.New("a frame's checksum is wrong")
	}
	f.next += int64(len(head)) + int64(n)
	return content, nil
}
