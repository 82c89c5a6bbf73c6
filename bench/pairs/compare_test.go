package pairs

import "testing"

func TestJudgeTellsLossFromNoise(t *testing.T) {
	for _, c := range []struct {
		ratios []float64
		loss   bool
	}{
		{[]float64{1, 1.01, 0.99, 1.02, 0.98}, false},
		{[]float64{0.9, 0.91, 0.89, 0.92, 0.9}, true},
		{[]float64{0.9, 0.9, 1.2, 1.2, 0.9}, false}, // too many wins for a loss
		{[]float64{0.97, 0.97, 0.97}, false},        // inside the threshold
	} {
		if _, loss := judge(c.ratios, 5); loss != c.loss {
			t.Errorf("%v: loss %v, want %v", c.ratios, loss, c.loss)
		}
	}
}
