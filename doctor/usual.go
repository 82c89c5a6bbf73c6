package doctor

import "math"

// Usual is what a series is like most of the time, learned from its windows. A value that was always bad
// is usual too, which is why no rule asks for the ratio alone.
type Usual struct {
	// Level is the middle of what was seen: of the means for timings, of the rates for counters, of the values for gauges.
	Level float64 `json:"level"`
	// High is what nine windows of ten stayed below.
	High float64 `json:"high"`
	// Rate is the middle of how often something was timed.
	Rate float64 `json:"rate,omitempty"`
	// Windows is how many were learned from.
	Windows int `json:"windows"`
}

// usualWindows is from how many windows on a level is believed: five minutes at ten seconds.
const usualWindows = 30

// Steps of learning, relative and for each window of ten seconds. A value far from the level counts for a tenth: what
// is wrong for half an hour moves it by less than a half, and a new kind of load is usual after some hours.
const (
	usualStep = 0.02
	farStep   = 0.002
	farTimes  = 3
)

// Learn takes a window's value in. It is a median by steps: up by a share when the value lies above, down when below,
// so one window however wild moves a level by 2 %. The first windows are averaged.
func (u *Usual) Learn(level, rate float64) {
	if math.IsNaN(level) || math.IsInf(level, 0) || level < 0 {
		return
	}
	u.Windows++
	if u.Windows <= usualWindows {
		// A running mean of logarithms: start-up is seldom typical, so it must not stick.
		share := 1 / float64(u.Windows)
		u.Level = blend(u.Level, level, share)
		u.Rate = blend(u.Rate, rate, share)
		u.High = max(blend(u.High, level, share), u.Level)
		return
	}
	step := usualStep
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
func (u *Usual) Known() bool { return u != nil && u.Windows >= usualWindows }

// times is how many times its usual level a timing's mean, a gauge's value or a counter's rate is; 0 when that is not
// known.
func (s *Series) times() float64 {
	if !s.Usual.Known() || s.Usual.Level <= 0 {
		return 0
	}
	return s.level() / s.Usual.Level
}

// level is what Usual.Level is the usual of.
func (s *Series) level() float64 {
	switch s.Kind {
	case Timing:
		return s.Now.Mean
	case Counter:
		return s.Now.Rate
	default:
		return s.Now.Value
	}
}
