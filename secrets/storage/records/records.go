// Package records is an immutable ordered set of storage records, what backends
// that keep all of them in memory are made of.
//
// A Set is a value: Apply returns the next one and leaves the old as it was, so
// a reader needs no lock and sees one commit whole or not at all. Records stand in
// blocks of some (block.go), and those in a table by their first keys.
package records

import (
	"strings"

	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/secrets/storage"
)

// Set is an immutable set of records in the order of their keys.
//
// Invariant: no block is empty, and each is wholly before the next.
type Set struct {
	blocks       table.Table[block]
	count, bytes int
}

// New makes an empty set.
func New() Set { return Set{blocks: table.New(compareBlocks)} }

// Len returns the number of records.
func (s Set) Len() int { return s.count }

// Bytes returns the length of all keys and values.
func (s Set) Bytes() int { return s.bytes }

// at is where a key belongs among blocks, as table.Table.Find wants it.
func at(key string) func(block) int {
	return func(b block) int { return strings.Compare(key, b.first()) }
}

// Get returns the value under key.
func (s Set) Get(key string) (value []byte, ok bool) {
	b, ok, _, _ := s.blocks.Around(at(key))
	if !ok {
		return nil, false
	}
	r := b.cursor()
	if equal, _ := r.seek(key); !equal {
		return nil, false
	}
	return r.bytes(), true
}

// next goes to the first record whose key is not less than from.
func (s Set) next(from string) (r cursor, ok bool) {
	b, ok, behind, more := s.blocks.Around(at(from))
	if ok {
		r = b.cursor()
		if _, ok = r.seek(from); ok {
			return r, true
		}
	}
	if !more {
		return r, false
	}
	r = behind.cursor()
	return r, r.next()
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
		found, ok := s.next(from)
		if !ok {
			return names
		}
		key := found.key()
		if !strings.HasPrefix(key, prefix) {
			return names
		}
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
	b, ok, _, _ := s.blocks.Around(at(from))
	start := from
	if ok {
		start = b.first()
	}
	for b := range s.blocks.Seek(at(start)) {
		if to != "" && b.first() >= to {
			return list
		}
		r := b.cursor()
		more := r.next
		if b.first() < from {
			more = func() bool { // the first of the block that is not before from
				_, ok := r.seek(from)
				return ok
			}
		}
		for more() {
			record := r.record()
			if (to != "" && record.Key >= to) || (limit > 0 && len(list) == limit) {
				return list
			}
			list, more = append(list, record), r.next
		}
	}
	return list
}
