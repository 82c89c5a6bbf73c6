// Package logstore keeps one Raft group's log and its term and vote on disk,
// and refuses to guess when the disk lies.
//
// What always holds:
//   - StoreLogs returns nil only after one fsync that covers all its records.
//   - Every record carries a CRC32C over its index, term, type, data and
//     extensions; it is checked at Open for the whole log and on every read.
//   - Only an incomplete tail that nobody was told is durable is cut, and Open
//     says how many bytes. Anything else that does not verify is damage: an
//     errkind.Corrupt error that wraps *Damage with group, file, offset and index.
//   - A failed write or fsync, or damage, poisons the store: every later call
//     returns the same error until the folder is opened, and so verified, anew.
//   - Each operation is timed while it runs: InFlight shows one that hangs.
//
// Files (formats in docs/internals/core.md): MANIFEST names the segments and is
// replaced as a whole; *.seg hold records; MARK holds the newest index known to
// be durable, so that a tail that vanished is noticed; STABLE holds term and vote.
//
// All methods are safe for concurrent use. Reads run beside an append. Nothing
// is queued here: the caller waits for the disk. Open starts no goroutine;
// Run owns the watcher.
package logstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// Config says where and how a Store keeps its log.
type Config struct {
	// Group names the Raft group in errors, facts and logs.
	Group string
	// Dir is the store's own folder; it is made when missing.
	Dir string
	// FS is the disk; nil is the machine's.
	FS vfs.FS
	// SegmentBytes is the size at which a segment file is closed; zero means 64 MiB.
	SegmentBytes int64
	// StallAfter is how long one operation may take before it is a stall; zero means 500 ms.
	StallAfter time.Duration
	// OnStall hears of stalls from Run's goroutine; it must not block.
	OnStall func(Stall)
	// ObserveAppend, when set, gets the duration of every StoreLogs.
	ObserveAppend func(time.Duration)
	Clock         clock.Clock
	Log           *slog.Logger
}

func (c *Config) complete() {
	if c.FS == nil {
		c.FS = vfs.OS{}
	}
	if c.SegmentBytes == 0 {
		c.SegmentBytes = 64 << 20
	}
	if c.StallAfter == 0 {
		c.StallAfter = 500 * time.Millisecond
	}
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// Damage says which stored bytes do not verify. Index is the first index that cannot be read.
type Damage struct {
	Group, File string
	Offset      int64
	Index       uint64
	What        string
	// Newest is the highest index that this store is known to have held, so that
	// a rebuild knows when everything once acknowledged is back; 0 when unknown.
	Newest uint64
}

// Error implements error.
func (d *Damage) Error() string {
	return fmt.Sprintf("group %s: damaged log: %s: offset %d, index %d: %s", d.Group, d.File, d.Offset, d.Index, d.What)
}

// Stats counts what a Store did since Open.
type Stats struct{ Appends, Entries, Bytes, Fsyncs, Reads uint64 }

// Opened says what Open found.
type Opened struct {
	First, Last uint64
	Segments    int
	// CutBytes is the length of the incomplete tail that was cut.
	CutBytes int64
}

// Store is a raft.LogStore and raft.StableStore on disk.
type Store struct {
	cfg    Config
	lock   io.Closer
	opened Opened
	watch  watch
	poison atomic.Pointer[poisoned]
	counts struct{ appends, entries, bytes, fsyncs, reads atomic.Uint64 }

	wmu  sync.Mutex // serialises writers; taken before mu
	buf  []byte     // under wmu: the records being written
	mark *markFile  // under wmu
	idle int        // under wmu: seconds since the last write

	mu   sync.RWMutex // guards man and segs against readers
	man  manifest
	segs []*segment // as man.Segments; the last is the tail

	stable *stableFile
	closed bool // under wmu
}

type poisoned struct{ err error }

var (
	_ raft.LogStore          = (*Store)(nil)
	_ raft.StableStore       = (*Store)(nil)
	_ raft.MonotonicLogStore = (*Store)(nil)
)

// maxEntryBytes bounds one record: what a damaged length may make us allocate.
const maxEntryBytes = 256 << 20

// ErrNotFound is what Get returns for a missing key; Raft compares its text.
var ErrNotFound = errors.New("not found")

// Open opens or makes the store in cfg.Dir and verifies every record.
// Damage is an errkind.Corrupt error wrapping *Damage; other errors are the disk's.
func Open(cfg Config) (*Store, error) {
	cfg.complete()
	if err := cfg.FS.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, errkind.E(errkind.Unavailable, "open log "+cfg.Group, err)
	}
	lock, err := cfg.FS.Lock(filepath.Join(cfg.Dir, "LOCK"))
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "open log "+cfg.Group, err)
	}
	s := &Store{cfg: cfg, lock: lock}
	s.watch.clock = cfg.Clock
	s.watch.base = cfg.Clock.Now()
	if err := s.recover(); err != nil {
		s.closeFiles()
		var damage *Damage
		if errors.As(err, &damage) {
			return nil, errkind.E(errkind.Corrupt, "", err)
		}
		return nil, errkind.E(errkind.Unavailable, "open log "+cfg.Group, err)
	}
	return s, nil
}

// Opened says what Open found.
func (s *Store) Opened() Opened { return s.opened }

// Stats returns the counters.
func (s *Store) Stats() Stats {
	return Stats{Appends: s.counts.appends.Load(), Entries: s.counts.entries.Load(), Bytes: s.counts.bytes.Load(),
		Fsyncs: s.counts.fsyncs.Load(), Reads: s.counts.reads.Load()}
}

// Err returns what poisoned the store, or nil.
func (s *Store) Err() error {
	if p := s.poison.Load(); p != nil {
		return p.err
	}
	return nil
}

// fail poisons the store with the first failure and returns that.
func (s *Store) fail(op string, err error) error {
	kind := errkind.Unavailable
	var damage *Damage
	if errors.As(err, &damage) {
		kind = errkind.Corrupt
	}
	wrapped := errkind.E(kind, "log store "+s.cfg.Group+" "+op, err)
	if s.poison.CompareAndSwap(nil, &poisoned{wrapped}) {
		s.cfg.Log.Error("log store failed; it takes nothing more until it is reopened", "group", s.cfg.Group, "op", op,
			"err", err)
	}
	return s.Err()
}

// IsMonotonic tells Raft that indexes have no gaps here.
func (s *Store) IsMonotonic() bool { return true }

// FirstIndex returns the oldest stored index, 0 when there is none.
func (s *Store) FirstIndex() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.lastLocked() == 0 {
		return 0, nil
	}
	return s.man.First, nil
}

// LastIndex returns the newest stored index, 0 when there is none.
func (s *Store) LastIndex() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lastLocked(), nil
}

// lastLocked needs mu.
func (s *Store) lastLocked() uint64 {
	if len(s.segs) == 0 {
		return 0
	}
	last := s.segs[len(s.segs)-1].last()
	if last < s.man.First {
		return 0
	}
	return last
}

// GetLog reads and verifies one entry. A missing one is raft.ErrLogNotFound.
func (s *Store) GetLog(index uint64, out *raft.Log) error {
	if err := s.Err(); err != nil {
		return err
	}
	err := s.read(index, out)
	if err == nil || err == raft.ErrLogNotFound {
		return err
	}
	return s.fail("read", err)
}

// Verify reads one entry as GetLog does and returns its size, but leaves the store as it is
// when the entry is damaged or cannot be read: what follows from that is for the caller to say.
func (s *Store) Verify(index uint64) (sizeBytes int, err error) {
	if err := s.Err(); err != nil {
		return 0, err
	}
	var entry raft.Log
	err = s.read(index, &entry)
	return len(entry.Data) + len(entry.Extensions), err
}

func (s *Store) read(index uint64, out *raft.Log) error {
	s.mu.RLock()
	seg, at := s.findLocked(index)
	var err error
	if seg == nil {
		err = raft.ErrLogNotFound
	} else {
		err = seg.read(at, index, out)
	}
	newest := s.lastLocked()
	s.mu.RUnlock()
	s.counts.reads.Add(1)
	var damage *Damage
	if errors.As(err, &damage) {
		damage.Group, damage.Newest = s.cfg.Group, newest
	}
	return err
}

// findLocked needs mu; nil when index is not stored.
func (s *Store) findLocked(index uint64) (*segment, int) {
	if index < s.man.First {
		return nil, 0
	}
	for i := len(s.segs) - 1; i >= 0; i-- {
		seg := s.segs[i]
		if index >= seg.base {
			if index > seg.last() {
				return nil, 0
			}
			return seg, int(index - seg.base)
		}
	}
	return nil, 0
}

// StoreLog appends one entry.
func (s *Store) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs appends entries with one write and one fsync. On an empty log any first index is taken.
func (s *Store) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	began := s.watch.begin(opAppend)
	err := s.appendLocked(logs)
	took := s.watch.end(opAppend, began)
	if s.cfg.ObserveAppend != nil {
		s.cfg.ObserveAppend(took)
	}
	return err
}

// usable needs wmu.
func (s *Store) usable() error {
	if s.closed {
		return errkind.New(errkind.Unavailable, "log store "+s.cfg.Group+": closed")
	}
	return s.Err()
}

func (s *Store) appendLocked(logs []*raft.Log) error {
	last, _ := s.LastIndex()
	for _, l := range logs {
		if (last != 0 && l.Index != last+1) || l.Index == 0 {
			return errkind.Errorf(errkind.Internal, "log store %s: append of index %d after %d", s.cfg.Group, l.Index, last)
		}
		if len(l.Data)+len(l.Extensions) > maxEntryBytes {
			return errkind.Errorf(errkind.TooLarge, "log store %s: entry of %d bytes", s.cfg.Group,
				len(l.Data)+len(l.Extensions))
		}
		last = l.Index
	}
	if err := s.makeTailLocked(logs[0].Index); err != nil {
		return s.fail("make segment", err)
	}
	tail := s.segs[len(s.segs)-1]
	s.buf = s.buf[:0]
	offsets := make([]uint32, 0, len(logs))
	for _, l := range logs {
		offsets = append(offsets, uint32(tail.end+int64(len(s.buf))))
		s.buf = appendRecord(s.buf, tail.id, logs[0].Index, l)
	}
	if _, err := tail.file.WriteAt(s.buf, tail.end); err != nil {
		return s.fail("append", err)
	}
	if err := tail.file.Sync(); err != nil {
		return s.fail("fsync", err)
	}
	s.counts.fsyncs.Add(1)
	s.counts.appends.Add(1)
	s.counts.entries.Add(uint64(len(logs)))
	s.counts.bytes.Add(uint64(len(s.buf)))
	// Not fsynced: after kill -9 it is exact, after a power loss it is at most
	// as old as the last flush, and never ahead of what was fsynced above.
	if err := s.mark.set(last, false); err != nil {
		return s.fail("mark", err)
	}
	s.mu.Lock()
	tail.offsets = append(tail.offsets, offsets...)
	tail.end += int64(len(s.buf))
	s.mu.Unlock()
	if cap(s.buf) > 4<<20 { // one huge entry shall not hold its memory for ever
		s.buf = nil
	}
	return nil
}

// Run watches for operations that hang, flushes the mark once a second, and writes it
// again when there was nothing to write, so that a disk is known to answer. It
// returns after stop is closed, and after a flush that hangs has returned.
func (s *Store) Run(stop <-chan struct{}) {
	var wg sync.WaitGroup
	wg.Go(func() { s.watch.run(stop, s.cfg) })
	wg.Go(func() { s.flushMarks(stop) }) // apart: it may hang on the disk
	wg.Wait()
}

func (s *Store) flushMarks(stop <-chan struct{}) {
	timer := s.cfg.Clock.NewTimer(time.Second)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		s.flushMark()
		timer.Reset(time.Second)
	}
}

func (s *Store) flushMark() {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if s.usable() != nil {
		return
	}
	if s.mark.dirty {
		s.idle = 0
	} else if s.idle++; s.idle < idleProbe {
		return
	}
	began := s.watch.begin(opMark)
	defer s.watch.end(opMark, began)
	if s.idle >= idleProbe {
		s.idle = 0
		if err := s.mark.set(s.mark.last, false); err != nil {
			_ = s.fail("probe", err) // kept as the poison
			return
		}
	}
	if err := s.mark.flush(); err != nil {
		_ = s.fail("mark", err)
	}
}

// idleProbe is how many seconds without a write it takes until one is made to see whether the disk still
// answers: a leader whose disk hangs would otherwise be found out by the first client that writes.
const idleProbe = 2

// InFlight returns how long the oldest write that is running now has been running; 0 when none is.
func (s *Store) InFlight() time.Duration { return s.watch.oldest() }

// Close flushes the mark and closes the files; it is idempotent.
func (s *Store) Close() error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var err error
	if s.Err() == nil && s.mark.dirty {
		err = s.mark.flush()
	}
	s.closeFiles()
	return err
}

// closeFiles is for Open's failure and Close.
func (s *Store) closeFiles() {
	s.mu.Lock()
	for _, seg := range s.segs {
		_ = seg.file.Close() // everything acknowledged is synced already
	}
	s.segs = nil
	s.mu.Unlock()
	if s.mark != nil {
		_ = s.mark.file.Close()
	}
	if s.stable != nil {
		s.stable.close()
	}
	_ = s.lock.Close()
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
