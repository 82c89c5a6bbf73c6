package shardrouter

import (
	"sync"
	"sync/atomic"
)

// known remembers of which checks on which entities an owner was sent the whole event, so that it will do with a brief
// (ingest.AppendBrief). 0 is no sum. It may forget and it may be wrong, for the owner asks for what it lacks; so it
// is a table of sums without locks, in which a new one takes the place of another when there is no room.
type known struct {
	table atomic.Pointer[[]sums]
	grow  sync.Mutex
	used  atomic.Int64
}

// sums is one line of the processor's cache.
type sums [8]atomic.Uint64

const (
	knownLeast = 1 << 10 // lines: 64 KiB
	knownMost  = 1 << 18 // 16 MiB, for two million checks that go to other servers
)

func (k *known) line(sum uint64) *sums {
	t := k.table.Load()
	if t == nil {
		return nil
	}
	return &(*t)[sum%uint64(len(*t))]
}

func (k *known) has(sum uint64) bool {
	line := k.line(sum)
	if line == nil || sum == 0 {
		return false
	}
	for i := range line {
		if line[i].Load() == sum {
			return true
		}
	}
	return false
}

func (k *known) add(sum uint64) {
	if sum == 0 || k.has(sum) {
		return
	}
	if t := k.table.Load(); t == nil || k.used.Load() > int64(len(*t))*4 && len(*t) < knownMost {
		k.enlarge(t)
	}
	k.put(*k.table.Load(), sum)
}

func (k *known) put(t []sums, sum uint64) {
	line := &t[sum%uint64(len(t))]
	for i := range line {
		if line[i].CompareAndSwap(0, sum) {
			k.used.Add(1)
			return
		}
	}
	line[sum>>61].Store(sum)
}

// enlarge doubles a table; what others add to the old one meanwhile is forgotten.
func (k *known) enlarge(old *[]sums) {
	k.grow.Lock()
	defer k.grow.Unlock()
	if k.table.Load() != old {
		return
	}
	k.used.Store(0)
	if old == nil {
		t := make([]sums, knownLeast)
		k.table.Store(&t)
		return
	}
	t := make([]sums, 2*len(*old))
	for i := range *old {
		for j := range (*old)[i] {
			if sum := (*old)[i][j].Load(); sum != 0 {
				k.put(t, sum)
			}
		}
	}
	k.table.Store(&t)
}

func (k *known) drop(sum uint64) {
	line := k.line(sum)
	if line == nil || sum == 0 {
		return
	}
	for i := range line {
		if line[i].CompareAndSwap(sum, 0) {
			k.used.Add(-1)
		}
	}
}
