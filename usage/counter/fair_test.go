package counter

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/eventlog/embedded"
	"corbel.dev/corbel/usage/logrecord"
)

// stuck is a log that stores nothing until it may.
type stuck struct {
	eventlog.Log
	may chan struct{}
}

func (s *stuck) Append(ctx context.Context, entries []eventlog.Entry) ([]uint64, error) {
	<-s.may
	return s.Log.Append(ctx, entries)
}

// TestNobodyStarves: while the log stands still, a tenant that floods fills its part of the queue and is refused; the
// events of another one are taken. Who has its turn when is the queue's affair: limits.Fair.
func TestNobodyStarves(t *testing.T) {
	fs := vfs.NewMem()
	for _, dir := range []string{"/log", "/state"} {
		if err := fs.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	blobs, err := counterstate.NewFolder(fs, "/state")
	if err != nil {
		t.Fatal(err)
	}
	may := make(chan struct{})
	c := New(Config{Store: counterstate.New(counterstate.Config{Blobs: blobs}), QueueBytes: 256 << 10,
		Open: func() (eventlog.Log, error) {
			log, err := embedded.Open(embedded.Config{FS: fs, Dir: "/log", Partitions: 1})
			return &stuck{log, may}, err
		}, Key: func(context.Context) (usage.Key, error) { return usage.NewKey([16]byte{1}), nil }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	defer func() { cancel(); <-done }()
	polltest.Until(t, c.Warm, "the counter")
	product := &usage.Product{Name: "calls", Kind: usage.Sum}
	if err := product.Complete(); err != nil {
		t.Fatal(err)
	}
	product.Generation = 1
	take := func(tenant string, id int) (Verdicts, error) {
		rec := &logrecord.Record{At: time.Now(), Products: []*usage.Product{product}}
		rec.Events = []usage.Event{{ID: fmt.Sprint(id), Source: "s", Tenant: tenant, Product: "calls",
			Time: time.Now().UnixNano(), Value: usage.Int(1), HasValue: true}}
		observed, err := rec.Observe(usage.NewKey([16]byte{1}))
		if err != nil {
			return Verdicts{}, err
		}
		return c.Take(ctx, Intake{Tenant: tenant, Record: rec, Observed: observed})
	}
	var wg sync.WaitGroup
	var refused atomic.Int64
	for i := range 4000 {
		wg.Go(func() {
			switch _, err := take("flood", i); {
			case errkind.Is(err, errkind.Overloaded):
				refused.Add(1)
			case err != nil:
				t.Error(err)
			}
		})
	}
	polltest.Until(t, func() bool { return refused.Load() > 0 }, "the flood to be refused")
	for i := range 20 {
		wg.Go(func() {
			if _, err := take("quiet", i); err != nil {
				t.Errorf("the other tenant: %v", err)
			}
		})
	}
	polltest.Until(t, func() bool {
		c.queueMu.Lock()
		defer c.queueMu.Unlock()
		return c.queue.Tenants() == 2
	}, "both tenants to wait")
	close(may)
	wg.Wait()
}
