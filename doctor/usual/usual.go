// Package usual learns what a series is like most of the time, from its windows, so that a rule can say how many times
// that it is now. It keeps five numbers a series, and no history.
package usual

import "math"

// Level is what a series is like most of the time, learned from its windows. A value that was always bad
// is usual too, which is why no rule asks for the ratio alone.
type Level struct {
	// Level is the middle of what was seen: of the means for timings, of the rates for counters, of the values for gauges.
	Level float64 `json:"level"`
	// High is what nine windows of ten stayed below.
	High float64 `json:"high"`
	// Rate is the middle of how often something was timed.
	Rate float64 `json:"rate,omitempty"`
	// Windows is how many were learned from.
	Windows int `json:"windows"`
}

// leastWindows is from how many windows on a level is believed: five minutes at ten seconds.
const leastWindows = 30

// Steps of learning, relative and for each window of ten seconds. A value far from the level counts for a tenth: what
// is wrong for half an hour moves it by less than a half, and a new kind of load is usual after some hours.
const (
	nearStep = 0.02
	farStep  = 0.002
	farTimes = 3
)

// Learn takes a window's value in. It is a median by steps: up by a share when the value lies above, down when below,
// so one window however wild moves a level by 2 %. The first windows are averaged.
func (u *Level) Learn(level, rate float64) {
	if math.IsNaN(level) || math.IsInf(level, 0) || level < 0 {
		return
	}
	u.Windows++
	if u.Windows <= leastWindows {
		// A running mean of logarithms: start-up is seldom typical, so it must not stick.
		share := 1 / float64(u.Windows)
		u.Level = blend(u.Level, level, share)
		u.Rate = blend(u.Rate, rate, share)
		u.High = max(blend(u.High, level, share), u.Level)
		return
	}
	step := nearStep
	if level > farTimes*u.Level || level*farTimes < u.Level {
		step = farStep
	}
	u.Level = toward(u.Level, level, step)
	u.Rate = toward(u.Rate, rate, step)
	// Nine windows of ten lie below a level that goes up nine times as fast as down.
	if level > u.High {
		u.High = toward(u.High, level, step)
	} else {
		u.High = max(toward(u.High, level, step/9), u.Level)
	}
}

// blend is the geometric mean that has a share of v; zeros count as the smallest value of interest.
func blend(old, v, share float64) float64 {
	const least = 1e-6
	if share >= 1 {
		return v
	}
	return math.Exp((1-share)*math.Log(max(old, least)) + share*math.Log(max(v, least)))
}

func toward(old, v, step float64) float64 {
	const least = 1e-6
	switch {
	case v > old:
		return min(max(old, least)*(1+step), v)
	case v < old:
		return max(old*(1-step), v)
	default:
		return old
	}
}

// Known reports whether enough was seen to say what is usual.
func (u *Level) Known() bool { return u != nil && u.Windows >= leastWindows }
