package group

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/snapshot"
	"corbel.dev/corbel/core/logstore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// scrubRateBytes is how much a scrub reads in a second at most: little beside what a disk gives.
const scrubRateBytes = 4 << 20

// scrubber reads log and snapshots again and again, slowly, and checks them, so that bits that
// rot are found while other members still have the data, and not years later by the start that
// needs them. What it finds in a log that others have too makes this member fetch it anew;
// a damaged snapshot is replaced by a new one. One goroutine; its disk may hang.
type scrubber struct {
	in   *instance
	read int // bytes since the last pause
}

// run scrubs until the instance ends. Opening verified everything, so it begins with a wait.
func (s *scrubber) run() {
	every := s.in.g.cfg.ScrubInterval
	if s.in.stores.Disk == nil {
		return
	}
	timer := s.in.g.cfg.Clock.NewTimer(max(every, 0))
	defer timer.Stop()
	due := timer.C
	if every < 0 {
		due = nil
	}
	for {
		select {
		case <-due:
		case <-s.in.stores.Snaps.Wanted: // one did not verify when it was needed
			_ = s.replace("") // tried again when it is needed again
			continue
		case <-s.in.life.stop:
			return
		}
		if !s.log() || !s.snapshots() {
			return
		}
		s.in.g.metrics.scrubs.Add(1)
		timer.Reset(every)
	}
}

// paced counts what was read and waits when it was enough; false when the instance ends.
func (s *scrubber) paced(sizeBytes int) bool {
	const step = scrubRateBytes / 16
	if s.read += sizeBytes; s.read < step {
		return true
	}
	s.read = 0
	timer := s.in.g.cfg.Clock.NewTimer(time.Second / 16)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.in.life.stop:
		return false
	}
}

// log verifies every record; false when the instance ends.
func (s *scrubber) log() bool {
	disk := s.in.stores.Disk
	last, _ := disk.LastIndex()
	index, _ := disk.FirstIndex()
	for ; index != 0 && index <= last; index++ {
		sizeBytes, err := disk.Verify(index)
		var damage *logstore.Damage
		switch {
		case errors.Is(err, raft.ErrLogNotFound): // compacted meanwhile
			first, _ := disk.FirstIndex()
			index = max(index, first-min(first, 1))
		case errors.As(err, &damage):
			return s.damaged(err)
		case err != nil:
			s.in.fail(errkind.E(errkind.Unavailable, "scrub the log", err))
			return false
		}
		if !s.paced(sizeBytes) {
			return false
		}
	}
	return true
}

// damaged lets a member that others can help begin anew, which moves the log aside. One that is alone goes on with
// what it has in memory: it could not start again.
func (s *scrubber) damaged(err error) bool {
	g := s.in.g
	g.metrics.rotten.Add(1)
	if g.folder.Rebuildable() {
		s.in.fail(errkind.E(errkind.Corrupt, "scrub the log", err))
		return false
	}
	g.cfg.Log.Error("the log is damaged on disk and no other members have it: this server goes on from memory but "+
		"cannot start again; "+
		"save a snapshot now and restore it into a server with an empty data folder", "err", err)
	return true
}

// snapshots verifies what is kept; false when the instance ends.
func (s *scrubber) snapshots() bool {
	store := s.in.stores.Snaps
	metas, _ := store.List() // it has no error
	for i, meta := range metas {
		err := s.snapshot(store.Path(meta.ID + ".state"))
		switch {
		case errors.Is(err, errScrubEnds):
			return false
		case err == nil || errors.Is(err, fs.ErrNotExist) || !store.Has(meta.ID): // replaced meanwhile
			continue
		}
		s.in.g.metrics.rotten.Add(1)
		if i == 0 { // the log may not reach back behind it: the state in memory takes its place first
			if s.replace(meta.ID) != nil {
				continue
			}
		}
		store.Drop(meta.ID, err)
	}
	return true
}

// replace writes a snapshot of the state in memory.
func (s *scrubber) replace(damaged string) error {
	err := s.in.await(context.Background(), s.in.raft.Snapshot())
	if err != nil {
		s.in.g.cfg.Log.Error("cannot write a snapshot in place of a damaged one", "damaged", damaged, "err", err)
	}
	return err
}

var errScrubEnds = errors.New("the instance ends")

func (s *scrubber) snapshot(path string) error {
	f, err := vfs.Open(s.in.stores.Snaps.FS, path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	return snapshot.Verify(pacedReader{f, s})
}

type pacedReader struct {
	io.Reader
	s *scrubber
}

// Read implements io.Reader.
func (r pacedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if !r.s.paced(n) {
		return 0, errScrubEnds
	}
	return n, err
}
