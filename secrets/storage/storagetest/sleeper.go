package storagetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"corbel.dev/corbel/secrets/storage"
)

// testSleeper has a writer sleep in the midst of its commits while another one leads, and wake up: nothing that it
// had under way comes to be. Then it takes the fence away and asks the same again, since a judge who never finds
// anything proves nothing.
func testSleeper(t *testing.T, k Kit) {
	if k.Second == nil {
		t.Log("no servers share this backend")
		return
	}
	ctx, old := k.open(t)
	other := k.Second(t)
	t.Cleanup(func() { must(t, other.Close()) })
	if err := sleeper(ctx, old, other, 1); err != nil {
		t.Error(err)
	}
	if err := sleeper(ctx, unfenced{old}, other, 3); err == nil {
		t.Error("a writer without a fence slept and wrote over another's records, and nobody noticed")
	}
}

// sleepers are the commits that a writer has under way when it falls asleep.
const sleepers = 8

// sleeper has old lead with an epoch and fall asleep, and other lead with the next and write the same records. It
// says what old changed after it woke up, and which of its commits it believes to be done.
func sleeper(ctx context.Context, old, other storage.Backend, epoch storage.Epoch) error {
	if err := old.Fence(ctx, epoch); err != nil {
		return fmt.Errorf("fence of the first: %w", err)
	}
	key := func(i int) string { return fmt.Sprintf("sleeper/%d/%d", epoch, i) }
	write := func(b storage.Backend, at storage.Epoch, i int, by string) error {
		return b.Commit(ctx, at, []storage.Op{storage.Put(key(i), []byte(by))})
	}
	outcomes := make([]error, sleepers)
	awake := make(chan struct{})
	var under sync.WaitGroup
	for i := range outcomes {
		if err := write(old, epoch, i, "old"); err != nil {
			return fmt.Errorf("before it slept: %w", err)
		}
		under.Go(func() { // it has passed whatever it looks at before it commits
			<-awake
			outcomes[i] = write(old, epoch, i, "old, of before")
		})
	}
	err := other.Fence(ctx, epoch+1)
	for i := range sleepers {
		err = errors.Join(err, write(other, epoch+1, i, "new"))
	}
	close(awake)
	under.Wait()
	if err != nil {
		return fmt.Errorf("while it slept: %w", err)
	}
	for i, outcome := range outcomes {
		got, _, err := other.Get(ctx, key(i))
		if err != nil || string(got) != "new" || !errors.Is(outcome, storage.ErrFenced) {
			return fmt.Errorf("%s is %q, %w, after a writer woke up that slept through the term of another, and was told %w",
				key(i), got, err, outcome)
		}
	}
	return nil
}

// unfenced is a backend that takes commits of whoever led once: the fence is taken out.
type unfenced struct{ storage.Backend }

// Commit implements storage.Backend.
func (u unfenced) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	err := u.Backend.Commit(ctx, epoch, ops)
	if errors.Is(err, storage.ErrFenced) {
		err = u.Backend.Commit(ctx, epoch+1, ops)
	}
	return err
}
