package farplaces

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// TestPlaces: a place that is slow, silent or refuses is marked, and holds up nobody; what it said last stays but where
// the rights ended.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Places{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { f.Run(ctx); close(ended) }()
		synctest.Wait()
		var takes time.Duration
		var fails error
		var asked atomic.Int64
		look := func() (row Row, value any) {
			begin := time.Now()
			takes, fails := takes, fails
			h := f.Look("place", func(ctx context.Context) (any, error) {
				n := int(asked.Add(1))
				select {
				case <-time.After(takes):
					return n, fails
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			})
			if took := time.Since(begin); took > 0 {
				t.Errorf("whoever looks waits for %v", took)
			}
			return h.Row("place", false), h.Value
		}
		is := func(what, state, words string, value any) {
			t.Helper()
			if row, v := look(); row.State != state || row.Words != words || v != value {
				t.Errorf("%s: %+v %v, want %s %q %v", what, row, v, state, words, value)
			}
			if row, _ := look(); (row.At != 0) != (value != nil && state != "passing") {
				t.Errorf("%s: as of %d", what, row.At)
			}
		}
		is("at first", "unknown", "asked, no answer yet", nil)
		synctest.Wait()
		is("after an answer", "passing", "answers", 1)
		takes = time.Hour
		time.Sleep(Every)
		is("asked again", "passing", "answers", 1)
		time.Sleep(2 * time.Second)
		is("while it is silent", "warning", "slow: no answer for 2s", 1)
		time.Sleep(Time)
		is("after its time", "critical", "unreachable: no answer within 3s", 1)
		time.Sleep(Time) // the next question ends the same way
		takes = 1500 * time.Millisecond
		time.Sleep(Every + takes)
		look()
		time.Sleep(takes)
		synctest.Wait()
		is("with slow answers", "warning", "slow: answers in 1.5s", int(asked.Load()))
		takes, fails = 0, errkind.New(errkind.Denied, "ACL not found")
		time.Sleep(15 * time.Second) // ten times what it took
		look()
		synctest.Wait()
		is("without rights", "unknown", "this login is not known there: ACL not found", nil)
		fails = errors.New("broken")
		time.Sleep(15 * time.Second)
		look()
		synctest.Wait()
		is("with an error", "critical", "unreachable: broken", nil)
		if many := asked.Load(); many > 8 {
			t.Errorf("it was asked %d times", many)
		}
		takes = time.Hour
		time.Sleep(15 * time.Second)
		look()
		cancel()
		<-ended // with the question that was under way
		before := asked.Load()
		look()
		synctest.Wait()
		if asked.Load() != before {
			t.Error("it was asked after the end")
		}
	})
}
