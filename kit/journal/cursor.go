package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// windowBytes is how much a Cursor reads at once.
const windowBytes = 256 << 10

// Cursor reads durable frames one after the other, also those that are appended later, and verifies each. It belongs
// to one goroutine, beside any other use of the journal.
type Cursor struct {
	j        *Journal
	sequence uint64   // of the frame that was read last
	file     vfs.File // of the segment that is being read
	segment  uint64   // its Before
	last     uint64   // the sequence of the frame before at
	at       int64    // where the next frame is in it
	window   []byte   // what was read of the file from at on
	buffer   []byte   // where window is
}

// Cursor returns one that reads the oldest frame after sequence that the journal still has.
func (j *Journal) Cursor(sequence uint64) *Cursor { return &Cursor{j: j, sequence: sequence} }

// Next returns the next frame; ok is false while there is none. content is the caller's until it calls again.
func (c *Cursor) Next() (sequence uint64, content []byte, ok bool, err error) {
	for {
		segment, next, oldest := c.j.around(c.sequence)
		switch err := c.open(segment.Before); {
		case errors.Is(err, fs.ErrNotExist) && oldest && next > 0: // it is being dropped
			c.sequence = max(c.sequence, next)
			continue
		case err != nil:
			return 0, nil, false, err
		}
		if next == 0 && c.at >= segment.Bytes {
			return 0, nil, false, nil
		}
		content, n, err := c.frame(segment.Bytes)
		if err != nil {
			return 0, nil, false, err
		}
		if n != c.last+1 || next > 0 && n > next {
			return 0, nil, false, c.damaged()
		}
		used := headBytes + len(content)
		c.last, c.at, c.window = n, c.at+int64(used), c.window[used:]
		if n > c.sequence {
			c.sequence = n
			return n, content, true, nil
		}
	}
}

// around returns the segment that the frame after sequence is in or will be, where the one behind it begins (0 for
// the newest), and whether it is the oldest.
func (j *Journal) around(sequence uint64) (s Segment, next uint64, oldest bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := len(j.segments) - 1
	for i > 0 && j.segments[i].Before > sequence {
		next = j.segments[i].Before
		i--
	}
	return j.segments[i], next, i == 0
}

func (c *Cursor) damaged() error {
	return errkind.E(errkind.Corrupt, fmt.Sprintf("%s, offset %d", c.j.path(c.segment), c.at), errDamaged)
}

func (c *Cursor) open(segment uint64) error {
	if c.file != nil && c.segment == segment {
		return nil
	}
	if err := c.Close(); err != nil {
		return err
	}
	f, err := vfs.Open(c.j.cfg.FS, c.j.path(segment))
	if err != nil {
		return err
	}
	c.file, c.segment, c.window = f, segment, nil
	c.j.mu.Lock()
	defer c.j.mu.Unlock()
	m := c.j.marks.before(segment, c.sequence)
	c.last, c.at = m.last, m.at
	return nil
}

// frame reads the frame at c.at, which ends before end.
func (c *Cursor) frame(end int64) (content []byte, sequence uint64, err error) {
	if err := c.fill(headBytes, end); err != nil {
		return nil, 0, err
	}
	if string(c.window[:len(magic)]) != magic {
		return nil, 0, c.damaged()
	}
	if err := c.fill(headBytes+int64(binary.LittleEndian.Uint32(c.window[4:])), end); err != nil {
		return nil, 0, err
	}
	content, sequence, ok := frameAt(c.window)
	if !ok {
		return nil, 0, c.damaged()
	}
	return content, sequence, nil
}

// fill makes the window hold need bytes at least.
func (c *Cursor) fill(need, end int64) error {
	if need > end-c.at {
		return c.damaged()
	}
	have := len(c.window)
	if int64(have) >= need {
		return nil
	}
	size := min(max(need, windowBytes), end-c.at)
	if int64(cap(c.buffer)) < size || cap(c.buffer) > 4*windowBytes && size == windowBytes {
		c.buffer = append(make([]byte, 0, size), c.window...)
	} else {
		copy(c.buffer[:have], c.window)
	}
	c.window = c.buffer[:size]
	n, err := c.file.ReadAt(c.window[have:], c.at+int64(have))
	c.window = c.window[:have+n]
	if int64(len(c.window)) >= need {
		return nil // the rest is asked for again
	}
	if err == io.EOF { // shorter than it was
		return c.damaged()
	}
	return err
}

// Close lets the file go. Next opens it again.
func (c *Cursor) Close() error {
	if c.file == nil {
		return nil
	}
	err := c.file.Close()
	c.file, c.at, c.window = nil, 0, nil
	return err
}
