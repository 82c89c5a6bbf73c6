package counterstate

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/kit/vfs/powertest"
	"corbel.dev/corbel/usage/eventlog"
)

func folder(t *testing.T, fsys vfs.FS) *Folder {
	t.Helper()
	f, err := NewFolder(fsys, "/snapshots")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func numbered(n int) Snapshot {
	return Snapshot{At: time.Unix(int64(n), 5).UTC(), State: bytes.Repeat(fmt.Appendf(nil, "state %d ", n), 100),
		Positions: []eventlog.Position{{Partition: 3, Offset: uint64(n), Note: []byte("n")}, {Partition: 4, Offset: 1 << 60}}}
}

func TestSaveAndLoad(t *testing.T) {
	mem := vfs.NewMem()
	s := New(Config{Blobs: folder(t, mem)})
	if _, err := s.Load(t.Context(), "p-1"); errkind.Of(err) != errkind.NotFound {
		t.Fatal(err)
	}
	for n := range 5 {
		for _, name := range []string{"p-1", "p-10", "p"} { // one is the other's beginning
			snap := numbered(n)
			snap.State = append(snap.State, name...)
			if err := s.Save(t.Context(), name, snap); err != nil {
				t.Fatal(err)
			}
			got, err := s.Load(t.Context(), name)
			if err != nil || !reflect.DeepEqual(got, snap) {
				t.Fatalf("%s %d: %v, %v", name, n, got.At, err)
			}
		}
	}
	names, err := folder(t, mem).List(t.Context(), "")
	if err != nil || len(names) != 6 {
		t.Fatal("two of each are kept:", names, err)
	}
	empty := Snapshot{At: time.Unix(0, 0).UTC()}
	if err := s.Save(t.Context(), "empty", empty); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(t.Context(), "empty"); err != nil || len(got.State) != 0 || len(got.Positions) != 0 {
		t.Fatal(got, err)
	}
}

func TestRefused(t *testing.T) {
	s := New(Config{Blobs: folder(t, vfs.NewMem()), MaxBytes: 100})
	for _, name := range []string{"", "a/b", "..", "A", "a@1", strings.Repeat("a", MaxNameBytes+1)} {
		if err := s.Save(t.Context(), name, Snapshot{}); errkind.Of(err) != errkind.Invalid {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := s.Load(t.Context(), name); errkind.Of(err) != errkind.Invalid {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := s.Save(t.Context(), "a", Snapshot{State: make([]byte, 101)}); errkind.Of(err) != errkind.TooLarge {
		t.Error(err)
	}
}

// Damage is found wherever it is, and the snapshot before it is taken.
func TestDamage(t *testing.T) {
	mem := vfs.NewMem()
	f := folder(t, mem)
	s := New(Config{Blobs: f})
	for n := range 2 {
		if err := s.Save(t.Context(), "p", numbered(n)); err != nil {
			t.Fatal(err)
		}
	}
	names, _ := f.List(t.Context(), "p@")
	newest := "/snapshots/" + names[1]
	good, err := vfs.ReadFile(mem, newest)
	if err != nil {
		t.Fatal(err)
	}
	write := func(data []byte) {
		t.Helper()
		if err := vfs.WriteFileAtomic(mem, newest, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for at := range good {
		bad := bytes.Clone(good)
		bad[at] ^= 1 << (at % 8)
		write(bad)
		if got, err := s.Load(t.Context(), "p"); err != nil || !reflect.DeepEqual(got, numbered(0)) {
			t.Fatal(at, got.At, err)
		}
		write(good[:at])
		if got, err := s.Load(t.Context(), "p"); err != nil || !reflect.DeepEqual(got, numbered(0)) {
			t.Fatal("cut at", at, got.At, err)
		}
	}
	other, err := encoded("q", numbered(7))
	if err != nil {
		t.Fatal(err)
	}
	write(other)
	if got, err := s.Load(t.Context(), "p"); err != nil || !reflect.DeepEqual(got, numbered(0)) {
		t.Fatal("a snapshot of another name:", got, err)
	}
	if err := vfs.WriteFileAtomic(mem, "/snapshots/"+names[0], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context(), "p"); errkind.Of(err) != errkind.Corrupt {
		t.Fatal("all are damaged:", err)
	}
	if err := s.Save(t.Context(), "p", numbered(9)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(t.Context(), "p"); err != nil || !reflect.DeepEqual(got, numbered(9)) {
		t.Fatal("and life goes on:", got, err)
	}
}

// A store that does not answer is no reason to take an older snapshot.
func TestDiskThatFails(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	s := New(Config{Blobs: folder(t, faulty)})
	for n := range 2 {
		if err := s.Save(t.Context(), "p", numbered(n)); err != nil {
			t.Fatal(err)
		}
	}
	faulty.Inject(vfs.Rule{Name: "x", Ops: vfs.OpRead, Count: 1, Err: syscall.EIO})
	if got, err := s.Load(t.Context(), "p"); !errors.Is(err, syscall.EIO) || errkind.Of(err) != errkind.Unavailable {
		t.Fatal(got, err)
	}
}

// Two owners lose nothing of each other's.
func TestTwoOwners(t *testing.T) {
	f := folder(t, vfs.NewMem())
	s := New(Config{Blobs: f, Keep: 1000})
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := range 20 {
				err := s.Save(context.Background(), "p", numbered(w*100+i))
				if err != nil && errkind.Of(err) != errkind.Conflict {
					t.Error(err)
				}
				if err != nil {
					t.Log("owner", w, err)
				}
			}
		})
	}
	wg.Wait()
	names, err := f.List(t.Context(), "p@")
	if err != nil || len(names) < 35 {
		t.Fatal(len(names), err)
	}
	seen := map[string]bool{}
	for _, name := range names {
		data, err := f.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		snap, err := decode("p", data, 1<<20)
		if err != nil || seen[string(snap.State)] {
			t.Fatal(name, err)
		}
		seen[string(snap.State)] = true
	}
}

// powerStore saves number n in step n.
type powerStore struct{ *Store }

// Step implements powertest.Store.
func (p powerStore) Step(n int) error { return p.Save(context.Background(), "p", numbered(n)) }

// Have implements powertest.Store.
func (p powerStore) Have() (int, error) {
	snap, err := p.Load(context.Background(), "p")
	if errkind.Is(err, errkind.NotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n := int(snap.At.Unix())
	if !reflect.DeepEqual(snap, numbered(n)) {
		return 0, fmt.Errorf("snapshot %d is another one", n)
	}
	return n, nil
}

// Close implements powertest.Store.
func (p powerStore) Close() error { return nil }

func TestPower(t *testing.T) {
	for pieces, steps := range map[int]int{0: 8, 20: 5} { // whole, and each in two or three
		powertest.Run(t, powertest.Kind{Steps: steps, Open: func(fsys vfs.FS) (powertest.Store, error) {
			f, err := NewFolder(fsys, "/snapshots")
			return powerStore{New(Config{Blobs: f, PieceBytes: pieces})}, err
		}})
	}
}

// sealed is a blob with the right checksum.
func sealed(kind string, body []byte) []byte {
	data := append([]byte(kind), 0, 0, 0, 0)
	data = append(data, body...)
	binary.LittleEndian.PutUint32(data[len(kind):], checksum(body))
	return data
}

func FuzzDecode(f *testing.F) {
	for n := range 3 {
		data, err := encoded("p", numbered(n))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[headBytes:])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		snap, err := decode("p", sealed(magic, body), 1<<20)
		if err != nil {
			return
		}
		if len(snap.State) > 1<<20 {
			t.Fatal(len(snap.State))
		}
		again, err := encoded("p", snap.Snapshot)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decode("p", again, 1<<20); err != nil || !reflect.DeepEqual(got, snap) {
			t.Fatal(got, err)
		}
	})
}
