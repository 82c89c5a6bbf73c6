package estimate

import (
	"math"
	"testing"

	"corbel.dev/corbel/usage"
)

// TestTogether: what many tenants come to has a value, an error and a completeness, as each of them has.
func TestTogether(t *testing.T) {
	of := func(value int64, relative, ratio float64) Estimate {
		v := usage.Int(value)
		return Estimate{Value: &v, Error: Error{Relative: relative}, Completeness: Completeness{Ratio: ratio}}
	}
	nothing := Estimate{Completeness: Completeness{Ratio: 1}}
	for _, test := range []struct {
		name            string
		kind            usage.Kind
		list            []Estimate
		value           int64
		relative, ratio float64
	}{
		{"nobody", usage.Sum, nil, 0, 0, 1},
		{"sums", usage.Sum, []Estimate{of(3, 0, 1), of(4, 0, 0.5), of(-2, 0, 1)}, 5, 0, 0.5},
		{"one sketch", usage.Unique, []Estimate{of(1000, 0.01, 1)}, 1000, 0.01, 1},
		{"sketches", usage.Unique, []Estimate{of(300, 0.01, 1), of(400, 0.01, 1)}, 700, 5.0 / 700, 1},
		{"a sketch and an exact set", usage.Unique, []Estimate{of(600, 0.01, 1), of(400, 0, 1)}, 1000, 0.006, 1},
		{"the largest", usage.Max, []Estimate{nothing, of(-7, 0, 1), of(-9, 0, 0.25)}, -7, 0, 0.25},
		{"the smallest", usage.Min, []Estimate{of(7, 0, 1), nothing, of(9, 0, 1)}, 7, 0, 1},
		{"opposites", usage.Sum, []Estimate{of(7, 0, 1), of(-7, 0, 1)}, 0, 0, 1},
	} {
		value, relative, ratio := Together(test.kind, test.list)
		if value != usage.Int(test.value) || math.Abs(relative-test.relative) > 1e-12 || ratio != test.ratio {
			t.Errorf("%s: %s with %g, %g complete", test.name, value, relative, ratio)
		}
	}
}
