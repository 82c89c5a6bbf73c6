// Package periodic says when periodic jobs start, and makes the jobs that start (NO-12).
//
// A child's id is made from the time that the schedule says, not from the time at which somebody looks:
// two leaders that launch the same start make the same child, and the second registration changes nothing.
//
// Days on which clocks change: a start within an hour that is skipped is at the first moment after it or left out, one
// within an hour that comes twice is in the first; never is one repeated, and Next is always after its argument.
//
// The package is pure: the time comes in. Specs are bounded, since tenants bring them.
package periodic

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/cronexpr"

	"corbel.dev/corbel/jobs"
)

const (
	maxSpecs     = 64
	maxSpecBytes = 256
)

// Schedule is when a job starts.
type Schedule struct {
	specs []*cronexpr.Expression
	zone  *time.Location
}

// Parse reads the specs of a job: five to seven fields, or a word such as @daily.
func Parse(p *jobs.Periodic) (*Schedule, error) {
	zone, err := time.LoadLocation(p.TimeZone) // "" is UTC
	if err != nil || p.TimeZone == "Local" || len(p.TimeZone) > maxSpecBytes {
		return nil, fmt.Errorf("time zone %.40q is not known: use a name such as Europe/Berlin", p.TimeZone)
	}
	if len(p.Specs) == 0 {
		return nil, errors.New("there is no cron expression")
	}
	if len(p.Specs) > maxSpecs {
		return nil, fmt.Errorf("%d cron expressions: at most %d", len(p.Specs), maxSpecs)
	}
	s := &Schedule{zone: zone}
	for _, text := range p.Specs {
		if len(text) > maxSpecBytes {
			return nil, fmt.Errorf("the cron expression %.40q... has %d bytes: at most %d", text, len(text), maxSpecBytes)
		}
		if n := len(strings.Fields(text)); n > 7 || n > 1 && strings.HasPrefix(strings.TrimSpace(text), "@") {
			return nil, fmt.Errorf("the cron expression %q has %d fields: five to seven, or one word such as @daily", text, n)
		}
		e, err := cronexpr.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("the cron expression %q: %w", text, err)
		}
		s.specs = append(s.specs, e)
	}
	return s, nil
}

// Next is the first start after a moment, 0 when there is none.
func (s *Schedule) Next(after jobs.Time) (first jobs.Time) {
	from := time.Unix(0, int64(after)).In(s.zone)
	for _, e := range s.specs {
		at := next(e, from)
		if at > after && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// next asks again from a later moment where the clock was put back and the library answers with the past.
func next(e *cronexpr.Expression, from time.Time) jobs.Time {
	for ask := from; ask.Sub(from) <= 3*time.Hour; ask = ask.Add(time.Minute) {
		at := e.Next(ask)
		if at.IsZero() {
			return 0
		}
		if at.After(from) {
			return jobs.Time(at.UnixNano())
		}
	}
	return 0
}

// Due is the newest start after last and not after now, 0 when there is none: what was missed starts once.
func (s *Schedule) Due(last, now jobs.Time) jobs.Time {
	early := s.Next(last)
	if early == 0 || early > now {
		return 0
	}
	// There is a start after lo and up to now; there is none after hi.
	lo, hi := last, now
	for hi.Sub(lo) > time.Second {
		middle := lo + (hi-lo)/2
		if at := s.Next(middle); at != 0 && at <= now {
			lo = middle
		} else {
			hi = middle
		}
	}
	return s.Next(lo)
}

// Active reports whether the clock starts j.
func Active(j *jobs.Job) bool {
	return j != nil && j.Periodic != nil && j.Periodic.Enabled && !j.Stop && (j.Dispatch == nil || j.Origin.Dispatched)
}

// ChildID is the id of the job that a start makes.
func ChildID(parent string, start jobs.Time) string {
	return parent + "/periodic-" + strconv.FormatInt(int64(start)/1e9, 10)
}

// Child is the job that a start of parent makes.
func Child(parent *jobs.Job, start, now jobs.Time) *jobs.Job {
	c := *parent
	c.ID = ChildID(parent.ID, start)
	c.Name = c.ID
	c.Periodic = nil
	c.Origin.ParentID = parent.ID
	c.Revision = jobs.Revision{SubmitTime: now}
	return &c
}
