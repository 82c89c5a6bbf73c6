package objects

import (
	"encoding/binary"
	"hash/crc32"

	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor"
)

// A command is its version (1), the number of its ops, and of each verb, type, namespace, name,
// index and object. A snapshot is magic, index, number of items, of each type, namespace, name, index and object, and
// a CRC32C of all.
const (
	commandVersion = 1
	magic          = "CBLMON\x00\x01"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendCommand writes ops behind b.
func AppendCommand(b []byte, ops []Op) []byte {
	b = pack.Uint(b, commandVersion)
	b = pack.Uint(b, uint64(len(ops)))
	for _, op := range ops {
		b = pack.Uint(b, uint64(op.Verb))
		b = pack.String(b, op.Type)
		b = pack.String(b, op.Namespace)
		b = pack.String(b, op.Name)
		b = pack.Uint(b, op.If)
		b = pack.Bytes(b, op.Encoded)
	}
	return b
}

// DecodeCommand reads what AppendCommand wrote; objects still belong to b.
func DecodeCommand(b []byte) ([]Op, error) {
	r := pack.Read(b)
	if v := r.Uint(); v != commandVersion {
		return nil, errkind.Errorf(errkind.Corrupt, "a command of version %d; this program knows %d", v, commandVersion)
	}
	ops := make([]Op, 0, min(r.Count(), 1024))
	for r.More() {
		op := Op{Verb: Verb(r.Uint()), Type: r.String(), Namespace: r.String(), Name: r.String(), If: r.Uint(),
			Encoded: r.Bytes()}
		if op.Verb < Create || op.Verb > Drop {
			return nil, errkind.Errorf(errkind.Corrupt, "a command with verb %d", op.Verb)
		}
		ops = append(ops, op)
	}
	if r.Err() != nil {
		return nil, errkind.E(errkind.Corrupt, "a command", r.Err())
	}
	return ops, nil
}

// Snapshot returns all of the state.
func (s State) Snapshot() []byte {
	b := append([]byte(nil), magic...)
	b = pack.Uint(b, s.index)
	b = pack.Uint(b, uint64(s.items.Len()))
	for i := range s.items.All() {
		b = pack.String(b, i.Type)
		b = pack.String(b, i.Namespace)
		b = pack.String(b, i.Name)
		b = pack.Uint(b, i.Index)
		b = pack.Bytes(b, i.Encoded)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// ReadSnapshot is the reverse of Snapshot.
func ReadSnapshot(b []byte) (State, error) {
	if len(b) < len(magic)+4 || string(b[:len(magic)]) != magic {
		return State{}, errkind.Errorf(errkind.Corrupt, "no snapshot of the monitor")
	}
	body := b[:len(b)-4]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[len(body):]) {
		return State{}, errkind.Errorf(errkind.Corrupt, "a snapshot of the monitor is damaged")
	}
	r := pack.Read(body[len(magic):])
	s := State{index: r.Uint()}
	n := r.Count()
	items := table.New(compare).Edit()
	for range n {
		op := Op{Type: r.String(), Namespace: r.String(), Name: r.String()}
		index := r.Uint()
		op.Encoded = r.Bytes()
		if r.Err() != nil {
			break
		}
		typ, ok := monitor.TypeOf(op.Type)
		if !ok {
			return State{}, errkind.Errorf(errkind.Corrupt, "a snapshot of the monitor has %q, which this program does not know",
				op.Type)
		}
		item, err := decode(op, typ, index)
		if err != nil {
			return State{}, errkind.E(errkind.Corrupt, "a snapshot of the monitor", err)
		}
		items.Set(item)
	}
	if r.Err() != nil || r.More() {
		return State{}, errkind.Errorf(errkind.Corrupt, "a snapshot of the monitor is damaged")
	}
	s.items = items.Done()
	return s, nil
}
