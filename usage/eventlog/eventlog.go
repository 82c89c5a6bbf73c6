// Package eventlog is the seam to the log of usage events: what a router was told is stored there before its sender
// hears of it, and counters read it in the order in which it was stored.
//
// A log has partitions. A record is opaque bytes (a batch, in the form of usage/batch), and has an offset: of two
// records of a partition, the one that was stored later has the higher one. Engines are usage/eventlog/embedded, one
// folder of one server, and usage/eventlog/kafkalog, a cluster that speaks the Kafka protocol; logtest has the
// conformance kit that both pass.
//
// What callers may rely on:
//   - Append returns nil only when all its entries are durable, as the engine defines it. After an error of kind
//     Unknown some may be stored, and a repeated Append stores them once more: whoever applies the records tells them
//     apart (usage/dedup), by the producer's epoch and sequence that the batch carries. After any other error
//     nothing was stored.
//   - Entries of one Append that share a partition keep their order, and so do Appends that follow one another.
//   - A Reader gives each record of its partitions once and in order. What it cannot give, because it was trimmed or
//     never was there, is an *OutOfRange: loss is never silent.
//   - A position and its note are committed together, and survive what the records survive.
//   - Nothing that was accepted is dropped before the groups that a Janitor knows have read it: a full log refuses
//     to take more, with an error of kind Overloaded.
//
// A Log is for any goroutine, a Reader for one at a time.
package eventlog

import (
	"context"
	"fmt"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
)

// Limits that all engines have in common.
const (
	MaxPartitions  = 1024
	MaxEntryBytes  = 512 << 10 // below what a Kafka broker takes by default
	MaxAppendBytes = 16 << 20  // entries of one Append together
	MaxNoteBytes   = 1 << 10   // of a Position
	MaxGroupBytes  = 200       // a group's name
)

// Log is an engine.
type Log interface {
	// Partitions is how many there are. It never changes.
	Partitions() int
	// Append stores entries and returns the offset of each. Their Data belongs to the log from the call on.
	Append(ctx context.Context, entries []Entry) ([]uint64, error)
	// Reader makes a Reader of some partitions, each from an offset on. It stores nothing.
	Reader(from map[int]uint64) (Reader, error)
	// Bounds tells what there is, for each partition.
	Bounds(ctx context.Context) ([]Bound, error)
	// Since returns an offset for each partition: a reader from there on sees all records of an instant and later,
	// and maybe some earlier ones.
	Since(ctx context.Context, t time.Time) ([]uint64, error)
	// Commit stores how far a group has come; of a partition the newest one counts.
	Commit(ctx context.Context, group string, positions []Position) error
	// Committed returns what was committed, by partition; partitions without a commit are left out.
	Committed(ctx context.Context, group string) ([]Position, error)
	// Trim says that nobody needs what stands below an offset, for each partition. What goes, and when, is the
	// engine's affair; nothing at or above these offsets goes.
	Trim(ctx context.Context, below []uint64) error
	// Info describes the log.
	Info() Info
	// Close ends it. Nothing else may be under way.
	Close() error
}

// Reader reads partitions.
type Reader interface {
	// Assign reads partitions from offsets on, beside those that it reads already.
	Assign(from map[int]uint64) error
	// Drop ends the reading of partitions.
	Drop(partitions ...int)
	// Next waits for records, and returns one or more. Their Data is the caller's until it calls Next again. After
	// an *OutOfRange it goes on when the partition is assigned anew or dropped.
	Next(ctx context.Context) ([]Record, error)
	Close() error
}

// Entry is what one partition is to store.
type Entry struct {
	Partition int
	Data      []byte
}

// Record is what was stored.
type Record struct {
	Partition int
	Offset    uint64
	// At is when it was stored, by the engine's clock.
	At   time.Time
	Data []byte
}

// Bound tells of a partition: its oldest record's offset, and that of the next one. They are equal when it is empty.
type Bound struct{ First, Next uint64 }

// Position is how far a group has come in a partition.
type Position struct {
	Partition int
	// Offset is that of the next record to be read.
	Offset uint64
	// Note says what belongs to it: the name of the snapshot that has the state up to Offset.
	Note []byte
}

// Info describes a log.
type Info struct {
	Engine, Durability string
	// Bytes is what it takes, and Most what it may take; both are zero where the engine does not know.
	Bytes, Most int64
}

// OutOfRange tells of a read at an offset that the log does not have.
type OutOfRange struct {
	Partition int
	Offset    uint64
	Bound     Bound
}

// Error says which offset is meant, and what there is.
func (e *OutOfRange) Error() string {
	return fmt.Sprintf("the log has no offset %d in partition %d: it holds %d up to %d", e.Offset, e.Partition,
		e.Bound.First, e.Bound.Next)
}

// PartitionOf is where the records of a shard are: neighbouring shards share a partition.
func PartitionOf(shard, partitions int) int { return shard * partitions / usage.Shards }

// CheckEntries says what is wrong with an Append's arguments.
func CheckEntries(entries []Entry, partitions int) error {
	total := 0
	for i, e := range entries {
		switch {
		case e.Partition < 0 || e.Partition >= partitions:
			return errkind.Errorf(errkind.Invalid, "entry %d: partition %d is not one of %d", i, e.Partition, partitions)
		case len(e.Data) == 0:
			return errkind.Errorf(errkind.Invalid, "entry %d: has no data", i)
		case len(e.Data) > MaxEntryBytes:
			return errkind.Errorf(errkind.TooLarge, "entry %d: has %d bytes, at most %d fit", i, len(e.Data), MaxEntryBytes)
		}
		total += len(e.Data)
	}
	switch {
	case len(entries) == 0:
		return errkind.New(errkind.Invalid, "nothing to append")
	case total > MaxAppendBytes:
		return errkind.Errorf(errkind.TooLarge, "an append of %d bytes: at most %d fit", total, MaxAppendBytes)
	}
	return nil
}

// CheckPositions says what is wrong with a Commit's arguments.
func CheckPositions(group string, positions []Position, partitions int) error {
	switch {
	case group == "" || len(group) > MaxGroupBytes:
		return errkind.Errorf(errkind.Invalid, "a group's name has 1 to %d bytes", MaxGroupBytes)
	case len(positions) == 0:
		return errkind.New(errkind.Invalid, "nothing to commit")
	}
	for _, p := range positions {
		if p.Partition < 0 || p.Partition >= partitions {
			return errkind.Errorf(errkind.Invalid, "partition %d is not one of %d", p.Partition, partitions)
		}
		if len(p.Note) > MaxNoteBytes {
			return errkind.Errorf(errkind.TooLarge, "the note of partition %d has %d bytes, at most %d fit", p.Partition,
				len(p.Note), MaxNoteBytes)
		}
	}
	return nil
}

// CheckPartitions says whether a reader may be assigned to partitions.
func CheckPartitions(from map[int]uint64, partitions int) error {
	for p := range from {
		if p < 0 || p >= partitions {
			return errkind.Errorf(errkind.Invalid, "partition %d is not one of %d", p, partitions)
		}
	}
	return nil
}
