package keeper

import (
	"context"
	"time"

	"corbel.dev/corbel/secrets/storage"
)

// bulk is work on many tokens or leases, done in steps. While requests come, steps are small and the work rests between
// them, so that it takes about a third of one processor however much there is to do, and a request waits for a part
// of a millisecond of it. Without requests it does not rest. One goroutine's.
//
// The share is fixed: a revocation comes to its end under any load. To rest until requests are as quick as before
// would not: on a server that is busy for itself they never are.
type bulk struct {
	k      *Keeper
	begun  uint64 // requests that had begun when the last step ended
	size   int
	step   time.Time     // when this one began
	worked time.Duration // how long it was until it waited
}

// Of a bulk, by `corbel bench leases --prefix 100000`.
const (
	endAtOnce = 500 // tokens or leases of one step at most: what a commit and a reader of the index bear
	endBeside = 64  // beside requests: about 0.6 ms of processor time
	restTimes = 2   // a rest is so many times its step
	restMost  = 1500 * time.Microsecond
	waitTimes = 4 // who waits so many times what the work took, and a rest, waits for a disk or a network
	askBeside = 8 // leases of engines that are asked for between two rests
)

// bulk begins one.
func (k *Keeper) bulk() *bulk {
	return &bulk{k: k, begun: k.flying.begun(), size: endBeside, step: k.cfg.Now()}
}

// waits says that the step's own work is done, and what follows waits for the storage.
func (b *bulk) waits() { b.worked = b.k.cfg.Now().Sub(b.step) }

// rest ends a step, and leaves the machine to the requests that came meanwhile.
func (b *bulk) rest(ctx context.Context) {
	took, begun := b.k.cfg.Now().Sub(b.step), b.k.flying.begun()
	var pause time.Duration
	b.size, pause = nextStep(b.size, b.worked, took, begun != b.begun)
	b.begun = begun
	if pause > 0 {
		storage.Pause(ctx, nil, pause)
	}
	b.step = b.k.cfg.Now()
}

// nextStep is how large the step after one is, and how long the rest before it. worked is the part of took before it
// waited.
func nextStep(size int, worked, took time.Duration, beside bool) (next int, pause time.Duration) {
	switch {
	case !beside:
		return endAtOnce, 0
	case took-worked > waitTimes*worked+restMost: // little of it was work, and more steps are more waits
		return min(2*size, endAtOnce), 0
	}
	return endBeside, min(restTimes*took, restMost)
}
