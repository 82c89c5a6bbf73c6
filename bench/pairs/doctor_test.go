package pairs

import (
	"math"
	"testing"
)

// TestRatios: what is done now and then shows in the ratio of all runs together, and not in the median of pairs.
func TestRatios(t *testing.T) {
	var without, with []costOf
	for i := range 20 {
		without = append(without, costOf{cpu: 10, requests: 1000, p99: 2})
		c := costOf{cpu: 10.1, requests: 1000, p99: 2.2}
		if i == 7 {
			c.cpu = 30.1 // a profile
		}
		with = append(with, c)
	}
	r := ratiosOf(without, with)
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	if !near(r.CPUMedian, 1.01) || !near(r.CPULow, 1.01) || !near(r.CPUHigh, 1.01) || !near(r.CPUAll, 1.11) ||
		!near(r.P99Median, 1.1) || r.Pairs != 20 {
		t.Errorf("%+v", r)
	}
	if one := ratiosOf(without[:1], with[:1]); !near(one.CPULow, 1.01) || !near(one.CPUHigh, 1.01) {
		t.Errorf("of one pair: %+v", one)
	}
}
