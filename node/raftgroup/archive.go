package raftgroup

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"corbel.dev/corbel/kit/archive"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/hostinfo"
	"corbel.dev/corbel/node/spool"
)

func spooling(err error) error { return errkind.E(errkind.Unavailable, "spool the snapshot", err) }

// SaveArchive writes the group's state of now as an archive to a file without a name in dir ("": where temporary files
// are), and returns it at its beginning.
func (p *Group) SaveArchive(ctx context.Context, dir string) (*os.File, error) {
	g := p.Raft.Load()
	if g == nil {
		return nil, ErrForming
	}
	state, err := spool.TempFile(dir)
	if err != nil {
		return nil, spooling(err)
	}
	defer state.Close()
	meta := archiveMeta(p) // before the state is taken: it must not promise more than the archive holds
	if err := g.Save(ctx, state); err != nil {
		return nil, err
	}
	if meta.Size, err = state.Seek(0, io.SeekCurrent); err != nil {
		return nil, spooling(err)
	}
	out, err := spool.TempFile(dir)
	if err != nil {
		return nil, spooling(err)
	}
	err = archive.Write(out, &meta, io.NewSectionReader(state, 0, meta.Size), p.Base.Clock.Now())
	if err == nil {
		_, err = out.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = out.Close() // the first error is the one to report
		return nil, spooling(err)
	}
	return out, nil
}

func archiveMeta(p *Group) archive.Meta {
	g := p.Raft.Load()
	meta := archive.Meta{Version: 1, Index: g.AppliedIndex()}
	meta.Term, _ = strconv.ParseUint(g.Stats()["term"], 10, 64)
	meta.ID = fmt.Sprintf("%d-%d-%d", meta.Term, meta.Index, p.Base.Clock.Now().UnixMilli())
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

// ReadArchive checks an archive to its last byte. It returns its state in a file without a name in dir, at its
// beginning. What is damaged is of kind Corrupt, and what would fill the disk TooLarge.
func ReadArchive(in io.Reader, dir string) (*os.File, *archive.Meta, error) {
	limit, err := spoolLimit(dir)
	if err != nil {
		return nil, nil, err
	}
	state, err := spool.TempFile(dir)
	if err != nil {
		return nil, nil, spooling(err)
	}
	meta, err := archive.Read(in, state, limit)
	if err == nil {
		if _, err = state.Seek(0, io.SeekStart); err != nil {
			err = spooling(err)
		}
	}
	if err != nil {
		_ = state.Close() // the first error is the one to report
		return nil, nil, err
	}
	return state, meta, nil
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
