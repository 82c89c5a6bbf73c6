package group

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
)

// trace is a short scripted life of a group of one: start, writes, a snapshot that
// truncates the log, writes, a stop, a second start, writes, a stop.
type trace struct {
	t      *testing.T
	n      *node
	acked  []string
	known  atomic.Int64 // how many of acked a disk operation that begins now comes after
	errs   []error
	nextID int
}

func newTrace(t *testing.T, fsys vfs.FS) *trace {
	n := &node{t: t, id: "n0", addr: "127.0.0.1:0", dir: "/data", fs: fsys, log: &syncBuffer{}}
	n.adjust = func(c *Config) {
		n.boot = []Server{{ID: "n0", Address: n.addr, Voter: true}}
		c.Bootstrap, c.TrailingLogs, c.SegmentBytes = n.boot, 1, 1<<12
	}
	return &trace{t: t, n: n}
}

// start starts the group; the fault may refuse that once, and never by calling intact data damaged.
func (r *trace) start() {
	polltest.NoError(r.t, polltest.Deadline, func() error {
		err := r.n.tryStart()
		if err != nil {
			r.refused("start", err)
		}
		return err
	}, "a start")
	polltest.Until(r.t, r.n.LeaseHeld, "the group to serve")
}

func (r *trace) refused(what string, err error) {
	r.errs = append(r.errs, err)
	if errkind.Is(err, errkind.Corrupt) || strings.TrimSpace(err.Error()) == "" {
		r.t.Errorf("%s: %v", what, err)
	}
}

// write proposes until a command is acknowledged: each attempt is a command of its own.
func (r *trace) write() {
	polltest.NoError(r.t, polltest.Deadline, func() error {
		ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
		defer cancel()
		r.nextID++
		cmd := fmt.Sprint("c", r.nextID, strings.Repeat(".", 300))
		_, err := r.n.Propose(ctx, []byte(cmd))
		if err == nil {
			r.acked = append(r.acked, cmd)
			r.known.Store(int64(len(r.acked)))
			return nil
		}
		r.refused("write", err)
		return err
	}, "an acknowledged write")
}

func (r *trace) writes(n int) {
	for range n {
		r.write()
	}
}

func (r *trace) snapshot() {
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	if err := r.n.SnapshotNow(ctx); err != nil {
		r.refused("snapshot", err)
	}
}

// judge looks that the machine has what was acknowledged, in order, and nothing that was never proposed or comes twice.
func (r *trace) judge(when string) {
	r.t.Helper()
	polltest.Until(r.t, r.n.LeaseHeld, "the group to serve, %s", when)
	list := r.n.machine.list()
	kept := slices.DeleteFunc(slices.Clone(list), func(cmd string) bool { return !slices.Contains(r.acked, cmd) })
	if !slices.Equal(kept, r.acked) {
		r.t.Errorf("%s: %d of %d acknowledged writes are there, or in another order", when, len(kept), len(r.acked))
	}
	for i, cmd := range list {
		if slices.Contains(list[:i], cmd) {
			r.t.Errorf("%s: %.8s was applied twice", when, cmd)
		}
	}
}

func (r *trace) run() {
	r.start()
	r.writes(8)
	r.snapshot()
	r.writes(8)
	r.n.stop()
	r.start()
	r.judge("after the second start")
	r.writes(3)
	r.n.stop()
}

// TestEveryDiskOperationFails is A7 at the level of the group: each single disk operation of a
// short life fails once. What fails is refused with a reason, nothing that was acknowledged is
// lost or damaged, and writes go on without a hand from outside.
func TestEveryDiskOperationFails(t *testing.T) {
	count := vfs.NewFaulty(vfs.NewMem())
	count.Inject(vfs.Rule{Name: "count"})
	whole := newTrace(t, count)
	whole.run()
	sites := count.Status()[0].Seen
	if len(whole.errs) > 0 || sites < 100 {
		t.Fatalf("without a fault: %d operations, errors %v", sites, whole.errs)
	}
	t.Logf("%d operations", sites)
	work := make(chan int)
	var wg sync.WaitGroup
	for range 8 { // they wait for each other's timers, not for the processor
		wg.Go(func() {
			for site := range work {
				t.Run(fmt.Sprint("site ", site), func(t *testing.T) { failOnce(t, site) })
			}
		})
	}
	for site := range sites {
		work <- site
	}
	close(work)
	wg.Wait()
}

// failOnce lets the operation of that number fail, with an error that alternates.
func failOnce(t *testing.T, site int) {
	code := []syscall.Errno{syscall.EIO, syscall.ENOSPC}[site%2]
	mem := vfs.NewMem()
	mem.Seed(uint64(site))
	faulty := vfs.NewFaulty(mem)
	faulty.Inject(vfs.Rule{Name: "once", Skip: site, Count: 1, Err: code})
	r := newTrace(t, faulty)
	defer func() {
		if t.Failed() {
			t.Logf("%v at operation %d, errors %v\n%s", code, site, r.errs, r.n.log)
		}
	}()
	r.run()
	faulty.LiftAll()
	r.start()
	r.judge("on the healed disk")
	r.n.fs = mem.Crash(rand.New(rand.NewPCG(uint64(site), 4))) // what a failed fsync dropped goes now
	r.n.stop()
	r.start()
	r.judge("after a power loss")
	r.n.stop()
}

// TestPowerLossAtEveryOperation is A5 at the level of the group: the power fails before each disk operation of the same
// life, with what was not synced lost, kept, or torn at the borders of sectors. It starts again with all that was
// acknowledged.
func TestPowerLossAtEveryOperation(t *testing.T) {
	mem := vfs.NewMem()
	faulty := vfs.NewFaulty(mem)
	whole := newTrace(t, faulty)
	type crash struct {
		disk  *vfs.Mem
		what  string
		acked int64
	}
	var mu sync.Mutex // the group's goroutines use the disk side by side
	var crashes []crash
	sites := 0
	faulty.Observe = func(op vfs.Op, path string) {
		mu.Lock()
		defer mu.Unlock()
		sites++
		for seed := range uint64(6) {
			known := whole.known.Load()
			crashes = append(crashes, crash{mem.Crash(rand.New(rand.NewPCG(uint64(sites), seed))),
				fmt.Sprint(op, " ", path), known})
		}
	}
	whole.run()
	if sites < 100 {
		t.Fatalf("only %d operations", sites)
	}
	t.Logf("%d operations, %d crashes", sites, len(crashes))
	work := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range work {
				c := crashes[i]
				t.Run(fmt.Sprint("crash ", i), func(t *testing.T) {
					r := newTrace(t, c.disk)
					r.acked, r.nextID = slices.Clone(whole.acked[:c.acked]), 1000
					defer func() {
						if t.Failed() {
							t.Logf("before %s, with %d acknowledged, errors %v\n%s", c.what, c.acked, r.errs, r.n.log)
						}
					}()
					r.start()
					r.judge("after the power came back")
					r.write()
					r.n.stop()
				})
			}
		})
	}
	for i := range crashes {
		work <- i
	}
	close(work)
	wg.Wait()
}
