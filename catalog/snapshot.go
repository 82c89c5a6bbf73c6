package catalog

import (
	"bufio"
	"encoding/binary"
	"hash/crc32"
	"hash/fnv"
	"io"
	"math"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// The snapshot's format: the magic, then records of kit/pack (four bytes of
// length before each). The first record is the header (version, index, table
// indexes). Then for each section a record {section, count} and count records
// in key order; section 0 ends the stream and carries the CRC-32C of all bytes
// before its record. Secondary indexes are not stored.
const (
	snapshotMagic   = "corbel-catalog\n"
	snapshotVersion = 1
	// maxRecordBytes is far above any object that the front doors let in (512 KiB values).
	maxRecordBytes = 64 << 20
)

const (
	sectionEnd = iota
	sectionNodes
	sectionServices
	sectionChecks
	sectionNames
	sectionDests
	sectionKV
	sectionTombstones
	sectionDirs
	sectionSessions
	sectionRecordKinds
	sectionRecords
	sectionGone
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sink writes records and keeps count and checksum. The first error sticks.
type sink struct {
	w       *bufio.Writer
	buf     []byte
	written int64
	sum     uint32
	err     error
}

func (s *sink) flush() {
	if s.err != nil {
		return
	}
	n, err := s.w.Write(s.buf)
	s.written += int64(n)
	s.sum = crc32.Update(s.sum, castagnoli, s.buf[:n])
	s.err = err
	s.buf = s.buf[:0]
}

func (s *sink) record(fill func(b []byte) []byte) {
	b, mark := pack.Begin(s.buf[:0])
	s.buf = pack.End(fill(b), mark)
	s.flush()
}

func (s *sink) section(id, count int) {
	s.record(func(b []byte) []byte { return pack.Uint(pack.Uint(b, uint64(id)), uint64(count)) })
}

// WriteTo writes the snapshot. It may take as long as it likes: s does not change.
func (s *State) WriteTo(w io.Writer) (int64, error) {
	out := &sink{w: bufio.NewWriterSize(w, 256<<10)}
	out.buf = append(out.buf, snapshotMagic...)
	out.flush()
	out.record(func(b []byte) []byte {
		ix := &s.indexes
		for _, v := range []uint64{snapshotVersion, s.index, ix.nodes, ix.services, ix.checks, ix.sessions, ix.kv,
			ix.nodeGone, ix.serviceGone, ix.horizon, ix.list} {
			b = pack.Uint(b, v)
		}
		return b
	})
	s.writeCatalog(out)
	s.writeKV(out)
	out.section(sectionSessions, s.tables.sessions.Len())
	for item := range s.tables.sessions.All() {
		out.record(func(b []byte) []byte { return AppendSession(b, item.v) })
	}
	s.writeRecords(out)
	out.section(sectionGone, s.tables.gone.Len())
	for item := range s.tables.gone.All() {
		out.record(item.appendPack)
	}
	sum := out.sum
	out.record(func(b []byte) []byte { return pack.Uint(pack.Uint(b, sectionEnd), uint64(sum)) })
	if out.err == nil {
		out.err = out.w.Flush()
	}
	return out.written, errkind.E(errkind.Internal, "write catalog snapshot", out.err)
}

func (s *State) writeCatalog(out *sink) {
	t := &s.tables
	out.section(sectionNodes, t.nodes.Len())
	for item := range t.nodes.All() {
		out.record(func(b []byte) []byte {
			return pack.Uint(pack.Uint(AppendNode(b, item.node), item.index), item.checksIndex)
		})
	}
	out.section(sectionServices, t.services.Len())
	for item := range t.services.All() {
		out.record(func(b []byte) []byte { return pack.Uint(AppendService(b, &item.Service), touchedAt(t.touched, item)) })
	}
	out.section(sectionChecks, t.checks.Len())
	for item := range t.checks.All() {
		out.record(func(b []byte) []byte { return AppendCheck(b, &item.Check) })
	}
	out.section(sectionNames, t.names.Len())
	for item := range t.names.All() {
		out.record(func(b []byte) []byte {
			b = pack.String(b, item.summary.Name)
			return pack.Uint(pack.Uint(pack.Uint(b, item.index), item.checksIndex), item.listIndex)
		})
	}
	out.section(sectionDests, t.dests.Len())
	for item := range t.dests.All() {
		out.record(func(b []byte) []byte {
			return pack.Uint(pack.Uint(pack.String(b, item.key), item.index), item.checksIndex)
		})
	}
}

func (s *State) writeKV(out *sink) {
	t := &s.tables
	out.section(sectionKV, t.kv.Len())
	for item := range t.kv.All() {
		out.record(func(b []byte) []byte { return AppendKVPair(b, item) })
	}
	out.section(sectionTombstones, t.tombstones.Len())
	for item := range t.tombstones.All() {
		out.record(func(b []byte) []byte { return pack.Uint(pack.String(b, item.key), item.index) })
	}
	out.section(sectionDirs, t.dirs.Len())
	for item := range t.dirs.All() {
		out.record(func(b []byte) []byte { return pack.Uint(pack.String(b, item.key), item.index) })
	}
}

func (s *State) writeRecords(out *sink) {
	out.section(sectionRecordKinds, len(s.indexes.records))
	for _, index := range s.indexes.records {
		out.record(func(b []byte) []byte { return pack.Uint(b, index) })
	}
	out.section(sectionRecords, s.tables.records.all.Len())
	for item := range s.tables.records.all.All() {
		out.record(func(b []byte) []byte { return AppendRecord(b, item.v) })
	}
}

// Hash is a digest of everything in the State: two members that applied the
// same commands have the same Hash. It reads the whole State.
func (s *State) Hash() uint64 {
	h := fnv.New64a()
	_, _ = s.WriteTo(h) // a hash never fails to write
	return h.Sum64()
}

// source reads records and keeps the checksum. The first error sticks.
type source struct {
	r   *bufio.Reader
	buf []byte
	sum uint32
	err error
}

func (s *source) fail() {
	if s.err == nil {
		s.err = pack.ErrDamaged
	}
}

// fill reads n bytes after those in buf, in steps, so that a damaged length
// costs no more memory than there is input.
func (s *source) fill(n int) {
	for n > 0 && s.err == nil {
		step, at := min(n, 1<<20), len(s.buf)
		if cap(s.buf)-at < step {
			s.buf = append(make([]byte, 0, max(2*cap(s.buf), at+step)), s.buf...)
		}
		s.buf = s.buf[:at+step]
		if _, err := io.ReadFull(s.r, s.buf[at:]); err != nil {
			s.err = err
			s.buf = s.buf[:0]
			return
		}
		n -= step
	}
}

// next reads one record; its fields are valid until the following call. At the
// end of damaged input it is empty.
func (s *source) next() *pack.Reader {
	s.buf = s.buf[:0]
	s.fill(4)
	if s.err != nil {
		return pack.Read(nil)
	}
	n := binary.LittleEndian.Uint32(s.buf)
	if n > maxRecordBytes {
		s.fail()
		return pack.Read(nil)
	}
	s.fill(int(n))
	if s.err != nil {
		return pack.Read(nil)
	}
	s.sum = crc32.Update(s.sum, castagnoli, s.buf)
	return pack.Read(s.buf[4:])
}

// ReadState reads a snapshot that WriteTo wrote. Damage of any kind gives an
// error of kind Corrupt and never a partial State.
func ReadState(r io.Reader) (*State, error) {
	in := &source{r: bufio.NewReaderSize(r, 256<<10)}
	in.fill(len(snapshotMagic))
	if in.err != nil || string(in.buf) != snapshotMagic {
		return nil, errkind.New(errkind.Corrupt, "read catalog snapshot: not a catalog snapshot")
	}
	in.sum = crc32.Update(0, castagnoli, in.buf)
	l := &loader{in: in, d: Empty().draft()}
	l.d.epoch = 1
	head := in.next()
	if version := head.Uint(); in.err == nil && version != snapshotVersion {
		return nil, errkind.Errorf(errkind.Corrupt, "read catalog snapshot: unknown version %d", version)
	}
	l.d.index = head.Uint()
	ix := &l.d.ix
	for _, v := range []*uint64{&ix.nodes, &ix.services, &ix.checks, &ix.sessions, &ix.kv, &ix.nodeGone, &ix.serviceGone} {
		*v = head.Uint()
	}
	if ix.horizon = l.d.index; head.More() {
		ix.horizon, ix.list = head.Uint(), head.Uint()
	}
	l.merge(head)
	for in.err == nil {
		sum := in.sum
		head := in.next()
		id, count := head.Uint(), head.Uint()
		l.merge(head)
		if in.err != nil {
			break
		}
		if id == sectionEnd {
			if count != uint64(sum) || !l.complete() {
				in.fail()
				break
			}
			return l.d.state(), nil
		}
		if id < l.section || count > math.MaxInt32 {
			in.fail()
			break
		}
		l.section = id + 1
		l.load(int(id), int(count))
	}
	return nil, errkind.E(errkind.Corrupt, "read catalog snapshot", in.err)
}
