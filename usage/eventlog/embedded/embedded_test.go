package embedded

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/eventlog/logtest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func config(fsys vfs.FS) Config {
	return Config{FS: fsys, Dir: "/log", Partitions: logtest.Partitions, SegmentBytes: 2000}
}

func open(t *testing.T, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestConformance(t *testing.T) {
	for _, kind := range []struct {
		name string
		fs   func() (vfs.FS, string)
	}{
		{"memory", func() (vfs.FS, string) { return vfs.NewMem(), "/log" }},
		{"disk", func() (vfs.FS, string) { return vfs.OS{}, t.TempDir() }},
	} {
		t.Run(kind.name, func(t *testing.T) {
			fsys, root := kind.fs()
			logtest.Run(t, logtest.Engine{Open: func(t *testing.T, name string) eventlog.Log {
				cfg := config(fsys)
				cfg.Dir = filepath.Join(root, strings.ReplaceAll(name, "/", "-"))
				return open(t, cfg)
			}})
		})
	}
}

func put(l *Log, partition int, texts ...string) ([]uint64, error) {
	var entries []eventlog.Entry
	for _, s := range texts {
		entries = append(entries, eventlog.Entry{Partition: partition, Data: []byte(s)})
	}
	return l.Append(context.Background(), entries)
}

// What waits while a frame is written goes into the next one together.
func TestOneFsyncForThoseWhoWait(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	cfg := config(faulty)
	cfg.SegmentBytes = 1 << 20
	l := open(t, cfg)
	if _, err := put(l, 0, "first"); err != nil {
		t.Fatal(err)
	}
	faulty.Inject(vfs.Rule{Name: "stall", Ops: vfs.OpSync, Stall: true})
	before := l.journal.Sequence()
	var wg sync.WaitGroup
	appendOne := func(i int) {
		if _, err := put(l, i%4, fmt.Sprint(i)); err != nil {
			t.Error(err)
		}
	}
	wg.Go(func() { appendOne(0) })
	polltest.Until(t, func() bool { return faulty.Status()[0].Waiting > 0 }, "the fsync to stall")
	for i := range 50 {
		wg.Go(func() { appendOne(i) })
	}
	polltest.Until(t, func() bool { return waiting(l) == 50 }, "appends to wait")
	faulty.LiftAll()
	wg.Wait()
	if frames := l.journal.Sequence() - before; frames != 2 {
		t.Fatalf("%d frames for one append and 50 that waited for it", frames)
	}
}

func waiting(l *Log) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending)
}

// A caller that gives up is told whether its append may be stored.
func TestGivingUp(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	l := open(t, config(faulty))
	faulty.Inject(vfs.Rule{Name: "stall", Ops: vfs.OpSync, Stall: true})
	writer := make(chan error, 1)
	go func() { _, err := put(l, 0, "writes"); writer <- err }()
	polltest.Until(t, func() bool { return faulty.Status()[0].Waiting > 0 }, "the fsync to stall")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := l.Append(ctx, []eventlog.Entry{{Partition: 1, Data: []byte("waits")}})
	if errkind.Of(err) != errkind.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal("one that nobody has begun to write:", err)
	}
	faulty.LiftAll()
	if err := <-writer; err != nil {
		t.Fatal(err)
	}
	if b, _ := l.Bounds(t.Context()); b[0].Next != 1 || b[1].Next != 0 {
		t.Fatal("stored:", b)
	}
}

func TestBoundsOfMemoryAndDisk(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	cfg := config(faulty)
	cfg.PendingBytes, cfg.MaxBytes = 1000, 20_000
	l := open(t, cfg)
	faulty.Inject(vfs.Rule{Name: "stall", Ops: vfs.OpSync, Stall: true})
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = put(l, 0, "writes") })
	polltest.Until(t, func() bool { return faulty.Status()[0].Waiting > 0 }, "the fsync to stall")
	wg.Go(func() { _, _ = put(l, 0, strings.Repeat("x", 800)) })
	polltest.Until(t, func() bool { return waiting(l) == 1 }, "one to wait")
	if _, err := put(l, 0, strings.Repeat("x", 800)); errkind.Of(err) != errkind.Overloaded {
		t.Fatal("more waits than may:", err)
	}
	faulty.LiftAll()
	wg.Wait()

	var err error
	n := uint64(2)
	for ; err == nil && n < 1000; n++ {
		_, err = put(l, 1, strings.Repeat("y", 500))
	}
	if errkind.Of(err) != errkind.Overloaded {
		t.Fatal("the log grows without end:", err)
	}
	if info := l.Info(); info.Bytes < info.Most || info.Bytes > info.Most+4000 {
		t.Fatalf("%+v", info)
	}
	b, _ := l.Bounds(t.Context())
	if err := l.Commit(t.Context(), "counter", []eventlog.Position{{Partition: 0, Offset: b[0].Next},
		{Partition: 1, Offset: b[1].Next}}); err != nil {
		t.Fatal("a full log takes what makes room:", err)
	}
	// It is young, but the log is full: what was read goes.
	if err := (eventlog.Janitor{Log: l, Groups: []string{"counter"}}).Trim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := put(l, 1, "there is room"); err != nil {
		t.Fatal(err)
	}
}

func TestDiskErrors(t *testing.T) {
	for _, errno := range []error{syscall.EIO, syscall.ENOSPC} {
		for skip := range 60 {
			faulty := vfs.NewFaulty(vfs.NewMem())
			cfg := config(faulty)
			cfg.SegmentBytes = 600
			l := open(t, cfg)
			faulty.Inject(vfs.Rule{Name: "x", Ops: vfs.OpWrite | vfs.OpSync | vfs.OpSyncDir | vfs.OpOpen, Skip: skip,
				Count: 1, Err: errno})
			acked := map[uint64]string{}
			var failed error
			for i := range 20 {
				s := fmt.Sprintf("%d %0100d", i, i)
				offsets, err := put(l, 2, s)
				switch {
				case err == nil && failed != nil && errkind.Of(failed) == errkind.Unknown:
					t.Fatalf("operation %d: it goes on after %v", skip, failed)
				case err == nil:
					acked[offsets[0]] = s
				case failed == nil:
					failed = err
				}
			}
			if len(acked) == 20 && skip < 40 {
				t.Fatalf("operation %d: nothing failed", skip)
			}
			if errno == syscall.ENOSPC && errkind.Is(failed, errkind.Unavailable) && len(acked) < 19 {
				t.Fatalf("operation %d: a disk that was full once stays full: %d of 20", skip, len(acked))
			}
			faulty.LiftAll()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			holds(t, open(t, cfg), 2, acked)
		}
	}
}

// holds looks that a partition has what was acknowledged.
func holds(t *testing.T, l *Log, partition int, acked map[uint64]string) {
	t.Helper()
	b, err := l.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Reader(map[int]uint64{partition: 0})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	found := 0
	for at := uint64(0); at < b[partition].Next; {
		records, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range records {
			if want, ok := acked[rec.Offset]; ok && want == string(rec.Data) {
				found++
			} else if ok {
				t.Fatalf("offset %d is %q, and %q was acknowledged", rec.Offset, rec.Data, want)
			}
			at = rec.Offset + 1
		}
	}
	if found != len(acked) {
		t.Fatalf("%d of %d records that were acknowledged", found, len(acked))
	}
}

// Damage in an old segment is found by who reads it, and named.
func TestDamageIsNamed(t *testing.T) {
	mem := vfs.NewMem()
	l := open(t, config(mem))
	for i := range 60 {
		if _, err := put(l, 0, fmt.Sprintf("%0100d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("/log", fmt.Sprintf("usage-%016x", l.durable.segments[1].before))
	data, err := vfs.ReadFile(mem, path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/3] ^= 4
	if err := vfs.WriteFileAtomic(mem, path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	l = open(t, config(mem))
	r, err := l.Reader(map[int]uint64{0: 0})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for err == nil {
		_, err = r.Next(t.Context())
	}
	if errkind.Of(err) != errkind.Corrupt || !strings.Contains(err.Error(), path) {
		t.Fatal(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	mem := vfs.NewMem()
	l := open(t, config(mem))
	if _, err := Open(config(mem)); !errors.Is(err, vfs.ErrLocked) {
		t.Fatal("it is open already:", err)
	}
	if _, err := put(l, 0, "x"); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := put(l, 0, "x"); !errors.Is(err, errClosed) {
		t.Fatal(err)
	}
	cfg := config(mem)
	cfg.Partitions = 8
	if _, err := Open(cfg); errkind.Of(err) != errkind.Invalid {
		t.Fatal("another number of partitions:", err)
	}
	cfg.Partitions = 0
	if got := open(t, cfg).Partitions(); got != logtest.Partitions {
		t.Fatal(got)
	}
	cfg.Partitions = eventlog.MaxPartitions + 1
	if _, err := Open(cfg); errkind.Of(err) != errkind.Invalid {
		t.Fatal(err)
	}
}

func TestGroupsAreBounded(t *testing.T) {
	l := open(t, config(vfs.NewMem()))
	var err error
	for i := range maxGroups + 1 {
		if err != nil {
			t.Fatal(err)
		}
		err = l.Commit(t.Context(), fmt.Sprint("group ", i), []eventlog.Position{{}})
	}
	if errkind.Of(err) != errkind.Invalid {
		t.Fatal(err)
	}
}

// Who reads the last records of a long segment does not read those before them, also after a restart.
func TestReadsTheEndAlone(t *testing.T) {
	cfg := config(vfs.NewMem())
	cfg.SegmentBytes, cfg.Partitions = 4<<20, 2
	l := open(t, cfg)
	for i := range 3000 {
		if _, err := put(l, i%2, fmt.Sprintf("%d %s", i, strings.Repeat("x", 1000))); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		for _, offset := range []uint64{0, 700, 1499} {
			made, err := l.Reader(map[int]uint64{1: offset})
			if err != nil {
				t.Fatal(err)
			}
			r := made.(*reader)
			before := r.sequence
			list, err := r.Next(t.Context())
			want := fmt.Sprint(2*offset+1, " ")
			if err != nil || list[0].Offset != offset || !strings.HasPrefix(string(list[0].Data), want) {
				t.Fatalf("%v %v", list, err)
			}
			if most := uint64(l.placeEvery()/1000 + 2); r.sequence-before > most {
				t.Errorf("offset %d: %d frames were read, want at most %d", offset, r.sequence-before, most)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = open(t, cfg)
	}
}
