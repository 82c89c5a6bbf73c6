package parts

import (
	"context"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/usage/counterstate"
)

// farAway is a place of snapshots that gives nothing until a channel is closed.
type farAway struct {
	counterstate.Blobs
	until chan struct{}
}

func (f farAway) List(ctx context.Context, prefix string) ([]string, error) {
	select {
	case <-f.until:
		return f.Blobs.List(ctx, prefix)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// distant are the places that have copies of snapshots. Who calls it may hold locks.
func (w *world) distant(blobs counterstate.Blobs) []*counterstate.Store {
	far := w.far.Load()
	if far == nil {
		return nil
	}
	return []*counterstate.Store{counterstate.New(counterstate.Config{Blobs: farAway{blobs, far.until}})}
}

// TestNewDiskHandsBack: a server comes back at once, so that it is taken for gone by nobody, with a new disk, and what
// it has to begin from is far away. The copy of its part takes events meanwhile.
func TestNewDiskHandsBack(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, 1, time.Hour)
	polltest.Within(t, time.Minute, w.whole, "copies of all parts")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.send(ctx, "a", one("a")); err != nil {
		t.Fatal(err)
	}
	w.lose("a")
	far := &farAway{until: make(chan struct{})}
	w.far.Store(far)
	w.start("a", vfs.NewMem())
	w.patience = time.Minute
	next := one("a")
	next.ID = "2"
	if err := w.send(ctx, "a", next); err != nil {
		t.Errorf("an event, while the server with a new disk looks for its state: %v", err)
	}
	if lead := w.servers["b"].parts.Lead("a"); lead == "a" {
		t.Error("the server with a new disk leads its part, and has no state")
	}
	close(far.until)
	polltest.Within(t, time.Minute, w.whole, "all parts to be whole when the state has come")
	w.judge(map[string]int64{"a": 2})
}
