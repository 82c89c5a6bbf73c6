// Package framing is the one form in which messages follow each other on connections of Corbel's own: core/feed writes
// frames to a socket, core/rpc puts many into a message of its shared streams.
//
// A frame is its type (1 byte), the length of what follows (3 bytes, big endian), and that: fields as in kit/pack, and
// bytes of a body, unencoded, up to the frame's end. What a type means is its protocol's. Nothing is allocated before a
// length was judged, and no damage panics. Errors travel as in kit/errkind/errwire.
package framing

import (
	"bufio"
	"errors"
	"io"

	"corbel.dev/corbel/kit/errkind"
)

const (
	// HeadBytes come before what follows.
	HeadBytes = 4
	// MaxBytes is the most that may follow a head; protocols allow less.
	MaxBytes = 1<<24 - 1
)

// ErrMalformed is what cannot be a frame, or not one of its protocol.
var ErrMalformed = errkind.New(errkind.Invalid, "malformed frame")

// Begin appends a frame's head; End, with the mark, fills in its length, which is at most MaxBytes.
func Begin(b []byte, kind byte) (frame []byte, mark int) {
	b = append(b, kind, 0, 0, 0)
	return b, len(b)
}

// End ends the frame that Begin began.
func End(b []byte, mark int) []byte {
	n := len(b) - mark
	b[mark-3], b[mark-2], b[mark-1] = byte(n>>16), byte(n>>8), byte(n)
	return b
}

func length(head []byte) int { return int(head[1])<<16 | int(head[2])<<8 | int(head[3]) }

// Cut cuts the first frame off b. What it returns lies within b.
func Cut(b []byte) (kind byte, payload, rest []byte, err error) {
	if len(b) < HeadBytes || length(b) > len(b)-HeadBytes {
		return 0, nil, nil, ErrMalformed
	}
	end := HeadBytes + length(b)
	return b[0], b[HeadBytes:end:end], b[end:], nil
}

// Reader reads frames through a small buffer of its own: connections are many and mostly idle. It is for one goroutine.
type Reader struct {
	in   *bufio.Reader
	most int
}

// NewReader reads frames of at most so many bytes after their heads.
func NewReader(r io.Reader, buffer, most int) Reader {
	return Reader{in: bufio.NewReaderSize(r, buffer), most: most}
}

// Buffered is how many bytes were read and not returned yet.
func (r Reader) Buffered() int { return r.in.Buffered() }

// Next returns the next frame. A payload that fitted the buffer is valid until the following call; a larger one is the
// caller's to keep (owned). io.EOF is an end between frames.
func (r Reader) Next() (kind byte, payload []byte, owned bool, err error) {
	head, err := r.in.Peek(HeadBytes)
	if err != nil {
		if len(head) > 0 {
			err = unexpected(err)
		}
		return 0, nil, false, err
	}
	kind, n := head[0], length(head)
	if n > r.most {
		return 0, nil, false, errkind.Errorf(errkind.Invalid, "a frame of %d bytes, at most %d are allowed", n, r.most)
	}
	if _, err := r.in.Discard(HeadBytes); err != nil {
		return 0, nil, false, err
	}
	if n <= r.in.Size() {
		p, err := r.in.Peek(n)
		if err != nil {
			return 0, nil, false, unexpected(err)
		}
		_, err = r.in.Discard(n) // the bytes stay where they are until the next read
		return kind, p, false, err
	}
	buf := make([]byte, n)
	if _, err := io.ReadFull(r.in, buf); err != nil {
		return 0, nil, false, unexpected(err)
	}
	return kind, buf, true, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
