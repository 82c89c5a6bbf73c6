package short

import (
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/hothttp"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/telemetry"
)

// soloReplies is how many members of a round one goroutine takes at a time.
const soloReplies = 32

// round is one answer on its way to many members.
//
// Whoever is answered asks again at once. On a busy machine those requests wake as
// many goroutines as there are members, and the goroutines that still answer the
// last members get their turn behind them all. So a request that is about to be
// parked first helps the round that is under way to its end: it would have had to
// wait anyhow, and whoever has not been answered has waited longer.
type round struct {
	response hothttp.Rendered
	due      []*parked
	timing   *telemetry.Timing
	index    uint64 // of the answer
	// committed is when the change of that index was committed; zero when that is not known.
	committed time.Time
	notify    *rows.NotifyTimings
	clock     clock.Clock

	next   atomic.Int64 // how many chunks of due were taken
	chunks sync.WaitGroup
}

// help answers members until there are none left to take.
func (r *round) help() {
	for {
		from := int(r.next.Add(1)-1) * soloReplies
		if from >= len(r.due) {
			return
		}
		for _, m := range r.due[from:min(from+soloReplies, len(r.due))] {
			_ = m.call.ReplyRendered(r.response) // a client that left is noticed by hothttp
			now := r.clock.Now()
			r.timing.Observe(now.Sub(m.begun))
			if m.index < r.index && !r.committed.IsZero() { // not one whose time was over
				r.notify.Written.Observe(now.Sub(r.committed))
			}
		}
		r.chunks.Done()
	}
}

// wokenBy notes that those of due who wait for the change of an index were woken, and
// returns when it was committed; zero when that is not known.
func wokenBy(n *rows.NotifyTimings, a *rows.Core, index uint64, due []*parked, now time.Time) time.Time {
	committed, ok := a.Registry.AppliedAt(index)
	if !ok {
		return time.Time{}
	}
	took := now.Sub(committed)
	for _, m := range due {
		if m.index < index {
			n.Woken.Observe(took)
		}
	}
	return committed
}
