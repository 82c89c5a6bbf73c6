package raftdisk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/snapshot"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
)

// TestGuardOfTheLog: an entry that would leave a gap is refused, and one that is missing where the machine needs it
// ends the goroutine that asks and takes the instance out of service. The library panics of both.
func TestGuardOfTheLog(t *testing.T) {
	store := raft.NewInmemStore()
	snaps := &Snapshots{}
	snaps.Newest.Store(&Position{7, 2})
	var failed error
	g := NewGuard(&Stores{Log: store, Snaps: snaps}, func(index uint64) bool { return index == 9 },
		func(err error) { failed = err })
	if err := g.StoreLog(&raft.Log{Index: 9, Term: 2}); err == nil || failed == nil {
		t.Errorf("entry 9 was stored behind snapshot 7: %v, %v", err, failed)
	}
	failed = nil
	if err := g.StoreLog(&raft.Log{Index: 8, Term: 2}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	var entry raft.Log
	if err := g.GetLog(3, &entry); err != raft.ErrLogNotFound || failed != nil {
		t.Errorf("an entry that nobody needs: %v, %v", err, failed)
	}
	g.Armed.Store(true)
	returned := make(chan bool, 1)
	go func() {
		came := false
		defer func() { returned <- came }()
		_ = g.GetLog(9, &entry)
		came = true
	}()
	if polltest.Get(t, returned, "the goroutine that asks to end") || !errors.Is(failed, raft.ErrLogNotFound) {
		t.Errorf("an entry that is due was missing, and it went on: %v", failed)
	}
}

// TestSnapshotsArePruned: snapshots of the same entries, many times, and one that is late.
func TestSnapshotsArePruned(t *testing.T) {
	disk := vfs.NewMem()
	s, err := OpenSnapshots(disk, "/snapshots", slog.New(slog.DiscardHandler), false)
	if err != nil {
		t.Fatal(err)
	}
	write := func(index uint64) error {
		sink, err := s.Create(1, index, 5, raft.Configuration{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := snapshot.Write(sink, blob(fmt.Sprint(index))); err != nil {
			t.Fatal(err)
		}
		return sink.Close()
	}
	for range 25 {
		if err := write(10); err != nil {
			t.Fatal(err)
		}
		list, _ := s.List()
		if _, source, err := s.Open(list[0].ID); err != nil {
			t.Fatal(err)
		} else if _, err := io.Copy(io.Discard, source); err != nil {
			t.Fatal(err)
		} else {
			_ = source.Close()
		}
		if entries, _ := disk.ReadDir("/snapshots"); len(entries) > 2*Kept {
			t.Fatalf("%d files are kept", len(entries))
		}
	}
	if err := write(9); err == nil {
		t.Error("an older snapshot counts beside a newer one")
	}
	if list, _ := s.List(); len(list) != Kept || list[0].ID != "5-10-24" {
		t.Errorf("kept: %v", list)
	}
}

// TestNewestCommandIsKnownAtOnce: a guard knows it before anything can ask, and forgets what a leader overwrites.
func TestNewestCommandIsKnownAtOnce(t *testing.T) {
	store := raft.NewInmemStore()
	put := func(to raft.LogStore, index uint64, kind raft.LogType) {
		t.Helper()
		if err := to.StoreLog(&raft.Log{Index: index, Term: 1, Type: kind}); err != nil {
			t.Fatal(err)
		}
	}
	put(store, 1, raft.LogConfiguration)
	for i := uint64(2); i <= 9; i++ {
		put(store, i, raft.LogCommand)
	}
	put(store, 10, raft.LogNoop)
	put(store, 11, raft.LogBarrier)
	g := NewGuard(&Stores{Log: store, Snaps: &Snapshots{}}, func(uint64) bool { return false },
		func(err error) { t.Error(err) })
	expect := func(what string, want uint64) {
		t.Helper()
		if got := g.NewestCommand.Load(); got != want {
			t.Errorf("%s: the newest command is %d, want %d", what, got, want)
		}
	}
	expect("at once", 9)
	put(g, 12, raft.LogCommand)
	expect("after a command", 12)
	put(g, 13, raft.LogNoop)
	expect("after an entry without one", 12)
	if err := g.DeleteRange(7, 13); err != nil {
		t.Fatal(err)
	}
	expect("after the tail was overwritten", 6)
	if err := g.DeleteRange(1, 3); err != nil {
		t.Fatal(err)
	}
	expect("after the log was compacted", 6)
}

// TestSnapshotMetaSurvivesAnyText: what is no UTF-8 encodes otherwise after it was decoded.
func TestSnapshotMetaSurvivesAnyText(t *testing.T) {
	meta := &raft.SnapshotMeta{ID: "2-9", Index: 9, Term: 2, Size: 5, Configuration: raft.Configuration{
		Servers: []raft.Server{{ID: "a\xb0z<&>", Address: "10.0.0.1:8300"}}}}
	data, err := encodeMeta(meta)
	if err != nil {
		t.Fatal(err)
	}
	back, err := decodeMeta(data)
	if err != nil || back.Index != 9 || len(back.Configuration.Servers) != 1 {
		t.Fatalf("%+v %v", back, err)
	}
	for i := range len(data) * 8 {
		flipped := bytes.Clone(data)
		flipped[i/8] ^= 1 << (i % 8)
		if back, err := decodeMeta(flipped); err == nil && !reflect.DeepEqual(back, meta) &&
			back.Configuration.Servers[0].ID != "a\ufffdz<&>" {
			t.Errorf("bit %d went unnoticed", i)
		}
	}
}

// TestContradicts: only what a leader of now says of the very place where the newest snapshot ends counts.
func TestContradicts(t *testing.T) {
	snaps := &Snapshots{}
	g := NewGuard(&Stores{Log: raft.NewInmemStore(), Snaps: snaps}, nil, nil)
	entries := func(term, first uint64, n int) (list []*raft.Log) {
		for i := range n {
			list = append(list, &raft.Log{Index: first + uint64(i), Term: term})
		}
		return list
	}
	cases := []struct {
		what    string
		message any
		want    bool
	}{
		{"a heartbeat", &raft.AppendEntriesRequest{Term: 9}, false},
		{"what is before it", &raft.AppendEntriesRequest{Term: 9, PrevLogEntry: 3, PrevLogTerm: 1, Entries: entries(1, 4, 3)},
			false},
		{"what is behind it", &raft.AppendEntriesRequest{Term: 9, PrevLogEntry: 8, PrevLogTerm: 6, Entries: entries(6, 9, 3)},
			false},
		{"the same", &raft.AppendEntriesRequest{Term: 9, PrevLogEntry: 7, PrevLogTerm: 5, Entries: entries(6, 8, 1)}, false},
		{"another predecessor", &raft.AppendEntriesRequest{Term: 9, PrevLogEntry: 7, PrevLogTerm: 6}, true},
		{"another entry", &raft.AppendEntriesRequest{Term: 9, PrevLogEntry: 5, PrevLogTerm: 1, Entries: entries(6, 6, 3)},
			true},
		{"a former leader", &raft.AppendEntriesRequest{Term: 8, PrevLogEntry: 7, PrevLogTerm: 6}, false},
		{"another snapshot", &raft.InstallSnapshotRequest{Term: 9, LastLogIndex: 7, LastLogTerm: 6}, true},
		{"a newer snapshot", &raft.InstallSnapshotRequest{Term: 9, LastLogIndex: 8, LastLogTerm: 6}, false},
		{"a former leader's", &raft.InstallSnapshotRequest{Term: 8, LastLogIndex: 7, LastLogTerm: 6}, false},
		{"a vote", &raft.RequestVoteRequest{Term: 9}, false},
	}
	for _, c := range cases {
		if g.Contradicts(c.message, 9) {
			t.Errorf("%s contradicts no snapshot", c.what)
		}
	}
	snaps.Newest.Store(&Position{7, 5})
	for _, c := range cases {
		if got := g.Contradicts(c.message, 9); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
