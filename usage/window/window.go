// Package window knows the calendar of usage: which hour, day and month an instant belongs to in a tenant's zone, and
// which range a window stands for.
//
// Days and months begin at local midnight, or at the first instant after it where a change of the clock leaves
// midnight out; a day has 23 to 25 hours across such a change. Slots of a day are hours of 60 minutes from its
// beginning, so the hour that a change repeats is two slots. Zones come as *time.Location: who loads them reads
// files, this package does not. All functions are pure; a Zone may be used by all goroutines.
package window

import (
	"fmt"
	"slices"
	"sort"
	"time"
)

// Range is [From, To).
type Range struct{ From, To time.Time }

// Contains reports whether t is in the range.
func (r Range) Contains(t time.Time) bool { return !t.Before(r.From) && t.Before(r.To) }

// Overlaps reports whether both have an instant in common.
func (r Range) Overlaps(o Range) bool { return r.From.Before(o.To) && o.From.Before(r.To) }

// Empty reports whether no instant is in the range.
func (r Range) Empty() bool { return !r.From.Before(r.To) }

// Zone is a tenant's calendar.
type Zone struct{ location *time.Location }

// In makes a calendar; nil is UTC.
func In(location *time.Location) Zone { return Zone{location} }

// Location is the zone's, never nil.
func (z Zone) Location() *time.Location {
	if z.location == nil {
		return time.UTC
	}
	return z.location
}

// Day is the local day of t.
func (z Zone) Day(t time.Time) Range {
	y, m, d := t.In(z.Location()).Date()
	return z.between(t, func(i int) time.Time { return z.midnight(y, m, d+i) })
}

// Month is the local month of t.
func (z Zone) Month(t time.Time) Range {
	y, m, _ := t.In(z.Location()).Date()
	return z.between(t, func(i int) time.Time { return z.midnight(y, m+time.Month(i), 1) })
}

// between finds the two bounds around t, beginning with bound 0: a clock that is put back over midnight gives the
// former date once more to instants that are behind its end.
func (z Zone) between(t time.Time, bound func(i int) time.Time) Range {
	i := 0
	for bound(i).After(t) {
		i--
	}
	for !bound(i + 1).After(t) {
		i++
	}
	return Range{bound(i), bound(i + 1)}
}

// Hour is the local hour of t. Across a change of the clock it is what remains of the hour, or each of the two.
func (z Zone) Hour(t time.Time) Range {
	local := t.In(z.Location())
	_, offset := local.Zone()
	into := time.Duration(local.Minute())*time.Minute + time.Duration(local.Second())*time.Second +
		time.Duration(local.Nanosecond())
	from := local.Add(-into)
	if _, before := from.Zone(); before != offset { // the clock changed within this hour
		from = z.change(from, local)
	}
	to := local.Add(time.Hour - into)
	if _, after := to.Zone(); after != offset {
		to = z.change(local, to)
	}
	return Range{from.UTC(), to.UTC()}
}

// midnight is where a local date begins: its midnight, or the first instant behind it where there is none. A date
// that a zone has left out begins with the next one.
func (z Zone) midnight(y int, m time.Month, d int) time.Time {
	date := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	seconds := sort.Search(2*farthestSeconds, func(i int) bool {
		local := date.Add(time.Duration(i-farthestSeconds) * time.Second).In(z.Location())
		_, offset := local.Zone()
		return !local.Add(time.Duration(offset) * time.Second).Before(date)
	})
	return date.Add(time.Duration(seconds-farthestSeconds) * time.Second)
}

// farthestSeconds is more than any zone is from UTC.
const farthestSeconds = 16 * 3600

// change is the first instant after low at which the offset is no longer that of low; high at the latest.
func (z Zone) change(low, high time.Time) time.Time {
	_, offset := low.Zone()
	for high.Sub(low) > time.Second {
		middle := low.Add(high.Sub(low) / 2).Truncate(time.Second)
		if !middle.After(low) {
			middle = low.Add(time.Second).Truncate(time.Second)
		}
		if _, o := middle.Zone(); o == offset {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// Names of windows. Sliding ones end at the instant that is asked about, calendar ones begin before it.
const (
	Sliding5m  = "5m"
	Sliding1h  = "1h"
	Sliding24h = "24h"
	Hour       = "hour"
	Day        = "day"
	Month      = "month"
)

// Calendar reports whether a window has a beginning and an end that do not move.
func Calendar(name string) bool { return slices.Contains([]string{Hour, Day, Month}, name) }

// Span is the longest that a window can be.
func Span(name string) (time.Duration, bool) {
	switch name {
	case Sliding5m:
		return 5 * time.Minute, true
	case Sliding1h, Hour:
		return time.Hour, true
	case Sliding24h:
		return 24 * time.Hour, true
	case Day:
		return 25 * time.Hour, true
	case Month:
		return 31*24*time.Hour + time.Hour, true
	}
	return 0, false
}

// Of is the range of a window at an instant: for a sliding one the whole minutes that end with the minute of now, for
// a calendar one all of it, also what is yet to come.
func (z Zone) Of(name string, now time.Time) (Range, error) {
	switch name {
	case Hour:
		return z.Hour(now), nil
	case Day:
		return z.Day(now), nil
	case Month:
		return z.Month(now), nil
	}
	span, ok := Span(name)
	if !ok {
		return Range{}, fmt.Errorf("window: %q is none of 5m, 1h, 24h, hour, day, month", name)
	}
	to := now.UTC().Truncate(time.Minute).Add(time.Minute)
	return Range{to.Add(-span), to}, nil
}

// Steps cuts a range into parts: of a length in whole minutes, counted from its beginning, or "day", "month", "hour"
// of the calendar. The first and the last part end with the range. There are at most limit.
func (z Zone) Steps(r Range, step string, limit int) ([]Range, error) {
	var next func(time.Time) time.Time
	switch step {
	case Hour:
		next = func(t time.Time) time.Time { return z.Hour(t).To }
	case Day, "1d":
		next = func(t time.Time) time.Time { return z.Day(t).To }
	case Month:
		next = func(t time.Time) time.Time { return z.Month(t).To }
	default:
		d, err := time.ParseDuration(step)
		if err != nil || d < time.Minute || d%time.Minute != 0 {
			return nil, fmt.Errorf("step: %q is no length in whole minutes, and none of hour, 1d, month", step)
		}
		next = func(t time.Time) time.Time { return t.Add(d) }
	}
	var parts []Range
	for t := r.From; t.Before(r.To); {
		if len(parts) == limit {
			return nil, fmt.Errorf("step: %q makes more than %d parts", step, limit)
		}
		to := next(t)
		if to.After(r.To) {
			to = r.To
		}
		parts = append(parts, Range{t, to})
		t = to
	}
	return parts, nil
}

// State is where a window stands.
type State uint8

// The states: a window closes when no event can change it any more, and even then a correction can.
const (
	Open   State = iota + 1 // its end is yet to come
	Ending                  // its end has passed, events within `late` still count
	Closed
)

// StateOf tells where a range stands for a watermark (no record before it is yet to come) and a product's `late`.
func StateOf(r Range, watermark time.Time, late time.Duration) State {
	switch {
	case watermark.Before(r.To):
		return Open
	case watermark.Before(r.To.Add(late)):
		return Ending
	}
	return Closed
}
