package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const testSegment = 16 << 10

func open(t testing.TB, fsys vfs.FS) (*Store, error) {
	t.Helper()
	return Open(Config{Group: "test", Dir: "/log", FS: fsys, SegmentBytes: testSegment})
}

func mustOpen(t testing.TB, fsys vfs.FS) *Store {
	t.Helper()
	s, err := open(t, fsys)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func entry(index, term uint64, size int) *raft.Log {
	return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: bytes.Repeat([]byte{byte(index), byte(term)},
		size/2), AppendedAt: time.Unix(100, int64(index))}
}

func fill(t testing.TB, s *Store, from, to, term uint64, size int) {
	t.Helper()
	for i := from; i <= to; i++ {
		if err := s.StoreLogs([]*raft.Log{entry(i, term, size)}); err != nil {
			t.Fatalf("store %d: %v", i, err)
		}
	}
}

// check compares the whole log with what fill wrote.
func check(t testing.TB, s *Store, first, last uint64, termOf func(uint64) uint64) {
	t.Helper()
	gotFirst, _ := s.FirstIndex()
	gotLast, _ := s.LastIndex()
	if gotFirst != first || gotLast != last {
		t.Fatalf("log is %d-%d, want %d-%d", gotFirst, gotLast, first, last)
	}
	for i := first; i != 0 && i <= last; i++ {
		var l raft.Log
		if err := s.GetLog(i, &l); err != nil {
			t.Fatalf("read %d: %v", i, err)
		}
		if want := entry(i, termOf(i), len(l.Data)); l.Index != i || l.Term != want.Term || !bytes.Equal(l.Data, want.Data) ||
			!l.AppendedAt.Equal(want.AppendedAt) {
			t.Fatalf("entry %d reads as %+v", i, l)
		}
	}
}

func one(uint64) uint64 { return 1 }

func TestAppendReopenTruncate(t *testing.T) {
	fsys := vfs.NewMem()
	s := mustOpen(t, fsys)
	fill(t, s, 1, 300, 1, 200) // several segments
	check(t, s, 1, 300, one)
	reopen := func() {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustOpen(t, fsys)
	}
	reopen()
	check(t, s, 1, 300, one)
	if s.Opened().Segments < 3 {
		t.Fatalf("only %d segments", s.Opened().Segments)
	}
	if err := s.DeleteRange(1, 150); err != nil {
		t.Fatal(err)
	}
	check(t, s, 151, 300, one)
	reopen()
	check(t, s, 151, 300, one)
	if err := s.DeleteRange(200, 300); err != nil {
		t.Fatal(err)
	}
	reopen()
	check(t, s, 151, 199, one)
	fill(t, s, 200, 320, 2, 200)
	two := func(i uint64) uint64 {
		if i >= 200 {
			return 2
		}
		return 1
	}
	check(t, s, 151, 320, two)
	reopen()
	check(t, s, 151, 320, two)
	if err := s.DeleteRange(151, 320); err != nil {
		t.Fatal(err)
	}
	check(t, s, 0, 0, one)
	reopen()
	check(t, s, 0, 0, one)
	fill(t, s, 1000, 1010, 3, 64) // after a snapshot the log goes on anywhere
	reopen()
	check(t, s, 1000, 1010, func(uint64) uint64 { return 3 })
	if err := s.StoreLog(entry(1020, 3, 64)); err == nil {
		t.Fatal("a gap was stored")
	}
	if err := s.DeleteRange(1003, 1005); err == nil {
		t.Fatal("the middle was deleted")
	}
	var l raft.Log
	if err := s.GetLog(999, &l); err != raft.ErrLogNotFound {
		t.Fatalf("missing entry: %v", err)
	}
}

func TestStableValues(t *testing.T) {
	fsys := vfs.NewMem()
	s := mustOpen(t, fsys)
	if _, err := s.GetUint64([]byte("term")); err == nil || err.Error() != "not found" {
		t.Fatalf("missing value: %v", err)
	}
	for i := range uint64(20) {
		if err := errors.Join(s.SetUint64([]byte("term"), i),
			s.Set([]byte("vote"), fmt.Appendf(nil, "node-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	// Whichever copy rots, the other one has the newest values.
	for _, at := range []int64{20, slotBytes + 20} {
		flip(t, fsys, "/log/"+stableName, at)
		s = mustOpen(t, fsys)
		term, err := s.GetUint64([]byte("term"))
		vote, err2 := s.Get([]byte("vote"))
		if err != nil || err2 != nil || term != 19 || string(vote) != "node-19" {
			t.Fatalf("after damage at %d: %d %q %v %v", at, term, vote, err, err2)
		}
		s.Close()
	}
	flip(t, fsys, "/log/"+stableName, 20)
	flip(t, fsys, "/log/"+stableName, slotBytes+20)
	if _, err := open(t, fsys); !errkind.Is(err, errkind.Corrupt) {
		t.Fatalf("both copies damaged: %v", err)
	}
}

func flip(t testing.TB, fsys vfs.FS, path string, at int64) {
	t.Helper()
	f, err := fsys.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << (at % 8)
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// files copies a folder so that each damage starts from the same bytes.
func files(t testing.TB, fsys vfs.FS) map[string][]byte {
	t.Helper()
	entries, err := fsys.ReadDir("/log")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, e := range entries {
		data, err := vfs.ReadFile(fsys, filepath.Join("/log", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = data
	}
	return all
}

func rebuild(t testing.TB, all map[string][]byte) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll("/log", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range all {
		if err := vfs.WriteFileAtomic(fsys, "/log/"+name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return fsys
}

// TestEveryFlippedBitIsNoticed flips a bit at every 61st byte of all records and heads, closed store and open one.
func TestEveryFlippedBitIsNoticed(t *testing.T) {
	fsys := vfs.NewMem()
	s := mustOpen(t, fsys)
	fill(t, s, 1, 150, 1, 200)
	ends := map[string]int64{}
	for _, seg := range s.segs {
		ends[filepath.Base(seg.path)] = seg.end
	}
	s.Close()
	all := files(t, fsys)
	tried := 0
	for name, end := range ends {
		for at := int64(0); at < end; at += 61 {
			damagedFS := rebuild(t, all)
			flip(t, damagedFS, "/log/"+name, at)
			_, err := open(t, damagedFS)
			var damage *Damage
			if !errkind.Is(err, errkind.Corrupt) || !errors.As(err, &damage) {
				t.Fatalf("%s: bit at %d went unnoticed: %v", name, at, err)
			}
			if !strings.Contains(err.Error(), name) || damage.Group != "test" || damage.Newest != 150 {
				t.Fatalf("%s: the error does not say what is needed: %v %+v", name, err, damage)
			}
			tried++
		}
	}
	for _, name := range []string{manifestName} {
		for at := range int64(len(all[name])) {
			damagedFS := rebuild(t, all)
			flip(t, damagedFS, "/log/"+name, at)
			if _, err := open(t, damagedFS); !errkind.Is(err, errkind.Corrupt) {
				t.Fatalf("%s: bit at %d went unnoticed: %v", name, at, err)
			}
			tried++
		}
	}
	t.Logf("%d flips, all noticed", tried)
}

func TestDamageUnderAnOpenStorePoisons(t *testing.T) {
	fsys := vfs.NewMem()
	s := mustOpen(t, fsys)
	fill(t, s, 1, 20, 1, 200)
	flip(t, fsys, s.segs[0].path, int64(s.segs[0].offsets[9])+60)
	var l raft.Log
	err := s.GetLog(10, &l)
	var damage *Damage
	if !errkind.Is(err, errkind.Corrupt) || !errors.As(err, &damage) || damage.Index != 10 ||
		damage.Offset != int64(s.segs[0].offsets[9]) {
		t.Fatalf("read of a damaged record: %v", err)
	}
	if err := s.StoreLog(entry(21, 1, 10)); !errkind.Is(err, errkind.Corrupt) {
		t.Fatalf("a poisoned store takes entries: %v", err)
	}
	if err := s.SetUint64([]byte("term"), 9); !errkind.Is(err, errkind.Corrupt) {
		t.Fatalf("a poisoned store takes votes: %v", err)
	}
	if err := s.GetLog(1, &l); err == nil {
		t.Fatal("a poisoned store reads on")
	}
}

func TestLostTailIsNoticed(t *testing.T) {
	fsys := vfs.NewMem()
	s := mustOpen(t, fsys)
	fill(t, s, 1, 150, 1, 200)
	tail := s.segs[len(s.segs)-1]
	s.Close()
	all := files(t, fsys)
	name := filepath.Base(tail.path)
	cases := map[string]func(map[string][]byte){
		"file is gone":      func(m map[string][]byte) { delete(m, name) },
		"file is empty":     func(m map[string][]byte) { m[name] = nil },
		"records are zeros": func(m map[string][]byte) { clear(m[name][segmentHeadBytes:]) },
		"last record gone":  func(m map[string][]byte) { clear(m[name][tail.offsets[len(tail.offsets)-1]:]) },
		"mark is gone":      func(m map[string][]byte) { delete(m, markName) },
		"manifest is gone":  func(m map[string][]byte) { delete(m, manifestName) },
		"votes are gone":    func(m map[string][]byte) { delete(m, stableName) },
	}
	for what, spoil := range cases {
		copied := map[string][]byte{}
		for k, v := range all {
			copied[k] = bytes.Clone(v)
		}
		spoil(copied)
		if _, err := open(t, rebuild(t, copied)); !errkind.Is(err, errkind.Corrupt) {
			t.Errorf("%s: went unnoticed: %v", what, err)
		}
	}
}

// TestPowerLoss loses power before every single disk operation of a script, in several moods.
func TestPowerLoss(t *testing.T) {
	for step := 0; ; step++ {
		mem := vfs.NewMem()
		faulty := vfs.NewFaulty(mem)
		n, acked, floor, vote := 0, uint64(0), uint64(0), uint64(0)
		var crashes []*vfs.Mem
		var atCrash [3]uint64
		faulty.Observe = func(vfs.Op, string) {
			if n == step {
				for seed := range uint64(4) {
					crashes = append(crashes, mem.Crash(rand.New(rand.NewPCG(uint64(step), seed))))
				}
				atCrash = [3]uint64{acked, floor, vote}
			}
			n++
		}
		script(t, faulty, &acked, &floor, &vote)
		if crashes == nil {
			if step < 50 {
				t.Fatalf("the script has only %d operations", step)
			}
			t.Logf("%d crash points", step)
			return
		}
		for seed, after := range crashes {
			s, err := open(t, after)
			if err != nil {
				t.Fatalf("crash point %d, seed %d: %v", step, seed, err)
			}
			last, _ := s.LastIndex()
			if last < min(atCrash[0], atCrash[1]) {
				t.Fatalf("crash point %d, seed %d: log ends at %d, acknowledged were %d", step, seed, last, atCrash[0])
			}
			first, _ := s.FirstIndex()
			term := uint64(0)
			for i := first; i != 0 && i <= last; i++ {
				var l raft.Log
				if err := s.GetLog(i, &l); err != nil {
					t.Fatalf("crash point %d, seed %d: read %d: %v", step, seed, i, err)
				}
				if l.Term < term {
					t.Fatalf("crash point %d, seed %d: terms go back at %d", step, seed, i)
				}
				term = l.Term
			}
			if got, _ := s.GetUint64([]byte("term")); got < atCrash[2] {
				t.Fatalf("crash point %d, seed %d: term %d, acknowledged was %d", step, seed, got, atCrash[2])
			}
			if last > 0 {
				if err := s.StoreLog(entry(last+1, 9, 100)); err != nil {
					t.Fatalf("crash point %d, seed %d: append after it: %v", step, seed, err)
				}
			}
			s.Close()
			again, err := open(t, after)
			if err != nil {
				t.Fatalf("crash point %d, seed %d: second open: %v", step, seed, err)
			}
			again.Close()
		}
	}
}

// script appends, conflicts, compacts and votes. floor is how low a truncation that is running may bring the log.
func script(t *testing.T, fsys vfs.FS, acked, floor, vote *uint64) {
	s, err := Open(Config{Group: "test", Dir: "/log", FS: fsys, SegmentBytes: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	add := func(from, to, term uint64) {
		var logs []*raft.Log
		for i := from; i <= to; i++ {
			logs = append(logs, entry(i, term, 900))
		}
		must(s.StoreLogs(logs))
		*acked, *floor = to, to
	}
	must(s.SetUint64([]byte("term"), 1))
	*vote = 1
	add(1, 3, 1)
	add(4, 8, 1)
	*floor = 5
	must(s.DeleteRange(6, 8))
	*acked = 5
	must(s.SetUint64([]byte("term"), 2))
	*vote = 2
	add(6, 9, 2)
	must(s.DeleteRange(1, 5))
	add(10, 11, 2)
	*floor = 0
	must(s.DeleteRange(6, 11))
	*acked = 0
	add(50, 52, 3)
}

func TestTornTailIsCutAndToldApartFromDamage(t *testing.T) {
	fsys := vfs.NewMem()
	s := mustOpen(t, fsys)
	fill(t, s, 1, 10, 1, 200)
	s.Close()
	all := files(t, fsys)
	// A half written, never acknowledged record behind the last one.
	torn := appendRecord(nil, 1, 11, entry(11, 1, 400))
	seg := s.cfg.path(segmentName(1, 1))
	mem := rebuild(t, all)
	f, err := mem.OpenFile(seg, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	end := int64(segmentHeadBytes + 10*len(appendRecord(nil, 1, 1, entry(1, 1, 200))))
	if _, err := f.WriteAt(torn[:100], end); err != nil {
		t.Fatal(err)
	}
	f.Close()
	again := mustOpen(t, mem)
	check(t, again, 1, 10, one)
	if again.Opened().CutBytes == 0 {
		t.Fatal("nothing was cut")
	}
	fill(t, again, 11, 12, 2, 200)
	again.Close()
	check(t, mustOpen(t, mem), 1, 12, func(i uint64) uint64 { return 1 + i/11 })
}

// TestDamageIsSeenWithoutTheMark spoils a record in the middle of the tail of a
// store whose mark is as old as a power loss may leave it.
func TestDamageIsSeenWithoutTheMark(t *testing.T) {
	fsys := vfs.NewMem()
	s := mustOpen(t, fsys)
	for i := uint64(1); i <= 10; i++ { // data of zeros, so that the records' ends look empty
		if err := s.StoreLog(&raft.Log{Index: i, Term: 1, Data: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
	}
	path, at := s.segs[0].path, int64(s.segs[0].offsets[8])
	s.Close()
	flip(t, fsys, path, at+50) // record 9; only record 10 stands behind it
	all := files(t, fsys)
	old := encodeSlot(99, make([]byte, 8))
	all[markName] = make([]byte, 2*slotBytes)
	copy(all[markName], old)
	if _, err := open(t, rebuild(t, all)); !errkind.Is(err, errkind.Corrupt) {
		t.Fatalf("went unnoticed: %v", err)
	}
}

func TestFailedFsyncPoisons(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	for _, op := range []vfs.Op{vfs.OpSync, vfs.OpWrite} {
		s := mustOpen(t, faulty)
		last, _ := s.LastIndex()
		fill(t, s, last+1, last+3, 1, 100)
		faulty.Inject(vfs.Rule{Name: "disk", Ops: op, Glob: "*.seg", Count: 1, Err: syscall.EIO})
		if err := s.StoreLog(entry(last+4, 1, 100)); !errkind.Is(err, errkind.Unavailable) || !errors.Is(err, syscall.EIO) {
			t.Fatalf("%s: %v", op, err)
		}
		if err := s.StoreLog(entry(last+4, 1, 100)); !errors.Is(err, syscall.EIO) {
			t.Fatalf("%s: the store went on: %v", op, err)
		}
		s.Close()
		s = mustOpen(t, faulty)
		if now, _ := s.LastIndex(); now < last+3 {
			t.Fatalf("%s: acknowledged entries are gone: %d", op, now)
		}
		s.Close()
	}
}

func TestStallIsSeenWhileItLasts(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	facts := make(chan Stall, 8)
	s, err := Open(Config{Group: "test", Dir: "/log", FS: faulty, SegmentBytes: testSegment,
		StallAfter: 20 * time.Millisecond,
		OnStall:    func(st Stall) { facts <- st }})
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { s.Run(stop); close(done) }()
	fill(t, s, 1, 1, 1, 100)
	faulty.Inject(vfs.Rule{Name: "hang", Ops: vfs.OpSync, Glob: "*.seg", Stall: true})
	stored := make(chan error, 1)
	go func() { stored <- s.StoreLog(entry(2, 1, 100)) }()
	begun := polltest.Get(t, facts, "the stall to be reported while the write hangs")
	if begun.Ended || begun.For < 20*time.Millisecond || s.InFlight() < 20*time.Millisecond {
		t.Fatalf("%+v, in flight %s", begun, s.InFlight())
	}
	faulty.Lift("hang")
	if err := polltest.Get(t, stored, "the write to end"); err != nil {
		t.Fatal(err)
	}
	if ended := polltest.Get(t, facts, "the end of the stall"); !ended.Ended || ended.For < begun.For {
		t.Fatalf("%+v", ended)
	}
	close(stop)
	<-done
	s.Close()
}

// TestIdleDiskIsProbed: a disk that hangs or fails is noticed although nobody writes.
func TestIdleDiskIsProbed(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	facts := make(chan Stall, 8)
	s, err := Open(Config{Group: "test", Dir: "/log", FS: faulty, SegmentBytes: testSegment,
		StallAfter: 20 * time.Millisecond,
		OnStall:    func(st Stall) { facts <- st }})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s, 1, 3, 1, 100)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { s.Run(stop); close(done) }()
	faulty.Inject(vfs.Rule{Name: "hang", Ops: vfs.OpSync, Stall: true})
	if begun := polltest.Get(t, facts, "the stall to be reported"); begun.Ended {
		t.Fatalf("%+v", begun)
	}
	faulty.Inject(vfs.Rule{Name: "broken", Ops: vfs.OpSync, Err: syscall.EIO})
	faulty.Lift("hang")
	polltest.Until(t, func() bool { return s.Err() != nil }, "the failing disk to be noticed")
	close(stop)
	<-done
	faulty.LiftAll()
	s.Close()
	again, err := open(t, faulty)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if last, _ := again.LastIndex(); last != 3 {
		t.Fatalf("the last index is %d", last)
	}
}

func FuzzOpenDamagedSegment(f *testing.F) {
	mem := vfs.NewMem()
	s, err := open(f, mem)
	if err != nil {
		f.Fatal(err)
	}
	fill(f, s, 1, 5, 1, 64)
	s.Close()
	all := files(f, mem)
	name := segmentName(1, 1)
	f.Add(all[name][:600], uint16(0))
	f.Add([]byte("CRBLSEG1"), uint16(40))
	f.Fuzz(func(t *testing.T, data []byte, cut uint16) {
		scanned, why := scanSegment(data, 1, 1, 0)
		if why == "" && scanned.end > int64(len(data)) {
			t.Fatal("the scan went past the end")
		}
		decodeManifest(data)
		decodeSlot(data)
		_ = cut
	})
}

func BenchmarkAppend(b *testing.B) {
	s, err := Open(Config{Group: "bench", Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	i := uint64(0)
	for b.Loop() {
		i++
		if err := s.StoreLog(entry(i, 1, 256)); err != nil {
			b.Fatal(err)
		}
	}
}
