package group

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/kit/vfs/powertest"
)

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
