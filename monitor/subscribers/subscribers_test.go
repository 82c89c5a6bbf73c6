package subscribers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
)

// An event is what a follower wants, in order; one that does not read is cut off without a hole, and others get all.
func TestFollow(t *testing.T) {
	var attached ingest.Tail
	tl := New(Config{QueueEvents: 10, MaxFollowers: 2}, func(to ingest.Tail) { attached = to })
	if attached != nil {
		t.Fatal("somebody follows before anybody did")
	}
	lazy, err := tl.Follow(Filter{})
	if err != nil {
		t.Fatal(err)
	}
	one, err := tl.Follow(Filter{Namespace: "default", Check: "cpu", Changes: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tl.Follow(Filter{}); errkind.Of(err) != errkind.Overloaded {
		t.Fatalf("a third: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	bad := monitor.Outcome{Incident: true}
	for i := range 15 {
		p := &ingest.Published{Namespace: "default", Entity: fmt.Sprint("e", i), Check: "cpu", Outcome: bad}
		if !attached.Wants(p.Namespace, p.Entity, p.Check, p.Outcome) {
			t.Fatal("nobody wants it")
		}
		attached.Publish(p)
		attached.Publish(&ingest.Published{Namespace: "default", Entity: "x", Check: "cpu"}) // no change
		if got, err := one.Next(ctx); err != nil || got.Entity != p.Entity {
			t.Fatalf("%v, %v", got, err)
		}
	}
	for i := range 10 {
		if _, err := lazy.Next(ctx); err != nil {
			t.Fatalf("event %d of what was queued: %v", i, err)
		}
	}
	if _, err := lazy.Next(ctx); !errors.Is(err, ErrSlow) {
		t.Fatalf("after it was cut: %v", err)
	}
	if n, cut := tl.Stats(); n != 2 || cut != 1 {
		t.Errorf("%d follow, %d were cut", n, cut)
	}
	lazy.Close()
	one.Close()
	one.Close()
	if attached != nil {
		t.Error("nobody follows, and ingest is still asked")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := one.Next(ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
