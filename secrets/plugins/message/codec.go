package message

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// field is one of a message's: a part of a part, where that is embedded.
type field struct {
	index  []int
	number protowire.Number
}

var layouts sync.Map // of reflect.Type: []field

// layout gives the fields of a message's type. A field without a tag is no part of the message.
func layout(t reflect.Type) []field {
	if have, ok := layouts.Load(t); ok {
		return have.([]field)
	}
	var fields []field
	for _, f := range reflect.VisibleFields(t) {
		if n, err := strconv.Atoi(f.Tag.Get("pb")); err == nil {
			fields = append(fields, field{f.Index, protowire.Number(n)})
		}
	}
	layouts.Store(t, fields)
	return fields
}

// Marshal encodes a message, which is a pointer to a struct.
func Marshal(m any) ([]byte, error) {
	v := reflect.ValueOf(m)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("message: %T is no pointer to a struct", m)
	}
	return appendMessage(nil, v.Elem()), nil
}

func appendMessage(out []byte, v reflect.Value) []byte {
	for _, f := range layout(v.Type()) {
		out = appendField(out, f.number, v.FieldByIndex(f.index))
	}
	return out
}

// appendField appends a field unless it has its zero value.
func appendField(out []byte, n protowire.Number, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			break
		}
		for i := range v.Len() {
			out = appendValue(out, n, v.Index(i))
		}
		return out
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			var entry []byte
			entry = appendValue(entry, 1, it.Key())
			entry = appendValue(entry, 2, it.Value())
			out = protowire.AppendBytes(protowire.AppendTag(out, n, protowire.BytesType), entry)
		}
		return out
	}
	if v.IsZero() {
		return out
	}
	return appendValue(out, n, v)
}

// appendValue appends one value with its tag, also where it is zero.
func appendValue(out []byte, n protowire.Number, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Bool:
		return protowire.AppendVarint(protowire.AppendTag(out, n, protowire.VarintType), protowire.EncodeBool(v.Bool()))
	case reflect.Int32, reflect.Int64:
		return protowire.AppendVarint(protowire.AppendTag(out, n, protowire.VarintType), uint64(v.Int()))
	case reflect.Uint32, reflect.Uint64:
		return protowire.AppendVarint(protowire.AppendTag(out, n, protowire.VarintType), v.Uint())
	case reflect.String:
		return protowire.AppendString(protowire.AppendTag(out, n, protowire.BytesType), v.String())
	case reflect.Slice:
		return protowire.AppendBytes(protowire.AppendTag(out, n, protowire.BytesType), v.Bytes())
	case reflect.Pointer:
		var inner []byte
		if !v.IsNil() {
			inner = appendMessage(nil, v.Elem())
		}
		return protowire.AppendBytes(protowire.AppendTag(out, n, protowire.BytesType), inner)
	}
	panic("message: no field may be a " + v.Kind().String())
}

// maxDepth bounds how deep messages may nest: none of these does by more than a few.
const maxDepth = 16

var (
	errDepth = errors.New("message: nests too deep")
	errKind  = errors.New("message: a field has another kind than it should")
	errText  = errors.New("message: a text is not UTF-8")
)

// Unmarshal reads a message into a pointer to a struct.
func Unmarshal(raw []byte, m any) error {
	v := reflect.ValueOf(m)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("message: %T is no pointer to a struct", m)
	}
	return readMessage(raw, v.Elem(), maxDepth)
}

func readMessage(raw []byte, v reflect.Value, depth int) error {
	if depth == 0 {
		return errDepth
	}
	fields := layout(v.Type())
	for len(raw) > 0 {
		n, kind, size := protowire.ConsumeTag(raw)
		if size < 0 {
			return protowire.ParseError(size)
		}
		raw = raw[size:]
		if size = protowire.ConsumeFieldValue(n, kind, raw); size < 0 {
			return protowire.ParseError(size)
		}
		value := raw[:size]
		raw = raw[size:]
		for _, f := range fields {
			if f.number != n {
				continue
			}
			if err := readField(value, kind, v.FieldByIndex(f.index), depth); err != nil {
				return err
			}
		}
	}
	return nil
}

func readField(raw []byte, kind protowire.Type, v reflect.Value, depth int) error {
	switch v.Kind() {
	case reflect.Bool, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		if kind != protowire.VarintType {
			return errKind
		}
		n, _ := protowire.ConsumeVarint(raw)
		setNumber(v, n)
		return nil
	}
	if kind != protowire.BytesType {
		return errKind
	}
	raw, _ = protowire.ConsumeBytes(raw)
	switch v.Kind() {
	case reflect.String:
		if !utf8.Valid(raw) {
			return errText
		}
		v.SetString(string(raw))
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return readMessage(raw, v.Elem(), depth-1)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(append([]byte{}, raw...))
			return nil
		}
		item := reflect.New(v.Type().Elem()).Elem()
		if err := readField(protowire.AppendBytes(nil, raw), kind, item, depth); err != nil {
			return err
		}
		v.Set(reflect.Append(v, item))
	case reflect.Map:
		return readEntry(raw, v, depth)
	default:
		return errKind
	}
	return nil
}

func setNumber(v reflect.Value, n uint64) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(protowire.DecodeBool(n))
	case reflect.Int32:
		v.SetInt(int64(int32(n)))
	case reflect.Int64:
		v.SetInt(int64(n))
	case reflect.Uint32:
		v.SetUint(uint64(uint32(n)))
	default:
		v.SetUint(n)
	}
}

// readEntry reads one entry of a map: a message of key and value.
func readEntry(raw []byte, v reflect.Value, depth int) error {
	key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
	for len(raw) > 0 {
		n, kind, size := protowire.ConsumeTag(raw)
		if size < 0 {
			return protowire.ParseError(size)
		}
		raw = raw[size:]
		if size = protowire.ConsumeFieldValue(n, kind, raw); size < 0 {
			return protowire.ParseError(size)
		}
		var err error
		switch n {
		case 1:
			err = readField(raw[:size], kind, key, depth)
		case 2:
			err = readField(raw[:size], kind, value, depth)
		}
		if err != nil {
			return err
		}
		raw = raw[size:]
	}
	if value.Kind() == reflect.Pointer && value.IsNil() {
		value = reflect.New(value.Type().Elem())
	}
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	v.SetMapIndex(key, value)
	return nil
}
