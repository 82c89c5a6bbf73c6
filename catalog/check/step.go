package check

import "corbel.dev/corbel/catalog"

// Thresholds damp flapping.
type Thresholds struct {
	SuccessBeforePassing   int
	FailuresBeforeWarning  int // 0 means FailuresBeforeCritical
	FailuresBeforeCritical int
}

// Flap is a check's damped state: the status shown and the run of equal results.
// Invariant: at most one of Successes and Failures is above 0.
type Flap struct {
	Status    catalog.Health
	Successes int
	Failures  int
}

// Step takes one result in. show reports whether the result's output is to be
// shown: below a threshold the old status and output stay.
func Step(old Flap, result catalog.Health, t Thresholds) (next Flap, show bool) {
	next = old
	if result != catalog.Critical {
		next.Failures = 0
		next.Successes = grow(old.Successes)
		if next.Successes >= t.SuccessBeforePassing {
			next.Status = result
			return next, true
		}
		return next, false
	}
	next.Successes = 0
	next.Failures = grow(old.Failures)
	warnAt := t.FailuresBeforeWarning
	if warnAt == 0 {
		warnAt = t.FailuresBeforeCritical
	}
	switch {
	case next.Failures >= t.FailuresBeforeCritical:
		next.Status = catalog.Critical
		return next, true
	case next.Failures >= warnAt:
		next.Status = catalog.Warning
		return next, true
	}
	return next, false
}

// grow counts up without ever wrapping round.
func grow(n int) int {
	const enough = 1 << 30
	return min(n+1, enough)
}
