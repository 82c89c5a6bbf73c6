// Package group runs one plane's Raft group: proposals go in, a Machine applies
// what is committed, and a disk that fails or stalls takes this group of this
// process out of service, nothing else.
//
// What always holds:
//   - Propose returns a result only after its command is fsynced on a quorum and
//     applied here. Many proposals share one log entry, one fsync and one round.
//   - An error of kind NotLeader, Unavailable, Overloaded or TooLarge means that
//     the command was not and will not be executed; Unknown means nobody can tell.
//   - LeaseHeld is true only while no other member can lead (monotonic clock), and
//     only after an entry of this leader's own term was committed and applied.
//   - A restore whose leader is lost is done on all members or on none.
//   - A stalled disk costs the leadership after two election timeouts, and after
//     five the transport is shut until the disk answers.
//   - A failed or damaged log stops voting. A failed one is reopened and verified;
//     a damaged one is moved aside and fetched anew from the leader, without a
//     vote until everything that it once acknowledged is back (docs/decisions).
//
// All exported methods of Group are safe for concurrent use. Open starts no
// goroutine; Run owns all and waits for them. The proposal queue is bounded by
// count and bytes; when full a proposal waits QueueWait, then it is shed.
package group

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/core/group/raftdisk"
	"corbel.dev/corbel/core/group/snapshot"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
)

// Group is one plane's Raft group on this server.
type Group struct {
	cfg     Config
	folder  raftdisk.Folder
	fsm     *fsm
	metrics meters
	batch   *batcher
	stores  *raftdisk.Stores // opened by Open, used by the first instance

	current atomic.Pointer[instance] // nil while out of service
	trouble atomic.Pointer[trouble]  // why it is out of service

	mu      sync.Mutex // guards changes
	changes chan struct{}
}

type trouble struct{ err error }

// errNoLeader is of kind NotLeader: nothing was done here, and whoever leads next can do it.
var errNoLeader = errkind.New(errkind.NotLeader, "No cluster leader")

// Open opens the stores, verifies them, and restores the newest snapshot into
// cfg.Machine. A damaged log is an error only when this member cannot be rebuilt
// from others. Entries after the snapshot are applied when Run has a leader.
func Open(cfg Config) (*Group, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	g := &Group{cfg: cfg, changes: make(chan struct{})}
	g.metrics = newMeters(cfg.Metrics, cfg.Name)
	g.folder = raftdisk.NewFolder(g.cfg.disk(&g.metrics))
	g.fsm = &fsm{machine: cfg.Machine, timing: g.metrics.apply, fail: g.failed, untold: g.untold}
	g.batch = newBatcher(g)
	if err := snapshot.Write(&g.fsm.blank, cfg.Machine.Snapshot()); err != nil {
		return nil, err
	}
	stores, err := g.openStores()
	if err != nil {
		return nil, err
	}
	g.stores = stores
	g.metrics.bind(g)
	return g, nil
}

// failed is how the store and the machine report what ends the instance.
func (g *Group) failed(err error) {
	if in := g.current.Load(); in != nil {
		in.fail(err)
		return
	}
	g.trouble.CompareAndSwap(nil, &trouble{err})
}

// Run takes part in the group until ctx ends, then hands leadership over, stops
// and closes everything. It keeps running without a usable disk: it serves
// stale reads and tries to reopen the log.
func (g *Group) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() { g.accept(inner) })
	wg.Go(func() { g.batch.run(inner.Done()) })
	g.lives(ctx)
	cancel()
	_ = g.cfg.Listener.Close() // ends accept
	wg.Wait()
	if g.stores != nil {
		g.stores.Close()
	}
	g.announce()
	return nil
}

// lives runs one instance after the other until ctx ends.
func (g *Group) lives(ctx context.Context) {
	retry := backoff.Backoff{Min: 200 * time.Millisecond, Max: 4 * time.Second}
	for ctx.Err() == nil {
		began := g.cfg.Clock.Now()
		err := g.live(ctx)
		if ctx.Err() != nil {
			return
		}
		g.trouble.Store(&trouble{err})
		g.announce()
		if g.cfg.Clock.Since(began) > time.Minute {
			retry.Reset()
		}
		wait := retry.Next()
		g.cfg.Log.Error("raft group is out of service; stale reads continue", "err", err, "retry_in", wait)
		timer := g.cfg.Clock.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// live opens the stores if needed and runs one instance; it returns what ended it.
func (g *Group) live(ctx context.Context) error {
	if g.stores == nil {
		stores, err := g.openStores()
		if err != nil {
			return err
		}
		g.stores = stores
	}
	in, err := g.begin(g.stores)
	g.stores = nil // the instance closes them
	if err != nil {
		return err
	}
	return in.run(ctx)
}

// accept hands incoming connections to the instance of the moment.
func (g *Group) accept(ctx context.Context) {
	retry := backoff.Backoff{Min: 5 * time.Millisecond, Max: time.Second}
	for {
		conn, err := g.cfg.Listener.Accept()
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil {
			timer := g.cfg.Clock.NewTimer(retry.Next())
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		retry.Reset()
		if in := g.current.Load(); in != nil {
			in.links.streams.offer(conn)
		} else {
			_ = conn.Close() // nobody is there to serve it
		}
	}
}

// announce closes and replaces the channel of LeaderChanges.
func (g *Group) announce() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.changes)
	g.changes = make(chan struct{})
}

// openStores opens log and snapshots and brings the machine up to the newest snapshot.
func (g *Group) openStores() (*raftdisk.Stores, error) {
	began := g.cfg.Clock.Now()
	s, err := g.folder.Open()
	if err != nil {
		return nil, errkind.E(errkind.Of(err), "raft group "+g.cfg.Name, err)
	}
	if err := g.fsm.renounce(func() error { return g.restoreNewest(s) }); err != nil {
		s.Close()
		return nil, errkind.E(errkind.Of(err), "raft group "+g.cfg.Name, err)
	}
	if s.Disk != nil {
		found := s.Disk.Opened()
		replay := uint64(0)
		if found.Last > g.fsm.applied.Load() {
			replay = found.Last - g.fsm.applied.Load()
		}
		g.cfg.Log.Info("log verified and snapshot restored", "snapshot_index", s.SnapshotIndex(), "first_index", found.First,
			"last_index", found.Last, "entries_to_replay", replay, "cut_bytes", found.CutBytes, "took", g.cfg.Clock.Since(began))
	}
	return s, nil
}

// restoreNewest loads the newest snapshot that loads, unless the machine is further already.
func (g *Group) restoreNewest(s *raftdisk.Stores) error {
	metas, err := s.Snaps.List()
	if err != nil {
		return err
	}
	for _, meta := range metas {
		if meta.Index <= g.fsm.applied.Load() {
			return nil
		}
		_, source, err := s.Snaps.Open(meta.ID)
		if err == nil {
			err = g.fsm.load(source)
			_ = source.Close()
		}
		if err == nil {
			g.fsm.advance(meta.Index)
			return nil
		}
		if raftdisk.Unreadable(err) {
			return err
		}
		g.cfg.Log.Error("cannot restore a snapshot; trying the one before", "snapshot", meta.ID, "err", err)
		s.Snaps.Forget(meta.ID)
	}
	if len(metas) > 0 {
		return errkind.New(errkind.Corrupt, "no snapshot could be restored")
	}
	return nil
}
