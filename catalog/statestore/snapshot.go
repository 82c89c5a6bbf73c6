package statestore

import (
	"hash/fnv"
	"io"
	"math"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/kvstore"
	"corbel.dev/corbel/catalog/sections"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// The snapshot's format (catalog/sections): the first record is the header (version, index, table
// indexes). The sections follow in this order, each in the order of its keys. Secondary indexes
// are not stored.
const (
	snapshotMagic   = "corbel-catalog\n"
	snapshotVersion = 1
)

const (
	sectionNodes = iota + 1
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

// WriteTo writes the snapshot. It may take as long as it likes: s does not change.
func (s *State) WriteTo(w io.Writer) (int64, error) {
	out := sections.NewWriter(w, snapshotMagic)
	out.Record(func(b []byte) []byte {
		ix := &s.indexes
		for _, v := range []uint64{snapshotVersion, s.index, ix.nodes, ix.services, ix.checks, s.sessions.index,
			s.LastChange(),
			ix.nodeGone, ix.serviceGone, ix.horizon, ix.list} {
			b = pack.Uint(b, v)
		}
		return b
	})
	s.tables.write(out)
	writeKV(out, &s.Store)
	out.Section(sectionSessions, s.sessions.byID.Len())
	for item := range s.sessions.byID.All() {
		out.Record(func(b []byte) []byte { return catalog.AppendSession(b, item.v) })
	}
	s.records.write(out)
	out.Section(sectionGone, s.tables.gone.all.Len())
	for item := range s.tables.gone.all.All() {
		out.Record(item.appendPack)
	}
	n, err := out.Close()
	return n, errkind.E(errkind.Internal, "write catalog snapshot", err)
}

func (t *tables) write(out *sections.Writer) {
	out.Section(sectionNodes, t.nodes.byName.Len())
	for item := range t.nodes.byName.All() {
		out.Record(func(b []byte) []byte {
			return pack.Uint(pack.Uint(catalog.AppendNode(b, item.node), item.index), item.checksIndex)
		})
	}
	out.Section(sectionServices, t.services.byNode.Len())
	for item := range t.services.byNode.All() {
		out.Record(func(b []byte) []byte {
			return pack.Uint(catalog.AppendService(b, &item.Service), touchedAt(t.services.touched, item))
		})
	}
	out.Section(sectionChecks, t.checks.byNode.Len())
	for item := range t.checks.byNode.All() {
		out.Record(func(b []byte) []byte { return catalog.AppendCheck(b, &item.Check) })
	}
	out.Section(sectionNames, t.services.names.Len())
	for item := range t.services.names.All() {
		out.Record(func(b []byte) []byte {
			b = pack.String(b, item.summary.Name)
			return pack.Uint(pack.Uint(pack.Uint(b, item.index), item.checksIndex), item.listIndex)
		})
	}
	out.Section(sectionDests, t.services.dests.Len())
	for item := range t.services.dests.All() {
		out.Record(func(b []byte) []byte {
			return pack.Uint(pack.Uint(pack.String(b, item.key), item.index), item.checksIndex)
		})
	}
}

func writeKV(out *sections.Writer, s *kvstore.Store) {
	out.Section(sectionKV, s.Pairs())
	for p := range s.KVPrefix("") {
		out.Record(func(b []byte) []byte { return catalog.AppendKVPair(b, p) })
	}
	keyed := func(b []byte, key string, index uint64) []byte { return pack.Uint(pack.String(b, key), index) }
	out.Section(sectionTombstones, s.DeletedKeys())
	for key, index := range s.Tombstones() {
		out.Record(func(b []byte) []byte { return keyed(b, key, index) })
	}
	out.Section(sectionDirs, s.FolderCount())
	for key, index := range s.Folders() {
		out.Record(func(b []byte) []byte { return keyed(b, key, index) })
	}
}

func (s *records) write(out *sections.Writer) {
	out.Section(sectionRecordKinds, len(s.indexes))
	for _, index := range s.indexes {
		out.Record(func(b []byte) []byte { return pack.Uint(b, index) })
	}
	out.Section(sectionRecords, s.all.Len())
	for item := range s.all.All() {
		out.Record(func(b []byte) []byte { return catalog.AppendRecord(b, item.v) })
	}
}

// Hash is a digest of everything in the State: two members that applied the
// same commands have the same Hash. It reads the whole State.
func (s *State) Hash() uint64 {
	h := fnv.New64a()
	_, _ = s.WriteTo(h) // a hash never fails to write
	return h.Sum64()
}

// ReadState reads a snapshot that WriteTo wrote. Damage of any kind gives an
// error of kind Corrupt and never a partial State.
func ReadState(r io.Reader) (*State, error) {
	in, ok := sections.NewReader(r, snapshotMagic)
	if !ok {
		return nil, errkind.New(errkind.Corrupt, "read catalog snapshot: not a catalog snapshot")
	}
	l := &loader{in: in, d: Empty().draft()}
	head := in.Next()
	if version := head.Uint(); in.Err() == nil && version != snapshotVersion {
		return nil, errkind.Errorf(errkind.Corrupt, "read catalog snapshot: unknown version %d", version)
	}
	l.d.index = head.Uint()
	ix := &l.d.ix
	var kvIndex uint64
	for _, v := range []*uint64{&ix.nodes, &ix.services, &ix.checks, &l.d.t.sessions.index, &kvIndex, &ix.nodeGone,
		&ix.serviceGone} {
		*v = head.Uint()
	}
	l.d.t.kv.LoadIndex(kvIndex)
	if ix.horizon = l.d.index; head.More() {
		ix.horizon, ix.list = head.Uint(), head.Uint()
	}
	l.merge(head)
	for in.Err() == nil {
		id, count, whole := in.Section()
		switch {
		case in.Err() != nil:
		case id == sections.End:
			if whole && l.complete() {
				return l.d.state(), nil
			}
			in.Fail()
		case id < l.section || count > math.MaxInt32:
			in.Fail()
		default:
			l.section = id + 1
			l.load(int(id), int(count))
		}
	}
	return nil, errkind.E(errkind.Corrupt, "read catalog snapshot", in.Err())
}
