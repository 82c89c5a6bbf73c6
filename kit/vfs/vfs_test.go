package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// errorKind makes errors of different file systems comparable.
func errorKind(err error) string {
	for _, kind := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrClosed, io.EOF, syscall.ENOTEMPTY, syscall.EISDIR,
		syscall.ENOTDIR, ErrLocked} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	if err != nil {
		return "other"
	}
	return ""
}

// twin does the same to two file systems and compares what they say.
type twin struct {
	t     *rapid.T
	sides [2]FS
	roots [2]string
	open  [2]File
}

func (w *twin) both(what string, do func(side int) (string, error)) {
	var answers [2]string
	for i := range w.sides {
		text, err := do(i)
		answers[i] = text + "|" + errorKind(err)
	}
	if answers[0] != answers[1] {
		w.t.Fatalf("%s: OS says %q, Mem says %q", what, answers[0], answers[1])
	}
}

func (w *twin) path(side int, name string) string { return filepath.Join(w.roots[side], name) }

func (w *twin) listing(side int) (string, error) {
	var text string
	for _, dir := range []string{"", "d"} {
		entries, err := w.sides[side].ReadDir(w.path(side, dir))
		text += fmt.Sprint(errorKind(err))
		for _, e := range entries {
			text += fmt.Sprint(" ", e.Name(), e.IsDir())
			if !e.IsDir() {
				data, err := ReadFile(w.sides[side], w.path(side, filepath.Join(dir, e.Name())))
				text += fmt.Sprintf("=%x%s", data, errorKind(err))
			}
		}
	}
	return text, nil
}

func TestMemIsLikeOS(t *testing.T) {
	base := t.TempDir()
	if shm, err := os.MkdirTemp("/dev/shm", "vfs"); err == nil { // without a disk a sync costs nothing
		base = shm
		t.Cleanup(func() { _ = os.RemoveAll(shm) })
	}
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		if err != nil {
			rt.Fatal(err)
		}
		mem := NewMem()
		if err := mem.MkdirAll("/m", 0o755); err != nil {
			rt.Fatal(err)
		}
		w := &twin{t: rt, sides: [2]FS{OS{}, mem}, roots: [2]string{dir, "/m"}}
		defer func() {
			for _, f := range w.open {
				if f != nil {
					_ = f.Close()
				}
			}
		}()
		names := rapid.SampledFrom([]string{"a", "b", "d/a", "d/b", "missing/x"})
		flags := rapid.SampledFrom([]int{os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE, os.O_RDWR | os.O_CREATE | os.O_EXCL,
			os.O_RDWR | os.O_CREATE | os.O_TRUNC, os.O_WRONLY | os.O_CREATE | os.O_APPEND})
		data := rapid.SliceOfN(rapid.Byte(), 1, 40)
		offset := rapid.Int64Range(0, 60)
		rt.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { w.both("listing", w.listing) },
			"open": func(rt *rapid.T) {
				name, flag := names.Draw(rt, "name"), flags.Draw(rt, "flag")
				w.both("open", func(i int) (string, error) {
					f, err := w.sides[i].OpenFile(w.path(i, name), flag, 0o600)
					if err == nil {
						if w.open[i] != nil {
							_ = w.open[i].Close()
						}
						w.open[i] = f
					}
					return "", err
				})
			},
			"write": func(rt *rapid.T) {
				p := data.Draw(rt, "p")
				w.file(rt, func(f File) (string, error) { n, err := f.Write(p); return fmt.Sprint(n), err })
			},
			"writeAt": func(rt *rapid.T) {
				p, off := data.Draw(rt, "p"), offset.Draw(rt, "off")
				w.file(rt, func(f File) (string, error) { n, err := f.WriteAt(p, off); return fmt.Sprint(n), err })
			},
			"read": func(rt *rapid.T) {
				p := make([]byte, rapid.IntRange(1, 40).Draw(rt, "n"))
				w.file(rt, func(f File) (string, error) { n, err := f.Read(p); return fmt.Sprintf("%x", p[:n]), err })
			},
			"readAt": func(rt *rapid.T) {
				p, off := make([]byte, rapid.IntRange(1, 40).Draw(rt, "n")), offset.Draw(rt, "off")
				w.file(rt, func(f File) (string, error) { n, err := f.ReadAt(p, off); return fmt.Sprintf("%x", p[:n]), err })
			},
			"truncate": func(rt *rapid.T) {
				off := offset.Draw(rt, "size")
				w.file(rt, func(f File) (string, error) { return "", f.Truncate(off) })
			},
			"preallocate": func(rt *rapid.T) {
				off := rapid.Int64Range(1, 60).Draw(rt, "size")
				w.file(rt, func(f File) (string, error) { return "", f.Preallocate(off) })
			},
			"sync": func(rt *rapid.T) { w.file(rt, func(f File) (string, error) { return "", f.Sync() }) },
			"close": func(rt *rapid.T) {
				w.file(rt, func(f File) (string, error) { return "", f.Close() })
				w.open = [2]File{}
			},
			"mkdir": func(*rapid.T) {
				w.both("mkdir", func(i int) (string, error) { return "", w.sides[i].MkdirAll(w.path(i, "d"), 0o755) })
			},
			"remove": func(rt *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b", "d", "d/a"}).Draw(rt, "name")
				w.both("remove", func(i int) (string, error) { return "", w.sides[i].Remove(w.path(i, name)) })
			},
			"rename": func(rt *rapid.T) {
				from, to := names.Draw(rt, "from"), names.Draw(rt, "to")
				w.both("rename", func(i int) (string, error) { return "", w.sides[i].Rename(w.path(i, from), w.path(i, to)) })
			},
			"atomic": func(rt *rapid.T) {
				name, p := names.Draw(rt, "name"), data.Draw(rt, "p")
				w.both("atomic", func(i int) (string, error) { return "", WriteFileAtomic(w.sides[i], w.path(i, name), p, 0o600) })
			},
		})
	})
}

func (w *twin) file(rt *rapid.T, do func(File) (string, error)) {
	if w.open[0] == nil {
		rt.Skip("no file is open")
	}
	w.both("file", func(i int) (string, error) { return do(w.open[i]) })
}

// TestAtomicSurvivesEveryCrash loses power before every operation of two
// replacements, many times each: what was acknowledged is there, and nothing is half.
func TestAtomicSurvivesEveryCrash(t *testing.T) {
	contents := [][]byte{bytes.Repeat([]byte("old!"), 700), bytes.Repeat([]byte("newer"), 900)}
	mem := NewMem()
	faulty := NewFaulty(mem)
	acknowledged, crashes := -1, 0
	check := func() {
		for seed := range uint64(20) {
			crashes++
			after := mem.Crash(rand.New(rand.NewPCG(seed, uint64(crashes))))
			got, err := ReadFile(after, "/data/f")
			switch {
			case errors.Is(err, fs.ErrNotExist) && acknowledged < 0:
			case err != nil:
				t.Fatalf("after acknowledging %d: %v", acknowledged, err)
			case acknowledged < 1 && bytes.Equal(got, contents[acknowledged+1]):
			case acknowledged >= 0 && bytes.Equal(got, contents[acknowledged]):
			default:
				t.Fatalf("after acknowledging %d: %d bytes of neither content", acknowledged, len(got))
			}
		}
	}
	if err := faulty.MkdirAll("/data", 0o700); err != nil {
		t.Fatal(err)
	}
	faulty.Observe = func(Op, string) { check() }
	for i, content := range contents {
		if err := WriteFileAtomic(faulty, "/data/f", content, 0o600); err != nil {
			t.Fatal(err)
		}
		acknowledged = i
		check()
	}
	if crashes < 200 {
		t.Fatalf("only %d crashes: the observer is not called", crashes)
	}
}

// TestCrashLosesWhatWasNotSynced makes sure that the model is no kinder than a disk.
func TestCrashLosesWhatWasNotSynced(t *testing.T) {
	mem := NewMem()
	f, err := mem.Create("/log")
	if err != nil {
		t.Fatal(err)
	}
	base := bytes.Repeat([]byte{'a'}, 2048)
	for _, err := range []error{second(f.Write(base)), f.Sync(), mem.SyncDir("/")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte{'b'}, 1500), 100); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Create("/unsynced-name"); err != nil {
		t.Fatal(err)
	}
	var none, all, torn, named int
	for seed := range uint64(300) {
		after := mem.Crash(rand.New(rand.NewPCG(seed, 0)))
		got, err := ReadFile(after, "/log")
		if err != nil || len(got) != 2048 {
			t.Fatalf("synced file: %d bytes, %v", len(got), err)
		}
		if got[0] != 'a' || got[1600] != 'a' {
			t.Fatal("bytes outside of the write changed")
		}
		switch n := bytes.Count(got, []byte("b")); n {
		case 0:
			none++
		case 1500:
			all++
		default:
			torn++
			for border := 512; border < 2048; border += 512 { // inside a sector all is of one kind
				if border+511 < 1600 && got[border] != got[border+511] {
					t.Fatal("torn inside a sector")
				}
			}
		}
		if _, err := after.Stat("/unsynced-name"); err == nil {
			named++
		}
	}
	if none == 0 || all == 0 || torn == 0 || named == 0 || named == 300 {
		t.Errorf("of 300 crashes %d lost, %d kept, %d tore the write, %d kept the name: some case is missing", none, all,
			torn, named)
	}
}

func second[T any](_ T, err error) error { return err }

func TestRemovedFilesMayComeBack(t *testing.T) {
	mem := NewMem()
	if err := WriteFileAtomic(mem, "/f", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := mem.Remove("/f"); err != nil {
		t.Fatal(err)
	}
	back := 0
	for seed := range uint64(50) {
		if _, err := mem.Crash(rand.New(rand.NewPCG(seed, 0))).Stat("/f"); err == nil {
			back++
		}
	}
	if back == 0 || back == 50 {
		t.Errorf("unsynced removal: the file was back in %d of 50 crashes", back)
	}
	if err := mem.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(50) {
		if _, err := mem.Crash(rand.New(rand.NewPCG(seed, 0))).Stat("/f"); err == nil {
			t.Fatal("a synced removal was undone")
		}
	}
}

func TestFaulty(t *testing.T) {
	f := NewFaulty(NewMem())
	if err := f.MkdirAll("/p/q", 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := f.Create("/p/q/log")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	content := bytes.Repeat([]byte("0123456789"), 10)

	f.Inject(Rule{Name: "r", Ops: OpWrite, Glob: "/p/**", Skip: 1, Count: 1, Err: syscall.ENOSPC})
	if _, err := file.Write(content); err != nil {
		t.Fatalf("skipped operation: %v", err)
	}
	if n, err := file.Write(content); !errors.Is(err, syscall.ENOSPC) || n != 0 {
		t.Fatalf("want ENOSPC, got %d, %v", n, err)
	}
	if _, err := file.Write(content); err != nil {
		t.Fatalf("after Count operations: %v", err)
	}
	if s := f.Status(); len(s) != 1 || s[0].Seen != 3 || s[0].Hits != 1 {
		t.Fatalf("status: %+v", s)
	}
	f.Inject(Rule{Name: "r", Ops: OpWrite, Short: 3})
	if n, err := file.WriteAt(content, 0); n != 3 || !errors.Is(err, syscall.EIO) {
		t.Fatalf("short write: %d, %v", n, err)
	}
	f.Inject(Rule{Name: "r", Ops: OpRead, FlipBit: true})
	got := make([]byte, 100)
	if _, err := file.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	bits := 0
	for i := range got {
		for x := got[i] ^ content[i]; x != 0; x &= x - 1 {
			bits++
		}
	}
	if bits != 1 {
		t.Fatalf("%d bits are flipped, want 1", bits)
	}
	f.Inject(Rule{Name: "r", Ops: OpSync, Glob: "other", Err: syscall.EIO})
	if err := file.Sync(); err != nil {
		t.Fatalf("a rule for another path: %v", err)
	}
	f.Inject(Rule{Name: "all", Err: syscall.EIO})
	for name, err := range map[string]error{
		"open": second(f.OpenFile("/p/q/log", os.O_RDWR, 0)), "create": second(f.Create("/x")),
		"remove": f.Remove("/p/q/log"),
		"rename": f.Rename("/p/q/log", "/y"), "mkdir": f.MkdirAll("/z", 0o700), "list": second(f.ReadDir("/p")),
		"stat": second(f.Stat("/p")), "syncdir": f.SyncDir("/p"), "lock": second(f.Lock("/l")),
		"read": second(file.Read(got)),
		"sync": file.Sync(), "truncate": file.Truncate(0), "preallocate": file.Preallocate(1 << 20),
		"fstat": second(file.Stat()),
	} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v, want EIO", name, err)
		}
	}
	f.LiftAll()
	if data, err := ReadFile(f, "/p/q/log"); err != nil || len(data) != 200 {
		t.Fatalf("after lifting all: %d bytes, %v", len(data), err)
	}
	if f.Lift("all") {
		t.Error("a lifted rule was lifted again")
	}
}

func TestStallAndDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(NewMem())
		f.Inject(Rule{Name: "slow", Ops: OpMkdir, Delay: 200 * time.Millisecond})
		f.Inject(Rule{Name: "stall", Ops: OpSyncDir, Stall: true, Err: syscall.EIO})
		begin := time.Now()
		if err := f.MkdirAll("/d", 0o700); err != nil || time.Since(begin) != 200*time.Millisecond {
			t.Fatalf("delayed by %s, %v", time.Since(begin), err)
		}
		done := make(chan error, 1)
		go func() { done <- f.SyncDir("/d") }()
		time.Sleep(time.Hour) // of the bubble's clock
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("did not stall: %v", err)
		default:
		}
		for _, s := range f.Status() {
			if s.Name == "stall" && s.Waiting != 1 {
				t.Errorf("waiting: %+v", s)
			}
		}
		f.Lift("stall")
		if err := <-done; !errors.Is(err, syscall.EIO) {
			t.Fatalf("after the stall: %v", err)
		}
	})
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	mem := NewMem()
	if err := mem.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, fsys := range []FS{OS{}, mem} {
		name := filepath.Join(dir, "lock")
		held, err := fsys.Lock(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fsys.Lock(name); !errors.Is(err, ErrLocked) {
			t.Errorf("%T: second lock: %v", fsys, err)
		}
		if err := held.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := fsys.Lock(name)
		if err != nil {
			t.Fatalf("%T: lock after close: %v", fsys, err)
		}
		_ = again.Close()
	}
}

func TestMatchAndOps(t *testing.T) {
	tests := []struct {
		glob, path string
		want       bool
	}{
		{"", "/any/thing", true}, {"*.log", "/a/b/x.log", true}, {"*.log", "/a/b/x.snap", false},
		{"/a/*/x.log", "/a/b/x.log", true}, {"/a/*/x.log", "/a/b/c/x.log", false},
		{"/a/**", "/a/b/c/x.log", true}, {"/a/**/x.log", "/a/b/c/x.log", true}, {"**/raft/**", "/data/raft/wal/1", true},
		{"**/raft/**", "/data/other/1", false}, {"/a/**/*.log", "/a/b/c/x.log", true},
		{"/a/**/*.log", "/a/b/c/x.snap", false},
	}
	for _, test := range tests {
		if got := Match(test.glob, test.path); got != test.want {
			t.Errorf("Match(%q, %q) = %t", test.glob, test.path, got)
		}
	}
	for _, op := range []Op{OpAll, OpWrite, OpWrite | OpSync, OpSyncDir} {
		if got, err := ParseOp(op.String()); err != nil || got != op {
			t.Errorf("ParseOp(%q) = %v, %v", op, got, err)
		}
	}
	if _, err := ParseOp("fly"); err == nil {
		t.Error("an unknown operation is taken")
	}
}

func TestRemoveAll(t *testing.T) {
	mem := NewMem()
	if err := mem.MkdirAll("/a/b/c", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFileAtomic(mem, "/a/b/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := RemoveAll(mem, "/a"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := mem.Stat("/a/b/f"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func BenchmarkFaultyDormantWrite(b *testing.B) {
	f, err := NewFaulty(OS{}).Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	p := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.WriteAt(p, 0); err != nil {
			b.Fatal(err)
		}
	}
}

// TestFailedSyncDropsPages: after a Sync that failed the bytes are still read, the next Sync succeeds, and a power loss
// takes them all the same. Only what is written again is durable.
func TestFailedSyncDropsPages(t *testing.T) {
	lost := 0
	for seed := range uint64(20) {
		mem := NewMem()
		mem.Seed(seed)
		faulty := NewFaulty(mem)
		f := must(faulty.Create("/f"))(t)
		after := func() string {
			data, err := ReadFile(mem.Killed().Crash(rand.New(rand.NewPCG(seed, 2))), "/f")
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		_, err := f.Write([]byte("old"))
		if err := errors.Join(err, f.Sync(), faulty.SyncDir("/")); err != nil {
			t.Fatal(err)
		}
		faulty.Inject(Rule{Name: "disk", Ops: OpSync, Count: 1, Err: syscall.EIO})
		_, err = f.WriteAt([]byte("new"), 0)
		if first, second := f.Sync(), f.Sync(); err != nil || !errors.Is(first, syscall.EIO) || second != nil {
			t.Fatal(err, first, second)
		}
		if data, err := ReadFile(faulty, "/f"); err != nil || string(data) != "new" {
			t.Fatalf("read %q, %v", data, err)
		}
		if after() == "old" {
			lost++
		}
		if _, err := f.WriteAt([]byte("new"), 0); err != nil || f.Sync() != nil || after() != "new" {
			t.Fatalf("written again and synced: %q, %v", after(), err)
		}
	}
	if lost == 0 || lost == 20 {
		t.Fatalf("%d of 20 power losses took the bytes", lost)
	}
}

// TestKilledThenPowerLoss: a killed process leaves all that it wrote to the next one, and nothing of it is durable.
func TestKilledThenPowerLoss(t *testing.T) {
	mem := NewMem()
	f := must(mem.Create("/f"))(t)
	if _, err := f.Write([]byte("page cache")); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Lock("/lock"); err != nil {
		t.Fatal(err)
	}
	next := mem.Killed()
	if data, err := ReadDurable(next, "/f"); err != nil || string(data) != "page cache" {
		t.Fatalf("the next process reads %q, %v", data, err)
	}
	if _, err := next.Lock("/lock"); err != nil {
		t.Fatal("a killed process holds its lock:", err)
	}
	lost := 0
	for seed := range uint64(20) {
		data, err := ReadFile(next.Crash(rand.New(rand.NewPCG(seed, 2))), "/f")
		if err != nil {
			t.Fatal("the folder was synced:", err)
		}
		if len(data) == 0 {
			lost++
		}
	}
	if lost == 0 || lost == 20 {
		t.Fatalf("%d of 20 power losses took the bytes", lost)
	}
	if _, err := Open(mem.Crash(rand.New(rand.NewPCG(3, 2))), "/f"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
