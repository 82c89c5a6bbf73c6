package catalogplane

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"corbel.dev/corbel/kit/archive"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/hostinfo"
	"corbel.dev/corbel/node/raftgroup"
	"corbel.dev/corbel/node/spool"
)

// Snapshots saves and restores the catalog's state as archives. What is on its way is
// spooled beside the data, in files without a name.
type Snapshots struct {
	Raft *raftgroup.Group
	Dir  string
}

// Save implements operatorrows.Snapshots.
func (s Snapshots) Save(ctx context.Context) (io.ReadCloser, uint64, error) {
	g := s.Raft.Raft.Load()
	if g == nil {
		return nil, 0, raftgroup.ErrForming
	}
	state, err := spool.TempFile(s.Dir)
	if err != nil {
		return nil, 0, errkind.E(errkind.Unavailable, "spool the snapshot", err)
	}
	defer state.Close()
	// Before the state is taken: the figures must not promise more than the archive holds.
	index, meta := s.Raft.Registry.State().Index(), s.meta()
	if err := g.Save(ctx, state); err != nil {
		return nil, 0, err
	}
	if meta.Size, err = state.Seek(0, io.SeekCurrent); err != nil {
		return nil, 0, errkind.E(errkind.Unavailable, "spool the snapshot", err)
	}
	out, err := spool.TempFile(s.Dir)
	if err != nil {
		return nil, 0, errkind.E(errkind.Unavailable, "spool the snapshot", err)
	}
	err = archive.Write(out, &meta, io.NewSectionReader(state, 0, meta.Size), s.Raft.Base.Clock.Now())
	if err == nil {
		_, err = out.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = out.Close() // the first error is the one to report
		return nil, 0, errkind.E(errkind.Unavailable, "spool the snapshot", err)
	}
	return out, index, nil
}

func (s Snapshots) meta() archive.Meta {
	g := s.Raft.Raft.Load()
	meta := archive.Meta{Version: 1, Index: g.AppliedIndex()}
	meta.Term, _ = strconv.ParseUint(g.Stats()["term"], 10, 64)
	meta.ID = fmt.Sprintf("%d-%d-%d", meta.Term, meta.Index, s.Raft.Base.Clock.Now().UnixMilli())
	servers, index, err := g.Configuration()
	if err != nil {
		return meta
	}
	meta.ConfigurationIndex = index
	for _, m := range servers {
		suffrage := 0
		if !m.Voter {
			suffrage = 1
		}
		meta.Configuration.Servers = append(meta.Configuration.Servers, archive.Server{Suffrage: suffrage, ID: m.ID,
			Address: m.Address})
	}
	return meta
}

// Restore implements operatorrows.Snapshots.
func (s Snapshots) Restore(ctx context.Context, in io.Reader) error {
	g := s.Raft.Raft.Load()
	if g == nil {
		return raftgroup.ErrForming
	}
	state, err := spool.TempFile(s.Dir)
	if err != nil {
		return errkind.E(errkind.Unavailable, "spool the snapshot", err)
	}
	defer state.Close()
	limit, err := spoolLimit(s.Dir)
	if err != nil {
		return err
	}
	meta, err := archive.Read(in, state, limit)
	if err != nil {
		return err
	}
	if err := rewind(state); err != nil {
		return err
	}
	if err := g.Restore(ctx, state); err != nil {
		return err
	}
	s.Raft.Base.Log.Info("the state was replaced by a snapshot", "id", meta.ID, "bytes", meta.Size)
	return nil
}

func rewind(f *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return errkind.E(errkind.Unavailable, "spool the snapshot", err)
	}
	return nil
}

// restoreCopies is how many copies of a state are on the disk at once while it is restored:
// the spool, the group's own that it verifies, Raft's, and the log that goes on meanwhile.
const restoreCopies = 4

// spoolLimit is the largest state that can be restored without filling the disk: an archive
// of a few kilobytes may say, and hold, terabytes.
func spoolLimit(dir string) (int64, error) {
	if dir == "" { // a process that keeps nothing spools where temporary files are
		dir = os.TempDir()
	}
	disk, err := hostinfo.SpaceOf(dir)
	if err != nil {
		return 0, errkind.E(errkind.Unavailable, "spool the snapshot: ask for the disk's free space", err)
	}
	return int64(min(disk.Free, 1<<60) / restoreCopies), nil
}
