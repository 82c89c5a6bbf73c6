package monitor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/tagproto"
)

// Windows are the times of day, by weekday, in which a filter applies. Times are UTC.
type Windows struct {
	Days  Days           `json:"days" pb:"1"`
	Extra tagproto.Extra `json:"-"`
}

// Days are the windows of each weekday; All are those of every day.
type Days struct {
	All       []*Window      `json:"all,omitempty" pb:"1"`
	Sunday    []*Window      `json:"sunday,omitempty" pb:"2"`
	Monday    []*Window      `json:"monday,omitempty" pb:"3"`
	Tuesday   []*Window      `json:"tuesday,omitempty" pb:"4"`
	Wednesday []*Window      `json:"wednesday,omitempty" pb:"5"`
	Thursday  []*Window      `json:"thursday,omitempty" pb:"6"`
	Friday    []*Window      `json:"friday,omitempty" pb:"7"`
	Saturday  []*Window      `json:"saturday,omitempty" pb:"8"`
	Extra     tagproto.Extra `json:"-"`
}

// Window is a time of day in kitchen form ("9:00AM"), both ends within. One that ends before it begins spans midnight.
type Window struct {
	Begin string         `json:"begin" pb:"1"`
	End   string         `json:"end" pb:"2"`
	Extra tagproto.Extra `json:"-"`
}

func (d *Days) of(day time.Weekday) []*Window {
	return [...][]*Window{d.Sunday, d.Monday, d.Tuesday, d.Wednesday, d.Thursday, d.Friday, d.Saturday}[day]
}

// Holds reports whether now is within one of the windows.
func (w *Windows) Holds(now time.Time) bool {
	now = now.UTC()
	for _, list := range [][]*Window{w.Days.All, w.Days.of(now.Weekday())} {
		for _, one := range list {
			begin, end, err := one.minutes()
			if err == nil && within(begin, end, now) {
				return true
			}
		}
	}
	return false
}

// within says whether now is between two minutes of the day; the end is its first moment.
func within(begin, end int, now time.Time) bool {
	hour, minute, second := now.Clock()
	at := time.Duration(hour*60+minute)*time.Minute + time.Duration(second)*time.Second + time.Duration(now.Nanosecond())
	from, to := time.Duration(begin)*time.Minute, time.Duration(end)*time.Minute
	if to < from {
		return at >= from || at < to
	}
	return at >= from && at <= to
}

// minutes returns the window's ends as minutes of the day.
func (w *Window) minutes() (begin, end int, err error) {
	var out [2]int
	for i, text := range []string{w.Begin, w.End} {
		t, err := time.Parse(time.Kitchen, strings.ReplaceAll(text, " ", "")) // Sensu 1 wrote "9:00 AM"
		if err != nil {
			return 0, 0, fmt.Errorf("%q is not a time of day like 9:00AM", text)
		}
		out[i] = t.Hour()*60 + t.Minute()
	}
	return out[0], out[1], nil
}

// Validate returns what is wrong with the windows.
func (w *Windows) Validate() error {
	d := &w.Days
	for _, list := range [][]*Window{d.All, d.Sunday, d.Monday, d.Tuesday, d.Wednesday, d.Thursday, d.Friday, d.Saturday} {
		for _, one := range list {
			if _, _, err := one.minutes(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Subdue is a time in which a check is not to run, once or again and again.
type Subdue struct {
	Begin  string         `json:"begin" pb:"1"` // RFC 3339
	End    string         `json:"end" pb:"2"`
	Repeat []string       `json:"repeat" pb:"3"`
	Extra  tagproto.Extra `json:"-"`
}

// recurs are the words that Subdue.Repeat may hold, each with the days on which the window begins again.
var recurs = map[string]func(first, day time.Time) bool{
	"daily":    func(_, _ time.Time) bool { return true },
	"weekdays": func(_, day time.Time) bool { return !weekend(day) },
	"weekends": func(_, day time.Time) bool { return weekend(day) },
	"weekly":   func(first, day time.Time) bool { return day.Weekday() == first.Weekday() },
	"monthly":  func(first, day time.Time) bool { return day.Day() == first.Day() },
	"sundays":  on(time.Sunday), "mondays": on(time.Monday), "tuesdays": on(time.Tuesday),
	"wednesdays": on(time.Wednesday),
	"thursdays":  on(time.Thursday), "fridays": on(time.Friday), "saturdays": on(time.Saturday),
	"annually": func(first, day time.Time) bool { return day.Day() == first.Day() && day.Month() == first.Month() },
}

func on(weekday time.Weekday) func(_, day time.Time) bool {
	return func(_, day time.Time) bool { return day.Weekday() == weekday }
}

func weekend(d time.Time) bool { return d.Weekday() == time.Saturday || d.Weekday() == time.Sunday }

// Validate returns what is wrong with the subdue.
func (s *Subdue) Validate() error {
	_, _, err := s.ends()
	if err != nil {
		return err
	}
	for _, word := range s.Repeat {
		if recurs[word] == nil {
			return fmt.Errorf("invalid repeat period: %s", word)
		}
	}
	return nil
}

func (s *Subdue) ends() (begin, end time.Time, err error) {
	if begin, err = time.Parse(time.RFC3339, s.Begin); err != nil {
		return begin, end, fmt.Errorf("invalid begin time format: %w", err)
	}
	if end, err = time.Parse(time.RFC3339, s.End); err != nil {
		return begin, end, fmt.Errorf("invalid end time format: %w", err)
	}
	if end.Before(begin) {
		return begin, end, errors.New("end time must be after begin time")
	}
	return begin, end, nil
}

// Holds reports whether now is within the window or one of its repetitions, which
// begin at the same time of day, in the zone of Begin, and last as long. The end is not within.
func (s *Subdue) Holds(now time.Time) bool {
	begin, end, err := s.ends()
	if err != nil || now.Before(begin) {
		return false
	}
	if now.Before(end) {
		return true
	}
	lasts := end.Sub(begin)
	local := now.In(begin.Location())
	// A repetition that holds now began at most its own length ago: today, or on one of the days before.
	days := min(int(lasts/(24*time.Hour))+1, 366)
	for back := range days + 1 {
		start := time.Date(local.Year(), local.Month(), local.Day()-back, begin.Hour(), begin.Minute(), begin.Second(), 0,
			begin.Location())
		if start.Before(begin) {
			break
		}
		if now.Before(start) || !now.Before(start.Add(lasts)) {
			continue
		}
		if slices.ContainsFunc(s.Repeat, func(word string) bool { r := recurs[word]; return r != nil && r(begin, start) }) {
			return true
		}
	}
	return false
}
