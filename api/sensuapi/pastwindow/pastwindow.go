// Package pastwindow reads which part of a check's past somebody asks for, and cuts it out. It is pure.
package pastwindow

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"corbel.dev/corbel/monitor/runs"
)

// Window is what part of a past is asked for.
type Window struct {
	since, until int64 // Unix seconds
	status       int64 // alone; -1 is any
	limit        int   // of the newest spans; 0 is all
}

// instant reads a time: RFC 3339, Unix seconds, or how long ago.
func instant(name, text string, now time.Time) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return n, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.Unix(), nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago).Unix(), nil
	}
	return 0, fmt.Errorf("%s %q is neither a time (2006-01-02T15:04:05Z), nor Unix seconds, nor how long ago (36h)",
		name, text)
}

// Of reads the parameters since, until, status and limit of a query; errors name the one that is wrong.
func Of(value func(name string) string, now time.Time) (w Window, err error) {
	w = Window{until: math.MaxInt64, status: -1}
	for name, to := range map[string]*int64{"since": &w.since, "until": &w.until} {
		if text := value(name); text != "" {
			if *to, err = instant(name, text, now); err != nil {
				return w, err
			}
		}
	}
	if w.until < w.since {
		return w, errors.New("until is before since")
	}
	if text := value("status"); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return w, fmt.Errorf("status %q is not a status", text)
		}
		w.status = int64(n)
	}
	if text := value("limit"); text != "" {
		if w.limit, err = strconv.Atoi(text); err != nil || w.limit < 0 {
			return w, fmt.Errorf("limit %q is not a number of spans", text)
		}
	}
	return w, nil
}

// Of returns the spans that reach into the window.
func (w *Window) Of(all []runs.Span) []runs.Span {
	out := []runs.Span{}
	for _, s := range all {
		if s.Last >= w.since && s.First <= w.until && (w.status < 0 || int64(s.Status) == w.status) {
			out = append(out, s)
		}
	}
	if w.limit > 0 && len(out) > w.limit {
		out = out[len(out)-w.limit:]
	}
	return out
}
