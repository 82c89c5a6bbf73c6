// Package records is an immutable ordered set of storage records, what backends
// that keep all of them in memory are made of.
//
// A Set is a value: Apply returns the next one and leaves the old as it was, so
// a reader needs no lock and sees one commit whole or not at all.
package records

import (
	"strings"

	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/secrets/storage"
)

// Set is an immutable set of records in the order of their keys.
type Set struct {
	rows  table.Table[storage.Record]
	bytes int
}

// New makes an empty set.
func New() Set {
	return Set{rows: table.New(func(a, b storage.Record) int { return strings.Compare(a.Key, b.Key) })}
}

// Len returns the number of records.
func (s Set) Len() int { return s.rows.Len() }

// Bytes returns the length of all keys and values.
func (s Set) Bytes() int { return s.bytes }

// Get returns the value under key.
func (s Set) Get(key string) (value []byte, ok bool) {
	row, ok := s.rows.Find(func(r storage.Record) int { return strings.Compare(key, r.Key) })
	return row.Value, ok
}

// Apply returns the set after the operations.
func (s Set) Apply(ops []storage.Op) Set {
	edit := s.rows.Edit()
	bytes := s.bytes
	for _, op := range ops {
		var old storage.Record
		var was bool
		if op.Value == nil {
			old, was = edit.Delete(storage.Record{Key: op.Key})
		} else {
			old, was = edit.Set(storage.Record(op))
			bytes += len(op.Key) + len(op.Value)
		}
		if was {
			bytes -= len(old.Key) + len(old.Value)
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
		row, ok := s.rows.FindNext(func(r storage.Record) int { return strings.Compare(from, r.Key) })
		if !ok || !strings.HasPrefix(row.Key, prefix) {
			return names
		}
		name := row.Key[len(prefix):]
		if folder, _, deep := strings.Cut(name, "/"); deep {
			name = folder + "/"
		}
		if name > after { // a key that is itself after, or before a folder of its name
			names = append(names, name)
		}
		from = row.Key + "\x00"
		if strings.HasSuffix(name, "/") {
			from = storage.After(prefix + name)
		}
	}
	return names
}

// Scan is Backend.Scan.
func (s Set) Scan(from, to string, limit int) []storage.Record {
	var list []storage.Record
	for row := range s.rows.Seek(func(r storage.Record) int { return strings.Compare(from, r.Key) }) {
		if (to != "" && row.Key >= to) || (limit > 0 && len(list) == limit) {
			break
		}
		list = append(list, row)
	}
	return list
}
