package command

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/client"
)

// TestChanging: an answer that has no index is followed by asking for it again, and told when it is another one; a
// failure is told at once.
func TestChanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		asked := 0
		read := Changing(time.Second, func(context.Context) ([]string, error) {
			asked++
			switch {
			case asked < 5:
				return []string{"a"}, nil
			case asked == 5:
				return nil, broken
			}
			return []string{"b"}, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		for i, want := range []struct {
			value string
			err   error
			after time.Duration
		}{{"a", nil, 0}, {"", broken, 3 * time.Second}, {"b", nil, 3 * time.Second}} {
			got, meta, err := read(ctx, client.Query{})
			if !errors.Is(err, want.err) || time.Since(begin) != want.after || meta.Index != uint64(i+1) ||
				want.value != "" && (len(got) != 1 || got[0] != want.value) {
				t.Errorf("answer %d: %v %v %v after %s", i, got, meta, err, time.Since(begin))
			}
		}
		if _, _, err := read(ctx, client.Query{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("when nobody waits any more: %v", err)
		}
	})
}
