package tagproto

import (
	"maps"
	"math"
	"reflect"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Append writes *m, a pointer to a struct, behind b.
func Append(b []byte, m any) []byte {
	v := reflect.ValueOf(m).Elem()
	return appendMessage(b, planOf(v.Type()), v)
}

func appendMessage(b []byte, p *plan, v reflect.Value) []byte {
	for i := range p.fields {
		f := &p.fields[i]
		b = appendField(b, f, v.Field(f.index))
	}
	if p.extra >= 0 {
		b = append(b, v.Field(p.extra).Bytes()...)
	}
	return b
}

func appendField(b []byte, f *field, v reflect.Value) []byte {
	switch {
	case f.kind == kindMap:
		return appendMap(b, f.number, v)
	case f.packed:
		if v.Len() == 0 {
			return b
		}
		b = protowire.AppendTag(b, f.number, protowire.BytesType)
		return appendLengthOf(b, func(b []byte) []byte {
			for i := range v.Len() {
				b = appendScalar(b, f.kind, v.Index(i))
			}
			return b
		})
	case f.repeated:
		for i := range v.Len() {
			b = appendValue(b, f, v.Index(i))
		}
		return b
	case f.kind != kindStruct && v.IsZero(): // a nil slice of bytes and an empty one are alike
		return b
	case f.kind == kindBytes && v.Len() == 0:
		return b
	}
	return appendValue(b, f, v)
}

func appendValue(b []byte, f *field, v reflect.Value) []byte {
	switch f.kind {
	case kindString:
		return protowire.AppendString(protowire.AppendTag(b, f.number, protowire.BytesType), v.String())
	case kindBytes:
		return protowire.AppendBytes(protowire.AppendTag(b, f.number, protowire.BytesType), v.Bytes())
	case kindStruct:
		b = protowire.AppendTag(b, f.number, protowire.BytesType)
		return appendLengthOf(b, func(b []byte) []byte { return appendMessage(b, f.message, v) })
	case kindPointer:
		b = protowire.AppendTag(b, f.number, protowire.BytesType)
		if v.IsNil() { // an element of a list: an empty message keeps its place
			return append(b, 0)
		}
		return appendLengthOf(b, func(b []byte) []byte { return appendMessage(b, f.message, v.Elem()) })
	}
	return appendScalar(protowire.AppendTag(b, f.number, wireType(f.kind)), f.kind, v)
}

func wireType(k kind) protowire.Type {
	switch k {
	case kindFloat64:
		return protowire.Fixed64Type
	case kindFloat32:
		return protowire.Fixed32Type
	case kindBool, kindInt, kindUint:
		return protowire.VarintType
	}
	return protowire.BytesType
}

func appendScalar(b []byte, k kind, v reflect.Value) []byte {
	switch k {
	case kindBool:
		return protowire.AppendVarint(b, protowire.EncodeBool(v.Bool()))
	case kindInt:
		return protowire.AppendVarint(b, uint64(v.Int()))
	case kindUint:
		return protowire.AppendVarint(b, v.Uint())
	case kindFloat32:
		return protowire.AppendFixed32(b, math.Float32bits(float32(v.Float())))
	}
	return protowire.AppendFixed64(b, math.Float64bits(v.Float()))
}

// appendLengthOf writes what body appends, with its length before it. One byte is
// kept for the length; a longer one moves the body.
func appendLengthOf(b []byte, body func([]byte) []byte) []byte {
	at := len(b)
	b = body(append(b, 0))
	n := len(b) - at - 1
	if n < 128 {
		b[at] = byte(n)
		return b
	}
	wide := protowire.SizeVarint(uint64(n))
	b = slices.Grow(b, wide-1)[:len(b)+wide-1]
	copy(b[at+wide:], b[at+1:at+1+n])
	protowire.AppendVarint(b[:at], uint64(n))
	return b
}

func appendMap(b []byte, n protowire.Number, v reflect.Value) []byte {
	m := v.Interface().(map[string]string)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = protowire.AppendTag(b, n, protowire.BytesType)
		b = appendLengthOf(b, func(b []byte) []byte {
			b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), k)
			return protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), m[k])
		})
	}
	return b
}
