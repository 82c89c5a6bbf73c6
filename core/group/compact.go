package group

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// compactEvery is how often a compactor looks: what it compares costs two loads.
const compactEvery = 250 * time.Millisecond

// compactor has a snapshot written when what was applied since the last one has grown so long that a start would
// read it for seconds. The library counts entries, looks seldom, and an entry may have a few bytes or half a MiB:
// with many clients a minute's log took longer to apply than the whole state takes to load. One goroutine; its disk
// may hang.
//
// The log that a start applies is thus about as long as the state that it loads, or SnapshotBytes where that is more,
// and what is written for snapshots is at most about what is written for the log.
type compactor struct{ in *instance }

func (c compactor) run() {
	timer := c.in.g.cfg.Clock.NewTimer(compactEvery)
	defer timer.Stop()
	for {
		select {
		case <-c.in.life.stop:
			return
		case <-timer.C:
		}
		if c.in.g.fsm.grown.Load() >= c.most() {
			c.compact()
		}
		timer.Reset(compactEvery)
	}
}

// most is how many bytes of entries may be behind the newest snapshot.
func (c compactor) most() int64 {
	most := c.in.g.cfg.SnapshotBytes
	if metas, err := c.in.stores.Snaps.List(); err == nil && len(metas) > 0 {
		most = max(most, metas[0].Size)
	}
	return most
}

func (c compactor) compact() {
	err := c.in.await(context.Background(), c.in.raft.Snapshot())
	if err == nil || errors.Is(err, raft.ErrNothingNewToSnapshot) || errors.Is(err, raft.ErrRaftShutdown) {
		return
	}
	c.in.g.cfg.Log.Warn("no snapshot could be written, so the next start takes longer; it is tried again when the log "+
		"has grown", "err", err)
}
