package filestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/storagetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func open(t testing.TB, fsys vfs.FS, dir string) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir, FS: fsys, JournalBytes: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	dir := ""
	storagetest.Run(t, storagetest.Kit{
		Open:   func(t *testing.T) storage.Backend { dir = t.TempDir(); return open(t, vfs.OS{}, dir) },
		Reopen: func(t *testing.T) storage.Backend { return open(t, vfs.OS{}, dir) },
	})
}

func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	s := open(t, nil, dir)
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a second one: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, nil, dir).Close(); err != nil {
		t.Fatal(err)
	}
}

// step n of the script sets two keys to n, one of 40 of its own and one for all, and deletes what step n-3 made.
func step(n int) []storage.Op {
	v := fmt.Appendf(nil, "%d %s", n, strings.Repeat("x", 60))
	return []storage.Op{storage.Put("last", v), storage.Put(fmt.Sprintf("k/%d", n), v),
		storage.Delete(fmt.Sprintf("k/%d", n-3))}
}

// checkSteps says that the store has exactly what the script leaves after one of the steps from low to high.
func checkSteps(s *Store, low, high int) error {
	ctx := context.Background()
	last, ok, err := s.Get(ctx, "last")
	n := 0
	if ok {
		_, err = fmt.Sscanf(string(last), "%d ", &n)
	}
	if err != nil || n < low || n > high {
		return fmt.Errorf("the last step is %d (%v), want %d to %d", n, err, low, high)
	}
	list, err := s.Scan(ctx, "k/", "k0", 0)
	if err != nil || len(list) != min(n, 3) {
		return fmt.Errorf("after step %d: %d keys, %v", n, len(list), err)
	}
	for _, r := range list {
		var k int
		if _, err := fmt.Sscanf(r.Key, "k/%d", &k); err != nil || k > n || k <= n-3 ||
			!strings.HasPrefix(string(r.Value), fmt.Sprint(k, " ")) {
			return fmt.Errorf("after step %d: %q", n, r)
		}
	}
	return nil
}

// TestCrashes: a power loss at every operation on the disk, checkpoints and their clean-up among them, drawn three
// times each, keeps what was acknowledged and nothing half.
func TestCrashes(t *testing.T) {
	const steps = 60
	mem := vfs.NewMem()
	faulty := vfs.NewFaulty(mem)
	rng := rand.New(rand.NewPCG(1, 2))
	acked, began := 0, 0
	type wreck struct {
		fs        *vfs.Mem
		low, high int
		what      string
	}
	var wrecks []wreck
	mu := make(chan struct{}, 1) // Observe is called from the store's goroutines
	faulty.Observe = func(op vfs.Op, path string) {
		mu <- struct{}{}
		defer func() { <-mu }()
		for range 3 {
			wrecks = append(wrecks, wreck{mem.Crash(rng), acked, began, fmt.Sprint(op, " ", path)})
		}
	}
	s := open(t, faulty, "/s")
	for n := 1; n <= steps; n++ {
		mu <- struct{}{}
		began = n
		<-mu
		if err := s.Commit(t.Context(), 0, step(n)); err != nil {
			t.Fatal(err)
		}
		mu <- struct{}{}
		acked = n
		<-mu
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(wrecks) < 3*2*steps {
		t.Fatalf("%d crashes: too few operations", len(wrecks))
	}
	for i, w := range wrecks {
		again, err := Open(Config{Dir: "/s", FS: w.fs, JournalBytes: 1 << 10})
		if err != nil {
			t.Fatalf("crash %d before %s (step %d): %v", i, w.what, w.high, err)
		}
		if err := checkSteps(again, w.low, w.high); err != nil {
			t.Fatalf("crash %d before %s: %v", i, w.what, err)
		}
		if err := errors.Join(again.Commit(t.Context(), 0, step(1000)), again.Close()); err != nil {
			t.Fatalf("crash %d before %s: going on: %v", i, w.what, err)
		}
	}
	t.Logf("%d crashes", len(wrecks))
}

// TestDiskErrors: every operation fails once, with each error, whole or in part; what was acknowledged is there when
// the store is opened again, what was refused as not done is not.
func TestDiskErrors(t *testing.T) {
	const steps = 30
	for _, fault := range []vfs.Rule{{Name: "f", Err: syscall.EIO}, {Name: "f", Err: syscall.ENOSPC},
		{Name: "f", Err: syscall.ENOSPC, Ops: vfs.OpWrite, Short: -1}} {
		for index := 0; ; index++ {
			mem := vfs.NewMem()
			faulty := vfs.NewFaulty(mem)
			open(t, faulty, "/s").Close()
			fault.Skip, fault.Count = index, 1
			faulty.Inject(fault)
			s, err := Open(Config{Dir: "/s", FS: faulty, JournalBytes: 1 << 10})
			acked, high := 0, 0
			if err == nil {
				for n := 1; n <= steps; n++ {
					err := s.Commit(t.Context(), 0, step(acked+1))
					if err == nil {
						acked++
						high = acked
						continue
					}
					if errkind.Is(err, errkind.Unknown) {
						high = acked + 1
					}
					if kind := errkind.Of(err); kind != errkind.Unknown && kind != errkind.Unavailable {
						t.Fatalf("operation %d: %v", index, err)
					}
				}
				_ = s.Close() // its own close may be what fails
			}
			hits := faulty.Status()[0].Hits
			again, err := Open(Config{Dir: "/s", FS: mem.Crash(rand.New(rand.NewPCG(uint64(index), 3)))})
			if err != nil {
				t.Fatalf("operation %d fails with %v: opening again: %v", index, fault.Err, err)
			}
			if err := checkSteps(again, acked, high); err != nil {
				t.Fatalf("operation %d fails with %v: %v", index, fault.Err, err)
			}
			_ = again.Close()
			if hits == 0 {
				if index < steps {
					t.Fatalf("only %d operations", index)
				}
				break
			}
		}
	}
}

// TestFailedSync: after an fsync that failed nobody is served until the store is opened again.
func TestFailedSync(t *testing.T) {
	mem := vfs.NewMem()
	faulty := vfs.NewFaulty(mem)
	s := open(t, faulty, "/s")
	if err := s.Commit(t.Context(), 0, step(1)); err != nil {
		t.Fatal(err)
	}
	faulty.Inject(vfs.Rule{Name: "f", Ops: vfs.OpSync, Err: syscall.EIO, Count: 1})
	if err := s.Commit(t.Context(), 0, step(2)); !errkind.Is(err, errkind.Unknown) {
		t.Errorf("the commit: %v", err)
	}
	if err := s.Commit(t.Context(), 0, step(2)); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("the next commit: %v", err)
	}
	if _, _, err := s.Get(t.Context(), "last"); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("a read: %v", err)
	}
	_ = s.Close()
	again := open(t, faulty, "/s")
	defer again.Close()
	if err := checkSteps(again, 1, 2); err != nil {
		t.Error(err)
	}
}

// TestFullDisk: a write that fails is taken back, and the store goes on when there is room.
func TestFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	faulty := vfs.NewFaulty(mem)
	s := open(t, faulty, "/s")
	faulty.Inject(vfs.Rule{Name: "f", Ops: vfs.OpWrite, Short: -1, Err: syscall.ENOSPC})
	for range 3 {
		if err := s.Commit(t.Context(), 0, step(1)); !errkind.Is(err, errkind.Unavailable) ||
			!errors.Is(err, syscall.ENOSPC) {
			t.Errorf("on a full disk: %v", err)
		}
	}
	faulty.LiftAll()
	if err := s.Commit(t.Context(), 0, step(1)); err != nil {
		t.Error(err)
	}
	_ = s.Close()
	again := open(t, mem, "/s")
	defer again.Close()
	if err := checkSteps(again, 1, 1); err != nil {
		t.Error(err)
	}
}

// TestDamage: a flipped bit before the last frame is refused by file and offset; in the last frame it is a torn end.
func TestDamage(t *testing.T) {
	mem := vfs.NewMem()
	s, err := Open(Config{Dir: "/s", FS: mem})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 5; n++ {
		if n == 5 {
			continue
		}
		if err := s.Commit(t.Context(), 0, step(n)); err != nil {
			t.Fatal(err)
		}
	}
	lastFrame := s.journal.end
	if err := s.Commit(t.Context(), 0, step(5)); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	path := filepath.Join("/s", "journal-0000000000000000")
	whole, err := vfs.ReadFile(mem, path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		bad := append([]byte{}, whole...)
		bad[at] ^= 4
		if err := vfs.WriteFileAtomic(mem, path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := Open(Config{Dir: "/s", FS: mem})
		if int64(at) < lastFrame {
			if !errkind.Is(err, errkind.Corrupt) || !strings.Contains(err.Error(), path+", offset") {
				t.Fatalf("a bit flipped at %d: %v", at, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("a bit flipped at %d, in the last frame: %v", at, err)
		}
		if err := checkSteps(again, 4, 4); err != nil {
			t.Fatal(err)
		}
		_ = again.Close()
	}
}

// TestBounded: the folder does not grow with the number of commits.
func TestBounded(t *testing.T) {
	mem := vfs.NewMem()
	s := open(t, mem, "/s")
	for n := 1; n <= 500; n++ {
		if err := s.Commit(t.Context(), 0, step(n)); err != nil {
			t.Fatal(err)
		}
		// while one is written the journal grows on
		polltest.Until(t, func() bool { return !s.writing.Load() }, "the checkpoint")
	}
	_ = s.Close()
	entries, err := mem.ReadDir("/s")
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > 500*150/2 || len(entries) > 6 {
		t.Errorf("%d bytes in %d files after 500 commits of 150 bytes", total, len(entries))
	}
	again := open(t, mem, "/s")
	defer again.Close()
	if err := checkSteps(again, 500, 500); err != nil {
		t.Error(err)
	}
}

func BenchmarkBackend(b *testing.B) {
	storagetest.Bench(b, func(b *testing.B) storage.Backend {
		s, err := Open(Config{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		return s
	})
}
