package answer

import (
	"encoding/base64"
	"slices"
	"strconv"
	"unicode/utf8"
)

// The append functions write JSON as encoding/json would, without reflection.
// A fuzz test compares them with it.

const hexDigits = "0123456789abcdef"

// plainByte tells the bytes that stand for themselves in a JSON string.
var plainByte = func() (t [utf8.RuneSelf]bool) {
	for c := range t {
		t[c] = c >= 0x20 && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return t
}()

// AppendString appends s as a JSON string.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if plainByte[c] {
				i++
				continue
			}
			b = append(b, s[start:i]...)
			b = appendEscapedByte(b, c)
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = append(b, s[start:i]...)
			b = append(b, `\ufffd`...)
		case r == '\u2028' || r == '\u2029':
			b = append(b, s[start:i]...)
			b = append(b, `\u202`...)
			b = append(b, hexDigits[r&0xF])
		default:
			i += size
			continue
		}
		i += size
		start = i
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

func appendEscapedByte(b []byte, c byte) []byte {
	switch c {
	case '\\', '"':
		return append(b, '\\', c)
	case '\b':
		return append(b, '\\', 'b')
	case '\f':
		return append(b, '\\', 'f')
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	}
	return append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xF])
}

// appendBase64 appends v as a base64 JSON string, null when it is empty.
func appendBase64(b, v []byte) []byte {
	if len(v) == 0 {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, v)
	return append(b, '"')
}

// AppendStrings appends a list, [] when it is nil.
func AppendStrings(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, s)
	}
	return append(b, ']')
}

// appendStringMap appends m with sorted keys, null when it is nil.
func appendStringMap(b []byte, m map[string]string) []byte {
	if m == nil {
		return append(b, "null"...)
	}
	return appendObject(b, m, AppendString)
}

// appendMeta appends m with sorted keys, {} when it is nil.
func appendMeta(b []byte, m map[string]string) []byte { return appendObject(b, m, AppendString) }

// appendObject appends m with sorted keys.
func appendObject[V any](b []byte, m map[string]V, value func([]byte, V) []byte) []byte {
	b = append(b, '{')
	if len(m) == 1 {
		for k, v := range m {
			b = AppendString(b, k)
			b = append(b, ':')
			b = value(b, v)
		}
		return append(b, '}')
	}
	var few [16]string
	keys := few[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, k)
		b = append(b, ':')
		b = value(b, m[k])
	}
	return append(b, '}')
}

// The field functions append `,"Name":` as it is given in key, and the value.

// StringField appends a field with a text.
func StringField(b []byte, key, v string) []byte {
	b = append(b, key...)
	return AppendString(b, v)
}

func intField(b []byte, key string, v int) []byte {
	b = append(b, key...)
	return strconv.AppendInt(b, int64(v), 10)
}

// UintField appends a field with a number.
func UintField(b []byte, key string, v uint64) []byte {
	b = append(b, key...)
	return strconv.AppendUint(b, v, 10)
}

// BoolField appends a field that is true or false.
func BoolField(b []byte, key string, v bool) []byte {
	b = append(b, key...)
	return strconv.AppendBool(b, v)
}

func rawField(b []byte, key string, v []byte, unset string) []byte {
	b = append(b, key...)
	if len(v) == 0 {
		return append(b, unset...)
	}
	return append(b, v...)
}
