// Package merge adds up events that nobody can ask for singly: those without an id. What a host sends within a minute
// becomes one event for each tenant, product, source, identity and set of tags, so that a busy counter costs a line and
// not a line for each call.
//
// What always holds: for each minute, the events that went in and those that come out add up to the same sums, sets,
// maxima and newest values, with all tags. Events that differ in anything else stay apart. Amounts whose sum would
// overflow stay apart, too.
//
// The caller keeps events with ids out: explain, void and the memory against repeats need each of them. Pure; one
// goroutine at a time.
package merge

import (
	"encoding/binary"
	"time"

	"corbel.dev/corbel/usage"
)

// Set is events that were merged. The zero Set is empty.
type Set struct {
	known map[string]int // where in list
	list  []usage.Event
	key   []byte
	bytes int
}

// Add adds an event of a kind of product. Kind 0, where the product is not known, merges nothing. It reports whether
// the event went into one that was there.
func (s *Set) Add(kind usage.Kind, e *usage.Event) bool {
	if kind == 0 {
		s.append(e)
		return false
	}
	if s.known == nil {
		s.known = map[string]int{}
	}
	s.key = Key(append(s.key[:0], byte(kind)), e)
	if at, ok := s.known[string(s.key)]; ok && join(kind, &s.list[at], e) {
		return true
	}
	s.known[string(s.key)] = len(s.list)
	s.append(e)
	return false
}

func (s *Set) append(e *usage.Event) {
	s.list = append(s.list, *e)
	s.bytes += Bytes(e)
}

// Events are what is there, in the order in which each first came. They belong to the Set.
func (s *Set) Events() []usage.Event { return s.list }

// Bytes is about what they take in the binary form.
func (s *Set) Bytes() int { return s.bytes }

// join adds e to what is there. It fails where a sum would overflow.
func join(kind usage.Kind, to, e *usage.Event) bool {
	switch kind {
	case usage.Sum:
		sum, ok := to.Value.Add(e.Value)
		if !ok {
			return false
		}
		to.Value = sum
	case usage.Max:
		if to.Value.Compare(e.Value) < 0 {
			to.Value = e.Value
		}
	case usage.Min:
		if to.Value.Compare(e.Value) > 0 {
			to.Value = e.Value
		}
	case usage.Last:
		if e.Time < to.Time {
			return true
		}
		to.Value = e.Value // of two at the same time, the one that came later
	}
	to.Time = max(to.Time, e.Time)
	return true
}

// Key appends what two events must have in common to be merged: all but the value, and the time up to the minute.
func Key(b []byte, e *usage.Event) []byte {
	text := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	text(e.Tenant)
	text(e.Product)
	text(e.Source)
	b = binary.AppendVarint(b, e.Time/int64(time.Minute))
	for _, list := range [...][]usage.Field{e.Identity, e.Tags} {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, f := range list {
			text(f.Name)
			text(f.Value)
		}
	}
	return b
}

// Bytes is what an event takes in the binary form, or somewhat more.
func Bytes(e *usage.Event) int {
	n := 64 + len(e.ID) + len(e.Source) + len(e.Tenant) + len(e.Product)
	for _, list := range [...][]usage.Field{e.Identity, e.Tags} {
		for _, f := range list {
			n += 8 + len(f.Name) + len(f.Value)
		}
	}
	return n
}
