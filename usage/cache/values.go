package cache

import "math/rand/v2"

// Set is a set of texts. The zero value is empty.
type Set struct {
	places  map[string]int
	members []string
	bytes   int64
	log     *journal // of what changes now; nil is nobody's
}

// Len is how many members there are.
func (s *Set) Len() int { return len(s.members) }

// Bytes is what it takes in memory: more than all members have.
func (s *Set) Bytes() int { return int(s.bytes) }

// Has reports whether a text is a member.
func (s *Set) Has(member []byte) bool { _, ok := s.places[string(member)]; return ok }

// Add adds a member; false when it was one.
func (s *Set) Add(member []byte) bool {
	if s.Has(member) {
		return false
	}
	if s.places == nil {
		s.places = map[string]int{}
	}
	text := string(member)
	s.places[text] = len(s.members)
	s.members = append(s.members, text)
	s.bytes += elementBytes + int64(len(text))
	s.log.element(opAdd, member, nil)
	return true
}

// Remove removes a member; false when it was none.
func (s *Set) Remove(member []byte) bool {
	at, ok := s.places[string(member)]
	if !ok {
		return false
	}
	last := s.members[len(s.members)-1]
	s.members[at], s.places[last] = last, at
	s.members[len(s.members)-1] = ""
	s.members = s.members[:len(s.members)-1]
	delete(s.places, string(member))
	s.bytes -= elementBytes + int64(len(member))
	s.log.element(opRemove, member, nil)
	return true
}

// Pop removes any member.
func (s *Set) Pop() string {
	text := s.members[rand.IntN(len(s.members))]
	s.Remove([]byte(text))
	return text
}

// Members are all, in no order; they are the set's own.
func (s *Set) Members() []string { return s.members }

// Scan gives some members to fn, and returns where to go on: at 0 all were given. See Cache.Scan.
func (s *Set) Scan(cursor uint64, count int, fn func(member string)) (next uint64) {
	left := len(s.members)
	if cursor > 0 && cursor <= uint64(left) {
		left = int(cursor)
	}
	for ; left > 0 && count > 0; count-- {
		left--
		fn(s.members[left])
	}
	return uint64(left)
}

// Hash is a table of fields. The zero value is empty.
type Hash struct {
	values map[string][]byte
	bytes  int64
	log    *journal // of what changes now; nil is nobody's
}

// Len is how many fields there are.
func (h *Hash) Len() int { return len(h.values) }

// Bytes is what it takes in memory: more than all fields and values have.
func (h *Hash) Bytes() int { return int(h.bytes) }

// Get returns a field's value, which is the hash's own.
func (h *Hash) Get(field []byte) ([]byte, bool) { v, ok := h.values[string(field)]; return v, ok }

// Put sets a field; false when it was there.
func (h *Hash) Put(field, value []byte) bool {
	old, had := h.values[string(field)]
	if h.values == nil {
		h.values = map[string][]byte{}
	}
	if !had {
		h.bytes += 2*elementBytes + int64(len(field))
	}
	h.bytes += int64(len(value) - len(old))
	h.values[string(field)] = append([]byte(nil), value...)
	h.log.element(opPut, field, value)
	return !had
}

// Remove removes a field; false when it was not there.
func (h *Hash) Remove(field []byte) bool {
	old, had := h.values[string(field)]
	if had {
		delete(h.values, string(field))
		h.bytes -= 2*elementBytes + int64(len(field)+len(old))
		h.log.element(opTake, field, nil)
	}
	return had
}

// All gives all fields to fn, in no order.
func (h *Hash) All(fn func(field string, value []byte)) {
	for field, value := range h.values {
		fn(field, value)
	}
}
