package counterstate

import (
	"bytes"
	"context"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/usage/eventlog"
)

// encoded is a snapshot of one piece. The state is compressed as former versions did.
func encoded(name string, snap Snapshot) ([]byte, error) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return encode(name, snap, &pieceWriter{buf: z.EncodeAll(snap.State, nil)}), nil
}

// shaky is a place that fails as a test says.
type shaky struct {
	Blobs
	mu      sync.Mutex
	gets    map[string]int
	largest int
	fail    func(op, name string, times int) error
	bend    func(name string, data []byte) []byte
}

func (s *shaky) judge(op, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets[op+name]++
	if s.fail == nil {
		return nil
	}
	return s.fail(op, name, s.gets[op+name])
}

func (s *shaky) Get(ctx context.Context, name string) ([]byte, error) {
	if err := s.judge("get", name); err != nil {
		return nil, err
	}
	data, err := s.Blobs.Get(ctx, name)
	if s.bend != nil {
		data = s.bend(name, data)
	}
	return data, err
}

func (s *shaky) Put(ctx context.Context, name string, data []byte) error {
	s.largest = max(s.largest, len(data))
	err := s.Blobs.Put(ctx, name, data)
	if failed := s.judge("put", name); failed != nil {
		return failed // it is stored, and nobody hears of it
	}
	return err
}

// large is a state that does not compress.
func large(seed uint64, n int) Snapshot {
	state := make([]byte, n)
	rng := rand.New(rand.NewPCG(seed, 3))
	for i := range state {
		state[i] = byte(rng.Uint32())
	}
	return Snapshot{At: time.Unix(int64(seed), 0).UTC(), State: state,
		Positions: []eventlog.Position{{Partition: 1, Offset: seed}}}
}

func shakyStore(t *testing.T) (*shaky, *Store) {
	b := &shaky{Blobs: folder(t, vfs.NewMem()), gets: map[string]int{}}
	return b, New(Config{Blobs: b, PieceBytes: 1000})
}

// names lists pieces and heads.
func (s *shaky) names(t *testing.T) (pieces, heads []string) {
	t.Helper()
	list, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range list {
		if IsPiece(name) {
			pieces = append(pieces, name)
		} else {
			heads = append(heads, name)
		}
	}
	return pieces, heads
}

// TestPieces: a large state goes in pieces, comes back whole, and goes with them. Those of a process that was killed go
// with the snapshots of its time.
func TestPieces(t *testing.T) {
	b, s := shakyStore(t)
	if err := b.Put(t.Context(), pieceName(blobName("p", 1), "0123", 7), []byte("of one that was killed")); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(4) {
		snap := large(n, 10_500)
		whole := snap
		snap.State, snap.More = snap.State[:5000], [][]byte{snap.State[5000:5001], nil, snap.State[5001:]}
		if err := s.Save(t.Context(), "p", snap); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Load(t.Context(), "p"); err != nil || !reflect.DeepEqual(got, whole) {
			t.Fatal(n, got.At, err)
		}
	}
	pieces, heads := b.names(t)
	if len(heads) != 2 || len(pieces) != 2*11 || strings.Contains(strings.Join(pieces, " "), "0123") {
		t.Errorf("two are kept: %v, %d pieces", heads, len(pieces))
	}
	if b.largest > 1000 {
		t.Errorf("a piece has %d bytes", b.largest)
	}
}

// TestResumed: a piece that fails is asked for again, alone; one whose answer was lost is there.
func TestResumed(t *testing.T) {
	b, s := shakyStore(t)
	b.fail = func(op, name string, times int) error {
		if times < 3 && (strings.HasSuffix(name, "000004") || strings.HasSuffix(name, "000009")) {
			return errkind.Errorf(errkind.Unavailable, "%s of %s fails", op, name)
		}
		return nil
	}
	want := large(1, 12_000)
	if err := s.Save(t.Context(), "p", want); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(t.Context(), "p"); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatal(got.At, err)
	}
	for name, times := range b.gets {
		if strings.HasPrefix(name, "getp@") && strings.HasSuffix(name, "000005") && times != 1 {
			t.Errorf("%s was asked for %d times", name, times)
		}
	}
}

// TestCut: what is cut for good is an error, and leaves nothing of a snapshot that was being saved. What is damaged, or
// gone, gives way to the one before it.
func TestCut(t *testing.T) {
	b, s := shakyStore(t)
	old := large(1, 5000)
	if err := s.Save(t.Context(), "p", old); err != nil {
		t.Fatal(err)
	}
	b.fail = func(op, name string, _ int) error {
		if op == "put" && strings.HasPrefix(name, "p@0000000000000002") && strings.HasSuffix(name, "3") {
			return errkind.New(errkind.Denied, "no")
		}
		return nil
	}
	if err := s.Save(t.Context(), "p", large(2, 6000)); !errkind.Is(err, errkind.Denied) {
		t.Fatal(err)
	}
	if pieces, heads := b.names(t); len(pieces) != 6 || len(heads) != 1 {
		t.Error("something is left: ", pieces, heads)
	}
	b.fail = nil
	if err := s.Save(t.Context(), "p", large(2, 6000)); err != nil {
		t.Fatal(err)
	}
	newest := func(name string) bool { return IsPiece(name) && strings.HasPrefix(name, "p@0000000000000002") }
	for what, bend := range map[string]func([]byte) []byte{
		"cut":     func(d []byte) []byte { return d[:len(d)/2] },
		"another": func(d []byte) []byte { return bytes.Repeat([]byte("x"), len(d)) },
	} {
		b.bend = func(name string, d []byte) []byte {
			if newest(name) {
				return bend(d)
			}
			return d
		}
		if got, err := s.Load(t.Context(), "p"); err != nil || !reflect.DeepEqual(got, old) {
			t.Error(what, got.At, err)
		}
	}
	b.bend = nil
	b.fail = func(_, name string, _ int) error {
		if newest(name) {
			return errkind.New(errkind.Unavailable, "nobody answers")
		}
		return nil
	}
	if got, err := s.Load(t.Context(), "p"); !errkind.Is(err, errkind.Unavailable) {
		t.Error("a place that does not answer is no reason to take an older one: ", got.At, err)
	}
}

// TestOvertaken: who reads so slowly that its snapshot is removed meanwhile gets the newest one.
func TestOvertaken(t *testing.T) {
	b, s := shakyStore(t)
	if err := s.Save(t.Context(), "p", large(1, 5000)); err != nil {
		t.Fatal(err)
	}
	newest := large(9, 5000)
	var once sync.Once
	b.bend = func(name string, d []byte) []byte {
		if strings.HasPrefix(name, "p@0000000000000001.") {
			once.Do(func() {
				for _, snap := range []Snapshot{large(7, 5000), large(8, 5000), newest} {
					if err := New(Config{Blobs: b.Blobs, PieceBytes: 1000}).Save(t.Context(), "p", snap); err != nil {
						t.Error(err)
					}
				}
			})
		}
		return d
	}
	if got, err := s.Load(t.Context(), "p"); err != nil || !reflect.DeepEqual(got, newest) {
		t.Error(got.At, err)
	}
}

func FuzzHead(f *testing.F) {
	w := &pieceWriter{tag: "0a1b", put: []piece{{1000, 7}, {1 << 20, 1<<32 - 1}}}
	f.Add(encode("p", large(3, 2000), w)[headBytes:])
	f.Fuzz(func(t *testing.T, body []byte) {
		h, err := decode("p", sealed(magicPieces, body), 1<<20)
		if err != nil {
			return
		}
		if h.size > 1<<20 || len(h.pieces) == 0 || len(h.pieces) > len(body) {
			t.Fatalf("%+v", h)
		}
	})
}
