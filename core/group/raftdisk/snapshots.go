package raftdisk

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/snapshot"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// Kept is how many finished snapshots stay on disk.
const Kept = 2

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshots keeps snapshots in a folder: <id>.state, a snapshot stream, and then
// <id>.meta, whose presence says that the other one is whole and durable.
// Every state file is verified before it is listed for the first time and again
// whenever it is opened; a damaged one is set aside loudly and the older one is used.
type Snapshots struct {
	FS  vfs.FS
	dir string
	log *slog.Logger

	mu    sync.Mutex
	metas []*raft.SnapshotMeta // verified, newest first
	// Newest is the last entry that the newest one has; nil when there is none. It is read without the lock, under which
	// a disk may hang.
	Newest atomic.Pointer[Position]
	// Saved is the newest one as a file, for whoever shows it; nil when there is none.
	Saved atomic.Pointer[Saved]
	// broken is set when a snapshot did not verify: the log must then reach further back.
	broken bool

	// Wanted has an element when one was set aside while running: without a new one a
	// leader could not help a member whose log is behind its own.
	Wanted chan struct{}
	// Restoring is set while an operator's snapshot replaces the state: the library then panics when it cannot open what
	// it just wrote.
	Restoring atomic.Bool
}

// Position is an entry's place in the log: one term has written it there.
type Position struct{ Index, Term uint64 }

// Saved is a snapshot as a file. At is when it was written; zero where the disk does not tell.
type Saved struct {
	id    string
	Bytes int64
	At    time.Time
}

// OpenSnapshots verifies what is there. What cannot be read counts as damaged only when replaceable: when others have
// it.
func OpenSnapshots(fsys vfs.FS, dir string, log *slog.Logger, replaceable bool) (*Snapshots, error) {
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// What is listed counts, and the log may be cut on the word of it. Its name may be in the machine's memory alone,
	// left by a process that was killed before this fsync.
	if err := fsys.SyncDir(dir); err != nil {
		return nil, err
	}
	s := &Snapshots{FS: fsys, dir: dir, log: log, Wanted: make(chan struct{}, 1)}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	listed := map[string]bool{}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".meta")
		if !ok {
			continue
		}
		listed[id] = true
		meta, err := s.load(id)
		if Unreadable(err) && !replaceable {
			return nil, errkind.E(errkind.Of(err), "verify snapshot "+id, err)
		}
		if err != nil {
			s.setAside(id, err)
			continue
		}
		s.metas = append(s.metas, meta)
	}
	for _, e := range entries { // what a stop in the middle left behind
		id, isState := strings.CutSuffix(e.Name(), ".state")
		if strings.HasSuffix(e.Name(), vfs.TempSuffix) || (isState && !listed[id]) {
			if err := fsys.Remove(s.Path(e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
	}
	s.sortLocked()
	s.pruneLocked()
	return s, nil
}

// Unreadable reports whether the disk refused: then nobody knows whether the file is damaged, and it stays where it is.
func Unreadable(err error) bool {
	var refused *fs.PathError
	return errors.As(err, &refused) && !errors.Is(err, fs.ErrNotExist)
}

func (s *Snapshots) Path(name string) string { return filepath.Join(s.dir, name) }

// sortLocked puts the newest first. Of two with the same entries the number at the end of the id decides.
func (s *Snapshots) sortLocked() {
	slices.SortFunc(s.metas, func(a, b *raft.SnapshotMeta) int {
		return cmp.Or(cmp.Compare(b.Term, a.Term), cmp.Compare(b.Index, a.Index), cmp.Compare(len(b.ID), len(a.ID)),
			strings.Compare(b.ID, a.ID))
	})
	var newest *Position
	if len(s.metas) > 0 {
		newest = &Position{s.metas[0].Index, s.metas[0].Term}
	}
	s.Newest.Store(newest)
	s.tellLocked()
}

// tellLocked keeps Saved what the newest one is.
func (s *Snapshots) tellLocked() {
	if len(s.metas) == 0 {
		s.Saved.Store(nil)
		return
	}
	newest := s.metas[0]
	if told := s.Saved.Load(); told != nil && told.id == newest.ID {
		return
	}
	saved := &Saved{id: newest.ID, Bytes: newest.Size}
	if info, err := s.FS.Stat(s.Path(newest.ID + ".state")); err == nil {
		saved.At = info.ModTime()
	}
	s.Saved.Store(saved)
}

// pruneLocked removes all but the newest ones.
func (s *Snapshots) pruneLocked() {
	for len(s.metas) > Kept {
		old := s.metas[len(s.metas)-1]
		if err := s.remove(old.ID); err != nil {
			s.log.Warn("cannot remove an old snapshot", "file", s.Path(old.ID+".state"), "err", err)
		}
		s.metas = s.metas[:len(s.metas)-1]
	}
}

// unlistLocked takes a snapshot out of the list.
func (s *Snapshots) unlistLocked(id string) {
	s.metas = slices.DeleteFunc(s.metas, func(m *raft.SnapshotMeta) bool { return m.ID == id })
	s.sortLocked()
}

// load reads a meta file and verifies its state file to the last byte.
func (s *Snapshots) load(id string) (*raft.SnapshotMeta, error) {
	data, err := vfs.ReadFile(s.FS, s.Path(id+".meta"))
	if err != nil {
		return nil, err
	}
	meta, err := decodeMeta(data)
	if err != nil {
		return nil, err
	}
	if meta.ID != id {
		return nil, snapshot.Damaged("meta file of another snapshot")
	}
	f, err := vfs.Open(s.FS, s.Path(id+".state"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := snapshot.Verify(f); err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != meta.Size {
		err = snapshot.Damaged("state file has a wrong size")
	}
	return meta, err
}

func (s *Snapshots) setAside(id string, cause error) {
	s.broken = true
	s.log.Error("a snapshot is corrupt; setting it aside and using an older one", "file", s.Path(id+".state"),
		"err", cause)
	if err := s.rename(id); err != nil {
		s.log.Error("cannot set a damaged snapshot aside", "file", s.Path(id+".state"), "err", err)
	}
}

// rename takes a snapshot's files out of the way, and keeps them. After a power loss they may be back.
func (s *Snapshots) rename(id string) (failed error) {
	for _, end := range []string{".meta", ".state"} {
		if err := s.FS.Rename(s.Path(id+end), s.Path(id+end+".damaged")); !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// Has reports whether a snapshot still counts.
func (s *Snapshots) Has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.metas, func(m *raft.SnapshotMeta) bool { return m.ID == id })
}

// Drop sets a snapshot aside that was found to be damaged.
func (s *Snapshots) Drop(id string, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlistLocked(id)
	s.setAside(id, cause)
}

// disown sets the snapshots aside that end at one place, for good: the log that is fetched in their stead would give
// way to one that is back after a power loss.
func (s *Snapshots) disown(at Position, why error) (failed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range slices.Clone(s.metas) {
		if m.Index == at.Index && m.Term == at.Term {
			s.log.Error("setting a snapshot aside", "file", s.Path(m.ID+".state"), "err", why)
			s.unlistLocked(m.ID)
			failed = errors.Join(failed, s.rename(m.ID))
		}
	}
	return errors.Join(failed, s.FS.SyncDir(s.dir))
}

// List implements raft.SnapshotStore.
func (s *Snapshots) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.metas), nil
}

// Open implements raft.SnapshotStore; it verifies the file before it hands it out.
func (s *Snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, err := s.load(id)
	if err != nil && s.Restoring.Load() {
		return &raft.SnapshotMeta{ID: id}, Unopened{err}, nil // the machine ends the instance; the next one judges the file
	}
	if Unreadable(err) {
		return nil, nil, errkind.E(errkind.Of(err), "open snapshot "+id, err)
	}
	if err != nil {
		s.mu.Lock()
		s.unlistLocked(id)
		if !errors.Is(err, fs.ErrNotExist) {
			s.setAside(id, err)
		}
		s.mu.Unlock()
		select {
		case s.Wanted <- struct{}{}:
		default:
		}
		return nil, nil, errkind.E(errkind.Of(err), "open snapshot "+id, err)
	}
	f, err := vfs.Open(s.FS, s.Path(id+".state"))
	if err != nil {
		return nil, nil, err
	}
	return meta, &Reader{File: f, Index: meta.Index}, nil
}

// Unopened is a snapshot that could not be opened.
type Unopened struct{ Err error }

// Read implements io.Reader.
func (u Unopened) Read([]byte) (int, error) { return 0, u.Err }

// Close implements io.Closer.
func (u Unopened) Close() error { return nil }

// Reader lets the state machine learn the index of what it restores.
type Reader struct {
	vfs.File

	Index uint64
}

// Create implements raft.SnapshotStore.
func (s *Snapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, errkind.Errorf(errkind.Invalid, "snapshot version %d is not supported", version)
	}
	id := fmt.Sprintf("%d-%d", term, index)
	s.mu.Lock()
	// one more with the same entries gets a higher number than they have, so that it is the newer one
	for _, m := range s.metas {
		if m.Index == index && m.Term == term {
			n, _ := strconv.Atoi(strings.TrimPrefix(m.ID, id+"-")) // the first one has none: 0
			id = fmt.Sprintf("%s-%d", id, n+1)
			break
		}
	}
	s.mu.Unlock()
	f, err := s.FS.Create(s.Path(id + ".state" + vfs.TempSuffix))
	if err != nil {
		return nil, err
	}
	return &sink{store: s, file: f, meta: raft.SnapshotMeta{Version: version, ID: id, Index: index, Term: term,
		Configuration: configuration, ConfigurationIndex: configurationIndex}}, nil
}

// sink receives one snapshot. One goroutine uses it.
type sink struct {
	store *Snapshots
	file  vfs.File
	meta  raft.SnapshotMeta
	done  bool
	fresh int // bytes that were written and not synced
	// failed is the first error: after a failed fsync the next one says nothing.
	failed error
}

// syncedBytes is how much of a snapshot is written before it is synced. One fsync of hundreds of MiB at its end
// would hold up those of the log beside it for seconds, and a leader whose disk does not answer steps down.
const syncedBytes = 4 << 20

// ID implements raft.SnapshotSink.
func (k *sink) ID() string { return k.meta.ID }

// Write implements raft.SnapshotSink.
func (k *sink) Write(p []byte) (int, error) {
	if k.failed != nil {
		return 0, k.failed
	}
	n, err := k.file.Write(p)
	k.meta.Size += int64(n)
	if k.fresh += n; err == nil && k.fresh >= syncedBytes {
		k.fresh = 0
		err = k.file.Sync()
	}
	k.failed = err
	return n, err
}

// Cancel implements raft.SnapshotSink: it throws the unfinished file away.
func (k *sink) Cancel() error {
	if k.done {
		return nil
	}
	k.done = true
	return errors.Join(k.file.Close(), k.store.FS.Remove(k.file.Name()))
}

// Close implements raft.SnapshotSink: it makes the snapshot durable, verifies what
// was written, and only then lets it count.
func (k *sink) Close() error {
	if k.done {
		return nil
	}
	k.done = true
	err := k.failed
	if err == nil {
		err = k.file.Sync()
	}
	if closeErr := k.file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = k.commit()
	}
	if err != nil {
		_ = k.store.FS.Remove(k.file.Name()) // the first error is the one to report
	}
	return err
}

func (k *sink) commit() error {
	s := k.store
	// The library may write its own one while a leader installs a newer one, and would then take the older one for its
	// newest.
	if newest := s.Newest.Load(); newest != nil && k.meta.Index < newest.Index {
		return errkind.Errorf(errkind.Unavailable, "a snapshot up to index %d came too late: there is one up to %d",
			k.meta.Index, newest.Index)
	}
	f, err := vfs.Open(s.FS, k.file.Name())
	if err != nil {
		return err
	}
	err = snapshot.Verify(f)
	_ = f.Close()
	if err != nil {
		return err
	}
	if err := s.FS.Rename(k.file.Name(), s.Path(k.meta.ID+".state")); err != nil {
		return err
	}
	if err := s.FS.SyncDir(s.dir); err != nil {
		return err
	}
	data, err := encodeMeta(&k.meta)
	if err != nil {
		return err
	}
	if err := vfs.WriteFileAtomic(s.FS, s.Path(k.meta.ID+".meta"), data, 0o600); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	meta := k.meta
	s.metas = append(s.metas, &meta)
	s.sortLocked()
	s.pruneLocked()
	return nil
}

// remove deletes a snapshot that is not needed any more. Its meta file is gone for good before its state goes: after
// a power loss between them it would look damaged.
func (s *Snapshots) remove(id string) error {
	if err := s.FS.Remove(s.Path(id + ".meta")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.FS.SyncDir(s.dir); err != nil {
		return err
	}
	if err := s.FS.Remove(s.Path(id + ".state")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// framedMeta is a meta file: Sum is over the bytes of Meta as they stand in it. What they decode to
// may encode otherwise: a text that is no UTF-8 does.
type framedMeta struct {
	Meta json.RawMessage
	Sum  string
}

func encodeMeta(meta *raft.SnapshotMeta) ([]byte, error) {
	data, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	return json.Marshal(framedMeta{data, fmt.Sprintf("%08x", crc32.Checksum(data, castagnoli))})
}

func decodeMeta(data []byte) (*raft.SnapshotMeta, error) {
	var framed framedMeta
	if err := json.Unmarshal(data, &framed); err != nil {
		return nil, snapshot.Damaged("meta file does not decode")
	}
	if framed.Sum != fmt.Sprintf("%08x", crc32.Checksum(framed.Meta, castagnoli)) {
		return nil, snapshot.Damaged("meta file checksum mismatch")
	}
	var meta raft.SnapshotMeta
	if err := json.Unmarshal(framed.Meta, &meta); err != nil {
		return nil, snapshot.Damaged("meta file does not decode")
	}
	return &meta, nil
}

// Forget takes a snapshot out of the list.
func (s *Snapshots) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlistLocked(id)
	s.broken = true
}
