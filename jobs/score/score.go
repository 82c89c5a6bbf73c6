// Package score has the formulas by which feasible nodes are ordered (NS-14 to NS-17): how well an
// allocation fits, anti-affinity within the job, the penalty for where it failed before, and the
// spread over the values of an attribute. The final score is the mean of those that applied; one
// that is 0 did not apply, but for the fit.
//
// All functions are pure and allocate nothing.
package score

import (
	"math"

	"corbel.dev/corbel/jobs"
)

// maxFit is the best sum of the fit formulas; scores are parts of it.
const maxFit = 18

// Fit scores a node of which free would be left of usable, from 0 to 1.
func Fit(spread bool, usable, free jobs.Vector) float64 {
	t := pow10(fraction(free.CPU, usable.CPU)) + pow10(fraction(free.MemoryMB, usable.MemoryMB))
	f := 20 - t
	if spread {
		f = t - 2
	}
	return min(max(f, 0), maxFit) / maxFit
}

func fraction(free, usable int64) float64 {
	if usable <= 0 {
		return 0
	}
	return float64(free) / float64(usable)
}

// pow10 is 10^x; Exp takes a fifth of the time of Pow.
func pow10(x float64) float64 { return math.Exp(x * math.Ln10) }

// AntiAffinity is for a node that has collisions allocations of the group already: 0 for none.
func AntiAffinity(collisions, count int) float64 {
	if collisions == 0 {
		return 0
	}
	return -float64(collisions+1) / float64(max(count, 1))
}

// Penalty is for a node where a former attempt failed.
const Penalty = -1.0

// The logistic curve of Preemption: by its rate, a net priority of some thousand is as bad as can be.
const (
	preemptRate   = 0.0048
	preemptOrigin = 2048.0
)

// Preemption scores the loss of allocations whose net priority is given: the highest priority
// among them, and their sum in proportion to it.
func Preemption(netPriority float64) float64 {
	return 1 / (1 + math.Exp(preemptRate*(netPriority-preemptOrigin)))
}

// NetPriority sums up the priorities of the allocations that would go.
func NetPriority(priorities []int) float64 {
	sum, most := 0.0, 0.0
	for _, p := range priorities {
		sum += float64(p)
		most = max(most, float64(p))
	}
	if most == 0 {
		return 0
	}
	return most + sum/most
}

// Spreading is one spread block while a group is placed: how many allocations each value has.
type Spreading struct {
	weight  float64 // of the sum of all blocks' weights
	targets bool
	desired map[string]float64 // by value; the implicit target is rest
	rest    float64
	hasRest bool
	values  map[string]int // place in counts
	counts  []int
	wanted  []float64 // by value: how many there are to be; below 0 when it has no target
	lowest  float64   // boost seen, for a value of which none is desired
	// The even spread's extremes over values that have allocations, kept as counts change.
	low, high int
}

// NewSpreading begins with no allocation. total is the sum of the weights of all blocks that apply.
func NewSpreading(s jobs.Spread, count int, total float64) *Spreading {
	n := &Spreading{targets: len(s.Targets) > 0, values: map[string]int{}, lowest: -1}
	if total > 0 {
		n.weight = float64(s.Weight) / total
	}
	if n.targets {
		n.desired = make(map[string]float64, len(s.Targets))
		sum := 0
		for _, t := range s.Targets {
			n.desired[t.Value] = float64(t.Percent) / 100 * float64(count)
			sum += t.Percent
		}
		if sum < 100 {
			n.hasRest, n.rest = true, float64(100-sum)/100*float64(count)
		}
	}
	return n
}

// Missing is the place of a node that has no such attribute.
const Missing = -1

// Value is the place of a value, for Add and Boost.
func (s *Spreading) Value(value string) int {
	at, ok := s.values[value]
	if !ok {
		at = len(s.counts)
		s.values[value] = at
		s.counts = append(s.counts, 0)
		wanted, stated := s.desired[value]
		if !stated {
			wanted = -1
			if s.hasRest {
				wanted = s.rest
			}
		}
		s.wanted = append(s.wanted, wanted)
	}
	return at
}

// Add changes how many allocations a value has.
func (s *Spreading) Add(at, by int) {
	if at == Missing {
		return
	}
	s.counts[at] += by
	if !s.targets {
		s.extremes()
	}
}

// extremes are over the values in use: those that have allocations (NS-16: nothing placed is no value).
func (s *Spreading) extremes() {
	s.low, s.high = 0, 0
	for _, c := range s.counts {
		if c > 0 && (s.low == 0 || c < s.low) {
			s.low = c
		}
		s.high = max(s.high, c)
	}
}

// Boost is the spread score of one more allocation at a value, weighted (NS-16).
func (s *Spreading) Boost(at int) float64 {
	if s.targets {
		return s.targetBoost(at)
	}
	switch {
	case s.high == 0:
		return 0
	case at == Missing:
		return -s.weight
	}
	return s.weight * even(s.counts[at], s.low, s.high)
}

// even is the boost of a value with current allocations where low and high are the extremes.
func even(current, low, high int) float64 {
	switch {
	case current != low && low == 0:
		return -1
	case current != low:
		return float64(low-current) / float64(low)
	case low == high && low > 0:
		return -1
	case low == 0:
		return 1
	}
	return float64(high-low) / float64(low)
}

func (s *Spreading) targetBoost(at int) float64 {
	if at == Missing || s.wanted[at] < 0 {
		return -s.weight
	}
	desired := s.wanted[at]
	if desired == 0 {
		return s.lowest
	}
	boost := (desired - float64(s.counts[at]+1)) / desired * s.weight
	s.lowest = min(s.lowest, boost)
	return boost
}

// Need orders values when one more allocation is placed: by how far the value is behind its share, the
// greatest first. Boost alone leaves a fuller node of a value that has enough ahead of an emptier one
// of a value that has too little; so Need decides first, and makes spreads exact to one allocation. An
// even spread's shares are count by the values that there are.
func (s *Spreading) Need(at, count int) float64 {
	if at == Missing {
		return -math.MaxInt32
	}
	desired := s.wanted[at]
	if !s.targets {
		desired = float64(count) / float64(len(s.counts))
	}
	switch {
	case desired < 0:
		return -math.MaxInt32 / 2
	case desired == 0:
		return -math.MaxInt32 / 4 * float64(s.counts[at]+1)
	}
	return s.weight * (desired - float64(s.counts[at]+1)) / desired
}
