package counter

import (
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
}

func (s *saver) run(ctx context.Context) error {
	s.copied = s.c.cfg.Clock.Now()
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
	data := c.Share().encode(held)
	positions := []eventlog.Position{{Offset: next}}
	snap := counterstate.Snapshot{At: c.cfg.Clock.Now(), Positions: positions, State: data}
	if copies {
		s.copy(ctx, snap)
	}
	if known {
		return nil
	}
	if err := c.cfg.Store.Save(ctx, SnapshotName, snap); err != nil {
		return err
	}
	former := s.saved
	s.saved = positions
	if len(former) == 0 {
		return nil
	}
	return s.log.Commit(ctx, Group, former)
}

// encode encodes a state that was frozen, while events go on being counted, and lets go of it.
func (c Share) encode(held *frozen) []byte {
	data := held.append(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	held.release()
	return data
}

// copyPatience bounds what one place may take.
const copyPatience = time.Minute

func (s *saver) copy(ctx context.Context, snap counterstate.Snapshot) {
	for _, store := range s.c.cfg.Copies {
		ctx, cancel := context.WithTimeout(ctx, copyPatience)
		err := store.Save(ctx, s.c.copyName(), snap)
		cancel()
		if err != nil {
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

// newest loads the newest snapshot: of the folder or, where it has none, of the first place that has a copy.
func (c *Counter) newest(ctx context.Context) (counterstate.Snapshot, error) {
	snap, err := c.cfg.Store.Load(ctx, SnapshotName)
	if err == nil || !errkind.Is(err, errkind.NotFound) {
		c.meter.folder.Add(uint64(len(snap.State)))
		return snap, err
	}
	copied, problem := newestCopy(ctx, c)
	if problem == nil || !errkind.Is(problem, errkind.NotFound) {
		return copied, problem
	}
	return snap, err
}

// newestCopy is that of the first place that has one.
func newestCopy(ctx context.Context, c *Counter) (counterstate.Snapshot, error) {
	for _, store := range c.cfg.Copies {
		ctx, cancel := context.WithTimeout(ctx, copyPatience)
		copied, problem := store.Load(ctx, c.copyName())
		cancel()
		switch {
		case problem == nil:
			c.meter.copied.Add(uint64(len(copied.State)))
			c.cfg.Log.Info("usage: the state was taken from a copy of its snapshot", "as_of", copied.At)
			return copied, nil
		case !errkind.Is(problem, errkind.NotFound):
			return copied, problem // to begin anew without asking would count twice what it has
		}
	}
	return counterstate.Snapshot{}, errNoCopy
}

var errNoCopy = errkind.New(errkind.NotFound, "usage: no place has a copy of the state")
