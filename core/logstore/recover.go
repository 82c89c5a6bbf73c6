package logstore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"corbel.dev/corbel/kit/vfs"
)

func (c *Config) path(name string) string { return filepath.Join(c.Dir, name) }

// recover reads and verifies everything. It runs in Open only.
func (s *Store) recover() error {
	man, found, err := readManifest(s.cfg.FS, s.cfg.path(manifestName))
	if err != nil {
		return s.located(err)
	}
	if !found {
		if err := s.refuseOrphans(); err != nil {
			return err
		}
	} else if err := s.cfg.FS.SyncDir(s.cfg.Dir); err != nil {
		// The manifest's name may be in the machine's memory alone, left by a process that was killed before this fsync.
		return err
	}
	if s.mark, err = openMark(s.cfg.FS, s.cfg.path(markName), found); err != nil {
		return s.located(err)
	}
	if s.stable, err = openStable(s.cfg.FS, s.cfg.path(stableName), s.cfg.Dir, found); err != nil {
		return s.located(err)
	}
	if s.stable.repaired {
		s.cfg.Log.Warn("one of the two copies of term and vote was corrupt; rewrote it", "group", s.cfg.Group)
	}
	s.man = man
	if !found { // written last: its presence says that the other files are there
		s.man = manifest{First: 1, NextID: 1}
		if err := s.commitLocked(); err != nil {
			return err
		}
	}
	for i, entry := range s.man.Segments {
		if err := s.openSegment(entry, i); err != nil {
			return s.located(err)
		}
	}
	if last := s.lastLocked(); last < s.mark.last {
		file := s.cfg.path(markName)
		if n := len(s.segs); n > 0 {
			file = s.segs[n-1].path
		}
		return s.located(&Damage{File: file, Index: last + 1, Newest: s.mark.last,
			What: fmt.Sprintf("the log ends at index %d but was durable up to %d", last, s.mark.last)})
	}
	if err := s.settle(); err != nil {
		return err
	}
	s.opened.First, _ = s.FirstIndex()
	s.opened.Last, s.opened.Segments = s.lastLocked(), len(s.segs)
	return s.sweep()
}

// settle makes durable what stands behind the mark, which is set only after an fsync. It may be in the machine's memory
// alone: the process was killed before the fsync, or the fsync failed, and then the kernel shows the bytes, counts
// them as written, and the next fsync says nothing. So they are written again. Whoever asks for the last index counts
// it as stored.
func (s *Store) settle() error {
	last := s.lastLocked()
	if last <= s.mark.last {
		return nil
	}
	for _, seg := range s.segs {
		from := max(seg.base, s.mark.last+1, s.man.First)
		if seg.last() < from {
			continue
		}
		b := make([]byte, seg.end-int64(seg.offsets[from-seg.base]))
		if _, err := seg.file.ReadAt(b, int64(seg.offsets[from-seg.base])); err != nil {
			return err
		}
		if _, err := seg.file.WriteAt(b, int64(seg.offsets[from-seg.base])); err != nil {
			return err
		}
		if err := seg.file.Sync(); err != nil {
			return err
		}
	}
	return s.mark.set(last, true)
}

// located names the group in a Damage and lets the mark say what was once held.
func (s *Store) located(err error) error {
	if d, ok := err.(*Damage); ok {
		d.Group = s.cfg.Group
		if s.mark != nil {
			d.Newest = max(d.Newest, s.mark.last)
		}
	}
	return err
}

// refuseOrphans keeps a folder that lost its manifest from looking new.
func (s *Store) refuseOrphans() error {
	entries, err := s.cfg.FS.ReadDir(s.cfg.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".seg") {
			return s.located(&Damage{File: s.cfg.path(manifestName), What: "the manifest is gone but " + e.Name() + " is there"})
		}
	}
	return nil
}

// openSegment opens number i of the manifest and verifies all of it.
func (s *Store) openSegment(entry manifestSegment, i int) error {
	path := s.cfg.path(segmentName(entry.ID, entry.Base))
	f, err := s.cfg.FS.OpenFile(path, os.O_RDWR, 0)
	if missing(err) {
		return &Damage{File: path, Index: entry.Base, What: "the segment file is gone"}
	}
	if err != nil {
		return err
	}
	seg := &segment{id: entry.ID, base: entry.Base, path: path, file: f}
	s.segs = append(s.segs, seg)
	data, err := readAll(f)
	if err != nil {
		return err
	}
	tail := i == len(s.man.Segments)-1
	limit := uint64(0)
	if !tail {
		limit = s.man.Segments[i+1].Base - 1
	}
	found, why := scanSegment(data, entry.ID, entry.Base, limit)
	if why != "" {
		return &Damage{File: path, Index: entry.Base, What: why}
	}
	seg.offsets, seg.end = found.offsets, found.end
	if tail {
		return s.judgeTail(seg, found, int64(len(data)))
	}
	if seg.last() < limit {
		if found.why == "" {
			found.why = "records are missing"
		}
		return &Damage{File: path, Offset: found.end, Index: seg.last() + 1, What: found.why, Newest: found.beyond}
	}
	return nil
}

// judgeTail decides whether what follows the last sound record is a torn append
// that was never acknowledged, which is cut, or damage. It is damage when the
// mark says more was durable, or when a sound record of a later append follows:
// that append began only after the broken one had been fsynced.
func (s *Store) judgeTail(seg *segment, found scanned, size int64) error {
	if found.rest == 0 {
		return nil
	}
	next := seg.last() + 1
	if seg.last() < s.mark.last || found.beyondBatch > next {
		return &Damage{File: seg.path, Offset: found.end, Index: next, What: found.why, Newest: found.beyond}
	}
	// Cut and give the room back as zeros, so that nothing stale can ever follow a new record.
	if err := seg.file.Truncate(found.end); err != nil {
		return err
	}
	if err := seg.file.Preallocate(max(size, s.cfg.SegmentBytes)); err != nil {
		return err
	}
	if err := seg.file.Sync(); err != nil {
		return err
	}
	s.opened.CutBytes = found.rest
	s.cfg.Log.Warn("cut an incomplete record at the end of the log; it was never acknowledged",
		"group", s.cfg.Group, "file", seg.path, "offset", found.end, "bytes", found.rest, "last_index", seg.last())
	return nil
}

// sweep removes segment files that the manifest does not name and temporary files.
func (s *Store) sweep() error {
	entries, err := s.cfg.FS.ReadDir(s.cfg.Dir)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, seg := range s.segs {
		known[filepath.Base(seg.path)] = true
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasSuffix(name, vfs.TempSuffix) || (strings.HasSuffix(name, ".seg") && !known[name]) {
			if err := s.cfg.FS.Remove(s.cfg.path(name)); err != nil && !missing(err) {
				return err
			}
		}
	}
	return nil
}

func readAll(f vfs.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data := make([]byte, info.Size())
	if n, err := f.ReadAt(data, 0); n < len(data) {
		return nil, err
	}
	return data, nil
}
