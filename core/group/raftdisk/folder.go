package raftdisk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/logstore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// RebuildName is a file in the group's folder that exists from the moment a
// damaged log is moved aside until this member has caught up: it keeps the
// member from voting, also across restarts. It holds the highest index ever held.
const RebuildName = "REBUILD"

// Folder is where a group keeps its log, and beside it what says whether this member lost one: who the members are, and
// up to where it may not vote. It has no state of its own: the disk has it all.
type Folder struct{ cfg *Config }

func (d Folder) rebuildPath() string { return filepath.Join(d.cfg.Dir, RebuildName) }

// openLog opens the log. A damaged one is moved aside when other members can give it back.
func (d Folder) openLog(s *Stores) error {
	// Names may be in the machine's memory alone, left by a process that was killed before this fsync: of a log that was
	// moved aside, of the mark of a rebuild, of the members, of a peers.json that was followed.
	if err := d.cfg.FS.SyncDir(d.cfg.Dir); err != nil {
		return err
	}
	if err := d.finishMove(); err != nil {
		return err
	}
	err := d.tryLog(s)
	var damage *logstore.Damage
	if err == nil || !errors.As(err, &damage) {
		return err
	}
	if !d.Rebuildable() {
		return errkind.E(errkind.Corrupt, "the log is damaged and there are no other members to rebuild it from; restore "+
			"a backup, or move the folder away to begin anew", err)
	}
	newest, err := d.markRebuild(damage.Newest)
	if err != nil {
		return err
	}
	if err := d.moveLogAside(); err != nil {
		return err
	}
	d.cfg.Log.Error("the log is damaged: it was moved aside and will be fetched from the leader; this server does not "+
		"vote until it has everything back",
		"file", damage.File, "offset", damage.Offset, "index", damage.Index, "what", damage.What, "newest_index", newest)
	return d.tryLog(s)
}

// markRebuild keeps this member from voting until it has everything up to newest, and what an older mark asks for.
func (d Folder) markRebuild(newest uint64) (uint64, error) {
	old, _, err := d.readRebuild()
	if err != nil {
		return 0, err
	}
	newest = max(newest, old)
	return newest, vfs.WriteFileAtomic(d.cfg.FS, d.rebuildPath(), binary.LittleEndian.AppendUint64(nil, newest), 0o600)
}

// Disown gives up the newest snapshot, which the leader contradicts (Guard.Contradicts), for the reason why. What this
// member acknowledged before may have been in it alone, for the library cut the log: it does not vote until it has that
// back. That is marked first: a process that ends in between disowns the snapshot again, or votes as one that has it.
func (d Folder) Disown(s *Stores, why error) error {
	newest := s.Snaps.Newest.Load()
	if newest == nil || d.cfg.InMemory { // memory is empty after the next Open anyhow
		return nil
	}
	if !d.Rebuildable() {
		return errkind.E(errkind.Corrupt, "the leader contradicts the newest snapshot, and there are too few other members "+
			"to begin anew from; remove this member from the group and let it join under a new id", why)
	}
	last, err := s.Log.LastIndex()
	if err != nil {
		return err
	}
	if _, err := d.markRebuild(max(last, newest.Index)); err != nil {
		return err
	}
	return s.Snaps.disown(*newest, why)
}

func (d Folder) logDir() string { return filepath.Join(d.cfg.Dir, "log") }

func (d Folder) tryLog(s *Stores) error {
	disk, err := logstore.Open(logstore.Config{Group: d.cfg.Group, Dir: d.logDir(), FS: d.cfg.FS,
		SegmentBytes: d.cfg.SegmentBytes,
		StallAfter:   d.cfg.StallAfter, OnStall: d.cfg.OnStall, ObserveAppend: d.cfg.ObserveAppend,
		Clock: d.cfg.Clock, Log: d.cfg.Log})
	if err != nil {
		return err
	}
	newest, lost, err := d.readRebuild()
	if err != nil {
		_ = disk.Close() // the first error is the one to report
		return err
	}
	if err := d.fitLog(s, disk, lost); err != nil {
		_ = disk.Close() // a damaged one is moved away next
		return err
	}
	s.Disk, s.Log, s.Lost, s.Newest = disk, disk, lost, newest
	return nil
}

// fitLog makes sure that the log goes on where the newest snapshot ends. It completes an installation that
// was cut off between the two: a log that ends before the snapshot, or whose entries are not those that the snapshot
// has, gives way.
func (d Folder) fitLog(s *Stores, disk *logstore.Store, lost bool) error {
	first, _ := disk.FirstIndex()
	last, _ := disk.LastIndex()
	var snap Position
	if newest := s.Snaps.Newest.Load(); newest != nil {
		snap = *newest
	}
	missing := func(what string, args ...any) error {
		return errkind.E(errkind.Corrupt, "", &logstore.Damage{Group: d.cfg.Group, File: d.logDir(), Index: snap.Index + 1,
			Newest: last, What: fmt.Sprintf(what, args...)})
	}
	switch {
	case first == 0:
		// An empty log counts too, unless it was just begun anew: all that this member acknowledged may have been in the
		// snapshot.
		if s.Snaps.broken && !lost {
			return missing("a snapshot in %s was damaged and the log is empty", s.Snaps.dir)
		}
		return nil
	case first > snap.Index+1:
		return missing("the log begins only at index %d, and the newest snapshot ends at %d: what lies between is missing",
			first, snap.Index)
	case first > snap.Index: // right behind it
		return nil
	}
	var entry raft.Log
	if last >= snap.Index {
		if err := disk.GetLog(snap.Index, &entry); err != nil {
			return err
		}
		if entry.Term == snap.Term {
			return nil
		}
	}
	d.cfg.Log.Warn("dropping the log in favor of the newest snapshot, whose installation was interrupted", "first_index",
		first, "last_index", last, "snapshot_index", snap.Index)
	return disk.DeleteRange(first, last)
}

func (d Folder) readRebuild() (uint64, bool, error) {
	data, err := vfs.ReadFile(d.cfg.FS, d.rebuildPath())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil || len(data) != 8 {
		return 0, err == nil, err
	}
	return binary.LittleEndian.Uint64(data), true, nil
}

// Rebuilt lets this member vote again.
func (d Folder) Rebuilt() error {
	if err := d.cfg.FS.Remove(d.rebuildPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.cfg.FS.SyncDir(d.cfg.Dir)
}

// Rebuildable reports whether others hold the log too: at least two more voters,
// since one of two cannot elect a leader without this member's vote.
func (d Folder) Rebuildable() bool {
	known, err := d.readMembers()
	if err != nil {
		d.cfg.Log.Error("cannot read who the members are", "err", err)
	}
	if len(known) == 0 {
		known = d.cfg.Bootstrap
	}
	others := 0
	for _, s := range known {
		if s.Voter && s.ID != d.cfg.LocalID {
			others++
		}
	}
	return others >= 2
}

// moveLogAside renames the damaged folder and begins a new one that keeps term
// and vote: without them this member could vote twice in one term.
func (d Folder) moveLogAside() error {
	aside := d.logDir() + ".damaged-" + d.cfg.Clock.Now().UTC().Format("20060102T150405.000")
	stable, err := logstore.ReadStable(d.cfg.FS, d.logDir())
	if err != nil {
		return errkind.E(errkind.Corrupt, "term and vote cannot be read, so this member cannot rejoin under its id; "+
			"remove it from the group and let it join under a new one", err)
	}
	fresh := d.logDir() + ".new"
	if err := vfs.RemoveAll(d.cfg.FS, fresh); err != nil {
		return err
	}
	disk, err := logstore.Open(logstore.Config{Group: d.cfg.Group, Dir: fresh, FS: d.cfg.FS,
		SegmentBytes: d.cfg.SegmentBytes, Clock: d.cfg.Clock})
	if err != nil {
		return err
	}
	for key, value := range stable {
		if err := disk.Set([]byte(key), value); err != nil {
			_ = disk.Close() // the first error is the one to report
			return err
		}
	}
	if err := disk.Close(); err != nil {
		return err
	}
	if err := d.cfg.FS.Rename(d.logDir(), aside); err != nil {
		return err
	}
	if err := d.cfg.FS.Rename(fresh, d.logDir()); err != nil {
		return err
	}
	return d.cfg.FS.SyncDir(d.cfg.Dir)
}

// finishMove completes a moveLogAside that was cut off between its two renames.
func (d Folder) finishMove() error {
	if _, err := d.cfg.FS.Stat(d.logDir()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err := d.cfg.FS.Stat(d.rebuildPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err // it says nothing about what is there
	}
	err = d.cfg.FS.Rename(d.logDir()+".new", d.logDir())
	if errors.Is(err, fs.ErrNotExist) {
		return errkind.Errorf(errkind.Corrupt, "%s is gone in the middle of a rebuild", d.logDir())
	}
	if err != nil {
		return err
	}
	return d.cfg.FS.SyncDir(d.cfg.Dir)
}

// MembersName keeps the newest known members beside the log, for the day on which the log cannot be read.
const MembersName = "MEMBERS"

func (d Folder) readMembers() ([]Server, error) {
	data, err := vfs.ReadFile(d.cfg.FS, filepath.Join(d.cfg.Dir, MembersName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []Server
	for line := range strings.Lines(string(data)) {
		var s Server
		parts := strings.Split(strings.TrimSpace(line), "\t")
		if len(parts) == 3 {
			s.ID, s.Address, s.Voter = parts[0], parts[1], parts[2] == "voter"
			list = append(list, s)
		}
	}
	return list, nil
}

// WriteMembers keeps the newest known members beside the log.
func (d Folder) WriteMembers(list []Server) error {
	var b strings.Builder
	for _, s := range list {
		role := "nonvoter"
		if s.Voter {
			role = "voter"
		}
		fmt.Fprintf(&b, "%s\t%s\t%s\n", s.ID, s.Address, role)
	}
	return vfs.WriteFileAtomic(d.cfg.FS, filepath.Join(d.cfg.Dir, MembersName), []byte(b.String()), 0o600)
}
