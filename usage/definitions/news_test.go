package definitions

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
)

// alone replicates to one machine.
type alone struct{ *Definitions }

func (a alone) Propose(_ context.Context, cmd []byte) (any, error) {
	return a.ApplyBatch([][]byte{cmd})[0], nil
}

func define(t *testing.T, name string) Command {
	product := &usage.Product{Name: name, Kind: usage.Sum}
	if err := product.Complete(); err != nil {
		t.Fatal(err)
	}
	return Command{Put: product}
}

// TestNews: a server that is behind waits until it has what the leader had when it was asked. Questions that come
// meanwhile share one, which begins after they came; without a leader nothing can be told.
func TestNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead, own := New(), New()
		ahead.Use(alone{ahead})
		own.Use(alone{own})
		begin := Command{Begin: &Begin{Key: make([]byte, 16)}}
		put := define(t, "seats")
		for _, c := range []Command{begin, put} {
			if _, err := ahead.Do(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		asked := 0
		var nobody error
		news := NewNews(own, func(context.Context) (uint64, error) {
			asked++
			time.Sleep(100 * time.Millisecond)
			return ahead.View().Index, nobody
		})
		go func() {
			for _, c := range []Command{begin, put} {
				time.Sleep(500 * time.Millisecond)
				if _, err := own.Do(t.Context(), c); err != nil {
					t.Error(err)
				}
			}
		}()
		done := make(chan error)
		for i := range 10 {
			go func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				err := news.Get(t.Context())
				if _, ok := own.View().Products.Get("seats"); !ok {
					err = errors.Join(err, errors.New("it does not have the product"))
				}
				done <- err
			}()
		}
		for range 10 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if asked != 2 {
			t.Errorf("the leader was asked %d times; want once for the first, and once for all that came meanwhile", asked)
		}
		nobody = errkind.New(errkind.Unavailable, "nobody leads")
		if err := news.Get(t.Context()); !errkind.Is(err, errkind.Unavailable) {
			t.Errorf("without a leader: %v", err)
		}
		nobody = nil
		if _, err := ahead.Do(t.Context(), define(t, "rows")); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := news.Get(t.Context()); !errkind.Is(err, errkind.Unavailable) || time.Since(began) != newsLimit {
			t.Errorf("behind for good: %v after %v", err, time.Since(began))
		}
	})
}
