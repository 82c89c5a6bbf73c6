package node

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The collector's default doubles the live heap before it runs: a server with
// 20 MiB live that makes 200 MB of garbage a second then collects ten times a
// second, a quarter of its time. Below headroomBytes of live heap we let it make
// that much garbage instead; above, less in proportion, down to leastPercent of what
// may have pointers, so that large catalogs cost less memory than by the default, and
// deadPercent of what has none, which costs a collection next to nothing: a million
// leases are texts of some records each.
const (
	headroomBytes  = 96 << 20
	leastPercent   = 80
	deadPercent    = 15
	headroomPeriod = 100 * time.Millisecond
	// startedAfter is when what a start read and threw away (logs, snapshots: more than the state itself) is given back.
	startedAfter = 5 * time.Second
	// headroomStep is the least change of the percentage that is worth setting it: doing so stops the world for a moment.
	headroomStep = 10
)

// gcPercent is the collector's setting for a live heap of which a part may have pointers.
func gcPercent(liveBytes, scanBytes uint64) int {
	const least = 4 << 20
	liveBytes = max(liveBytes, least)
	scanBytes = min(scanBytes, liveBytes)
	garbage := max(headroomBytes, (scanBytes*leastPercent+(liveBytes-scanBytes)*deadPercent)/100)
	return int((garbage*100 + liveBytes/2) / liveBytes)
}

// keepHeadroom sets the collector by the live heap until ctx ends, then back to
// what it was. A GOGC in the environment is the operator's word and stays.
func keepHeadroom(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		<-ctx.Done()
		return nil
	}
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}}
	read := func() int {
		metrics.Read(sample)
		return gcPercent(sample[0].Value.Uint64(), sample[1].Value.Uint64())
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
