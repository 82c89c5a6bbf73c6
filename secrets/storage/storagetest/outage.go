package storagetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/secrets/storage"
)

// Outage is how the tests get at a backend whose service they can break.
type Outage struct {
	// Open gives an empty backend that gives a commit up after a part of a second.
	Open func(t *testing.T) storage.Backend
	// Break has the service fail in one of the ways Ways, or ("") be well again.
	Break func(way string)
	Ways  []string
}

// outageWriters are more than one commit takes at once from a queue that tries the first.
const outageWriters = 32

// RunOutage breaks the service under writers in each way. Everybody gets an answer; what was refused is not there and
// what was acknowledged is; reads go on, and writes again when the service is well.
func RunOutage(t *testing.T, k Outage) {
	for _, way := range k.Ways {
		t.Run(way, func(t *testing.T) {
			ctx, b := Kit{Open: k.Open}.open(t)
			put(t, ctx, b, "before", way)
			k.Break(way)
			outcomes := writeAll(ctx, b)
			if got, ok, err := b.Get(ctx, "before"); err != nil || !ok || string(got) != way {
				t.Errorf("a read meanwhile: %q, %t, %v", got, ok, err)
			}
			k.Break("")
			for end := time.Now().Add(polltest.Deadline); ; { // a commit of before may be under way
				err := b.Commit(ctx, 0, []storage.Op{storage.Put("after", nil)})
				if err == nil {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("writes do not go on: %v", err)
				}
			}
			for i, err := range outcomes {
				_, there, readErr := b.Get(ctx, outageKey(i))
				refused := errkind.Is(err, errkind.Unavailable) || errkind.Is(err, errkind.Overloaded)
				if err == nil || !refused && !errkind.Is(err, errkind.Unknown) {
					t.Errorf("a commit meanwhile: %v", err)
				}
				if readErr != nil || refused && there {
					t.Errorf("%s was refused (%v), and is there: %t, %v", outageKey(i), err, there, readErr)
				}
			}
		})
	}
}

func outageKey(i int) string { return fmt.Sprintf("meanwhile/%d", i) }

// writeAll has writers commit one record each, and waits for all of them.
func writeAll(ctx context.Context, b storage.Backend) []error {
	outcomes := make([]error, outageWriters)
	var writers sync.WaitGroup
	for i := range outcomes {
		writers.Go(func() { outcomes[i] = b.Commit(ctx, 0, []storage.Op{storage.Put(outageKey(i), nil)}) })
	}
	writers.Wait()
	return outcomes
}
