package memory

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"corbel.dev/corbel/kit/limit"
)

// The collector's default doubles the live heap before it runs: a server with
// 20 MiB live that makes 200 MB of garbage a second then collects ten times a
// second, a quarter of its time. Below headroomBytes of live heap we let it make
// that much garbage instead; above, less in proportion, down to leastPercent of what
// may have pointers, so that large catalogs cost less memory than by the default, and
// deadPercent of what has none, which costs a collection next to nothing: a million
// leases are texts of some records each. That is the most. A server at rest makes little garbage,
// and would keep all of that room for what it makes in a minute: so there is no more room than
// lets the collector look through scanPerSecond on average, about 2 % of a core, but leastBytes always.
const (
	headroomBytes  = 96 << 20
	leastBytes     = 12 << 20
	leastPercent   = 80
	deadPercent    = 15
	scanPerSecond  = 20 << 20
	heldShare      = 2 // large requests take no more of the room than 1/heldShare of leastPercent
	headroomPeriod = 100 * time.Millisecond
	// startedAfter is when what a start read and threw away (logs, snapshots: more than the state itself) is given back.
	startedAfter = 5 * time.Second
	// headroomStep is the least change of the percentage that is worth setting it: doing so stops the world for a moment.
	headroomStep = 10
)

// gcPercent is the collector's setting for a live heap of which a part may have pointers, the garbage that is made in
// a second, and what large requests hold: of that most is, or soon will be, garbage too, so it takes from the room, but
// not all of it: a heap of 1 GB with room for 12 MiB is looked through again and again by both processors.
func gcPercent(liveBytes, scanBytes, perSecond, heldBytes uint64) int {
	const least = 4 << 20
	liveBytes = max(liveBytes, least)
	scanBytes = min(scanBytes, liveBytes)
	most := max(headroomBytes, (scanBytes*leastPercent+(liveBytes-scanBytes)*deadPercent)/100)
	wanted := float64(perSecond) * float64(max(scanBytes, least)) / scanPerSecond
	garbage := most
	if wanted < float64(most) {
		garbage = max(leastBytes, uint64(wanted))
	}
	if floor := max(leastBytes, scanBytes*leastPercent/100/heldShare); garbage > floor {
		garbage -= min(heldBytes, garbage-floor)
	}
	return int((garbage*100 + liveBytes/2) / liveBytes)
}

// garbage follows how much is allocated in a second: it rises with what is, and falls by half in some seconds, so
// that bursts find room.
type garbage struct {
	total     uint64
	perSecond float64
}

// add takes the total after another period.
func (g *garbage) add(total uint64, period time.Duration) {
	now := float64(total-g.total) / period.Seconds()
	g.total = total
	const rise, fall = 0.3, 0.02
	if by := now - g.perSecond; by > 0 {
		g.perSecond += by * rise
	} else {
		g.perSecond += by * fall
	}
}

// KeepHeadroom sets the collector by the live heap until ctx ends, then back to
// what it was. A GOGC in the environment is the operator's word and stays.
func KeepHeadroom(ctx context.Context, budget *limit.Bytes) error {
	if os.Getenv("GOGC") != "" {
		<-ctx.Done()
		return nil
	}
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"},
		{Name: "/gc/heap/allocs:bytes"}}
	var made garbage
	read := func() int {
		metrics.Read(sample)
		made.add(sample[2].Value.Uint64(), headroomPeriod)
		return gcPercent(sample[0].Value.Uint64(), sample[1].Value.Uint64(), uint64(made.perSecond),
			uint64(budget.Stats().Used))
	}
	now := read()
	before := debug.SetGCPercent(now)
	defer debug.SetGCPercent(before)
	tick := time.NewTicker(headroomPeriod)
	defer tick.Stop()
	started := time.After(startedAfter)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-started:
			debug.FreeOSMemory()
			continue
		case <-tick.C:
		}
		if next := read(); next < now-headroomStep || next > now+headroomStep {
			debug.SetGCPercent(next)
			now = next
		}
	}
}
