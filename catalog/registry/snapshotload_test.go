package registry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/group/snapshot"
	"corbel.dev/corbel/kit/polltest"
)

// TestSnapshotsUnderLoad: what is saved while writes go on is one state of the past, and clusters of one, three and
// five fresh servers that restore it hold exactly that.
func TestSnapshotsUnderLoad(t *testing.T) {
	members := three(t)
	insistOn(t, members, register("n1"))
	lead := leaderOf(t, members)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	defer writers.Wait()
	defer stop()
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_, _ = lead.Apply(ctx, setKey(fmt.Sprintf("w%d/%d", w, i%500), fmt.Sprint(i))) // what fails is not in the state
			}
		})
	}
	for _, size := range []int{1, 3, 5} {
		from := lead.State().Index()
		polltest.Until(t, func() bool { return lead.State().Index() > from+50 }, "writes to go on")
		var saved bytes.Buffer
		if err := lead.g.Save(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		var want *statestore.State
		err := snapshot.Read(bytes.NewReader(saved.Bytes()), func(r io.Reader) (err error) {
			want, err = statestore.ReadState(r)
			return err
		})
		if err != nil || want.Index() <= from || want.Index() > lead.State().Index() {
			t.Fatalf("saved at %v after index %d: %v", want, from, err)
		}
		fresh := several(t, size)
		polltest.NoError(t, polltest.Deadline, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			return leaderOf(t, fresh).g.Restore(ctx, bytes.NewReader(saved.Bytes()))
		}, "%d fresh servers to restore", size)
		sameEverywhere(t, fresh, want)
		insistOn(t, fresh, setKey("after", "x"))
	}
}
