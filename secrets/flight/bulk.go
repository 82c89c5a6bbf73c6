package flight

import (
	"context"
	"time"

	"corbel.dev/corbel/secrets/storage"
)

// Bulk is work on many tokens or leases, done in steps. While requests come, steps are small and the work rests between
// them, so that it takes about a third of one processor however much there is to do, and a request waits for a part
// of a millisecond of it. Without requests it does not rest. One goroutine's.
//
// The share is fixed: a revocation comes to its end under any load. To rest until requests are as quick as before
// would not: on a server that is busy for itself they never are.
type Bulk struct {
	of     *List
	begun  uint64 // requests that had begun when the last step ended
	Size   int
	Step   time.Time     // when this one began
	Worked time.Duration // how long it was until it waited
}

// Of a bulk, by `corbel bench leases --prefix 100000`.
const (
	EndAtOnce = 500 // tokens or leases of one step at most: what a commit and a reader of the index bear
	EndBeside = 64  // beside requests: about 0.6 ms of processor time
	restTimes = 2   // a rest is so many times its step
	restMost  = 1500 * time.Microsecond
	waitTimes = 4 // who waits so many times what the work took, and a rest, waits for a disk or a network
	AskBeside = 8 // leases of engines that are asked for between two rests
)

// Bulk begins one.
func (f *List) Bulk() *Bulk {
	return &Bulk{of: f, begun: f.Begun(), Size: EndBeside, Step: f.Now()}
}

// Waits says that the step's own work is done, and what follows waits for the storage.
func (b *Bulk) Waits() { b.Worked = b.of.Now().Sub(b.Step) }

// Rest ends a step, and leaves the machine to the requests that came meanwhile.
func (b *Bulk) Rest(ctx context.Context) {
	took, begun := b.of.Now().Sub(b.Step), b.of.Begun()
	var pause time.Duration
	b.Size, pause = nextStep(b.Size, b.Worked, took, begun != b.begun)
	b.begun = begun
	if pause > 0 {
		storage.Pause(ctx, nil, pause)
	}
	b.Step = b.of.Now()
}

// nextStep is how large the step after one is, and how long the rest before it. worked is the part of took before it
// waited.
func nextStep(size int, worked, took time.Duration, beside bool) (next int, pause time.Duration) {
	switch {
	case !beside:
		return EndAtOnce, 0
	case took-worked > waitTimes*worked+restMost: // little of it was work, and more steps are more waits
		return min(2*size, EndAtOnce), 0
	}
	return EndBeside, min(restTimes*took, restMost)
}
