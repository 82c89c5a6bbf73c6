package estimate

import (
	"math"

	"corbel.dev/corbel/usage"
)

// Together is what estimates of several tenants of one product come to: the largest of a max, the smallest of a min,
// else their sum. relative is the standard error: tenants have no identity in common, so that the errors of their
// sketches add up as variances do; of a max and a min it is that of the value. ratio is that of the least complete one.
func Together(kind usage.Kind, list []Estimate) (value usage.Quantity, relative, ratio float64) {
	ratio = 1
	there, variance := false, 0.0
	for i := range list {
		e := &list[i]
		ratio = min(ratio, e.Completeness.Ratio)
		switch {
		case e.Value == nil:
			continue
		case kind != usage.Max && kind != usage.Min:
			value, _ = value.Add(*e.Value)
			variance += math.Pow(e.Error.Relative*e.Value.Float(), 2)
		case !there || kind == usage.Max && e.Value.Compare(value) > 0 || kind == usage.Min && e.Value.Compare(value) < 0:
			value, relative = *e.Value, e.Error.Relative
		}
		there = true
	}
	if variance > 0 && value != (usage.Quantity{}) {
		relative = math.Sqrt(variance) / math.Abs(value.Float())
	}
	return value, relative, ratio
}
