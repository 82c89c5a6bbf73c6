// Package powertest judges what a store promises against a disk and a machine that fail (row A12): at each place
// where it writes or syncs,
//   - the Sync fails and drops the pages, and the next one succeeds and says nothing (fsyncgate);
//   - the process is killed, a new one reads what the machine's memory still has, and then the power is lost.
//
// What a store acknowledged, and what it served after it was opened, must be there after the power loss. One schedule
// of each place runs with the tests; all places a hundred times:
//
//	go test ./core/logstore ./core/group ./kit/vfs ./kit/journal ./secrets/storage/filestore \
//	  ./monitor/eventstore/logevents ./catalog/local/disk ./usage/eventlog/embedded ./usage/counterstate \
//	  -run 'TestPower$|TestKilledThenPowerLoss' -power.schedules 100 -timeout 0
package powertest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"corbel.dev/corbel/kit/vfs"
)

var schedules = flag.Int("power.schedules", 1,
	"how often each place of a power test is tried, each time with another part of the bytes lost")

// Schedules is how often each place is to be tried.
func Schedules() uint64 { return uint64(max(1, *schedules)) }

// Store is an open store that does numbered steps, each of which depends on the one before.
type Store interface {
	// Step does step n. Without an error it is acknowledged. Doing again a step that was half done must be possible.
	Step(n int) error
	// Have is the newest step that is there. An error says that what is there is not what the steps up to it leave.
	Have() (int, error)
	Close() error
}

// Kind is a kind of store and how many steps its life has.
type Kind struct {
	Open  func(fsys vfs.FS) (Store, error)
	Steps int
}

// changing are the operations that a power loss may undo.
const changing = vfs.OpOpen | vfs.OpWrite | vfs.OpSync | vfs.OpTruncate | vfs.OpPreallocate | vfs.OpRename |
	vfs.OpRemove | vfs.OpSyncDir

// Run judges a kind of store.
func Run(t *testing.T, k Kind) {
	t.Run("failed", func(t *testing.T) {
		for _, op := range []vfs.Op{vfs.OpSync, vfs.OpWrite, vfs.OpSyncDir} {
			for site, hit := 0, true; hit; site++ {
				for seed := range Schedules() {
					hit = k.failOnce(t, op, site, seed)
				}
			}
		}
	})
	t.Run("killed", k.killEverywhere)
}

// failOnce lets one operation fail, once; false when the life has no such operation any more.
func (k Kind) failOnce(t *testing.T, op vfs.Op, site int, seed uint64) bool {
	t.Helper()
	mem := vfs.NewMem()
	mem.Seed(seed)
	faulty := vfs.NewFaulty(mem)
	faulty.Inject(vfs.Rule{Name: "once", Ops: op, Skip: site, Count: 1, Err: syscall.EIO, Short: shortOf(op)})
	rng := rand.New(rand.NewPCG(seed, uint64(site)))
	what := fmt.Sprintf("%s number %d fails, schedule %d", op, site, seed)
	acked, high := 0, 0
	for life := 0; acked < k.Steps; life++ {
		if life > 4 {
			t.Fatalf("%s: the store does not recover from one error", what)
		}
		s, err := k.Open(faulty)
		if err != nil {
			continue // opened again: as an operator does
		}
		have, err := s.Have()
		if err != nil || have < acked || have > high {
			t.Fatalf("%s: opened again, it has %d (%v); acknowledged %d, tried %d", what, have, err, acked, high)
		}
		// What it serves now is told to others, so it counts.
		acked = have
		k.lose(t, mem, rng, acked, high, what+", power loss after it was opened")
		for refused := 0; acked < k.Steps && refused < 3; {
			high = max(high, acked+1)
			if s.Step(acked+1) != nil {
				refused++ // and asked again at once: whoever acknowledges now must keep it
				continue
			}
			acked++
			k.lose(t, mem, rng, acked, high, fmt.Sprint(what, ", power loss after step ", acked))
		}
		_ = s.Close() // of a store that failed it may fail
	}
	return faulty.Status()[0].Hits > 0
}

func shortOf(op vfs.Op) int {
	if op == vfs.OpWrite {
		return -1
	}
	return 0
}

// lose takes the power away and looks that what was acknowledged is there.
func (k Kind) lose(t *testing.T, mem *vfs.Mem, rng *rand.Rand, acked, high int, what string) {
	t.Helper()
	k.look(t, mem.Crash(rng), acked, high, what)
}

// look opens what is there and returns what it has.
func (k Kind) look(t *testing.T, mem *vfs.Mem, acked, high int, what string) int {
	t.Helper()
	s, err := k.Open(mem)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer func() { _ = s.Close() }()
	have, err := s.Have()
	if err != nil || have < acked || have > high {
		t.Fatalf("%s: it has %d (%v); acknowledged %d, tried %d", what, have, err, acked, high)
	}
	return have
}

// killed is what a process left that was killed before an operation.
type killed struct {
	mem         *vfs.Mem
	acked, high int
	what        string
}

func (k Kind) killEverywhere(t *testing.T) {
	images := k.images(t, vfs.NewMem(), 0, k.Steps)
	t.Logf("%d places", len(images))
	for i, image := range images {
		for seed := range Schedules() {
			rng := rand.New(rand.NewPCG(uint64(i), seed))
			what := fmt.Sprintf("killed before %s, schedule %d", image.what, seed)
			k.secondLife(t, image, rng, what)
		}
	}
}

// secondLife opens what a killed process left, goes on, and loses the power after each promise.
func (k Kind) secondLife(t *testing.T, image killed, rng *rand.Rand, what string) {
	t.Helper()
	mem := image.mem.Killed()
	have := k.look(t, mem, image.acked, image.high, what)
	k.lose(t, mem, rng, have, have, what+", opened, power loss")
	s, err := k.Open(mem)
	if err != nil {
		t.Fatalf("%s, opened twice: %v", what, err)
	}
	defer func() { _ = s.Close() }()
	for n := have + 1; n <= have+2; n++ {
		if err := s.Step(n); err != nil {
			t.Fatalf("%s, opened: step %d: %v", what, n, err)
		}
		k.lose(t, mem, rng, n, n, fmt.Sprint(what, ", opened, power loss after step ", n))
	}
	// Killed again, in the quiet: the third process has all, and so has who comes after the power loss.
	third := mem.Killed()
	k.look(t, third, have+2, have+2, what+", killed again")
	k.lose(t, third, rng, have+2, have+2, what+", killed again, power loss")
}

// images does the steps and keeps what a kill before each operation would leave.
func (k Kind) images(t *testing.T, mem *vfs.Mem, from, to int) []killed {
	t.Helper()
	var mu sync.Mutex // a store's goroutines use the disk side by side
	var list []killed
	acked, high := from, from
	faulty := vfs.NewFaulty(mem)
	faulty.Observe = func(op vfs.Op, path string) {
		mu.Lock()
		defer mu.Unlock()
		if op&changing != 0 {
			list = append(list, killed{mem.Killed(), acked, high, fmt.Sprintf("%s %s in step %d", op, path, high)})
		}
	}
	set := func(at *int, n int) {
		mu.Lock()
		defer mu.Unlock()
		*at = n
	}
	s, err := k.Open(faulty)
	if err != nil {
		t.Fatal(err)
	}
	for n := from + 1; n <= to; n++ {
		set(&high, n)
		if err := s.Step(n); err != nil {
			t.Fatal(err)
		}
		set(&acked, n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return list
}
