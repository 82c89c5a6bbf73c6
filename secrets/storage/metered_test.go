package storage_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
	"corbel.dev/corbel/secrets/storage/storagetest"
	"corbel.dev/corbel/telemetry"
)

// hanging does not return from a commit before it is let go.
type hanging struct {
	storage.Backend
	release chan error
}

func (h *hanging) Commit(ctx context.Context, _ storage.Epoch, _ []storage.Op) error {
	select {
	case err := <-h.release:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestMeteredIsABackend(t *testing.T) {
	storagetest.Run(t, storagetest.Kit{Open: func(*testing.T) storage.Backend {
		return storage.Meter(memstore.New(), "secrets", telemetry.New(telemetry.Config{}))
	}})
}

// TestMetered: calls are timed, the oldest one that hangs has an age, and only faults of the storage are counted as
// such.
func TestMetered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := telemetry.New(telemetry.Config{})
		h := &hanging{Backend: memstore.New(), release: make(chan error)}
		m := storage.Meter(h, "secrets", r)
		name := m.Info().Name
		age := func() (v float64) {
			r.NewCursor().EachOf(func(s *telemetry.Series) bool { return s.Name == "storage.inflight_ms" },
				func(x *telemetry.Reading) { v = x.Sum })
			return v
		}
		done := make(chan error)
		for range 2 {
			go func() { done <- m.Commit(t.Context(), 0, nil) }()
			time.Sleep(time.Second)
		}
		if _, _, err := m.Get(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if got := age(); got != 2000 {
			t.Errorf("the oldest call has an age of %v ms", got)
		}
		h.release <- errkind.Errorf(errkind.Unavailable, "gone")
		<-done
		h.release <- storage.Fenced(1, 2)
		<-done
		if got := age(); got != 0 {
			t.Errorf("nothing is in flight, and the oldest has an age of %v ms", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { done <- m.Commit(ctx, 0, nil) }()
		synctest.Wait()
		cancel()
		<-done
		commits, reads := r.Timing("storage.call", "plane", "secrets", "backend", name, "op", "commit"),
			r.Timing("storage.call", "plane", "secrets", "backend", name, "op", "read")
		if commits.Count() != 3 || reads.Count() != 1 || r.Counter("storage.errors", "plane", "secrets", "backend",
			name).Value() != 1 {
			t.Errorf("%d commits, %d reads, %d errors", commits.Count(), reads.Count(),
				r.Counter("storage.errors", "plane", "secrets", "backend", name).Value())
		}
	})
}
