// Package embedded is the log of usage events in a folder of one server: one journal (kit/journal) for all partitions.
//
// Whoever appends while another one writes waits, and what has gathered by then goes into one frame with one fsync: so
// a lone append costs one fsync, and a thousand at once cost a few. The log starts no goroutine: one of those who wait
// writes for all.
//
// What always holds:
//   - A record is readable, and Append returns, only after its frame was fsynced. A frame is there whole or not at
//     all, so an Append is too.
//   - Every record is checksummed when it is read. Damage is an error that names file and offset.
//   - After a failed fsync or write nothing is taken any more until the folder is opened again: see kit/journal.
//   - Each segment begins with what stands before it: the next offset of each partition, and what groups have
//     committed. So segments can go from the old end without losing anything else, and Open reads the two newest only.
//   - A reader that is behind reads its own file and holds nobody up.
//
// Full: what waits is bounded by PendingBytes, and what is stored by MaxBytes; beyond, Append is refused with an error
// of kind Overloaded before anything is written. A disk without room is an error of kind Unavailable, and the log goes
// on when there is room again.
//
// A commit outlives a crash and a power loss of the machine, not its disk.
package embedded

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/journal"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/usage/eventlog"
)

// Config of a log.
type Config struct {
	FS  vfs.FS // nil is the machine's
	Dir string // its own; made when missing
	// Partitions is how many a new log has; zero means 64. One that exists keeps what it has, and Open refuses
	// another number.
	Partitions int
	// SegmentBytes is the unit in which records go; zero means 64 MiB.
	SegmentBytes int64
	// MaxBytes bounds the log on disk; zero means 8 GiB. It may be passed by one frame and what is reserved ahead.
	MaxBytes int64
	// PendingBytes bounds what waits to be written; zero means 64 MiB.
	PendingBytes int64
	// FrameBytes is how much goes into one frame when more waits; zero means 8 MiB.
	FrameBytes int
	Clock      clock.Clock
	Log        *slog.Logger
}

func (c Config) complete() Config {
	if c.FS == nil {
		c.FS = vfs.OS{}
	}
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.SegmentBytes = cmp.Or(c.SegmentBytes, 64<<20)
	c.MaxBytes = cmp.Or(c.MaxBytes, 8<<30)
	c.PendingBytes = cmp.Or(c.PendingBytes, 64<<20)
	c.FrameBytes = cmp.Or(c.FrameBytes, 8<<20)
	return c
}

// maxGroups bounds who commits positions: they are parts of the program, not of what users bring.
const maxGroups = 16

// Log is an open log. Make one with Open.
type Log struct {
	cfg  Config
	lock io.Closer
	// writing has room for who writes now: it alone uses the journal's Append and Drop, and frame.
	writing chan struct{}
	journal *journal.Journal
	frame   []byte

	partitions int
	stored     atomic.Int64 // bytes on disk

	mu           sync.Mutex // guards what follows; next, groups and segments change while writing is held, too
	pending      []*request
	pendingBytes int64
	durable      durable
	changed      chan struct{} // closed when durable changes
	closed       bool
}

// durable is what was fsynced.
type durable struct {
	state
	sequence uint64 // of the frame after which it is so
	at       int64  // of that frame
	segments []segment
}

// segment is what its first frame says.
type segment struct {
	before uint64 // the sequence before its first frame's
	first  []uint64
	at     int64
	places []place
	bytes  int64 // since the last place
}

// place is one in the middle of a segment, so that who reads from there on passes over little.
type place struct {
	sequence uint64   // of the frame before it
	next     []uint64 // what a record behind it has at least
}

// placeEvery is about how many bytes are between two places of a segment.
const placeEvery = 256 << 10

// wrote notes a frame of the newest segment, behind which next is so.
func (d *durable) wrote(bytes int, every int64) {
	s := &d.segments[len(d.segments)-1]
	if s.bytes += int64(bytes); s.bytes >= every {
		s.bytes = 0
		s.places = append(s.places, place{d.sequence, append([]uint64(nil), d.next...)})
	}
}

func (l *Log) placeEvery() int64 { return min(placeEvery, l.cfg.SegmentBytes/16) }

// request is an append or a commit that waits.
type request struct {
	entries []eventlog.Entry
	commit  *commit
	bytes   int64
	offsets []uint64
	done    chan struct{} // closed when err is known
	err     error
}

var _ eventlog.Log = (*Log)(nil)

// Open opens the log, or makes one.
func Open(cfg Config) (_ *Log, err error) {
	cfg = cfg.complete()
	if cfg.Partitions < 0 || cfg.Partitions > eventlog.MaxPartitions {
		return nil, errkind.Errorf(errkind.Invalid, "partitions: 1 to %d", eventlog.MaxPartitions)
	}
	if err := cfg.FS.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	l := &Log{cfg: cfg, writing: make(chan struct{}, 1), changed: make(chan struct{})}
	if l.lock, err = cfg.FS.Lock(filepath.Join(cfg.Dir, "LOCK")); err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Dir, err)
	}
	l.journal, err = journal.Open(journal.Config{FS: cfg.FS, Dir: cfg.Dir, Prefix: "usage", Log: cfg.Log,
		SegmentBytes: cfg.SegmentBytes, Ahead: min(cfg.SegmentBytes/4, 4<<20), Skim: true}, l.replay)
	if err == nil {
		err = l.adopt()
	}
	if err != nil {
		_ = l.lock.Close() // the first error is the one to report
		return nil, err
	}
	return l, nil
}

// adopt settles how many partitions there are.
func (l *Log) adopt() error {
	have := len(l.durable.next)
	switch {
	case have == 0:
		l.durable.next = make([]uint64, cmp.Or(l.cfg.Partitions, 64))
		l.durable.groups = groups{}
	case l.cfg.Partitions != 0 && l.cfg.Partitions != have:
		_ = l.journal.Close() // nothing was written
		return errkind.Errorf(errkind.Invalid, "%s: the log has %d partitions, and %d are configured: a log keeps what "+
			"it was made with", l.cfg.Dir, have, l.cfg.Partitions)
	}
	l.partitions = len(l.durable.next)
	l.measure()
	return nil
}

// BeginAt makes a log in which nothing was ever stored begin at an offset in each partition: it goes on where another
// one ended whose records are elsewhere. It is durable when it returns. A log with records refuses.
func (l *Log) BeginAt(ctx context.Context, next []uint64) error {
	if len(next) != l.partitions {
		return errkind.Errorf(errkind.Invalid, "%d offsets for %d partitions", len(next), l.partitions)
	}
	l.writing <- struct{}{}
	l.mu.Lock()
	used := len(l.durable.segments) > 0
	if !used {
		copy(l.durable.next, next)
	}
	l.mu.Unlock()
	<-l.writing
	if used {
		return errkind.Errorf(errkind.Conflict, "%s: the log has records", l.cfg.Dir)
	}
	return l.Commit(ctx, "begun", []eventlog.Position{{Offset: next[0]}}) // the first frame says where it begins
}

func (l *Log) measure() {
	n := int64(0)
	for _, s := range l.journal.Segments() {
		n += s.Bytes
	}
	l.stored.Store(n)
}

// replay takes in a frame: the first of each segment, and all of the two newest.
func (l *Log) replay(sequence uint64, content []byte) error {
	f, err := readFrame(content)
	if err != nil {
		return err
	}
	d := &l.durable
	if f.state != nil {
		if n := len(d.next); n > 0 && n != len(f.state.next) {
			return errkind.Errorf(errkind.Corrupt, "the number of partitions changes from %d to %d", n, len(f.state.next))
		}
		for p, next := range d.next {
			if f.state.next[p] < next {
				return errkind.Errorf(errkind.Corrupt, "partition %d goes back from offset %d to %d", p, next, f.state.next[p])
			}
		}
		d.begin(sequence-1, *f.state, f.at)
	}
	if len(d.segments) == 0 {
		return errkind.New(errkind.Corrupt, "the first frame of a segment does not say what was before it")
	}
	var gap error
	err = f.entries(len(d.next), func(e eventlog.Entry, offset uint64) {
		if offset != d.next[e.Partition] && gap == nil {
			gap = errkind.Errorf(errkind.Corrupt, "offset %d follows %d in partition %d", offset, d.next[e.Partition],
				e.Partition)
		}
		d.next[e.Partition] = offset + 1
	})
	if err == nil {
		err = f.commits(len(d.next), func(c commit) { d.groups.set(c.group, c.positions) })
	}
	d.sequence, d.at = sequence, max(d.at, f.at)
	d.wrote(len(content), l.placeEvery())
	return cmp.Or(err, gap)
}

// begin notes a segment that begins with a state.
func (d *durable) begin(before uint64, s state, at int64) {
	d.segments = append(d.segments, segment{before: before, first: append([]uint64(nil), s.next...), at: at})
	d.state = s
}

// Partitions implements eventlog.Log.
func (l *Log) Partitions() int { return l.partitions }

// Bounds implements eventlog.Log.
func (l *Log) Bounds(context.Context) ([]eventlog.Bound, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable.bounds(), nil
}

func (d *durable) bounds() []eventlog.Bound {
	list := make([]eventlog.Bound, len(d.next))
	for p := range list {
		list[p] = d.bound(p)
	}
	return list
}

func (d *durable) bound(p int) eventlog.Bound {
	b := eventlog.Bound{First: d.next[p], Next: d.next[p]}
	if len(d.segments) > 0 {
		b.First = d.segments[0].first[p]
	}
	return b
}

// Since implements eventlog.Log, to the segment.
func (l *Log) Since(_ context.Context, t time.Time) ([]uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	offsets := append([]uint64(nil), l.durable.next...)
	for i, s := range l.durable.segments {
		if i == 0 || s.at < t.UnixNano() { // records of that very instant may stand before the segment
			copy(offsets, s.first)
		}
	}
	return offsets, nil
}

// Committed implements eventlog.Log.
func (l *Log) Committed(_ context.Context, group string) ([]eventlog.Position, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable.groups.list(group), nil
}

// Info implements eventlog.Log.
func (l *Log) Info() eventlog.Info {
	return eventlog.Info{Engine: "embedded", Bytes: l.stored.Load(), Most: l.cfg.MaxBytes,
		Durability: "fsynced: it outlives a crash and a power loss of this server, not its disk"}
}

// Trim implements eventlog.Log: segments go as a whole, and the one that is being written stays.
func (l *Log) Trim(ctx context.Context, below []uint64) error {
	if len(below) != l.partitions {
		return errkind.Errorf(errkind.Invalid, "%d offsets for %d partitions", len(below), l.partitions)
	}
	select {
	case l.writing <- struct{}{}:
		defer func() { <-l.writing }()
	case <-ctx.Done():
		return errkind.E(errkind.Unavailable, "trim", ctx.Err())
	}
	keep := uint64(0)
	l.mu.Lock()
	for _, s := range l.durable.segments {
		if s.above(below) {
			break
		}
		keep = s.before
	}
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return errClosed
	}
	err := l.journal.Drop(keep)
	l.measure()
	oldest := l.journal.Segments()[0].Before // some may be gone though others could not be removed
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.durable.segments) > 1 && l.durable.segments[0].before < oldest {
		l.durable.segments = l.durable.segments[1:]
	}
	return err
}

// above reports whether a segment begins above an offset that is needed.
func (s segment) above(needed []uint64) bool {
	for p, first := range s.first {
		if first > needed[p] {
			return true
		}
	}
	return false
}

var errClosed = errkind.New(errkind.Unavailable, "the log of usage events is closed")

// Close implements eventlog.Log.
func (l *Log) Close() error {
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	for _, r := range l.pending {
		r.err = errClosed
		close(r.done)
	}
	l.pending = nil
	l.wake()
	err := l.journal.Close()
	return cmp.Or(err, l.lock.Close())
}

// wake tells readers that durable has changed.
func (l *Log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}
