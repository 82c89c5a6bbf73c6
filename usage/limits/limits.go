// Package limits watches thresholds of usage: 80 % of a plan, then 100 %, each told once per window; forecasts when a
// window will reach its limit; and keeps one tenant's storm from delaying the others at intake (Fair).
//
// Step is pure: a state and an estimate in, a state and crossings out. A lower bound that is over a threshold has
// crossed it for certain, so warming shards delay an alert and never invent one.
package limits

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/window"
)

// Limit is a definition.
type Limit struct {
	Name, Tenant, Product, Window string
	// At are parts of Value, in rising order.
	At    []float64
	Value usage.Quantity
}

// MaxThresholds bounds At.
const MaxThresholds = 16

// Complete fills in defaults and returns all that is wrong, each with its field.
func (l *Limit) Complete() error {
	l.Tenant = cmp.Or(l.Tenant, usage.DefaultTenant)
	if len(l.At) == 0 {
		l.At = []float64{0.8, 1}
	}
	l.At = slices.Clone(l.At)
	slices.Sort(l.At)
	l.At = slices.Compact(l.At)
	var wrong []error
	if l.Name == "" {
		wrong = append(wrong, usage.Wrong("name", "is missing"))
	}
	if l.Product == "" {
		wrong = append(wrong, usage.Wrong("product", "is missing"))
	}
	if _, ok := window.Span(l.Window); !ok {
		wrong = append(wrong, usage.Wrong("window", "%q is none of 5m, 1h, 24h, hour, day, month", l.Window))
	}
	if l.Value.Compare(usage.Quantity{}) <= 0 {
		wrong = append(wrong, usage.Wrong("value", "must be more than 0"))
	}
	if len(l.At) > MaxThresholds {
		wrong = append(wrong, usage.Wrong("at", "has more than %d thresholds", MaxThresholds))
	}
	for _, at := range l.At {
		if !(at > 0) || math.IsInf(at, 0) { // NaN too
			wrong = append(wrong, usage.Wrong("at", "%v is not more than 0", at))
		}
	}
	return errors.Join(wrong...)
}

// State is what is remembered of a limit. The zero value has seen nothing.
type State struct {
	// Window is the beginning of the calendar window that the rest is about; zero for a sliding one.
	Window time.Time
	// Crossed has a bit for each threshold that has been told.
	Crossed uint16
}

// Crossing is a threshold that was reached: an event of the monitor plane and a line of the history.
type Crossing struct {
	Limit     string
	Tenant    string
	Product   string
	Threshold float64
	Value     usage.Quantity
	Of        usage.Quantity
	Window    window.Range
	At        time.Time
}

// rearm is how far a sliding window must fall below a threshold before it is told again: an alert that flutters is no
// alert.
const rearm = 0.9

// Step judges the newest value of a limit's window. Several thresholds that are crossed at once are told from the
// lowest to the highest.
func (l *Limit) Step(s State, r window.Range, value usage.Quantity, now time.Time) (State, []Crossing) {
	if window.Calendar(l.Window) {
		if r.From.Before(s.Window) {
			return s, nil // an answer about a former window that came late
		}
		if !r.From.Equal(s.Window) {
			s = State{Window: r.From}
		}
	}
	var crossings []Crossing
	for i, at := range l.At {
		bit, part := uint16(1)<<i, l.part(value)
		switch {
		case s.Crossed&bit == 0 && (part > at || part == at || at == 1 && value.Compare(l.Value) >= 0):
			s.Crossed |= bit
			crossings = append(crossings, Crossing{l.Name, l.Tenant, l.Product, at, value, l.Value, r, now})
		case s.Crossed&bit != 0 && !window.Calendar(l.Window) && part < at*rearm:
			s.Crossed &^= bit
		}
	}
	return s, crossings
}

func (l *Limit) part(value usage.Quantity) float64 { return value.Float() / l.Value.Float() }

// Sample is a value of a window that grows.
type Sample struct {
	At    time.Time
	Value usage.Quantity
}

// Forecast says when a calendar window will reach the limit if it goes on as it did: least squares over the samples
// of this window. ok is false where it will not before the window's end, or there is too little to say.
func (l *Limit) Forecast(r window.Range, samples []Sample) (at time.Time, ok bool) {
	var n, sx, sy, sxx, sxy float64
	for _, s := range samples {
		if !r.Contains(s.At) {
			continue
		}
		x, y := s.At.Sub(r.From).Seconds(), s.Value.Float()
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
		if s.Value.Compare(l.Value) >= 0 {
			return s.At, true
		}
	}
	d := n*sxx - sx*sx
	if n < 3 || d <= 0 {
		return time.Time{}, false
	}
	slope := (n*sxy - sx*sy) / d
	seconds := (l.Value.Float() - (sy-slope*sx)/n) / slope
	if slope <= 0 || seconds < 0 || seconds >= r.To.Sub(r.From).Seconds() {
		return time.Time{}, false
	}
	return r.From.Add(time.Duration(seconds * float64(time.Second))), true
}
