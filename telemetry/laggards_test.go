package telemetry

import (
	"fmt"
	"testing"
	"time"
)

// TestLaggards: who is late has a series until it is not late any more; too many share one.
func TestLaggards(t *testing.T) {
	r := New(Config{})
	l := r.Laggards("feed")
	lags := func() map[string]float64 {
		out := map[string]float64{}
		r.NewCursor().Each(func(x *Reading) {
			if x.Series.Name == "subscriber.lag_ms" {
				out[x.Series.Labels[1].Value] = x.Sum
			}
		})
		return out
	}
	l.Late("a", 3*time.Second)
	l.Late("a", 2*time.Second)
	l.Late("quick", time.Millisecond)
	l.Tell()
	if got := lags(); len(got) != 1 || got["a"] != 3000 {
		t.Errorf("late: %v", got)
	}
	l.Tell()
	if got := lags(); got["a"] != 0 {
		t.Errorf("not late any more: %v", got)
	}
	for i := range 100 {
		l.Late(fmt.Sprint(i), time.Minute)
	}
	l.Tell()
	if got := lags(); len(got) != maxLaggards+1 || got["others"] != 60000 {
		t.Errorf("many: %v", got)
	}
	l.Cut("a")
	var none *Laggards
	none.Late("a", time.Hour)
	none.Tell()
	none.Cut("a")
}
