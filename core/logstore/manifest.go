package logstore

import (
	"encoding/binary"
	"hash/crc32"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/vfs"
)

const manifestName = "MANIFEST"

// manifest names the segments in order. Every one but the last ends right before
// the next one's base, whatever stands behind that in its file.
type manifest struct {
	// First is the oldest index that still counts.
	First  uint64
	NextID uint64
	// Segments is empty as long as the log never held anything.
	Segments []manifestSegment
}

type manifestSegment struct{ ID, Base uint64 }

func (m manifest) encode() []byte {
	b := pack.Uint([]byte("CRBLMAN1"), m.First)
	b = pack.Uint(b, m.NextID)
	b = pack.Uint(b, uint64(len(m.Segments)))
	for _, seg := range m.Segments {
		b = pack.Uint(pack.Uint(b, seg.ID), seg.Base)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// readManifest returns false when there is none.
func readManifest(fsys vfs.FS, path string) (manifest, bool, error) {
	data, err := vfs.ReadFile(fsys, path)
	if missing(err) {
		return manifest{}, false, nil
	}
	if err != nil {
		return manifest{}, false, err
	}
	m, ok := decodeManifest(data)
	if !ok {
		return manifest{}, false, &Damage{File: path, What: "the manifest does not verify"}
	}
	return m, true, nil
}

func decodeManifest(data []byte) (manifest, bool) {
	n := len(data) - 4
	if n < 8 || string(data[:8]) != "CRBLMAN1" ||
		crc32.Checksum(data[:n], castagnoli) != binary.LittleEndian.Uint32(data[n:]) {
		return manifest{}, false
	}
	r := pack.Read(data[8:n])
	m := manifest{First: r.Uint(), NextID: r.Uint()}
	for range r.Count() {
		m.Segments = append(m.Segments, manifestSegment{ID: r.Uint(), Base: r.Uint()})
	}
	for i := 1; i < len(m.Segments); i++ {
		if m.Segments[i].Base <= m.Segments[i-1].Base {
			return manifest{}, false
		}
	}
	return m, r.Err() == nil
}

// commitLocked makes s.man durable. It needs wmu (or Open).
func (s *Store) commitLocked() error {
	s.counts.fsyncs.Add(2)
	return vfs.WriteFileAtomic(s.cfg.FS, s.cfg.path(manifestName), s.man.encode(), 0o600)
}

// makeTailLocked makes sure that the tail takes index next: it begins a new
// segment when there is none, when the tail is full, or when the log is empty
// and next is not the tail's base. It needs wmu.
func (s *Store) makeTailLocked(next uint64) error {
	if n := len(s.segs); n > 0 {
		tail := s.segs[n-1]
		if tail.last()+1 == next && tail.end < s.cfg.SegmentBytes {
			return nil
		}
		if tail.last()+1 == next && len(tail.offsets) > 0 {
			return s.rotateLocked(next, s.man.First, s.segs)
		}
	}
	return s.rotateLocked(next, next, nil) // empty: whatever segments there are hold nothing that counts
}

// rotateLocked replaces the segments by keep and a new tail from base on. It needs wmu.
func (s *Store) rotateLocked(base, first uint64, keep []*segment) error {
	// The mark must be durable with a new file, or a lost file could hide behind an old mark.
	if err := s.mark.flush(); err != nil {
		return err
	}
	tail, err := createSegment(s.cfg.FS, s.cfg.Dir, s.man.NextID, base, s.cfg.SegmentBytes)
	if err != nil {
		return err
	}
	s.counts.fsyncs.Add(2)
	return s.replaceLocked(append(keep[:len(keep):len(keep)], tail), first, s.man.NextID+1)
}

// replaceLocked commits a new list of segments, publishes it, and removes the files that fell out. It needs wmu.
func (s *Store) replaceLocked(segs []*segment, first, nextID uint64) error {
	old := s.segs
	next := manifest{First: first, NextID: nextID}
	kept := map[uint64]bool{}
	for _, seg := range segs {
		next.Segments = append(next.Segments, manifestSegment{ID: seg.id, Base: seg.base})
		kept[seg.id] = true
	}
	before := s.man
	s.mu.Lock()
	s.man = next
	s.mu.Unlock()
	if err := s.commitLocked(); err != nil {
		s.mu.Lock()
		s.man = before
		s.mu.Unlock()
		return err
	}
	s.mu.Lock()
	s.segs = segs
	for i := range len(segs) - 1 { // what stands behind the next one's base does not count
		if most := int(segs[i+1].base - segs[i].base); len(segs[i].offsets) > most {
			segs[i].end = int64(segs[i].offsets[most])
			segs[i].offsets = segs[i].offsets[:most:most]
		}
	}
	s.mu.Unlock()
	for _, seg := range old {
		if !kept[seg.id] {
			_ = seg.file.Close() // its content no longer counts
			if err := s.cfg.FS.Remove(seg.path); err != nil && !missing(err) {
				s.cfg.Log.Warn("cannot remove an old segment; the next start will", "group", s.cfg.Group, "file", seg.path,
					"err", err)
			}
		}
	}
	return nil
}

// DeleteRange removes a prefix or a suffix of the log, both ends included.
func (s *Store) DeleteRange(low, high uint64) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	began := s.watch.begin(opAppend)
	defer s.watch.end(opAppend, began)
	first, _ := s.FirstIndex()
	last, _ := s.LastIndex()
	if last == 0 || low > high || high < first || low > last {
		return nil
	}
	var err error
	switch {
	case low <= first:
		err = s.deletePrefixLocked(min(high, last)+1, last)
	case high >= last:
		err = s.deleteSuffixLocked(low)
	default:
		return errkind.Errorf(errkind.Internal, "log store %s: cannot delete %d-%d from the middle of %d-%d", s.cfg.Group,
			low, high, first, last)
	}
	if err != nil {
		return s.fail("truncate", err)
	}
	return nil
}

// deletePrefixLocked keeps what is at least first; all goes when first > last.
func (s *Store) deletePrefixLocked(first, last uint64) error {
	if first > last {
		if err := s.mark.set(0, true); err != nil {
			return err
		}
		return s.rotateLocked(first, first, nil)
	}
	keep := s.segs
	for len(keep) > 1 && keep[1].base <= first {
		keep = keep[1:]
	}
	return s.replaceLocked(append([]*segment(nil), keep...), first, s.man.NextID)
}

// deleteSuffixLocked removes low and all after it. The mark goes down first, and durably: it must never be ahead.
func (s *Store) deleteSuffixLocked(low uint64) error {
	if err := s.mark.set(low-1, true); err != nil {
		return err
	}
	keep := s.segs
	for len(keep) > 0 && keep[len(keep)-1].base >= low {
		keep = keep[:len(keep)-1]
	}
	return s.rotateLocked(low, s.man.First, append([]*segment(nil), keep...))
}
