// Package logevents is the embedded event store: one journal for all shards of a server.
//
// A result whose configuration is known takes about 50 bytes, whatever its check's configuration; replaying
// the log steps states onwards as their owner did. The journal does not grow without bound: when
// it is several times what is alive, the keys whose whole form is in its oldest segment are asked for again
// (Refresh), and the segment goes once none is left in it. So compaction is spread over time, in proportion to the
// load, and reads nothing.
//
// A commit outlives a crash and a power loss of the machine, not its disk.
package logevents

import (
	"context"
	"log/slog"
	"sync"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/journal"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/eventstore/eventrecord"
)

// Config of a store.
type Config struct {
	FS  vfs.FS
	Dir string
	Log *slog.Logger
	// SegmentBytes is the size of the journal's segments, 0 for 64 MiB.
	SegmentBytes int64
	// Slack is how many times what is alive the journal may take before its oldest segment is written anew; 0 is 3.
	Slack int64
}

// Store is the embedded event store.
type Store struct {
	cfg     Config
	journal *journal.Journal
	frame   []byte

	mu      sync.Mutex
	bases   map[owner][]base   // by index: where a number's whole form is
	counts  map[uint64]int     // of numbers whose whole form is in a segment, by Segment.Before
	oldest  []eventrecord.Size // to be refreshed: what is left of the oldest segment
	live    int64              // bytes of all whole forms
	commits uint64
	changes uint64
}

// keptBytes of memory stay for the next commit, whatever this one's size is.
const keptBytes = 256 << 10

// owner is one of the spaces of numbers.
type owner struct {
	shard  uint16
	entity bool
}

// base is where a number's whole form is; no bytes is nowhere.
type base struct {
	segment uint64
	bytes   uint32
}

var _ eventstore.Store = (*Store)(nil)

// Open reads the log and gives what it holds to l.
func Open(cfg Config, l eventstore.Loaded) (*Store, error) {
	if cfg.Slack == 0 {
		cfg.Slack = 3
	}
	s := &Store{cfg: cfg, bases: map[owner][]base{}, counts: map[uint64]int{}}
	h := newHeld()
	// The frames of a segment are read before the segment is listed: where they are is known afterwards.
	var read []tagged
	j, err := journal.Open(journal.Config{FS: cfg.FS, Dir: cfg.Dir, Prefix: "events", Log: cfg.Log,
		SegmentBytes: cfg.SegmentBytes, Ahead: ahead(cfg.SegmentBytes)},
		func(sequence uint64, content []byte) error {
			return h.apply(content, func(touched []eventrecord.Size) { read = append(read, tagged{sequence, touched}) })
		})
	if err != nil {
		return nil, err
	}
	s.journal = j
	segments := j.Segments()
	for _, r := range read {
		for len(segments) > 1 && segments[1].Before < r.sequence {
			segments = segments[1:]
		}
		s.place(segments[0].Before, r.touched)
	}
	for n, r := range h.results {
		l.Result(n, r)
	}
	for n, e := range h.entities {
		l.Entity(n, e)
	}
	for shard, sequence := range h.shards {
		l.Sequence(shard, sequence)
	}
	return s, nil
}

// ahead is how much of a segment is reserved at once: not more than a quarter.
func ahead(segmentBytes int64) int64 {
	if segmentBytes == 0 {
		return 0
	}
	return min(segmentBytes/4, 4<<20)
}

// tagged is what a batch that was read did.
type tagged struct {
	sequence uint64
	touched  []eventrecord.Size
}

// place notes that numbers are whole in a segment, or gone.
func (s *Store) place(segment uint64, touched []eventrecord.Size) {
	for _, t := range touched {
		of := owner{t.Number.Shard(), t.Entity}
		list := s.bases[of]
		for int(t.Number.Index()) >= len(list) {
			list = append(list, base{})
		}
		s.bases[of] = list
		b := &list[t.Number.Index()]
		s.forget(b)
		if t.Bytes > 0 {
			*b = base{segment, t.Bytes}
			s.counts[segment]++
			s.live += int64(t.Bytes)
		}
	}
}

func (s *Store) forget(b *base) {
	if b.bytes == 0 {
		return
	}
	if s.counts[b.segment]--; s.counts[b.segment] == 0 {
		delete(s.counts, b.segment)
	}
	s.live -= int64(b.bytes)
	*b = base{}
}

// NewBatch makes an empty batch.
func (s *Store) NewBatch(shard uint16) eventstore.Batch { return eventrecord.NewBatch(shard) }

// Commit writes all batches as one frame.
func (s *Store) Commit(_ context.Context, batches []eventstore.Batch, until []uint64) error {
	frame := s.frame[:0]
	changes := 0
	for i, b := range batches {
		b := b.(*eventrecord.Batch)
		frame = pack.Uint(frame, version)
		frame = pack.Uint(frame, uint64(b.Shard()))
		frame = pack.Uint(frame, until[i])
		frame = pack.Bytes(frame, b.Records())
		changes += b.Len()
	}
	if s.frame = frame; cap(frame) > keptBytes && len(frame) < cap(frame)/4 {
		s.frame = nil // of a storm that is over
	}
	if len(frame) > journal.MaxFrameBytes {
		return errkind.Errorf(errkind.Unavailable, "a commit of %d bytes is larger than %d", len(frame),
			journal.MaxFrameBytes)
	}
	if _, err := s.journal.Append(frame); err != nil {
		return err
	}
	segments := s.journal.Segments()
	segment := segments[len(segments)-1].Before
	s.mu.Lock()
	for _, b := range batches {
		s.place(segment, b.(*eventrecord.Batch).Touched())
	}
	s.commits++
	s.changes += uint64(changes)
	needless := s.needless(segments)
	s.mu.Unlock()
	return s.journal.Drop(needless)
}

// needless returns the sequence up to which nothing in the log is anybody's whole form.
func (s *Store) needless(segments []journal.Segment) uint64 {
	for i, seg := range segments[:len(segments)-1] {
		if s.counts[seg.Before] > 0 {
			return seg.Before
		}
		if i == len(segments)-2 {
			return segments[i+1].Before
		}
	}
	return 0
}

// Refresh returns numbers whose whole form is in the oldest segment, when the log is larger than what is alive
// warrants.
func (s *Store) Refresh(most int) (results, entities []eventstore.Number) {
	s.mu.Lock()
	defer s.mu.Unlock()
	segments := s.journal.Segments()
	if len(s.oldest) == 0 && len(segments) > 2 && written(segments) > s.cfg.Slack*s.live {
		s.oldest = s.based(segments[0].Before)
	}
	for ; most > 0 && len(s.oldest) > 0; most-- {
		one := s.oldest[0]
		s.oldest = s.oldest[1:]
		if one.Entity {
			entities = append(entities, one.Number)
		} else {
			results = append(results, one.Number)
		}
	}
	return results, entities
}

// based lists what is whole in a segment.
func (s *Store) based(segment uint64) (out []eventrecord.Size) {
	for of, list := range s.bases {
		for i, b := range list {
			if b.bytes > 0 && b.segment == segment {
				out = append(out, eventrecord.Size{Number: eventstore.NumberOf(of.shard, uint32(i)), Bytes: b.bytes,
					Entity: of.entity})
			}
		}
	}
	return out
}

func written(segments []journal.Segment) (bytes int64) {
	for _, seg := range segments {
		bytes += seg.Bytes
	}
	return bytes
}

// Info describes the store.
func (s *Store) Info() eventstore.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return eventstore.Info{
		Type: "log", Durability: "a commit is fsynced: it outlives a crash and a power loss of this server, not its disk",
		Bytes: written(s.journal.Segments()), Live: s.live, Commits: s.commits, Changes: s.changes,
	}
}

// Close closes the log. No commit may be under way.
func (s *Store) Close() error { return s.journal.Close() }
