// Package raftdisk is what a Raft group keeps on its disk: the log, the snapshots, and beside them what tells a member
// that lost its log from one that has it.
//
// What always holds:
//   - A snapshot that is listed is whole and durable, and was verified; a log that opens goes on where it ends.
//   - A damaged log is moved aside only when other members can give it back, and until they have, a file says so: this
//     member must not vote (Folder, Stores.Lost, Mute).
//   - What Raft does not survive ends the goroutine of Raft that asked, and tells the group (Guard).
//
// Folder and Guard may be used from any goroutine, as the library uses them; Snapshots has a lock of its own, under
// which a disk may hang. Nothing here starts a goroutine.
package raftdisk

import (
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/logstore"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/vfs"
)

// Server is a member of the group.
type Server struct {
	ID      string
	Address string
	Voter   bool
}

// Configuration is the members as the library knows them.
func Configuration(list []Server) raft.Configuration {
	var c raft.Configuration
	for _, s := range list {
		suffrage := raft.Nonvoter
		if s.Voter {
			suffrage = raft.Voter
		}
		c.Servers = append(c.Servers, raft.Server{Suffrage: suffrage, ID: raft.ServerID(s.ID),
			Address: raft.ServerAddress(s.Address)})
	}
	return c
}

// Members are those of a configuration.
func Members(c raft.Configuration) []Server {
	list := make([]Server, 0, len(c.Servers))
	for _, s := range c.Servers {
		list = append(list, Server{ID: string(s.ID), Address: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return list
}

// Config says where a Folder is and who uses it. All fields but the last group are required.
type Config struct {
	// Group is the plane's name; LocalID is this member's.
	Group, LocalID string
	// Dir holds log and snapshots. It is not used when InMemory.
	Dir      string
	FS       vfs.FS
	InMemory bool
	// Bootstrap are the first members, as long as the disk knows no others.
	Bootstrap []Server
	Clock     clock.Clock
	Log       *slog.Logger

	// SegmentBytes is the size of a log file; 0: the log store's own.
	SegmentBytes int64
	// OnStall hears of a write that takes longer than StallAfter, ObserveAppend how long each took; nil: nobody.
	StallAfter    time.Duration
	OnStall       func(logstore.Stall)
	ObserveAppend func(time.Duration)
}

// NewFolder returns the folder that cfg describes; it does nothing yet.
func NewFolder(cfg Config) Folder { return Folder{&cfg} }

// Stores are what a group keeps its state in.
type Stores struct {
	Disk  *logstore.Store // nil when in memory
	Log   LogAndStable
	Snaps *Snapshots
	// Newest is set when the log was damaged and moved aside (Lost): the highest index it ever held.
	Lost   bool
	Newest uint64
}

// Describe adds what is on the disk to a group's figures, as text. It waits for no disk.
func (s *Stores) Describe(stats map[string]string) {
	if d := s.Disk; d != nil {
		now := d.Stats()
		stats["log_fsyncs"] = strconv.FormatUint(now.Fsyncs, 10)
		stats["log_bytes"] = strconv.FormatUint(now.Bytes, 10)
		stats["log_write_in_flight"] = d.InFlight().String()
	}
	if saved := s.Snaps.Saved.Load(); saved != nil {
		stats["snapshot_bytes"] = strconv.FormatInt(saved.Bytes, 10)
		if !saved.At.IsZero() {
			stats["snapshot_time"] = saved.At.UTC().Format(time.RFC3339)
		}
	}
}

// Open opens the log and the snapshots, and verifies both. On an error everything is closed again.
func (d Folder) Open() (*Stores, error) {
	s := &Stores{}
	var err error
	if d.cfg.InMemory {
		s.Log = raft.NewInmemStore()
		s.Snaps, err = OpenSnapshots(vfs.NewMem(), "/snapshots", d.cfg.Log, false)
		return s, err
	}
	s.Snaps, err = OpenSnapshots(d.cfg.FS, filepath.Join(d.cfg.Dir, "snapshots"), d.cfg.Log, d.Rebuildable())
	if err == nil {
		err = d.openLog(s)
	}
	return s, err
}

// Close closes the log; everything acknowledged is synced.
func (s *Stores) Close() {
	if s.Disk != nil {
		_ = s.Disk.Close() // everything acknowledged is synced
	}
}

// SnapshotIndex is the last entry that the newest snapshot has, 0 when there is none.
func (s *Stores) SnapshotIndex() uint64 {
	if newest := s.Snaps.Newest.Load(); newest != nil {
		return newest.Index
	}
	return 0
}
