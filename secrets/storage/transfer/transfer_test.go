package transfer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
)

// flaky fails the commit that its countdown reaches.
type flaky struct {
	storage.Backend
	left int
}

var errFlaky = errors.New("the disk is full")

func (f *flaky) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	if f.left--; f.left == 0 {
		return errFlaky
	}
	return f.Backend.Commit(ctx, epoch, ops)
}

func source(t *testing.T, n int) storage.Backend {
	t.Helper()
	s := memstore.New()
	var ops []storage.Op
	for i := range n {
		ops = append(ops, storage.Put(fmt.Sprintf("logical/%04d", i), []byte(strings.Repeat(fmt.Sprint(i), i%50))))
	}
	ops = append(ops, storage.Put("logical/large", make([]byte, 2*pageBytes)), storage.Put("core/a", nil),
		storage.Put("sys/z", []byte("last")))
	if err := s.Commit(t.Context(), 0, ops); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTransfer(t *testing.T) {
	from, to := source(t, 1700), memstore.New()
	told := 0
	r, err := Run(t.Context(), Config{From: from, To: to, Progress: func(Report) { told++ }})
	if err != nil || r.Copied != 1703 || r.Verified != 1703 || r.Resumed || told < 4 {
		t.Fatalf("%v, %+v, told %d times", err, r, told)
	}
	if _, ok, _ := to.Get(t.Context(), marker); ok {
		t.Fatal("the marker is left")
	}
	if _, err := Run(t.Context(), Config{From: from, To: to}); !errkind.Is(err, errkind.Conflict) {
		t.Fatal("a destination with records is taken:", err)
	}
}

// Wherever it ends, it goes on from there, and what was copied is not copied again.
func TestTransferGoesOn(t *testing.T) {
	from := source(t, 1700)
	for at := 1; ; at++ {
		to := &flaky{memstore.New(), at}
		first, err := Run(t.Context(), Config{From: from, To: to})
		if err == nil {
			if at < 5 {
				t.Fatalf("only %d commits", at)
			}
			return
		}
		if !errors.Is(err, errFlaky) {
			t.Fatal(err)
		}
		second, err := Run(t.Context(), Config{From: from, To: to})
		if err != nil || second.Resumed != (first.Copied > 0) || first.Copied+second.Copied != 1703 ||
			second.Verified != 1703 {
			t.Fatalf("commit %d: %v, %+v, then %+v", at, err, first, second)
		}
	}
}

func TestWhatDiffersIsNamed(t *testing.T) {
	for name, ops := range map[string][]storage.Op{
		"changed": {storage.Put("logical/0001", []byte("other"))}, "added": {storage.Put("logical/0001x", []byte("other"))},
		"gone": {storage.Delete("logical/0001")},
	} {
		from, to := source(t, 10), memstore.New()
		changed := false
		_, err := Run(t.Context(), Config{From: from, To: to, Progress: func(Report) {
			if !changed {
				changed = true
				if err := from.Commit(t.Context(), 0, ops); err != nil {
					t.Error(err)
				}
			}
		}})
		if !errkind.Is(err, errkind.Corrupt) || !strings.Contains(err.Error(), "logical/0001") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDirectionsAreKept(t *testing.T) {
	from, to := source(t, 10), &flaky{memstore.New(), 2}
	if _, err := Run(t.Context(), Config{From: from, To: to}); !errors.Is(err, errFlaky) {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), Config{From: to, To: memstore.New()}); !errkind.Is(err, errkind.Conflict) {
		t.Fatal("half of a storage is copied on:", err)
	}
}
