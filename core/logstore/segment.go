package logstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/kit/vfs"
)

// segmentHeadBytes: "CRBLSEG1", id, base, crc32c of these, 4 zero bytes.
const segmentHeadBytes = 32

// segment is one file of records with consecutive indexes from base.
type segment struct {
	id, base uint64
	path     string
	file     vfs.File
	// offsets of the records; end is where the next one goes. Guarded by Store.mu, changed by the tail's writer only.
	offsets []uint32
	end     int64
}

// last is base-1 while there is no record.
func (g *segment) last() uint64 { return g.base + uint64(len(g.offsets)) - 1 }

func segmentName(id, base uint64) string { return fmt.Sprintf("%020d-%08d.seg", base, id) }

func segmentHead(id, base uint64) []byte {
	b := make([]byte, segmentHeadBytes)
	copy(b, "CRBLSEG1")
	binary.LittleEndian.PutUint64(b[8:], id)
	binary.LittleEndian.PutUint64(b[16:], base)
	binary.LittleEndian.PutUint32(b[24:], crc32.Checksum(b[:24], castagnoli))
	return b
}

// createSegment makes a segment's file durable, name included, before anything refers to it.
func createSegment(fsys vfs.FS, dir string, id, base uint64, sizeBytes int64) (*segment, error) {
	path := filepath.Join(dir, segmentName(id, base))
	f, err := fsys.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if err = f.Preallocate(sizeBytes); err == nil {
		_, err = f.WriteAt(segmentHead(id, base), 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		_ = f.Close() // the first error is the one to report
		return nil, err
	}
	return &segment{id: id, base: base, path: path, file: f, end: segmentHeadBytes}, nil
}

// read verifies and decodes the record number at; it needs Store.mu for reading.
func (g *segment) read(at int, index uint64, out *raft.Log) error {
	from, to := int64(g.offsets[at]), g.end
	if at+1 < len(g.offsets) {
		to = int64(g.offsets[at+1])
	}
	b := make([]byte, to-from)
	if n, err := g.file.ReadAt(b, from); err != nil && n < len(b) {
		if err == io.EOF {
			return &Damage{File: g.path, Offset: from, Index: index, What: "file is shorter than it was"}
		}
		return err
	}
	h, why := checkRecord(b, g.id)
	if why == "" && (h.index != index || h.bytes != len(b)) {
		why = fmt.Sprintf("record of index %d stands here", h.index)
	}
	if why != "" {
		return &Damage{File: g.path, Offset: from, Index: index, What: why}
	}
	decodeRecord(b, out)
	return nil
}

// scanned is what scanning a segment gave.
type scanned struct {
	offsets []uint32
	end     int64
	// why the scan ended before all non-zero bytes were understood; "" when only zeros follow.
	why string
	// rest is how many bytes follow end up to the last one that is not zero.
	rest int64
	// beyond is the highest index of a sound record after the break, beyondBatch the highest first index of its append.
	beyond, beyondBatch uint64
}

// scanSegment verifies data, the whole file, from its head on. limit ends the scan after that index (0: none).
func scanSegment(data []byte, id, base, limit uint64) (scanned, string) {
	if len(data) < segmentHeadBytes || string(data[:28]) != string(segmentHead(id, base)[:28]) {
		return scanned{}, "segment head does not verify"
	}
	s := scanned{end: segmentHeadBytes}
	next := base
	for limit == 0 || next <= limit {
		rest := data[s.end:]
		h, why := checkRecord(rest, id)
		if why == "" && h.index != next {
			why = fmt.Sprintf("record of index %d stands here", h.index)
		}
		if why != "" {
			s.why = why
			break
		}
		s.offsets = append(s.offsets, uint32(s.end))
		s.end += int64(h.bytes)
		next++
	}
	if limit != 0 && next > limit {
		return s, ""
	}
	s.rest = nonZero(data[s.end:])
	if s.rest == 0 {
		s.why = ""
		return s, ""
	}
	s.lookBeyond(data[s.end:], id, next)
	return s, ""
}

// lookBeyond finds sound records after the break: they tell damage from a torn append.
func (s *scanned) lookBeyond(data []byte, id, next uint64) {
	for at := recordAlign; int64(at) < s.rest && at+recordHeadBytes <= len(data); at += recordAlign {
		if data[at+45] != 'C' || data[at+46] != 'R' {
			continue
		}
		if h, why := checkRecord(data[at:], id); why == "" && h.index >= next {
			s.beyond = max(s.beyond, h.index)
			s.beyondBatch = max(s.beyondBatch, h.batch)
		}
	}
}

// nonZero returns the length of b without the zeros at its end.
func nonZero(b []byte) int64 {
	n := len(b)
	for n >= 8 && binary.LittleEndian.Uint64(b[n-8:n]) == 0 {
		n -= 8
	}
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return int64(n)
}
