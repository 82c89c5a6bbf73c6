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
// that much garbage instead; above, less in proportion, down to leastPercent, so
// that large catalogs cost less memory than by the default.
const (
	headroomBytes  = 96 << 20
	leastPercent   = 80
	headroomPeriod = 100 * time.Millisecond
	// headroomStep is the least change of the percentage that is worth setting it: doing so stops the world for a moment.
	headroomStep = 15
)

// gcPercent is the collector's setting for a live heap.
func gcPercent(liveBytes uint64) int {
	const least = 4 << 20
	return int(max(headroomBytes*100/max(liveBytes, least), leastPercent))
}

// keepHeadroom sets the collector by the live heap until ctx ends, then back to
// what it was. A GOGC in the environment is the operator's word and stays.
func keepHeadroom(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		<-ctx.Done()
		return nil
	}
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	read := func() int {
		metrics.Read(sample)
		return gcPercent(sample[0].Value.Uint64())
	}
	now := read()
	before := debug.SetGCPercent(now)
	defer debug.SetGCPercent(before)
	tick := time.NewTicker(headroomPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if next := read(); next < now-headroomStep || next > now+headroomStep {
			debug.SetGCPercent(next)
			now = next
		}
	}
}
