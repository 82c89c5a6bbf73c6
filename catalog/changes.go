package catalog

import "time"

// Changes tells what an Apply did, in the order of its commands. It holds
// pointers into the two States and copies nothing.
type Changes struct {
	KV       []Change[KVPair]
	Nodes    []Change[Node]
	Services []Change[Service]
	Checks   []Change[Check]
	Sessions []Change[Session]
	Records  []Change[Record]
	// Names are the services whose ServiceIndex or ConnectIndex grew, in lower
	// case; a name may be there more than once.
	Names []Touched
	// ServiceList is set when ServicesIndex grew.
	ServiceList bool
	// LockDelays are the keys that nobody may acquire for a while. Time is not
	// the State's business: who applies arms them by its own monotonic clock.
	LockDelays []LockDelay
}

// Change is one object before and after; nil means that it was not there.
type Change[T any] struct {
	Before, After *T
	Index         uint64
}

// Touched is a service name (lower case) and the index that touched it.
type Touched struct {
	Name  string
	Index uint64
}

// LockDelay keeps Key from being acquired for Delay after its holder was lost.
type LockDelay struct {
	Key   string
	Delay time.Duration
}

// Empty tells that nothing changed.
func (c *Changes) Empty() bool {
	return len(c.KV) == 0 && len(c.Nodes) == 0 && len(c.Services) == 0 && len(c.Checks) == 0 && len(c.Sessions) == 0 &&
		len(c.Records) == 0
}
