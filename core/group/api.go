package group

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/raftdisk"
	"corbel.dev/corbel/core/group/snapshot"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// IsLeader reports whether this server leads, as far as it knows.
func (g *Group) IsLeader() bool {
	in := g.current.Load()
	return in != nil && in.leads()
}

// LeaseHeld reports whether this server surely leads and its state holds all that
// was acknowledged before: a local read is then as good as one through the quorum.
// It costs a few atomic loads.
func (g *Group) LeaseHeld() bool {
	in := g.current.Load()
	return in != nil && in.lead.ready.Load() != 0 && in.links.peers.held() && in.leads() &&
		in.lead.ready.Load() == in.raft.CurrentTerm()
}

// Leader returns the leader's id and wire address, "" when unknown.
func (g *Group) Leader() (id, addr string) {
	in := g.current.Load()
	if in == nil || in.links.streams.shut.Load() {
		return "", ""
	}
	a, i := in.raft.LeaderWithID()
	if string(i) == g.cfg.LocalID && !in.leads() {
		return "", ""
	}
	return string(i), string(a)
}

// LastContact is how old this member's state may be: it has everything that was committed
// that long ago, however slow the network. 0 on a leader while its lease lasts; on one
// without, the time since a quorum confirmed it; a very long time when no leader was ever heard.
func (g *Group) LastContact() time.Duration {
	in := g.current.Load()
	if in == nil {
		return math.MaxInt64
	}
	// before that it may lack what its predecessor committed
	if in.leads() && in.lead.ready.Load() == in.raft.CurrentTerm() {
		if in.links.peers.held() {
			return 0
		}
		return max(in.links.peers.unconfirmed(), 1)
	}
	last := in.fresh.at()
	if last.IsZero() {
		return math.MaxInt64
	}
	return max(time.Since(last), 1)
}

// AppliedIndex is the log index of the newest entry that the Machine has.
func (g *Group) AppliedIndex() uint64 { return g.fsm.applied.Load() }

// Term is the newest term that this member knows, 0 while it is out of service.
func (g *Group) Term() uint64 {
	if in := g.current.Load(); in != nil {
		return in.raft.CurrentTerm()
	}
	return 0
}

// LeaderChanges returns a channel that is closed at the next change of who leads,
// of LeaseHeld's precondition, or of service. Read, then ask again.
func (g *Group) LeaderChanges() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changes
}

// Err tells why the group is out of service, nil when it is in service.
func (g *Group) Err() error {
	if in := g.current.Load(); in != nil {
		return nil
	}
	return g.outOfService()
}

// VerifyLeader asks a quorum whether this server still leads; afterwards a local
// read is linearizable. NotLeader or Unavailable otherwise.
func (g *Group) VerifyLeader(ctx context.Context) error {
	if err := g.mayPropose(); err != nil {
		return err
	}
	in := g.current.Load()
	if in == nil {
		return g.outOfService()
	}
	for in.lead.ready.Load() == 0 || in.lead.ready.Load() != in.raft.CurrentTerm() {
		changed := g.LeaderChanges()
		if in.lead.ready.Load() != 0 && in.lead.ready.Load() == in.raft.CurrentTerm() {
			break
		}
		if !in.leads() {
			return errNotLeader
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errkind.E(errkind.Unavailable, "verify leader", ctx.Err())
		}
	}
	term := in.lead.ready.Load()
	commit := in.raft.CommitIndex()
	for {
		// The library counts answers that come now to messages that were sent before it was asked. In a process that was
		// stopped meanwhile such an answer is as old as the stop, and another leader may have written since: ask again
		// until a quorum has answered what was sent after began.
		began := in.links.peers.now()
		if err := in.await(ctx, in.raft.VerifyLeader()); err != nil {
			return verifyError(err)
		}
		confirmed := in.links.peers.confirmed.Load() >= began
		if in.lead.ready.Load() != term || in.raft.CurrentTerm() != term {
			// what was confirmed may be a later term's lead, and another leader have written in between:
			// behind commit
			return errNotLeader
		}
		if confirmed {
			return g.awaitApplied(ctx, in, commit)
		}
		if !in.leads() {
			return errNotLeader
		}
		if err := ctx.Err(); err != nil {
			return errkind.E(errkind.Unavailable, "verify leader", err)
		}
	}
}

func verifyError(err error) error {
	if errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipLost) {
		return errNotLeader
	}
	return errkind.E(errkind.Unavailable, "verify leader", err)
}

// awaitApplied waits until the machine has every command up to index. Entries
// without a command never reach the machine, so the newest command is enough.
func (g *Group) awaitApplied(ctx context.Context, in *instance, index uint64) error {
	for {
		applied := g.fsm.applied.Load()
		if applied >= index || applied >= in.guard.NewestCommand.Load() {
			return nil
		}
		next := g.fsm.next()
		if g.fsm.applied.Load() != applied {
			continue
		}
		select {
		case <-next:
		case <-in.life.failed:
			return in.life.failure.Load().err
		case <-in.life.stop:
			return errNoLeader
		case <-ctx.Done():
			return errkind.E(errkind.Unavailable, "read barrier", ctx.Err())
		}
	}
}

// Configuration returns the latest members and the index of the entry that made them so.
func (g *Group) Configuration() ([]Server, uint64, error) {
	in := g.current.Load()
	if in == nil {
		return nil, 0, g.outOfService()
	}
	f := in.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, 0, errkind.E(errkind.Unavailable, "read members", err)
	}
	return raftdisk.Members(f.Configuration()), f.Index(), nil
}

// change runs a membership change on the leader.
func (g *Group) change(ctx context.Context, op string, f func(*raft.Raft, time.Duration) raft.Future) error {
	if err := g.mayPropose(); err != nil {
		return err
	}
	in := g.current.Load()
	if in == nil {
		return g.outOfService()
	}
	wait := 10 * time.Second
	if at, ok := ctx.Deadline(); ok {
		wait = max(time.Until(at), time.Millisecond)
	}
	switch err := in.await(ctx, f(in.raft, wait)); {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return errNotLeader
	case ctx.Err() != nil || errors.Is(err, raft.ErrLeadershipLost) || errors.Is(err, raft.ErrRaftShutdown):
		return errkind.E(errkind.Unknown, op+": outcome unknown", err)
	default:
		return errkind.E(errkind.Unavailable, op, err)
	}
}

// AddVoter adds a voting member, or makes one of a non-voter, or changes its address.
func (g *Group) AddVoter(ctx context.Context, id, addr string) error {
	return g.change(ctx, "add voter", func(r *raft.Raft, wait time.Duration) raft.Future {
		return r.AddVoter(raft.ServerID(id), raft.ServerAddress(addr), 0, wait)
	})
}

// AddNonvoter adds a member that receives the log and has no vote.
func (g *Group) AddNonvoter(ctx context.Context, id, addr string) error {
	return g.change(ctx, "add non-voter", func(r *raft.Raft, wait time.Duration) raft.Future {
		return r.AddNonvoter(raft.ServerID(id), raft.ServerAddress(addr), 0, wait)
	})
}

// DemoteVoter takes a member's vote away.
func (g *Group) DemoteVoter(ctx context.Context, id string) error {
	return g.change(ctx, "demote voter", func(r *raft.Raft, wait time.Duration) raft.Future {
		return r.DemoteVoter(raft.ServerID(id), 0, wait)
	})
}

// RemoveServer removes a member.
func (g *Group) RemoveServer(ctx context.Context, id string) error {
	return g.change(ctx, "remove server", func(r *raft.Raft, wait time.Duration) raft.Future {
		return r.RemoveServer(raft.ServerID(id), 0, wait)
	})
}

// SnapshotNow writes a snapshot and compacts the log. Nothing new since the last one is no error.
func (g *Group) SnapshotNow(ctx context.Context) error {
	in := g.current.Load()
	if in == nil {
		return g.outOfService()
	}
	if err := in.await(ctx, in.raft.Snapshot()); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return errkind.E(errkind.Unavailable, "snapshot", err)
	}
	return nil
}

// Save writes the Machine's state of now as a snapshot stream, for Restore. Call
// VerifyLeader before when it must hold all that was acknowledged.
func (g *Group) Save(_ context.Context, w io.Writer) error {
	return snapshot.Write(w, g.cfg.Machine.Snapshot())
}

// Restore replaces the state of the whole group by what Save wrote. The stream is
// spooled and verified to its last byte before anything changes. Leader only.
func (g *Group) Restore(ctx context.Context, r io.Reader) error {
	if err := g.mayPropose(); err != nil {
		return err
	}
	in := g.current.Load()
	if in == nil {
		return g.outOfService()
	}
	fsys, path := in.stores.Snaps.FS, in.stores.Snaps.Path("upload"+vfs.TempSuffix)
	f, err := fsys.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errkind.E(errkind.Unavailable, "restore: another one may be running", err)
	}
	defer func() {
		_ = f.Close()
		_ = fsys.Remove(path) // the next start does it otherwise
	}()
	size, err := io.Copy(f, r)
	if err != nil {
		return errkind.E(errkind.Invalid, "restore: read the upload", err)
	}
	if err := snapshot.Verify(io.NewSectionReader(f, 0, size)); err != nil {
		return errkind.E(errkind.Invalid, "restore", err)
	}
	done := make(chan error, 1)
	go func() {
		in.lead.restoring <- struct{}{}
		in.stores.Snaps.Restoring.Store(true)
		before := in.stores.Snaps.Newest.Load()
		err := in.raft.Restore(&raft.SnapshotMeta{Version: 1, Size: size}, io.NewSectionReader(f, 0, size), 0)
		if errors.Is(err, raft.ErrNotLeader) && in.stores.Snaps.Newest.Load() != before {
			err = raft.ErrLeadershipLost // with the snapshot on its disk: it may win the next election with that
		}
		in.stores.Snaps.Restoring.Store(false)
		<-in.lead.restoring
		done <- err
	}()
	select {
	case err = <-done:
	case <-in.life.failed:
		err = in.life.failure.Load().err
	case <-ctx.Done():
		// The file must stay until Raft has read it.
		err = errkind.E(errkind.Unknown, "", errors.Join(ctx.Err(), <-done))
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return errNotLeader
	default:
		return errkind.E(errkind.Unknown, "restore: outcome unknown", err)
	}
}

// Stats returns the library's figures and the group's own, as text.
func (g *Group) Stats() map[string]string {
	in := g.current.Load()
	if in == nil {
		return map[string]string{"state": "Out of service", "error": g.outOfService().Error()}
	}
	stats := in.raft.Stats()
	stats["fsm_applied_index"] = strconv.FormatUint(g.fsm.applied.Load(), 10)
	in.stores.Describe(stats)
	if in.links.mute != nil && in.links.mute.Active.Load() {
		stats["rebuilding_until_index"] = strconv.FormatUint(in.links.mute.Need.Load(), 10)
	}
	return stats
}
