package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/group/snapshot"
	"corbel.dev/corbel/kit/archive"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/hostinfo"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/storage/records"
)

// Snapshot writes the whole storage as an archive: what it holds is as encrypted as on the disk.
func (c *Cluster) Snapshot(ctx context.Context) (io.ReadCloser, error) {
	if c.cfg.Raft == nil {
		return nil, errNotRaft
	}
	g, err := c.group()
	if err != nil {
		return nil, err
	}
	if err := g.VerifyLeader(ctx); err != nil {
		return nil, err
	}
	dir := c.cfg.Raft.cfg.Dir
	state, err := spool(dir)
	if err != nil {
		return nil, err
	}
	defer state.Close()
	meta := metaOf(g) // before the state is taken: the figures must not promise more than the archive holds
	now := c.cfg.Clock.Now()
	meta.ID = fmt.Sprintf("%d-%d-%d", meta.Term, meta.Index, now.UnixMilli())
	if err := g.Save(ctx, state); err != nil {
		return nil, err
	}
	if meta.Size, err = state.Seek(0, io.SeekCurrent); err != nil {
		return nil, errkind.E(errkind.Unavailable, "spool the snapshot", err)
	}
	out, err := spool(dir)
	if err != nil {
		return nil, err
	}
	if err = archive.Write(out, &meta, io.NewSectionReader(state, 0, meta.Size), now); err == nil {
		_, err = out.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = out.Close() // the first error is the one to report
		return nil, errkind.E(errkind.Unavailable, "spool the snapshot", err)
	}
	return out, nil
}

func metaOf(g *group.Group) archive.Meta {
	meta := archive.Meta{Version: 1, Index: g.AppliedIndex()}
	meta.Term, _ = strconv.ParseUint(g.Stats()["term"], 10, 64)
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

// spool makes a file without a name beside the data.
func spool(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "corbel-spool-*")
	if err == nil {
		err = os.Remove(f.Name())
	}
	return f, errkind.E(errkind.Unavailable, "spool the snapshot", err)
}

// restoreCopies is how many copies of a state are on the disk at once while it is restored.
const restoreCopies = 4

// Restore replaces the whole storage by an archive's. It is refused when the keyring in it is not under the keys of
// now, unless force is set: then this server and the others are sealed afterwards, and open with the archive's keys
// alone.
func (c *Cluster) Restore(ctx context.Context, in io.Reader, force bool) error {
	if c.cfg.Raft == nil {
		return errNotRaft
	}
	g, err := c.group()
	if err != nil {
		return err
	}
	dir := c.cfg.Raft.cfg.Dir
	disk, err := hostinfo.SpaceOf(dir)
	if err != nil {
		return errkind.E(errkind.Unavailable, "ask for the disk's free space", err)
	}
	state, err := spool(dir)
	if err != nil {
		return err
	}
	defer state.Close()
	meta, err := archive.Read(in, state, int64(min(disk.Free, 1<<60)/restoreCopies))
	if errkind.Is(err, errkind.Corrupt) { // what was sent is, not what is stored
		return errkind.Errorf(errkind.Invalid, "no snapshot, or a damaged one: %w", err)
	}
	if err != nil {
		return err
	}
	same, err := c.sameKeys(state)
	if err != nil {
		return err
	}
	if !same && !force {
		return errkind.New(errkind.Invalid, "could not verify hash file, possibly the snapshot is using a different set "+
			"of unseal keys; use the snapshot-force API to bypass this check")
	}
	if _, err := state.Seek(0, io.SeekStart); err != nil {
		return errkind.E(errkind.Unavailable, "spool the snapshot", err)
	}
	if err := c.keeper.Keyring().Replacing(func() error { return g.Restore(ctx, state) }); err != nil {
		return err
	}
	c.cfg.Log.Warn("secrets: the storage was replaced by a snapshot", "id", meta.ID, "bytes", meta.Size, "same_keys", same)
	c.again()
	return nil
}

// sameKeys reads the whole state, so that a damaged one is found before anything changes, and tells whether the keys of
// now open it.
func (c *Cluster) sameKeys(state io.ReadSeeker) (same bool, err error) {
	if _, err := state.Seek(0, io.SeekStart); err != nil {
		return false, errkind.E(errkind.Unavailable, "spool the snapshot", err)
	}
	err = snapshot.Read(state, func(r io.Reader) error {
		image, err := records.ReadImage(r)
		if err != nil {
			return err
		}
		keyring, ok := image.Get(barrier.KeyringPath)
		if !ok {
			return errkind.New(errkind.Invalid, "the snapshot holds no keyring: it is not of this plane")
		}
		same = c.keeper.Keyring().Opens(keyring)
		return nil
	})
	return same, errkind.E(errkind.Invalid, "snapshot", err)
}
