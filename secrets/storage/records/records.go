// Package records is an immutable ordered set of storage records, what backends
// that keep all of them in memory are made of.
//
// A Set is a value: Apply returns the next one and leaves the old as it was, so
// a reader needs no lock and sees one commit whole or not at all.
package records

import (
	"strings"
	"unsafe"

	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/secrets/storage"
)

// Set is an immutable set of records in the order of their keys.
type Set struct {
	rows  table.Table[row]
	bytes int
}

// row is one record as one text: the length of its key in two bytes, its key, its value. There are millions of them
// and their places are copied at each commit: one pointer each, and one allocation.
type row string

// maxKeyBytes is what two bytes can say; backends take far shorter keys.
const maxKeyBytes = 1<<16 - 1

func newRow(key string, value []byte) row {
	if len(key) > maxKeyBytes {
		panic("records: a key that no backend takes")
	}
	b := make([]byte, 0, 2+len(key)+len(value))
	b = append(b, byte(len(key)>>8), byte(len(key)))
	b = append(append(b, key...), value...)
	return row(unsafe.String(unsafe.SliceData(b), len(b))) // b is nobody else's and never changes
}

func (r row) key() string { return string(r[2 : 2+(int(r[0])<<8|int(r[1]))]) }

// value is not to be changed, as no value of a backend is.
func (r row) value() []byte {
	text := string(r[2+len(r.key()):])
	if text == "" {
		return []byte{}
	}
	return unsafe.Slice(unsafe.StringData(text), len(text))
}

func (r row) record() storage.Record { return storage.Record{Key: r.key(), Value: r.value()} }

// New makes an empty set.
func New() Set {
	return Set{rows: table.New(func(a, b row) int { return strings.Compare(a.key(), b.key()) })}
}

// Len returns the number of records.
func (s Set) Len() int { return s.rows.Len() }

// Bytes returns the length of all keys and values.
func (s Set) Bytes() int { return s.bytes }

// Get returns the value under key.
func (s Set) Get(key string) (value []byte, ok bool) {
	r, ok := s.rows.Find(func(r row) int { return strings.Compare(key, r.key()) })
	if !ok {
		return nil, false
	}
	return r.value(), true
}

// Apply returns the set after the operations.
func (s Set) Apply(ops []storage.Op) Set {
	edit := s.rows.Edit()
	bytes := s.bytes
	for _, op := range ops {
		var old row
		var was bool
		if op.Value == nil {
			old, was = edit.Delete(newRow(op.Key, nil))
		} else {
			old, was = edit.Set(newRow(op.Key, op.Value))
			bytes += len(op.Key) + len(op.Value)
		}
		if was {
			bytes -= len(old) - 2
		}
	}
	return Set{rows: edit.Done(), bytes: bytes}
}

// List is Backend.List on a checked prefix. Its cost grows with the names
// returned, not with what lies below them: from a folder it goes to where the folder ends.
func (s Set) List(prefix, after string, limit int) []string {
	var names []string
	from := prefix + after
	if strings.HasSuffix(after, "/") {
		from = storage.After(from)
	}
	for limit <= 0 || len(names) < limit {
		found, ok := s.rows.FindNext(func(r row) int { return strings.Compare(from, r.key()) })
		if !ok || !strings.HasPrefix(found.key(), prefix) {
			return names
		}
		key := found.key()
		name := key[len(prefix):]
		if folder, _, deep := strings.Cut(name, "/"); deep {
			name = folder + "/"
		}
		if name > after { // a key that is itself after, or before a folder of its name
			names = append(names, name)
		}
		from = key + "\x00"
		if strings.HasSuffix(name, "/") {
			from = storage.After(prefix + name)
		}
	}
	return names
}

// Scan is Backend.Scan.
func (s Set) Scan(from, to string, limit int) []storage.Record {
	var list []storage.Record
	for r := range s.rows.Seek(func(r row) int { return strings.Compare(from, r.key()) }) {
		if (to != "" && r.key() >= to) || (limit > 0 && len(list) == limit) {
			break
		}
		list = append(list, r.record())
	}
	return list
}
