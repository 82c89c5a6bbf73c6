package group

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/raftdisk"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/telemetry"
)

// Machine is a plane's replicated state. The group calls it from one goroutine at a time.
type Machine interface {
	// ApplyBatch applies committed commands in order and returns one result for
	// each, in a slice that it does not use again. The commands are valid during the call only.
	ApplyBatch(cmds [][]byte) []any
	// Snapshot returns the state of now in O(1): it holds an immutable root.
	Snapshot() Snapshot
	// Restore replaces everything by what r gives. It must read r to its end and
	// change nothing visible before that: the checksum stands at the end.
	Restore(r io.Reader) error
}

// Snapshot is a state that can be written while the Machine goes on.
type Snapshot interface {
	WriteTo(w io.Writer) (int64, error)
}

// Server is a member of the group.
type Server = raftdisk.Server

// Config says what a Group is made of. Zero values mean the defaults that are named.
type Config struct {
	// Name is the plane's name in logs, errors and metric labels; GroupID sorts the group's streams on the wire.
	Name    string
	GroupID uint8
	// Dir holds log and snapshots. It is not used when InMemory.
	Dir string
	FS  vfs.FS
	// InMemory keeps log and snapshots in memory: for a development server without a data folder.
	InMemory bool

	// LocalID is this server's id for ever; LocalAddr is where the others reach its Raft stream.
	LocalID   string
	LocalAddr string
	// Listener gives this group's incoming streams (wire.Listen); the Group closes it when Run ends.
	Listener net.Listener
	// Dial opens a stream to the same group at another server (wire.Dial).
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// DialServer is Dial to whoever proves to be a server of this datacenter; nil: Dial does.
	DialServer func(ctx context.Context, addr string) (net.Conn, error)
	// Statement is what this server says of itself when it is asked; the id is LocalID. nil: nothing else.
	Statement func() Statement

	Machine Machine
	// Bootstrap are the first members, the same list on each of them. It is used
	// only when there is no state at all.
	Bootstrap []Server

	// RaftMultiplier stretches the timeouts for slow machines; default 1: heartbeat
	// and election 1 s, lease 500 ms.
	RaftMultiplier int
	// unit is the heartbeat timeout at multiplier 1; tests shorten it.
	unit time.Duration
	// learn is how long the fate of an entry is waited for (outcome.go); tests lengthen it.
	learn time.Duration
	// noTrailing keeps no entry that a snapshot has, and meddle passes on what other members send: tests use them.
	noTrailing bool
	meddle     func(stop <-chan struct{}, in <-chan raft.RPC, out chan<- raft.RPC)
	Compaction
	// ScrubInterval (24 h) is how long after one reading of everything on disk the next one begins; negative: never.
	ScrubInterval time.Duration
	// SegmentBytes is the size of a log file (64 MiB).
	SegmentBytes int64

	Limits

	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *telemetry.Registry
}

// Compaction says when the log gives way to a snapshot.
type Compaction struct {
	// SnapshotThreshold (16384 entries), SnapshotInterval (30 s), TrailingLogs (10240 entries) say when to compact;
	// so do SnapshotBytes (64 MiB) of entries, or as many as the newest snapshot has, where those are more.
	SnapshotThreshold uint64
	SnapshotBytes     int64
	SnapshotInterval  time.Duration
	TrailingLogs      uint64
}

// Limits bound proposals.
type Limits struct {
	// MaxBatchBytes (512 KiB) and MaxBatchCount (4096) bound one merged log entry; a larger single command goes alone.
	MaxBatchBytes int
	MaxBatchCount int
	// MaxCommandBytes (32 MiB) bounds one command: TooLarge.
	MaxCommandBytes int
	// QueueCount (8192) and QueueBytes (64 MiB) bound the proposals that wait. A
	// proposal waits QueueWait (1 s) for room and is then shed: Overloaded.
	QueueCount int
	QueueBytes int
	QueueWait  time.Duration
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// complete fills in defaults and reports every wrong field at once.
func (c *Config) complete() error {
	var wrong []error
	need := func(ok bool, text string) {
		if !ok {
			wrong = append(wrong, errors.New(text))
		}
	}
	need(c.Name != "", "Name is missing")
	need(c.InMemory || c.Dir != "", "Dir is missing")
	need(c.LocalID != "", "LocalID is missing")
	need(c.LocalAddr != "", "LocalAddr is missing")
	need(c.Machine != nil, "Machine is missing")
	need(c.Listener != nil, "Listener is missing")
	need(c.Dial != nil, "Dial is missing")
	need(c.RaftMultiplier >= 0 && c.RaftMultiplier <= 10, "RaftMultiplier must be 1 to 10")
	orDefault(&c.RaftMultiplier, 1)
	orDefault(&c.unit, time.Second)
	orDefault(&c.learn, outcomeElections*c.heartbeat())
	orDefault(&c.SnapshotThreshold, 16384)
	orDefault(&c.SnapshotBytes, 64<<20)
	orDefault(&c.SnapshotInterval, 30*time.Second)
	orDefault(&c.TrailingLogs, 10240)
	orDefault(&c.ScrubInterval, 24*time.Hour)
	orDefault(&c.MaxBatchBytes, 512<<10)
	orDefault(&c.MaxBatchCount, 4096)
	orDefault(&c.MaxCommandBytes, 32<<20)
	orDefault(&c.QueueCount, 8192)
	orDefault(&c.QueueBytes, 64<<20)
	orDefault(&c.QueueWait, time.Second)
	if c.FS == nil {
		c.FS = vfs.OS{}
	}
	if c.DialServer == nil {
		c.DialServer = c.Dial
	}
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = c.Log.With("group", c.Name)
	if err := errors.Join(wrong...); err != nil {
		return errkind.E(errkind.Invalid, "raft group "+c.Name, err)
	}
	return nil
}

// statement is what this server says of itself.
func (c *Config) statement() (s Statement) {
	if c.Statement != nil {
		s = c.Statement()
	}
	s.ID = c.LocalID
	return s
}

// disk is where the group keeps what it stores.
func (c *Config) disk(m *meters) raftdisk.Config {
	return raftdisk.Config{Group: c.Name, LocalID: c.LocalID, Dir: c.Dir, FS: c.FS, InMemory: c.InMemory,
		Bootstrap: c.Bootstrap, Clock: c.Clock, Log: c.Log, SegmentBytes: c.SegmentBytes, StallAfter: c.heartbeat() / 2,
		OnStall: m.stall, ObserveAppend: m.append.Observe}
}

func (c *Config) trailing() uint64 {
	if c.noTrailing {
		return 0
	}
	return c.TrailingLogs
}

func (c *Config) heartbeat() time.Duration { return time.Duration(c.RaftMultiplier) * c.unit }
func (c *Config) lease() time.Duration     { return c.heartbeat() / 2 }
