// Package serial lets one goroutine at a time have a name: a record that is read and then written, a token that is
// used. Names share stripes, so memory is bounded: two of them may wait for each other, and no name is had twice.
package serial

import (
	"hash/maphash"
	"sync"
)

// Names are the names that can be had. The zero value is ready; all methods may be called from any goroutine.
type Names struct {
	once    sync.Once
	seed    maphash.Seed
	stripes [256]sync.Mutex
}

// Take waits for the name; "" is free. The function that it returns gives the name back.
func (s *Names) Take(name string) func() {
	if name == "" {
		return func() {}
	}
	s.once.Do(func() { s.seed = maphash.MakeSeed() })
	m := &s.stripes[maphash.String(s.seed, name)%uint64(len(s.stripes))]
	m.Lock()
	return m.Unlock
}
