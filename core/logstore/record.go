package logstore

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/hashicorp/raft"
)

// A record, little endian, padded with zeros to a multiple of 8:
//
//	0  crc32c of what follows (without the padding), begun with the segment's id
//	4  length of data and extensions
//	8  index        16 term        24 index of the first record of its append
//	32 appended at, unix nanoseconds (0: unknown)
//	40 length of the extensions    44 type    45 "CR1"
//	48 data, extensions
const (
	recordHeadBytes = 48
	recordAlign     = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seed begins the checksum with the segment's id, so that a record that stands in a wrong file does not verify.
func seed(id uint64) uint32 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], id)
	return crc32.Update(0, castagnoli, b[:])
}

func padded(n int) int { return (n + recordAlign - 1) &^ (recordAlign - 1) }

// appendRecord appends l, which belongs to an append that began with index batch.
func appendRecord(b []byte, id, batch uint64, l *raft.Log) []byte {
	start := len(b)
	var head [recordHeadBytes]byte
	le := binary.LittleEndian
	le.PutUint32(head[4:], uint32(len(l.Data)+len(l.Extensions)))
	le.PutUint64(head[8:], l.Index)
	le.PutUint64(head[16:], l.Term)
	le.PutUint64(head[24:], batch)
	if !l.AppendedAt.IsZero() {
		le.PutUint64(head[32:], uint64(l.AppendedAt.UnixNano()))
	}
	le.PutUint32(head[40:], uint32(len(l.Extensions)))
	head[44] = byte(l.Type)
	copy(head[45:], "CR1")
	b = append(b, head[:]...)
	b = append(b, l.Data...)
	b = append(b, l.Extensions...)
	le.PutUint32(b[start:], crc32.Update(seed(id), castagnoli, b[start+4:]))
	for range padded(len(b)-start) - (len(b) - start) {
		b = append(b, 0)
	}
	return b
}

// header is what a record's head says.
type header struct {
	index, batch uint64
	bytes        int // with the padding
}

// checkRecord verifies the record at the start of b, or says why there is none.
func checkRecord(b []byte, id uint64) (header, string) {
	if len(b) < recordHeadBytes {
		return header{}, "record head is cut off"
	}
	le := binary.LittleEndian
	if string(b[45:48]) != "CR1" {
		return header{}, "no record here"
	}
	n := int(le.Uint32(b[4:]))
	if n > maxEntryBytes || recordHeadBytes+n > len(b) || int(le.Uint32(b[40:])) > n {
		return header{}, "record is longer than its place"
	}
	if crc32.Update(seed(id), castagnoli, b[4:recordHeadBytes+n]) != le.Uint32(b) {
		return header{}, "checksum mismatch"
	}
	size := padded(recordHeadBytes + n)
	if size > len(b) {
		return header{}, "padding is cut off"
	}
	for _, pad := range b[recordHeadBytes+n : size] {
		if pad != 0 {
			return header{}, "padding is not zero"
		}
	}
	return header{index: le.Uint64(b[8:]), batch: le.Uint64(b[24:]), bytes: size}, ""
}

// decodeRecord fills out from a checked record; out keeps parts of b.
func decodeRecord(b []byte, out *raft.Log) {
	le := binary.LittleEndian
	n, ext := int(le.Uint32(b[4:])), int(le.Uint32(b[40:]))
	body := b[recordHeadBytes : recordHeadBytes+n]
	*out = raft.Log{Index: le.Uint64(b[8:]), Term: le.Uint64(b[16:]), Type: raft.LogType(b[44])}
	if data := body[: n-ext : n-ext]; len(data) > 0 {
		out.Data = data
	}
	if ext > 0 {
		out.Extensions = body[n-ext:]
	}
	if at := int64(le.Uint64(b[32:])); at != 0 {
		out.AppendedAt = time.Unix(0, at)
	}
}
