package catalogplane

import (
	"context"
	"io"

	"corbel.dev/corbel/node/raftgroup"
)

// Snapshots saves and restores the catalog's state as archives. What is on its way is
// spooled beside the data, in files without a name.
type Snapshots struct {
	Raft *raftgroup.Group
	Dir  string
}

// Save implements operatorrows.Snapshots.
func (s Snapshots) Save(ctx context.Context) (io.ReadCloser, uint64, error) {
	if s.Raft.Raft.Load() == nil {
		return nil, 0, raftgroup.ErrForming
	}
	// Before the state is taken: the figure must not promise more than the archive holds.
	index := s.Raft.Registry.State().Index()
	out, err := s.Raft.SaveArchive(ctx, s.Dir)
	if err != nil {
		return nil, 0, err
	}
	return out, index, nil
}

// Restore implements operatorrows.Snapshots.
func (s Snapshots) Restore(ctx context.Context, in io.Reader) error {
	g := s.Raft.Raft.Load()
	if g == nil {
		return raftgroup.ErrForming
	}
	state, meta, err := raftgroup.ReadArchive(in, s.Dir)
	if err != nil {
		return err
	}
	defer state.Close()
	if err := g.Restore(ctx, state); err != nil {
		return err
	}
	s.Raft.Base.Log.Info("the state was replaced by a snapshot", "id", meta.ID, "bytes", meta.Size)
	return nil
}
