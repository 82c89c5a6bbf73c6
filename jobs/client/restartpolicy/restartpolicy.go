// Package restartpolicy decides what follows when a task has ended (NO-9). It is pure.
package restartpolicy

import (
	"fmt"
	"time"
)

// Policy is a task's.
type Policy struct {
	Attempts        int
	Interval, Delay time.Duration
	Mode            string // fail or delay
	OnSuccess       bool   // services run again whatever their exit code
}

// History is how often a task was restarted in the current interval.
type History struct {
	Count int
	Since time.Time // when the interval began
}

// End is how a task's last run ended.
type End uint8

// The ends.
const (
	Succeeded  End = iota
	Failed         // with a code, a signal, or before it started but for a reason that may pass
	Hopeless       // it cannot start, ever
	Asked          // somebody asked for a restart
	NotStarted     // preparation failed for a reason that may pass
)

// Decision is what follows.
type Decision struct {
	Restart bool
	After   time.Duration
	Failed  bool   // the task is dead, and failed
	Why     string // in the contract's words
}

// Decide says what follows. chance is from [0, 1): it spreads restarts by up to a quarter of the delay.
func Decide(p Policy, h History, end End, now time.Time, chance float64) (Decision, History) {
	switch {
	case end == Asked:
		return Decision{Restart: true}, h
	case end == Succeeded && !p.OnSuccess:
		return Decision{Why: "Restart unnecessary as task terminated successfully"}, h
	case end == Hopeless:
		return Decision{Failed: true, Why: "Error was unrecoverable"}, h
	case p.Attempts == 0 && p.Mode != "delay":
		return Decision{Failed: end != Succeeded, Why: "Policy allows no restarts"}, h
	}
	if h.Since.IsZero() || now.Sub(h.Since) > p.Interval {
		h = History{Since: now}
	}
	h.Count++
	delay := p.Delay + time.Duration(chance*0.25*float64(p.Delay))
	if h.Count <= p.Attempts {
		return Decision{Restart: true, After: delay, Why: "Task restarting in " + delay.Round(time.Millisecond).String()}, h
	}
	if p.Mode != "delay" {
		return Decision{Failed: true, Why: "Exceeded allowed attempts " + count(p)}, h
	}
	wait := max(h.Since.Add(p.Interval).Sub(now), 0) + delay
	return Decision{Restart: true, After: wait,
		Why: "Exceeded allowed attempts " + count(p) + ", applying a delay"}, h
}
func count(p Policy) string {
	return fmt.Sprintf("%d in interval %s and mode is %q", p.Attempts, p.Interval, p.Mode)
}
