package kv

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/secrets/storage"
)

// The first byte of a packed record. One that begins with '{' is of an earlier version and is JSON; it is read on, and
// packed when it is next written. Fields are only ever added at a record's end.
const (
	packedHead = 1
	packedRow  = 2
)

var errRecord = errors.New("not a record of this store")

func putHead(path string, h *head) storage.Op {
	b := make([]byte, 0, 64)
	b = pack.Uint(append(b, packedHead), uint64(h.Current))
	b = pack.Uint(b, uint64(h.Oldest))
	b = packTime(packTime(b, h.Created), h.Updated)
	b = pack.Bool(pack.Uint(b, uint64(h.MaxVersions)), h.CASRequired)
	b = pack.Int(b, int64(h.DeleteAfter))
	if b = pack.Bool(b, h.Custom != nil); h.Custom != nil { // an empty object is shown as one
		b = pack.Uint(b, uint64(len(h.Custom)))
	}
	for _, name := range slices.Sorted(maps.Keys(h.Custom)) {
		b = pack.String(pack.String(b, name), h.Custom[name])
	}
	if h.Meta != 0 || h.MetaCASRequired {
		b = pack.Bool(pack.Uint(b, uint64(h.Meta)), h.MetaCASRequired)
	}
	return storage.Put(headKey(path), b)
}

func (h *head) unpack(raw []byte) error {
	r := pack.Read(raw)
	if r.Uint() != packedHead {
		return errRecord
	}
	h.Current, h.Oldest = int(r.Uint()), int(r.Uint())
	h.Created, h.Updated = readTime(r), readTime(r)
	h.MaxVersions, h.CASRequired, h.DeleteAfter = int(r.Uint()), r.Bool(), time.Duration(r.Int())
	if has := r.Bool(); has {
		h.Custom = map[string]string{}
		for range r.Count() {
			name := r.String()
			if h.Custom[name] = r.String(); r.Err() != nil {
				break
			}
		}
	}
	if r.More() {
		h.Meta, h.MetaCASRequired = int(r.Uint()), r.Bool()
	}
	return r.Err()
}

func putRow(path string, version int, v *row) storage.Op {
	b := make([]byte, 0, 32+len(v.Data))
	b = packTime(packTime(append(b, packedRow), v.Created), v.Deleted)
	return storage.Put(rowKey(path, version), pack.Bytes(pack.Bool(b, v.Destroyed), v.Data))
}

// unpack reads a row. Its data stands in raw, which nobody changes.
func (v *row) unpack(raw []byte) error {
	r := pack.Read(raw)
	if r.Uint() != packedRow {
		return errRecord
	}
	v.Created, v.Deleted, v.Destroyed, v.Data = readTime(r), readTime(r), r.Bool(), r.Bytes()
	return r.Err()
}

// packTime writes a time: whether there is one, its second and its nanosecond. A version may be deleted after
// centuries.
func packTime(b []byte, at time.Time) []byte {
	if at.IsZero() {
		return pack.Bool(b, false)
	}
	return pack.Uint(pack.Int(pack.Bool(b, true), at.Unix()), uint64(at.Nanosecond()))
}

func readTime(r *pack.Reader) time.Time {
	if !r.Bool() {
		return time.Time{}
	}
	second := r.Int()
	return time.Unix(second, int64(r.Uint())).UTC()
}

// bodyOf finds data and options in a write's body. What is not plainly an object with names that are written as they
// are is left to encoding/json.
func bodyOf(body []byte) (data, options json.RawMessage, err error) {
	if !json.Valid(body) {
		return nil, nil, errObject
	}
	at := spaces(body, 0)
	if body[at] != '{' {
		return slowBody(body)
	}
	for at = spaces(body, at+1); body[at] != '}'; at = spaces(body, at) {
		if body[at] == ',' {
			at = spaces(body, at+1)
		}
		name := body[at:pastValue(body, at)]
		at = spaces(body, spaces(body, at+len(name))+1) // past the colon
		value := body[at:pastValue(body, at)]
		at += len(value)
		switch name = name[1 : len(name)-1]; {
		case string(name) == "data":
			data = value
		case string(name) == "options":
			options = value
		case bytes.IndexByte(name, '\\') >= 0 || bytes.EqualFold(name, []byte("data")) ||
			bytes.EqualFold(name, []byte("options")):
			return slowBody(body)
		}
	}
	return data, options, nil
}

var errObject = errkind.New(errkind.Invalid, "failed to parse JSON input: an object is expected")

// slowBody is bodyOf for names that are written in another way.
func slowBody(body []byte) (data, options json.RawMessage, err error) {
	var b struct {
		Data    json.RawMessage `json:"data"`
		Options json.RawMessage `json:"options"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return nil, nil, errObject
	}
	return b.Data, b.Options, nil
}

// spaces is where white space that begins at a place ends.
func spaces(b []byte, at int) int {
	for b[at] == ' ' || b[at] == '\t' || b[at] == '\n' || b[at] == '\r' {
		at++
	}
	return at
}

// pastValue is where the value that begins at a place of valid JSON ends, which is not a number that ends the text.
func pastValue(b []byte, at int) int {
	depth := 0
	for {
		switch c := b[at]; c {
		case '"':
			for at++; b[at] != '"'; at++ {
				if b[at] == '\\' {
					at++
				}
			}
			if depth == 0 {
				return at + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // of what the value stands in
				return at
			}
			if depth--; depth == 0 {
				return at + 1
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return at
			}
		}
		at++
	}
}
