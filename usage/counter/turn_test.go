package counter

import (
	"context"
	"errors"
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

// led is a counter that leads at epoch 1, and what sends it an event.
func led(t *testing.T, others map[string]Replica) (c *Counter, send func() error) {
	t.Helper()
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
	c = New(Config{Store: counterstate.New(counterstate.Config{Blobs: blobs}), Follows: true,
		Open: func() (eventlog.Log, error) {
			return embedded.Open(embedded.Config{FS: fs, Dir: "/log", Partitions: 1})
		},
		Key: func(context.Context) (usage.Key, error) { return usage.NewKey([16]byte{1}), nil }})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	polltest.Until(t, c.Warm, "the counter")
	if err := c.Share().Lead(t.Context(), 1, others); err != nil {
		t.Fatal(err)
	}
	product := &usage.Product{Name: "calls", Kind: usage.Sum}
	if err := product.Complete(); err != nil {
		t.Fatal(err)
	}
	product.Generation = 1
	return c, func() error {
		rec := &logrecord.Record{At: time.Now(), Products: []*usage.Product{product}}
		rec.Events = []usage.Event{{ID: "1", Source: "s", Tenant: "t", Product: "calls", Time: time.Now().UnixNano(),
			Value: usage.Int(1), HasValue: true}}
		observed, err := rec.Observe(usage.NewKey([16]byte{1}))
		if err != nil {
			return err
		}
		_, err = c.Take(t.Context(), Intake{Tenant: "t", Record: rec, Observed: observed})
		return err
	}
}

// TestRoleWaitsForNobody: while another server stores records and does not answer, while one that becomes a copy is
// given the last ones, and while it is decided who leads, the role can be asked and changed. Only whoever wants to
// store waits, for as long as it wants to.
func TestRoleWaitsForNobody(t *testing.T) {
	t.Parallel()
	gate, begun := make(chan struct{}), make(chan struct{}, 1)
	holds := func() {
		begun <- struct{}{}
		<-gate
	}
	for name, row := range map[string]struct {
		others map[string]Replica
		hold   func(c *Counter, send func() error) error
	}{
		"a record is copied": {map[string]Replica{"b": func(context.Context, uint64, [][]byte) error {
			holds()
			return nil
		}}, func(_ *Counter, send func() error) error { return send() }},
		"a copy is made": {map[string]Replica{}, func(c *Counter, _ func() error) error {
			return c.Share().Attach(context.Background(), "b", nil, func(uint64) error { holds(); return nil })
		}},
		"it is decided who leads": {map[string]Replica{}, func(c *Counter, _ func() error) error {
			return c.Share().Yield(context.Background(), 2, func() error { holds(); return errors.New("nobody knows") })
		}},
	} {
		gate = make(chan struct{})
		c, send := led(t, row.others)
		held := make(chan error, 1)
		go func() { held <- row.hold(c, send) }() // ends with gate
		<-begun
		asked := make(chan struct{})
		go func() { // ends with gate at the latest
			defer close(asked)
			c.Share().Renew(2, "b")
			if !c.Leads() {
				t.Errorf("%s: nothing ended the lead", name)
			}
			c.Share().Follow(3)
			if c.Leads() {
				t.Errorf("%s: it leads after it was told to follow", name)
			}
		}()
		select {
		case <-asked:
		case <-time.After(time.Minute):
			t.Errorf("%s: the role waits for it", name)
		}
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := c.Share().Lead(short, 4, nil); !errkind.Is(err, errkind.Unavailable) {
			t.Errorf("%s: what is being stored was not waited for: %v", name, err)
		}
		if err := c.Share().Still(short); !errkind.Is(err, errkind.Unavailable) {
			t.Errorf("%s: it is said that nothing is being stored: %v", name, err)
		}
		cancel()
		close(gate)
		<-held
		<-asked
		if err := c.Share().Lead(t.Context(), 4, map[string]Replica{}); err != nil || !c.Leads() {
			t.Errorf("%s: it cannot lead again: %v", name, err)
		}
		if err := send(); err != nil {
			t.Errorf("%s: an event after it: %v", name, err)
		}
	}
}
