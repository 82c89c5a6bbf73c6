// Package journal keeps frames of bytes on disk in the order in which they came, in
// segments that can be dropped from the old end. A frame is one write and one
// fsync; who has many things to say puts them into one frame.
//
// Invariants: Append returns after its frame is durable. A frame is begun only
// after the one before it was fsynced, so a bad frame with nothing sound
// behind it is the torn end of a frame that nobody was told of: Open cuts it and says so. With a sound
// later frame behind it, it is damage: Open fails, naming file and offset, and changes nothing.
// The newest frame may never have been fsynced: Open writes it again before it counts.
// After an error whose outcome nobody knows the journal is poisoned until it is opened again.
//
// Form: a segment is a file PREFIX-N, N being the sequence before its first frame's in 16 hex
// digits. A frame is "CJF1"; the content's length and CRC32C of all but itself (4 bytes each);
// its sequence (8 bytes; all little endian); the content. A segment's file may end in zeros,
// reserved ahead so that an fsync has no size to write.
//
// Append, Roll and Drop belong to one goroutine at a time; the rest may be called from any.
package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

const (
	magic     = "CJF1"
	headBytes = 20
	// MaxFrameBytes is the most that a frame's content may have.
	MaxFrameBytes = 64 << 20
	// keptBytes of memory stay for the next frame, whatever this one's size is.
	keptBytes = 256 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Config of a journal.
type Config struct {
	FS     vfs.FS
	Dir    string // made when missing
	Prefix string // of the segments' names
	Log    *slog.Logger
	// SegmentBytes is the size from which on a new segment is begun; 0 is 64 MiB.
	SegmentBytes int64
	// Ahead is how many bytes are reserved at once; 0 is 4 MiB, negative is none.
	Ahead int64
	// Skim opens a long journal at once: of all segments but the two newest only the first frame is replayed, and the
	// rest is verified when it is read. All of them was fsynced, so nothing needs to be settled. (Two, for the newest one
	// may be empty.)
	Skim bool
}

// Segment tells of one of the journal's files.
type Segment struct {
	Before uint64 // the sequence before its first frame's
	Bytes  int64  // written; of one that was skimmed, its file's size
}

// Journal is an open journal.
type Journal struct {
	cfg      Config
	mu       sync.Mutex // guards segments, sequence and marks, which the appending goroutine alone changes
	segments []Segment  // oldest first; the last is being written
	sequence uint64
	marks    marks
	file     vfs.File
	reserved int64
	poison   error
	dropping bool   // a segment was removed, and its folder not synced since
	frame    []byte // the head of the next frame and its content
}

// Open reads all frames, oldest first, and leaves the journal ready to append. content is replay's until it returns.
func Open(cfg Config, replay func(sequence uint64, content []byte) error) (*Journal, error) {
	if cfg.SegmentBytes == 0 {
		cfg.SegmentBytes = 64 << 20
	}
	if cfg.Ahead == 0 {
		cfg.Ahead = 4 << 20
	}
	if err := cfg.FS.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	j := &Journal{cfg: cfg, marks: newMarks(cfg.SegmentBytes)}
	found, err := j.find()
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return j, j.begin(0)
	}
	if err := cfg.FS.SyncDir(cfg.Dir); err != nil { // a process may have been killed before it did that for the newest one
		return nil, err
	}
	j.sequence = found[0]
	for i, before := range found {
		last := i == len(found)-1
		if cfg.Skim && i < len(found)-2 {
			err = j.skim(before, found[i+1], replay)
		} else {
			err = j.read(before, last, replay)
		}
		if err != nil {
			return nil, err
		}
	}
	return j, nil
}

func (j *Journal) path(before uint64) string {
	return filepath.Join(j.cfg.Dir, fmt.Sprintf("%s-%016x", j.cfg.Prefix, before))
}

// find lists the segments in order.
func (j *Journal) find() ([]uint64, error) {
	entries, err := j.cfg.FS.ReadDir(j.cfg.Dir)
	if err != nil {
		return nil, err
	}
	var list []uint64
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), j.cfg.Prefix+"-")
		if !ok {
			continue
		}
		var n uint64
		if _, err := fmt.Sscanf(rest, "%016x", &n); err != nil || len(rest) != 16 {
			return nil, errkind.Errorf(errkind.Corrupt, "%s: is no segment's name; move it elsewhere",
				filepath.Join(j.cfg.Dir, e.Name()))
		}
		list = append(list, n)
	}
	return list, nil // ReadDir sorts, and names of one width are in the order of their numbers
}

// begin makes an empty segment durably and writes to it from now on.
func (j *Journal) begin(before uint64) error {
	path := j.path(before)
	f, err := j.cfg.FS.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errkind.E(errkind.Unavailable, "new segment", err)
	}
	if err := j.cfg.FS.SyncDir(j.cfg.Dir); err != nil {
		return j.poisoned(errkind.E(errkind.Unknown, "new segment", errors.Join(err, f.Close())))
	}
	if j.file != nil {
		if err := j.file.Close(); err != nil { // all of it was fsynced
			j.cfg.Log.Warn("a finished segment could not be closed", "file", j.file.Name(), "error", err)
		}
	}
	j.file, j.reserved = f, 0
	j.mu.Lock()
	defer j.mu.Unlock()
	j.segments = append(j.segments, Segment{Before: before})
	return nil
}

func (j *Journal) poisoned(err error) error {
	if j.poison == nil {
		j.poison = err
	}
	return err
}

// Append writes the parts as one frame and returns its sequence once it is durable. An error of
// kind Unavailable says that nothing of it is there and the journal may go on; any other one that nobody knows, and
// the journal takes nothing more.
func (j *Journal) Append(parts ...[]byte) (uint64, error) {
	if j.poison != nil {
		return 0, errkind.E(errkind.Unavailable, "the journal failed before; restart to open it again", j.poison)
	}
	frame := append(j.frame[:0], make([]byte, headBytes)...)
	for _, p := range parts {
		frame = append(frame, p...)
	}
	if j.frame = frame; cap(frame) > keptBytes && len(frame) < cap(frame)/4 {
		j.frame = nil // of a storm that is over
	}
	if len(frame)-headBytes > MaxFrameBytes {
		return 0, errkind.Errorf(errkind.Unavailable, "a frame of %d bytes is larger than %d", len(frame)-headBytes,
			MaxFrameBytes)
	}
	end := j.newest().Bytes
	if end > 0 && !j.Fits(len(frame)-headBytes) {
		if err := j.begin(j.sequence); err != nil {
			return 0, err
		}
		end = 0
	}
	copy(frame, magic)
	binary.LittleEndian.PutUint32(frame[4:], uint32(len(frame)-headBytes))
	binary.LittleEndian.PutUint64(frame[12:], j.sequence+1)
	binary.LittleEndian.PutUint32(frame[8:], checksum(frame))
	if err := j.write(frame, end); err != nil {
		return 0, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	newest := &j.segments[len(j.segments)-1]
	j.marks.add(newest.Before, mark{j.sequence, end})
	j.sequence++
	newest.Bytes += int64(len(frame))
	return j.sequence, nil
}

// Fits reports whether a frame with so many bytes of content follows others in the newest segment. One that does not
// is the first of its segment: there stands what a reader of that segment has to know.
func (j *Journal) Fits(contentBytes int) bool {
	end := j.newest().Bytes
	return end > 0 && end+int64(headBytes+contentBytes) <= j.cfg.SegmentBytes
}

func (j *Journal) write(frame []byte, end int64) error {
	if want := end + int64(len(frame)); want > j.reserved && j.cfg.Ahead > 0 {
		// Best effort: without it the write itself finds out that there is no room.
		if err := j.file.Preallocate(want + j.cfg.Ahead); err == nil {
			j.reserved = want + j.cfg.Ahead
		}
	}
	if _, err := j.file.WriteAt(frame, end); err != nil {
		if !vfs.Full(err) {
			return j.poisoned(errkind.E(errkind.Unknown, "journal", err))
		}
		if back := j.takeBack(end); back != nil {
			return j.poisoned(errkind.E(errkind.Unknown, "journal", errors.Join(err, back)))
		}
		return errkind.E(errkind.Unavailable, "journal", err)
	}
	if err := j.file.Sync(); err != nil {
		return j.poisoned(errkind.E(errkind.Unknown, "journal", err))
	}
	return nil
}

// takeBack removes what a failed write left.
func (j *Journal) takeBack(end int64) error {
	j.reserved = 0
	if err := j.file.Truncate(end); err != nil {
		return err
	}
	return j.file.Sync()
}

func checksum(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[:8], castagnoli), castagnoli, frame[12:])
}

func (j *Journal) newest() Segment {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.segments[len(j.segments)-1]
}

// Segments lists the journal's files, oldest first.
func (j *Journal) Segments() []Segment {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]Segment(nil), j.segments...)
}

// Sequence returns that of the newest durable frame.
func (j *Journal) Sequence() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.sequence
}

// Drop removes the segments that hold no frame after sequence; the one being written stays. Each is gone for good
// before the next one goes: a power loss must not bring an older one back without those behind it.
func (j *Journal) Drop(sequence uint64) error {
	for {
		if j.dropping {
			if err := j.cfg.FS.SyncDir(j.cfg.Dir); err != nil {
				return err
			}
			j.dropping = false
		}
		list := j.Segments()
		if len(list) < 2 || list[1].Before > sequence {
			return nil
		}
		if err := j.cfg.FS.Remove(j.path(list[0].Before)); err != nil {
			return err
		}
		j.dropping = true
		j.mu.Lock()
		delete(j.marks.of, j.segments[0].Before)
		j.segments = j.segments[1:]
		j.mu.Unlock()
	}
}

// Close closes the file; what was appended is durable already.
func (j *Journal) Close() error {
	j.poison = errors.New("the journal is closed")
	return j.file.Close()
}
