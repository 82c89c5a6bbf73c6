package keeper

import (
	"hash/maphash"
	"sync"
)

// serial lets one request at a time have a name, by stripes: two names may share
// one and wait for each other, never one name be had twice.
type serial struct {
	once    sync.Once
	seed    maphash.Seed
	stripes [256]sync.Mutex
}

// take waits for the name; "" is free. The function that it returns gives the name back.
func (s *serial) take(name string) func() {
	if name == "" {
		return func() {}
	}
	s.once.Do(func() { s.seed = maphash.MakeSeed() })
	m := &s.stripes[maphash.String(s.seed, name)%uint64(len(s.stripes))]
	m.Lock()
	return m.Unlock
}
