package counter

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/eventlog"
)

// saver saves snapshots.
type saver struct {
	c      *Counter
	log    eventlog.Log
	saved  []eventlog.Position // of the newest snapshot
	copied time.Time           // when the copies were made
	behind int                 // records behind it that the start has read; a correction is as much as many
}

// muchBehind is so much that a start has read that it is saved at once: a server that is killed again soon would read
// it each time, and more.
const muchBehind = 1000

func (s *saver) run(ctx context.Context) error {
	s.copied = s.c.cfg.Clock.Now()
	if s.behind >= muchBehind {
		s.c.settle(0)
		if err := s.save(ctx, false); err != nil && ctx.Err() == nil {
			s.c.cfg.Log.Warn("usage: cannot save the state; the next start reads more of the log", "error", err)
		}
	}
	for {
		t := s.c.cfg.Clock.NewTimer(s.c.cfg.Snapshot)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		now := s.c.cfg.Clock.Now()
		copies := now.Sub(s.copied) >= s.c.cfg.CopyEvery
		if err := s.save(ctx, copies); err != nil && ctx.Err() == nil {
			s.c.cfg.Log.Warn("usage: cannot save the state; the next start reads more of the log", "error", err)
		}
		if copies {
			s.copied = now
		}
	}
}

// last is the save of a clean end: the next start reads nothing twice.
func (s *saver) last(ctx context.Context) error { return s.save(ctx, true) }

// save saves the state. The log may go up to the snapshot before: a damaged one has another behind it. A copy that
// cannot be made is told, and made again with the next ones. While a correction is under way nothing is saved.
func (s *saver) save(ctx context.Context, copies bool) error {
	c := s.c
	copies = copies && len(c.cfg.Copies) > 0 && c.Leads() // of others that count the same part, the state may be older
	c.mu.Lock()
	next := c.state.next
	known := len(s.saved) > 0 && s.saved[0].Offset == next
	if known && !copies || c.state.correcting != nil {
		c.mu.Unlock()
		return nil
	}
	held := c.state.freeze()
	c.mu.Unlock()
	positions := []eventlog.Position{{Offset: next}}
	snap := counterstate.Snapshot{At: c.cfg.Clock.Now(), Positions: positions, State: c.Share().encode(held)}
	if err := s.keep(ctx, snap, known); err != nil {
		return err
	}
	if copies {
		s.copy(ctx, snap)
	}
	return nil
}

// keep saves a snapshot on this server, where that is not known yet.
func (s *saver) keep(ctx context.Context, snap counterstate.Snapshot, known bool) error {
	if known {
		return nil
	}
	if err := s.c.cfg.Store.Save(ctx, SnapshotName, snap); err != nil {
		return err
	}
	former := s.saved
	s.saved = snap.Positions
	if len(former) == 0 {
		return nil
	}
	return s.log.Commit(ctx, Group, former)
}

// encode encodes a state that was frozen, while events go on being counted, and lets go of it.
func (c Share) encode(held *frozen) []byte {
	data := held.append(make([]byte, 0, c.encoded.Load()))
	c.encoded.Store(int64(len(data)) + int64(len(data))/8) // as much again would be copied while it grows
	c.mu.Lock()
	defer c.mu.Unlock()
	held.release()
	return data
}

func (s *saver) copy(ctx context.Context, snap counterstate.Snapshot) {
	for _, store := range s.c.cfg.Copies {
		if err := store.Save(ctx, s.c.copyName(), snap); err != nil {
			s.c.cfg.Log.Warn("usage: a copy of the snapshot was not made; it is tried again", "error", err)
		}
	}
}

// copyName names the copies by whose they are and by the key of the deployment: hashes of another one would be other
// identities.
func (c *Counter) copyName() string {
	return fmt.Sprintf("%s-%s-%s", SnapshotName, c.cfg.Name, fingerprint(c.keyNow()))
}

func fingerprint(key usage.Key) string {
	return fmt.Sprintf("%08x", key.Sum([]byte("corbel usage snapshots")).Hi>>32)
}

// restore makes the state of the newest snapshot from which the log goes on: of the folder or, where that has none, of
// the places that have copies, one after the other. A place that fails, or has nothing that can be used, gives way to
// the next one: what stands in the log behind an older snapshot is counted again.
func (c *Counter) restore(ctx context.Context, log eventlog.Log, b eventlog.Bound,
) (*state, []eventlog.Position, error) {
	var failed error
	empty := false // the folder has none
	for i, store := range append([]*counterstate.Store{c.cfg.Store}, c.cfg.Copies...) {
		name := SnapshotName
		if i > 0 {
			name = c.copyName()
		}
		snap, err := store.Load(ctx, name)
		if errkind.Is(err, errkind.NotFound) {
			empty = empty || i == 0
			continue
		}
		made := (*state)(nil)
		if err == nil {
			c.encoded.Store(int64(len(snap.State)) + int64(len(snap.State))/8)
			made, err = readState(snap.State, c.cfg)
		}
		switch {
		case err != nil:
		case made.next > b.Next && i > 0 && empty && failed == nil && c.beginAt(ctx, log, b, made.next):
		case made.next > b.Next:
			return nil, nil, cmp.Or(failed, errkind.Errorf(errkind.Corrupt, "usage: the log ends at %d, before the "+
				"snapshot of the state, which is as of %d: restore the log, or move the snapshots away to count from what is left",
				b.Next, made.next))
		case made.next < b.First:
			err = errBehind(b, made.next)
		}
		if err == nil {
			c.cfg.Log.Info("usage: the state was taken from a snapshot", "place", i, "as_of", snap.At)
			return made, snap.Positions, nil
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		c.cfg.Log.Warn("usage: a snapshot cannot be used; the next place is asked", "place", i, "error", err)
		failed = cmp.Or(failed, err)
	}
	if failed == nil && b.First > 0 {
		failed = errBehind(b, 0)
	}
	return newState(c.cfg), nil, failed // to begin anew without asking all would count twice what a copy has
}

func errBehind(b eventlog.Bound, next uint64) error {
	return errkind.Errorf(errkind.Corrupt, "usage: the log begins at %d, behind the state, which is as of %d",
		b.First, next)
}

// beginner is a log on this server's own disk.
type beginner interface {
	BeginAt(ctx context.Context, next []uint64) error
}

// beginAt has a log that is new, on a new disk, go on behind the state, which came from elsewhere: what was stored
// after the copy is lost with the disk. False is a log that cannot, or that is none.
func (c *Counter) beginAt(ctx context.Context, log eventlog.Log, b eventlog.Bound, next uint64) bool {
	fresh, can := log.(beginner)
	if !can || b.Next > 0 {
		return false
	}
	c.cfg.Log.Error("usage: the log of events is new, and the state is a copy's: what was stored after it is lost",
		"offset", next)
	err := fresh.BeginAt(ctx, []uint64{next})
	if err != nil {
		c.cfg.Log.Error("usage: the log cannot begin behind the state", "error", err)
	}
	return err == nil
}
