package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

var errDamaged = errors.New("a frame is damaged")

// read gives a segment's frames to replay; the last segment is left open at its end.
func (j *Journal) read(before uint64, last bool, replay func(uint64, []byte) error) error {
	path := j.path(before)
	if before != j.sequence {
		return errkind.Errorf(errkind.Corrupt,
			"%s: begins after frame %d, and the one before ends with %d: a segment is missing", path, before, j.sequence)
	}
	data, err := vfs.ReadFile(j.cfg.FS, path)
	if err != nil {
		return err
	}
	newest, end := 0, 0
	for end < len(data) {
		content, sequence, ok := frameAt(data[end:])
		if !ok || sequence != j.sequence+1 {
			break
		}
		if err := replay(sequence, content); err != nil {
			return fmt.Errorf("%s, offset %d: %w", path, end, err)
		}
		j.marks.add(before, mark{j.sequence, int64(end)})
		j.sequence = sequence
		newest = end
		end += headBytes + len(content)
	}
	rest := data[end:]
	torn := bytes.ContainsFunc(rest, func(r rune) bool { return r != 0 }) // zeros are what was reserved
	if torn && (!last || later(rest, j.sequence)) {
		return errkind.E(errkind.Corrupt, fmt.Sprintf("%s, offset %d: there are sound frames behind it, so this is no "+
			"torn end: restore a backup, or ask before cutting the file here", path, end), errDamaged)
	}
	j.segments = append(j.segments, Segment{Before: before, Bytes: int64(end)})
	if !last {
		return nil
	}
	if j.file, err = j.cfg.FS.OpenFile(path, os.O_RDWR, 0); err != nil {
		return err
	}
	if torn {
		j.cfg.Log.Warn("the journal ends in an incomplete, unacknowledged frame; cutting it", "file", path, "offset", end,
			"bytes", len(rest))
	}
	if err := j.settle(data[newest:end], int64(newest)); err != nil {
		return errors.Join(err, j.file.Close())
	}
	return nil
}

// settle makes the newest frame durable, and cuts what follows it. The frame may be in the machine's memory alone:
// the process was killed before the fsync, or the fsync failed, and then the kernel counts the bytes as written and
// the next fsync says nothing. So it is written again. The frames before it were fsynced before it was begun.
func (j *Journal) settle(frame []byte, at int64) error {
	if _, err := j.file.WriteAt(frame, at); err != nil {
		return err
	}
	return j.takeBack(at + int64(len(frame)))
}

// skim replays the first frame of a finished segment, and takes its last one from the name of the next segment.
func (j *Journal) skim(before, next uint64, replay func(uint64, []byte) error) error {
	path := j.path(before)
	info, err := j.cfg.FS.Stat(path)
	if err != nil {
		return err
	}
	j.segments = append(j.segments, Segment{Before: before, Bytes: info.Size()})
	c := j.Cursor(before)
	sequence, content, ok, err := c.Next()
	if err == nil && !ok {
		err = errkind.E(errkind.Corrupt, path+" has no frame", errDamaged)
	}
	if err == nil {
		err = replay(sequence, content)
	}
	j.sequence = next
	return errors.Join(err, c.Close())
}

// Each gives the frames after sequence to fn, oldest first, as far as they were there when it was called;
// content is fn's until it returns. It stops at fn's error, and returns that as it is.
func (j *Journal) Each(sequence uint64, fn func(sequence uint64, content []byte) error) (err error) {
	c := j.Cursor(sequence)
	defer func() {
		if closing := c.Close(); err == nil {
			err = closing
		}
	}()
	for until := j.Sequence(); ; {
		n, content, ok, err := c.Next()
		if err != nil || !ok || n > until {
			return err
		}
		if err := fn(n, content); err != nil {
			return err
		}
	}
}

// later looks for a sound frame of a later sequence in what follows a bad one.
func later(data []byte, sequence uint64) bool {
	for {
		n := bytes.Index(data, []byte(magic))
		if n < 0 {
			return false
		}
		data = data[n:]
		if _, s, ok := frameAt(data); ok && s > sequence {
			return true
		}
		data = data[1:]
	}
}

func frameAt(data []byte) (content []byte, sequence uint64, ok bool) {
	if len(data) < headBytes || string(data[:len(magic)]) != magic {
		return nil, 0, false
	}
	n := int64(binary.LittleEndian.Uint32(data[4:]))
	if n > int64(len(data)-headBytes) {
		return nil, 0, false
	}
	frame := data[:headBytes+n]
	if checksum(frame) != binary.LittleEndian.Uint32(frame[8:]) {
		return nil, 0, false
	}
	return frame[headBytes:], binary.LittleEndian.Uint64(frame[12:]), true
}
