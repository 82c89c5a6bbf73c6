// Package filestore keeps records in a folder, for one server: a journal that each
// commit is appended to and fsynced before it returns, and a checkpoint that says
// what the journal said so far. The state is in memory as an immutable root; reads
// take no lock and touch no disk.
//
// Commits that arrive while one fsync is under way share the next (package gather).
// They are one frame of the journal: after a crash the frame is there whole or not at all.
//
// What goes wrong: a write that finds no room is taken back, and the store goes on (a full
// disk becomes a usable store again when there is room). When it cannot be taken back,
// fails otherwise, or an fsync fails, nobody knows what is on the disk: the commits have an unknown
// outcome, and the store refuses everything until it is opened again.
package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/gather"
	"corbel.dev/corbel/secrets/storage/records"
)

// Config says where. Zero values mean the defaults that are named.
type Config struct {
	// Dir is the folder; it is made when missing. One process at a time has it.
	Dir string
	FS  vfs.FS
	Log *slog.Logger
	// JournalBytes (16 MiB) is how long the journal becomes before a checkpoint is
	// written; where the records are longer than that, it becomes as long as they are.
	JournalBytes int64
}

// valueBytes bounds a value: a frame, which holds all that share an fsync, stays below maxFrameBytes.
const valueBytes = 16 << 20

// Store is the backend.
type Store struct {
	records.Reader
	cfg    Config
	lock   io.Closer
	queue  *gather.Queue
	state  atomic.Pointer[records.State]
	closed atomic.Bool
	broken atomic.Pointer[error] // why the store refuses everything

	journal journal // the queue's goroutine alone
	nextAt  int64   // the journal's length at which the next checkpoint is tried

	checkpoints sync.WaitGroup // the one that is written, if any
	writing     atomic.Bool
	once        sync.Once
	closeErr    error
}

var _ storage.Backend = (*Store)(nil)

// Open reads what the folder holds. A journal's torn end, which a crash leaves, is cut
// with a line in the log; damage anywhere else is an error of kind Corrupt with file and offset.
func Open(cfg Config) (*Store, error) {
	if cfg.Dir == "" {
		return nil, errkind.New(errkind.Invalid, "file storage: path is missing")
	}
	if cfg.FS == nil {
		cfg.FS = vfs.OS{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.JournalBytes == 0 {
		cfg.JournalBytes = 16 << 20
	}
	if err := cfg.FS.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, errkind.E(errkind.Unavailable, "file storage", err)
	}
	lock, err := cfg.FS.Lock(filepath.Join(cfg.Dir, "lock"))
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "file storage: "+cfg.Dir, err)
	}
	s := &Store{cfg: cfg, lock: lock, nextAt: cfg.JournalBytes}
	if err := s.load(); err != nil {
		return nil, errors.Join(errkind.E(errkind.Of(err), "file storage", err), lock.Close())
	}
	s.queue = gather.New(s.commit)
	s.At = func(ctx context.Context) (records.Set, error) { return s.state.Load().Set, s.ready(ctx) }
	return s, nil
}

var errClosed = errkind.New(errkind.Unavailable, "the storage is closed")

func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	if why := s.broken.Load(); why != nil {
		return *why
	}
	return errkind.E(errkind.Unavailable, "storage", ctx.Err())
}

// Commit implements storage.Backend.
func (s *Store) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := storage.CheckOps(s.Info(), ops); err != nil {
		return err
	}
	if n := records.BatchBytes(ops); n > maxFrameBytes/2 {
		return errkind.Errorf(errkind.TooLarge, "file storage: a commit of %d bytes, more than %d", n, maxFrameBytes/2)
	}
	return s.queue.Do(ctx, records.Batch{Epoch: epoch, Ops: ops})
}

// Fence implements storage.Backend.
func (s *Store) Fence(ctx context.Context, epoch storage.Epoch) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.queue.Do(ctx, records.Batch{Epoch: epoch, Fence: true})
}

// Info implements storage.Backend.
func (s *Store) Info() storage.Info {
	return storage.Info{Name: "file", ValueBytes: valueBytes,
		Durability: "a commit is fsynced in a journal on this machine's disk before it returns: it outlives a crash and a " +
			"power loss, and not the disk"}
}

// commit writes down what gathered and makes it the state. The queue calls it.
func (s *Store) commit(batches []records.Batch) []error {
	if why := s.broken.Load(); why != nil {
		return all(*why, len(batches))
	}
	next, outcomes := s.state.Load().Fold(batches)
	var frame []byte
	for i, b := range batches {
		if outcomes[i] == nil {
			frame = appendBatch(frame, b)
		}
	}
	if len(frame) == 0 {
		return outcomes
	}
	if err := s.journal.append(frame); err != nil {
		if errkind.Is(err, errkind.Unknown) {
			why := errkind.E(errkind.Unavailable, "the file storage refuses everything until it is opened again", err)
			s.broken.Store(&why)
			s.cfg.Log.Error("a commit of the secrets failed on disk, and its outcome is unknown; repair the disk and restart "+
				"the server", "err", err)
		}
		for i := range outcomes { // also those refused: the epoch they lost to may be in what failed
			outcomes[i] = err
		}
		return outcomes
	}
	s.state.Store(&next)
	if s.journal.end >= s.nextAt && !s.writing.Load() {
		s.turn()
	}
	return outcomes
}

func all(err error, n int) []error {
	list := make([]error, n)
	for i := range list {
		list[i] = err
	}
	return list
}

// turn begins a new journal and writes a checkpoint of the state of now beside it.
func (s *Store) turn() {
	sequence := s.journal.sequence
	next, err := createJournal(s.cfg.FS, s.cfg.Dir, sequence)
	if err != nil {
		if errkind.Is(err, errkind.Unknown) {
			why := errkind.E(errkind.Unavailable, "the file storage refuses everything until it is opened again", err)
			s.broken.Store(&why)
		}
		s.nextAt = s.journal.end + s.cfg.JournalBytes
		s.cfg.Log.Warn("cannot start a new secrets journal; the old one keeps growing", "err", err)
		return
	}
	if err := s.journal.file.Close(); err != nil {
		s.cfg.Log.Warn("closing a journal of the secrets", "err", err) // every frame was fsynced
	}
	state := *s.state.Load()
	s.journal, s.nextAt = next, max(s.cfg.JournalBytes, int64(state.Bytes()))
	s.writing.Store(true)
	s.checkpoints.Go(func() {
		defer s.writing.Store(false)
		if err := s.checkpoint(records.Image{State: state, Sequence: sequence}); err != nil {
			s.cfg.Log.Warn("cannot write a checkpoint of the secrets; keeping the journals until the next one", "err", err)
		}
	})
}

// checkpoint replaces the checkpoint, and removes the journals that it makes superfluous.
func (s *Store) checkpoint(image records.Image) error {
	path := filepath.Join(s.cfg.Dir, checkpointName)
	temp := path + vfs.TempSuffix
	f, err := s.cfg.FS.Create(temp)
	if err != nil {
		return err
	}
	_, err = image.WriteTo(f)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = s.cfg.FS.Rename(temp, path)
	}
	if err != nil {
		_ = s.cfg.FS.Remove(temp) // the first error is the one to report; the next start removes it
		return err
	}
	if err := s.cfg.FS.SyncDir(s.cfg.Dir); err != nil {
		return err
	}
	return removeJournals(s.cfg.FS, s.cfg.Dir, image.Sequence)
}

// Close waits for what is under way and lets the folder go. It is idempotent.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.closed.Store(true)
		s.queue.Close()
		s.checkpoints.Wait()
		s.closeErr = errors.Join(s.journal.file.Close(), s.lock.Close())
		if s.closeErr != nil {
			s.closeErr = fmt.Errorf("close the file storage: %w", s.closeErr)
		}
	})
	return s.closeErr
}
