package frame

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Append is the reverse of Cut: it appends the event that f was cut from, with fields in another order. f is not
// changed.
func (f *Frame) Append(b []byte) []byte {
	b = appendUint(b, eventTimestamp, uint64(f.Timestamp))
	b = appendText(b, eventEntity, f.Entity)
	if f.HasCheck {
		b = protowire.AppendTag(b, eventCheck, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(f.checkSize()))
		b = f.appendCheck(b)
	}
	b = appendText(b, eventMetrics, f.Metrics)
	if f.ID != [16]byte{} {
		b = appendText(b, eventID, f.ID[:])
	}
	b = appendUint(b, eventSequence, uint64(f.Sequence))
	return append(b, f.Rest...)
}

func (f *Frame) appendCheck(b []byte) []byte {
	b = append(b, f.Stable...)
	if f.Duration != 0 {
		b = protowire.AppendTag(b, checkDuration, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, math.Float64bits(f.Duration))
	}
	b = appendUint(b, checkExecuted, uint64(f.Executed))
	b = appendUint(b, checkIssued, uint64(f.Issued))
	b = appendText(b, checkOutput, f.Output)
	b = appendUint(b, checkStatus, uint64(f.Status))
	b = appendText(b, checkProcessedBy, f.ProcessedBy)
	return append(b, f.Hooks...)
}

func (f *Frame) checkSize() int {
	n := len(f.Stable) + len(f.Hooks)
	if f.Duration != 0 {
		n += protowire.SizeTag(checkDuration) + 8
	}
	return n + sizeUint(checkExecuted, uint64(f.Executed)) + sizeUint(checkIssued, uint64(f.Issued)) +
		sizeUint(checkStatus, uint64(f.Status)) +
		sizeText(checkOutput, f.Output) + sizeText(checkProcessedBy, f.ProcessedBy)
}

func appendUint(b []byte, n protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

func sizeUint(n protowire.Number, v uint64) int {
	if v == 0 {
		return 0
	}
	return protowire.SizeTag(n) + protowire.SizeVarint(v)
}

// appendText leaves out what is nil, and keeps what is there and empty: a message without fields.
func appendText(b []byte, n protowire.Number, v []byte) []byte {
	if v == nil {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

func sizeText(n protowire.Number, v []byte) int {
	if v == nil {
		return 0
	}
	return protowire.SizeTag(n) + protowire.SizeBytes(len(v))
}
