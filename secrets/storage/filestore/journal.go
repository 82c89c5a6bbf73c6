package filestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/secrets/storage/records"
)

// A journal is frames, one per fsync: "CJF1"; length of the content, CRC32C of all
// but itself (4 bytes each), sequence (8 bytes; all little endian); the content: batches with
// their lengths before them. The file's name has the sequence before its first frame's.
// A frame is begun only after the one before was fsynced: so a bad frame with
// a good one anywhere behind it is damage, and one with nothing behind it a torn end.
const (
	frameMagic     = "CJF1"
	headBytes      = 20
	maxFrameBytes  = 64 << 20
	checkpointName = "checkpoint"
	journalPrefix  = "journal-"
)

type journal struct {
	fs       vfs.FS
	file     vfs.File
	end      int64
	sequence uint64 // of the newest frame
}

func appendBatch(frame []byte, b records.Batch) []byte {
	if len(frame) == 0 {
		frame = make([]byte, headBytes, headBytes+16+records.BatchBytes(b.Ops))
	}
	return pack.Bytes(frame, b.Append(nil))
}

// append writes a frame, whose head it fills in, and fsyncs. An error of kind Unavailable
// says that nothing of it is there; of kind Unknown, that nobody knows.
func (j *journal) append(frame []byte) error {
	copy(frame, frameMagic)
	binary.LittleEndian.PutUint32(frame[4:], uint32(len(frame)-headBytes))
	binary.LittleEndian.PutUint64(frame[12:], j.sequence+1)
	binary.LittleEndian.PutUint32(frame[8:], records.Checksum(frame[:8], frame[12:]))
	if _, err := j.file.WriteAt(frame, j.end); err != nil {
		if !vfs.Full(err) {
			return errkind.E(errkind.Unknown, "storage commit: outcome unknown", err)
		}
		if back := j.takeBack(); back != nil {
			return errkind.E(errkind.Unknown, "storage commit: outcome unknown", errors.Join(err, back))
		}
		return errkind.E(errkind.Unavailable, "storage commit", err)
	}
	if err := j.file.Sync(); err != nil {
		return errkind.E(errkind.Unknown, "storage commit: outcome unknown", err)
	}
	j.end += int64(len(frame))
	j.sequence++
	return nil
}

func (j *journal) takeBack() error {
	if err := j.file.Truncate(j.end); err != nil {
		return err
	}
	return j.file.Sync()
}

func journalPath(dir string, sequence uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%s%016x", journalPrefix, sequence))
}

// createJournal makes an empty journal durably. An error of kind Unknown says that its name may or may not be there.
func createJournal(fsys vfs.FS, dir string, sequence uint64) (journal, error) {
	path := journalPath(dir, sequence)
	f, err := fsys.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return journal{}, errkind.E(errkind.Unavailable, "new journal", err)
	}
	if err = fsys.SyncDir(dir); err == nil {
		return journal{fs: fsys, file: f, sequence: sequence}, nil
	}
	// An empty journal in front of a journal that goes on would hide that one's frames.
	err = errors.Join(err, f.Close())
	if back := errors.Join(fsys.Remove(path), fsys.SyncDir(dir)); back != nil {
		return journal{}, errkind.E(errkind.Unknown, "new journal", errors.Join(err, back))
	}
	return journal{}, errkind.E(errkind.Unavailable, "new journal", err)
}

// journals lists the sequences that the folder's journals begin after, in order; unfinished files are removed.
func journals(fsys vfs.FS, dir string) ([]uint64, error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []uint64
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), vfs.TempSuffix) {
			if err := fsys.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, err
			}
			continue
		}
		var n uint64
		if rest, ok := strings.CutPrefix(e.Name(), journalPrefix); ok {
			if _, err := fmt.Sscanf(rest, "%016x", &n); err != nil || len(rest) != 16 {
				return nil, errkind.Errorf(errkind.Corrupt, "%s: is no journal's name; move it elsewhere",
					filepath.Join(dir, e.Name()))
			}
			list = append(list, n)
		}
	}
	return list, nil // ReadDir sorts by name, and names of one width are in the order of their numbers
}

// removeJournals removes those that a checkpoint of a sequence makes superfluous: all that begin before it.
func removeJournals(fsys vfs.FS, dir string, sequence uint64) error {
	list, err := journals(fsys, dir)
	if err != nil {
		return err
	}
	for _, n := range list {
		if n < sequence {
			if err := fsys.Remove(journalPath(dir, n)); err != nil {
				return err
			}
		}
	}
	return fsys.SyncDir(dir)
}

// load reads checkpoint and journals, and leaves the newest journal open at its end.
func (s *Store) load() error {
	image := records.Image{State: records.State{Set: records.New()}}
	path := filepath.Join(s.cfg.Dir, checkpointName)
	f, err := vfs.Open(s.cfg.FS, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		image, err = records.ReadImage(f)
		_ = f.Close() // only read
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	list, err := journals(s.cfg.FS, s.cfg.Dir)
	if err != nil {
		return err
	}
	// The names may be in the machine's memory alone, left by a process that was killed before this fsync.
	if err := s.cfg.FS.SyncDir(s.cfg.Dir); err != nil {
		return err
	}
	// A crash may have come between a checkpoint and the removal of what it says.
	for len(list) > 1 && list[1] <= image.Sequence {
		if err := s.cfg.FS.Remove(journalPath(s.cfg.Dir, list[0])); err != nil {
			return err
		}
		list = list[1:]
	}
	if len(list) == 0 {
		if image.Sequence > 0 {
			return errkind.Errorf(errkind.Corrupt, "%s: is missing, which follows the checkpoint",
				journalPath(s.cfg.Dir, image.Sequence))
		}
		s.state.Store(&image.State)
		s.journal, err = createJournal(s.cfg.FS, s.cfg.Dir, 0)
		return err
	}
	if list[0] > image.Sequence {
		return errkind.Errorf(errkind.Corrupt,
			"%s: begins after frame %d, and there is no other for what follows the checkpoint's %d",
			journalPath(s.cfg.Dir, list[0]), list[0], image.Sequence)
	}
	return s.replay(image, list)
}

// foldCount is how many batches a start applies at once: each time copies a part of the table.
const foldCount = 1024

func (s *Store) replay(image records.Image, list []uint64) error {
	at := list[0]
	for i, first := range list {
		path := journalPath(s.cfg.Dir, first)
		if first != at {
			return errkind.Errorf(errkind.Corrupt, "%s: begins after frame %d, and the one before ends with %d", path, first, at)
		}
		data, err := vfs.ReadFile(s.cfg.FS, path)
		if err != nil {
			return err
		}
		var batches []records.Batch
		fold := func() error {
			next, outcomes := image.Fold(batches)
			image.State, batches = next, batches[:0]
			return errors.Join(outcomes...)
		}
		newest, end, err := readFrames(data, &at, func(b records.Batch, sequence uint64) error {
			if sequence <= image.Sequence {
				return nil
			}
			if batches = append(batches, b); len(batches) < foldCount {
				return nil
			}
			return fold()
		})
		err = errors.Join(err, fold())
		last := i == len(list)-1
		if err != nil || (end < len(data) && !last) {
			return errkind.E(errkind.Corrupt, fmt.Sprintf("%s, offset %d", path, end), errors.Join(err, errBadFrame))
		}
		if last {
			if at < image.Sequence {
				return errkind.Errorf(errkind.Corrupt, "%s: ends with frame %d, and the checkpoint has %d", path, at,
					image.Sequence)
			}
			s.state.Store(&image.State)
			return s.goOn(path, at, data, newest, end)
		}
	}
	return nil
}

// goOn opens the newest journal to append to it, without its torn end. The newest frame, from newest to end, may be
// in the machine's memory alone: the process was killed before the fsync, or the fsync failed, and then the kernel
// counts the bytes as written and the next fsync says nothing. So it is written again before anything is read from
// the store. The frames before it were fsynced before it was begun.
func (s *Store) goOn(path string, sequence uint64, data []byte, newest, end int) error {
	f, err := s.cfg.FS.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	s.journal = journal{fs: s.cfg.FS, file: f, end: int64(end), sequence: sequence}
	if end < len(data) {
		s.cfg.Log.Warn("a secrets journal ends in an incomplete, unacknowledged commit; cutting it", "file", path, "offset",
			end, "bytes", len(data)-end)
	}
	_, err = f.WriteAt(data[newest:end], int64(newest))
	if err == nil {
		err = s.journal.takeBack()
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

var errBadFrame = errors.New("a frame is damaged")

// readFrames gives each batch to do, and returns where the last good frame begins and ends. at is the
// sequence of the newest frame. A bad frame with a good one behind it is an error.
func readFrames(data []byte, at *uint64, do func(records.Batch, uint64) error) (newest, end int, err error) {
	for end < len(data) {
		content, sequence, ok := frameAt(data[end:])
		if !ok || sequence != *at+1 {
			return newest, end, laterFrame(data[end:], *at)
		}
		for r := pack.Read(content); r.More(); {
			b, err := records.DecodeBatch(r.Bytes())
			if err == nil {
				err = do(b, sequence)
			}
			if err != nil {
				return newest, end, err
			}
		}
		*at = sequence
		newest = end
		end += headBytes + len(content)
	}
	return newest, end, nil
}

// laterFrame looks for a good frame of a later sequence in what follows a bad one.
func laterFrame(data []byte, at uint64) error {
	for from := 0; ; from++ {
		n := bytes.Index(data[from:], []byte(frameMagic))
		if n < 0 {
			return nil
		}
		from += n
		if _, sequence, ok := frameAt(data[from:]); ok && sequence > at {
			return fmt.Errorf("%w, and frame %d behind it is sound: this is no torn end; restore a backup, or ask before "+
				"cutting the file here", errBadFrame, sequence)
		}
	}
}

func frameAt(data []byte) (content []byte, sequence uint64, ok bool) {
	if len(data) < headBytes || string(data[:4]) != frameMagic {
		return nil, 0, false
	}
	n := int64(binary.LittleEndian.Uint32(data[4:]))
	if n > int64(len(data)-headBytes) {
		return nil, 0, false
	}
	frame := data[:headBytes+n]
	if records.Checksum(frame[:8], frame[12:]) != binary.LittleEndian.Uint32(frame[8:]) {
		return nil, 0, false
	}
	return frame[headBytes:], binary.LittleEndian.Uint64(frame[12:]), true
}
