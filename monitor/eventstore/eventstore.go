// Package eventstore is what the monitor asks of whatever keeps its events.
//
// The state of all checks is in the memory of the shards' owner (monitor/ingest); a Store
// makes it outlive the process. Changes come in batches, one for each shard that has any; a commit of
// many batches is durable as a whole before it returns, or its outcome is an error. A shard's
// batches are committed in the order of their sequences.
package eventstore

import (
	"context"
	"time"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/runs"
)

// Key names a check on an entity.
type Key struct{ Namespace, Entity, Check string }

// Number names a key within one process, or an entity, which have numbers of their own: the owner
// chooses it, and may give it to another one after Delete. It holds the shard in its upper half.
type Number uint64

// NumberOf returns the number of a shard's nth key or entity.
func NumberOf(shard uint16, n uint32) Number { return Number(shard)<<32 | Number(n) }

// Shard returns the shard that a number belongs to.
func (n Number) Shard() uint16 { return uint16(n >> 32) }

// Index returns a number's place within its shard.
func (n Number) Index() uint32 { return uint32(n) }

// Result is all that is kept of one check on one entity.
type Result struct {
	*Key               // never changed, and so shared by copies
	Stable      []byte // the check's configuration, as its agent sent it (frame.Frame)
	Rest        []byte // the event's own fields
	Hooks       []byte
	Output      []byte
	ProcessedBy string
	// Beat says that the output is what a keepalive's is always (monitor.AppendKeepaliveOutput): Output is nil then, and
	// Text makes it.
	Beat  bool
	State monitor.State
	// Past changes with every put: its newest span, or by a new one.
	Past runs.Past
}

// Text returns the output.
func (r *Result) Text() []byte {
	if !r.Beat {
		return r.Output
	}
	return monitor.AppendKeepaliveOutput(nil, r.Entity, r.State.Executed)
}

// Fold lets go of an output that Text can make.
func (r *Result) Fold() {
	if r.Check != monitor.KeepaliveCheck || r.Beat || len(r.Output) == 0 {
		return
	}
	if string(r.Output) == string(monitor.AppendKeepaliveOutput(nil, r.Entity, r.State.Executed)) {
		r.Output, r.Beat = nil, true
	}
}

// Entity is all that is kept of one entity but its configuration.
type Entity struct {
	Namespace, Name string
	Message         []byte // the entity as its agent sent it, in protobuf
	LastSeen        int64  // Unix seconds
}

// News says what a result changed since it was put last.
type News uint8

// What a result may change, beside monitor.Result.
const (
	NewOutput News = 1 << iota
	NewHooks
	NewSilences
	// Whole is everything: the first put of a key, or one whose configuration changed.
	Whole
	// NewBeat is that the output became such as Result.Beat says.
	NewBeat
)

// Batch gathers the changes of one shard. It is used by one goroutine at a time; what it is given is copied.
type Batch interface {
	Put(n Number, r *Result, what News)
	PutEntity(n Number, e *Entity)
	// Seen says that an entity's agent was alive at a time.
	Seen(n Number, at int64)
	Delete(n Number)
	DeleteEntity(n Number)
	// Len returns the number of changes, Bytes about what they take.
	Len() int
	Bytes() int
	// Reset empties the batch for use again.
	Reset()
}

// Store keeps events. Commit belongs to one goroutine; the rest may be called from any.
type Store interface {
	NewBatch(shard uint16) Batch
	// Commit makes batches durable, all or none. until holds each batch's sequence: that
	// of the shard's newest change in it. After an error of kind Unavailable the same batches may be committed again.
	// A store that is Lagging may have taken them alone.
	Commit(ctx context.Context, batches []Batch, until []uint64) error
	// Refresh returns up to most numbers that are to be put as Whole, or with PutEntity, again, so that
	// the store can let go of what is old.
	Refresh(most int) (results, entities []Number)
	Info() Info
	Close() error
}

// Lagging is a store that takes batches also while it can write nothing: what it lacks it asks for with Refresh, once
// it can, so that it needs no room for it.
type Lagging interface {
	// Behind reports whether something that was committed of a shard is not durable yet, and the sequence up to which
	// everything is.
	Behind(shard uint16) (durable uint64, behind bool)
}

// Run is an entry of a check's long history: what it had from a time on, until the next entry.
type Run struct {
	At     time.Time // when the first result with this status was executed
	Status uint32
	State  string // the contract's word
	Output []byte // of the first result
}

// Historian is a store that keeps more of a check's past than its state holds.
type Historian interface {
	// History returns runs that began before a time, the newest first, at most so many.
	History(ctx context.Context, k Key, before time.Time, most int) ([]Run, error)
}

// Info describes a store.
type Info struct {
	Type       string // "log" or "postgresql"
	Durability string // in words, what a commit outlives
	Bytes      int64  // on disk
	Live       int64  // of those, about what is needed
	Commits    uint64
	Changes    uint64
}

// Loaded is called with everything that a store holds when it is opened, in no particular order. What it is given is
// its own.
type Loaded struct {
	Result func(n Number, r *Result)
	Entity func(n Number, e *Entity)
	// Sequence tells a shard's newest durable one.
	Sequence func(shard uint16, sequence uint64)
	// Late is for a store that cannot be read when it is opened: it calls Late once it can, from a goroutine of its own,
	// with a function that then is called with what to give everything to. Numbers have been given anew meanwhile: those
	// of what is late say nothing. Nil is a store that must be readable.
	Late func(ctx context.Context, fill func(Loaded) error) error
}
