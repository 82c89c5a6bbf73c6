package raftdisk

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/snapshot"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/kit/vfs/powertest"
)

// blob is a state.
type blob []byte

// WriteTo implements io.WriterTo.
func (b blob) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(b)
	return int64(n), err
}

// powerSnaps are snapshots; step n writes the one of index n.
type powerSnaps struct{ *Snapshots }

// Step implements powertest.Store.
func (s powerSnaps) Step(n int) error {
	sink, err := s.Create(1, uint64(n), 1, raft.Configuration{}, 0, nil)
	if err != nil {
		return err
	}
	if err := snapshot.Write(sink, blob(fmt.Appendf(nil, "state %d %04000d", n, n))); err != nil {
		_ = sink.Cancel() // as the library does
		return err
	}
	return sink.Close()
}

// Have implements powertest.Store.
func (s powerSnaps) Have() (int, error) {
	metas, err := s.List()
	if err != nil || len(metas) == 0 {
		return 0, err
	}
	if s.broken {
		return 0, errkind.New(errkind.Corrupt, "a snapshot was set aside")
	}
	meta, f, err := s.Open(metas[0].ID)
	if err != nil {
		return 0, err
	}
	return int(meta.Index), f.Close()
}

// Close implements powertest.Store.
func (s powerSnaps) Close() error { return nil }

// TestPower: a snapshot that is listed is on the disk, whatever fsync failed and whenever the process was killed before
// the power loss: the log may be cut on the word of it.
func TestPower(t *testing.T) {
	powertest.Run(t, powertest.Kind{Steps: 4, Open: func(fsys vfs.FS) (powertest.Store, error) {
		s, err := OpenSnapshots(fsys, "/snapshots", slog.New(slog.DiscardHandler), false)
		return powerSnaps{s}, err
	}})
}

// TestFailedSyncOfASnapshotIsNotForgotten: whoever goes on writing after an error does not get a snapshot all the same.
func TestFailedSyncOfASnapshotIsNotForgotten(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	s, err := OpenSnapshots(faulty, "/snapshots", slog.New(slog.DiscardHandler), false)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := s.Create(1, 1, 1, raft.Configuration{}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	faulty.Inject(vfs.Rule{Name: "once", Ops: vfs.OpSync, Count: 1, Err: io.ErrUnexpectedEOF})
	rng := rand.New(rand.NewPCG(1, 1)) // nothing that compresses
	state := make(blob, 2*syncedBytes)
	for i := range state {
		state[i] = byte(rng.Uint32())
	}
	var stream bytes.Buffer
	if err := snapshot.Write(&stream, state); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for piece := range slices.Chunk(stream.Bytes(), 1<<20) {
		if _, err := sink.Write(piece); err != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Fatal("no fsync failed")
	}
	if err := sink.Close(); err == nil {
		t.Fatal("a snapshot of which an fsync failed was taken")
	}
}

// TestDisownedIsGoneForGood: a snapshot that was given up does not come back with a power loss, and the ones before it
// stay.
func TestDisownedIsGoneForGood(t *testing.T) {
	disk := vfs.NewMem()
	s, err := OpenSnapshots(disk, "/snapshots", slog.New(slog.DiscardHandler), false)
	for n := 1; n <= 2 && err == nil; n++ {
		err = powerSnaps{s}.Step(n)
	}
	if err == nil {
		err = s.disown(Position{2, 1}, errkind.New(errkind.Unavailable, "another leads"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		after, err := OpenSnapshots(disk.Crash(rand.New(rand.NewPCG(seed, 0))), "/snapshots",
			slog.New(slog.DiscardHandler), false)
		if err != nil {
			t.Fatal(err)
		}
		if newest := after.Newest.Load(); newest == nil || newest.Index != 1 || after.broken {
			t.Fatalf("seed %d: the newest is %+v", seed, newest)
		}
	}
}
