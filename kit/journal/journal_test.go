package journal

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

const dir = "/j"

func config(fsys vfs.FS) Config {
	return Config{FS: fsys, Dir: dir, Prefix: "log", Log: slog.New(slog.DiscardHandler), SegmentBytes: 200, Ahead: 64}
}

// open returns the journal and the contents that it replayed.
func open(t *testing.T, fsys vfs.FS) (*Journal, []string) {
	t.Helper()
	j, got, err := tryOpen(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return j, got
}

func tryOpen(fsys vfs.FS) (*Journal, []string, error) {
	var got []string
	j, err := Open(config(fsys), func(sequence uint64, content []byte) error {
		got = append(got, fmt.Sprintf("%d:%s", sequence, content))
		return nil
	})
	return j, got, err
}

// write appends frames until one fails, and returns what was acknowledged.
func write(j *Journal, n int) (acked []string, err error) {
	for range n {
		text := fmt.Sprintf("frame after %d", j.Sequence())
		seq, err := j.Append([]byte(text[:5]), []byte(text[5:]))
		if err != nil {
			return acked, err
		}
		acked = append(acked, fmt.Sprintf("%d:%s", seq, text))
	}
	return acked, nil
}

func TestAppendAndReplay(t *testing.T) {
	fsys := vfs.NewMem()
	j, _ := open(t, fsys)
	want, err := write(j, 20)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(j.Segments()); n < 3 {
		t.Fatalf("%d segments", n)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, got := open(t, fsys)
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Fatalf("%v\nwant %v", got, want)
	}
	more, err := write(j, 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, got = open(t, fsys); strings.Join(got, "|") != strings.Join(append(want, more...), "|") {
		t.Fatalf("after going on: %v", got)
	}
}

func TestDrop(t *testing.T) {
	fsys := vfs.NewMem()
	j, _ := open(t, fsys)
	all, _ := write(j, 20)
	second := j.Segments()[1].Before
	if err := j.Drop(second - 1); err != nil || j.Segments()[0].Before != 0 {
		t.Fatal("a segment with a frame that is needed was dropped", err)
	}
	if err := j.Drop(second); err != nil || j.Segments()[0].Before != second {
		t.Fatal(err, j.Segments())
	}
	if _, got := open(t, fsys); strings.Join(got, "|") != strings.Join(all[second:], "|") {
		t.Fatalf("%v", got)
	}
	if err := j.Drop(1 << 40); err != nil || len(j.Segments()) != 1 {
		t.Fatal("the segment being written is kept:", err, j.Segments())
	}
	if _, err := write(j, 1); err != nil {
		t.Fatal(err)
	}
}

// A power loss before any operation leaves all that was acknowledged, and at most the frame that was under way beside.
func TestPowerLossAnywhere(t *testing.T) {
	for point := 1; ; point++ {
		mem := vfs.NewMem()
		var crashed *vfs.Mem
		faulty := vfs.NewFaulty(mem)
		ops := 0
		faulty.Observe = func(vfs.Op, string) {
			if ops++; ops == point {
				crashed = mem.Crash(rand.New(rand.NewPCG(uint64(point), 1)))
			}
		}
		var acked []string
		atCrash := -1
		j, _, err := tryOpen(faulty)
		for range 12 {
			if err != nil {
				t.Fatal(err)
			}
			if crashed != nil && atCrash < 0 {
				atCrash = len(acked)
			}
			var one []string
			if one, err = write(j, 1); err == nil {
				acked = append(acked, one...)
			}
		}
		if crashed == nil {
			if point < 30 {
				t.Fatalf("only %d operations", point)
			}
			return
		}
		if atCrash < 0 {
			atCrash = len(acked) - 1
		}
		_, got, err := tryOpen(crashed)
		if err != nil {
			t.Fatalf("operation %d: %v", point, err)
		}
		if n := len(got); n < atCrash-1 || n > len(acked) || strings.Join(got, "|") != strings.Join(acked[:n], "|") {
			t.Fatalf("operation %d: %v\nof %v, %d before", point, got, acked, atCrash)
		}
	}
}

func TestDiskErrors(t *testing.T) {
	for _, errno := range []error{syscall.EIO, syscall.ENOSPC} {
		for skip := range 40 {
			faulty := vfs.NewFaulty(vfs.NewMem())
			j, _ := open(t, faulty)
			acked, _ := write(j, 2)
			faulty.Inject(vfs.Rule{Name: "x", Skip: skip, Count: 1, Err: errno, Short: -1})
			more, err := write(j, 10)
			acked = append(acked, more...)
			faulty.LiftAll()
			if err != nil {
				kind := errkind.Of(err)
				rest, again := write(j, 1)
				if kind == errkind.Unavailable && again == nil {
					acked = append(acked, rest...) // the failed frame left nothing behind
				} else if again == nil {
					t.Fatalf("operation %d: went on after %v", skip, err)
				}
			}
			_, got, err := tryOpen(faulty)
			if err != nil || len(got) < len(acked) || len(got) > len(acked)+1 ||
				strings.Join(got[:len(acked)], "|") != strings.Join(acked, "|") {
				t.Fatalf("operation %d: %v: %v\nwant %v", skip, err, got, acked)
			}
		}
	}
}

func TestDamageIsNamed(t *testing.T) {
	fsys := vfs.NewMem()
	j, _ := open(t, fsys)
	all, _ := write(j, 20)
	first := filepath.Join(dir, "log-0000000000000000")
	good, err := vfs.ReadFile(fsys, first)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(good); at++ {
		bad := bytes.Clone(good)
		bad[at] ^= 1 << (at % 8)
		if err := vfs.WriteFileAtomic(fsys, first, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		_, got, err := tryOpen(fsys)
		if errkind.Of(err) != errkind.Corrupt || !strings.Contains(err.Error(), first) {
			t.Fatalf("bit flipped at %d: %v, %v", at, err, got)
		}
	}
	if err := vfs.WriteFileAtomic(fsys, first, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, got := open(t, fsys); strings.Join(got, "|") != strings.Join(all, "|") {
		t.Fatal("an attempt to open changed something")
	}
	if err := fsys.Remove(filepath.Join(dir, fmt.Sprintf("log-%016x", j.Segments()[1].Before))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tryOpen(fsys); errkind.Of(err) != errkind.Corrupt {
		t.Fatal("a segment is missing:", err)
	}
}

// Damage within the newest segment, with a sound frame behind it.
func TestDamageBeforeASoundFrame(t *testing.T) {
	fsys := vfs.NewMem()
	j, _ := open(t, fsys)
	if _, err := write(j, 3); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "log-0000000000000000")
	data, _ := vfs.ReadFile(fsys, path)
	data[headBytes+3] ^= 1
	if err := vfs.WriteFileAtomic(fsys, path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tryOpen(fsys); errkind.Of(err) != errkind.Corrupt || !errors.Is(err, errDamaged) {
		t.Fatal(err)
	}
}

func FuzzOpen(f *testing.F) {
	fsys := vfs.NewMem()
	j, err := Open(config(fsys), func(uint64, []byte) error { return nil })
	if err != nil {
		f.Fatal(err)
	}
	_, _ = write(j, 3)
	data, _ := vfs.ReadFile(fsys, filepath.Join(dir, "log-0000000000000000"))
	f.Add(data)
	f.Fuzz(func(t *testing.T, b []byte) {
		fsys := vfs.NewMem()
		if err := fsys.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFileAtomic(fsys, filepath.Join(dir, "log-0000000000000000"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		j, got, err := tryOpen(fsys)
		if err != nil {
			return
		}
		acked, err := write(j, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, again, err := tryOpen(fsys); err != nil ||
			strings.Join(again, "|") != strings.Join(append(got, acked...), "|") {
			t.Fatalf("%v: %v, then %v", err, got, again)
		}
	})
}

func TestEach(t *testing.T) {
	j, _ := open(t, vfs.NewMem())
	want, err := write(j, 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, after := range []uint64{0, 1, 7, 19, 20, 99} {
		var got []string
		err := j.Each(after, func(sequence uint64, content []byte) error {
			got = append(got, fmt.Sprintf("%d:%s", sequence, content))
			return nil
		})
		if err != nil || strings.Join(got, "|") != strings.Join(want[min(after, 20):], "|") {
			t.Fatalf("after %d: %v, %v", after, got, err)
		}
	}
	stop := errors.New("enough")
	if err := j.Each(0, func(uint64, []byte) error { return stop }); err != stop {
		t.Fatal("the error of the reader is not given as it is:", err)
	}
	if err := j.Drop(10); err != nil {
		t.Fatal(err)
	}
	first := uint64(0)
	err = j.Each(0, func(sequence uint64, _ []byte) error { first = sequence; return stop })
	if !errors.Is(err, stop) || first != j.Segments()[0].Before+1 || first == 1 {
		t.Fatal("what is left is read from its beginning:", first, err)
	}
}

// A cursor gives each frame once and in order, however it meets the appends, the rolls and the drops.
func TestCursor(t *testing.T) {
	fsys := vfs.NewMem()
	j, _ := open(t, fsys)
	c := j.Cursor(0)
	next := func(c *Cursor) string {
		sequence, content, ok, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return ""
		}
		return fmt.Sprintf("%d:%s", sequence, content)
	}
	if got := next(c); got != "" {
		t.Fatalf("an empty journal gives %q", got)
	}
	var all []string
	for i := range 30 {
		some, err := write(j, i%4)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range some {
			if got := next(c); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
		if got := next(c); got != "" {
			t.Fatalf("more than was written: %q", got)
		}
		all = append(all, some...)
	}
	behind := j.Cursor(3)
	if got := next(behind); got != all[3] {
		t.Fatalf("got %q, want %q", got, all[3])
	}
	if err := j.Drop(20); err != nil {
		t.Fatal(err)
	}
	for got, left := next(behind), false; got != ""; got = next(behind) { // what is left, to the end
		if got == all[j.Segments()[0].Before] {
			left = true
		}
		if got == all[len(all)-1] && !left {
			t.Fatal("a frame that is left was passed over")
		}
	}
	if err := errors.Join(behind.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestSkim: a journal that is opened without reading all of it has all of it, and damage is found where it is read.
func TestSkim(t *testing.T) {
	fsys := vfs.NewMem()
	j, _ := open(t, fsys)
	all, err := write(j, 30)
	if err != nil {
		t.Fatal(err)
	}
	segments := j.Segments()
	skim := func() (*Journal, []uint64) {
		t.Helper()
		var heads []uint64
		cfg := config(fsys)
		cfg.Skim = true
		j, err := Open(cfg, func(sequence uint64, _ []byte) error { heads = append(heads, sequence); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return j, heads
	}
	j, heads := skim()
	for i, s := range segments[:len(segments)-1] { // of the two newest all is replayed
		if heads[i] != s.Before+1 || i < len(segments)-3 && slices.Contains(heads, s.Before+2) {
			t.Fatalf("segment %d begins with frame %d, and %d is replayed", i, s.Before+1, heads[i])
		}
	}
	if !slices.Contains(heads, j.Sequence()) {
		t.Fatal("the newest frame is not replayed:", heads)
	}
	more, err := write(j, 3)
	if err != nil {
		t.Fatal(err)
	}
	read := func() (got []string, err error) {
		err = j.Each(0, func(sequence uint64, content []byte) error {
			got = append(got, fmt.Sprintf("%d:%s", sequence, content))
			return nil
		})
		return got, err
	}
	if got, err := read(); err != nil || strings.Join(got, "|") != strings.Join(append(all, more...), "|") {
		t.Fatal(err, got)
	}
	second := j.path(segments[1].Before)
	data, _ := vfs.ReadFile(fsys, second)
	data[headBytes*2+30] ^= 1
	if err := vfs.WriteFileAtomic(fsys, second, data, 0o600); err != nil {
		t.Fatal(err)
	}
	j, _ = skim()
	if got, err := read(); errkind.Of(err) != errkind.Corrupt || !strings.Contains(err.Error(), second) {
		t.Fatal(err, got)
	}
}

// A Cursor that begins in the middle of a segment passes over no more than what is between two marks, in a journal that
// was written and in one that was opened; and it begins with the right frame.
func TestCursorBeginsNear(t *testing.T) {
	fsys := vfs.NewMem()
	cfg := config(fsys)
	cfg.SegmentBytes = 16 << 10
	var j *Journal
	again := func() {
		var err error
		if j, err = Open(cfg, func(uint64, []byte) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	again()
	if _, err := write(j, 2000); err != nil {
		t.Fatal(err)
	}
	for _, opened := range []bool{false, true} {
		if opened {
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			again()
		}
		for from := uint64(0); from < j.Sequence(); from += 7 {
			c := j.Cursor(from)
			segment, _, _ := j.around(from)
			if err := c.open(segment.Before); err != nil {
				t.Fatal(err)
			}
			began := c.at
			sequence, content, ok, err := c.Next()
			if err != nil || !ok || sequence != from+1 || string(content) != fmt.Sprintf("frame after %d", from) {
				t.Fatalf("behind %d: %d %q, %v, %v", from, sequence, content, ok, err)
			}
			if passed := c.at - began; passed > j.marks.every+200 {
				t.Fatalf("behind %d it passed over %d bytes, and marks are %d apart", from, passed, j.marks.every)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(j.Drop(j.Sequence()), j.Close()); err != nil || len(j.marks.of) > 1 {
		t.Fatalf("%v; marks of %d segments are kept", err, len(j.marks.of))
	}
}
