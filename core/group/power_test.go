package group

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
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
type powerSnaps struct{ *snapStore }

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
		s, err := openSnapStore(fsys, "/snapshots", slog.New(slog.DiscardHandler), false)
		return powerSnaps{s}, err
	}})
}

// TestFailedSyncOfASnapshotIsNotForgotten: whoever goes on writing after an error does not get a snapshot all the same.
func TestFailedSyncOfASnapshotIsNotForgotten(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	s, err := openSnapStore(faulty, "/snapshots", slog.New(slog.DiscardHandler), false)
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

// TestKilledThenPowerLoss: the process is killed before each operation on the disk of a short life; its successor
// starts on what the machine's memory has, takes a write, and then the power is lost. All that either of them
// acknowledged is there.
func TestKilledThenPowerLoss(t *testing.T) {
	mem := vfs.NewMem()
	faulty := vfs.NewFaulty(mem)
	whole := newTrace(t, faulty)
	type image struct {
		disk  *vfs.Mem
		what  string
		acked int64
	}
	var mu sync.Mutex // the group's goroutines use the disk side by side
	var images []image
	faulty.Observe = func(op vfs.Op, path string) {
		mu.Lock()
		defer mu.Unlock()
		if op&(vfs.OpWrite|vfs.OpSync|vfs.OpRename|vfs.OpRemove|vfs.OpSyncDir) != 0 {
			images = append(images, image{mem.Killed(), fmt.Sprint(op, " ", path), whole.known.Load()})
		}
	}
	whole.run()
	t.Logf("%d kills", len(images))
	work := make(chan int)
	var wg sync.WaitGroup
	for range 8 { // they wait for each other's timers, not for the processor
		wg.Go(func() {
			for i := range work {
				at := images[i/int(powertest.Schedules())]
				t.Run(fmt.Sprint("kill ", i), func(t *testing.T) {
					killedThenPowerLoss(t, at.disk.Killed(), whole.acked[:at.acked], uint64(i), at.what)
				})
			}
		})
	}
	for i := range len(images) * int(powertest.Schedules()) {
		work <- i
	}
	close(work)
	wg.Wait()
}

func killedThenPowerLoss(t *testing.T, disk *vfs.Mem, acked []string, seed uint64, what string) {
	r := newTrace(t, disk)
	r.acked, r.nextID = slices.Clone(acked), 1000
	defer func() {
		if t.Failed() {
			t.Logf("killed before %s, with %d acknowledged, errors %v\n%s", what, len(acked), r.errs, r.n.log)
		}
	}()
	r.start()
	r.judge("after the kill")
	served := r.n.machine.list()
	r.write()
	after := disk.Crash(rand.New(rand.NewPCG(seed, 9))) // while it runs
	r.n.stop()
	again := newTrace(t, after)
	again.acked, again.nextID = r.acked, 2000
	again.start()
	again.judge("after the power loss")
	if list := again.n.machine.list(); len(list) < len(served) || !slices.Equal(list[:len(served)], served) {
		t.Errorf("%d commands were served before the power loss, and they are not there any more", len(served))
	}
	again.n.stop()
}
