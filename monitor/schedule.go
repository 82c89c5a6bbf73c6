package monitor

import (
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/cronexpr"
)

// Schedule says when a check is due.
type Schedule struct {
	interval time.Duration
	phase    time.Duration
	cron     *cronexpr.Expression
	zone     *time.Location
}

// NewSchedule returns the schedule of a check by its name. Either interval (seconds) or cron is set.
//
// With an interval, when a check is due depends on its name and the time alone: all servers
// agree without talking, and checks of one interval are spread over it.
func NewSchedule(name string, interval uint32, cron string) (*Schedule, error) {
	switch {
	case cron != "" && interval > 0:
		return nil, errors.New("must only specify either an interval or a cron schedule")
	case cron != "":
		return parseCron(cron, name)
	case interval == 0:
		return nil, errors.New("check interval must be greater than 0 or a valid cron schedule must be provided")
	}
	return every(time.Duration(interval)*time.Second, name), nil
}

func every(interval time.Duration, name string) *Schedule {
	sum := md5.Sum([]byte(name)) // not a secret: the contract's phase of a check
	return &Schedule{interval: interval, phase: time.Duration(binary.LittleEndian.Uint64(sum[:]) % uint64(interval))}
}

// parseCron reads a cron line of five fields or an @ word, after "CRON_TZ=Zone " or "TZ=Zone ", or "@every 5m".
func parseCron(line, name string) (*Schedule, error) {
	s := &Schedule{zone: time.UTC}
	text := strings.TrimSpace(line)
	for _, prefix := range []string{"CRON_TZ=", "TZ="} {
		rest, ok := strings.CutPrefix(text, prefix)
		if !ok {
			continue
		}
		zone, rest, _ := strings.Cut(rest, " ")
		var err error
		if s.zone, err = time.LoadLocation(zone); err != nil || zone == "Local" {
			return nil, fmt.Errorf("check cron string is invalid: time zone %q is not known", zone)
		}
		text = strings.TrimSpace(rest)
		break
	}
	if d, ok := strings.CutPrefix(text, "@every "); ok {
		interval, err := time.ParseDuration(strings.TrimSpace(d))
		if err != nil || interval < time.Second {
			return nil, fmt.Errorf("check cron string is invalid: %q is not a duration of a second or more", d)
		}
		return every(interval.Truncate(time.Second), name), nil
	}
	if n := len(strings.Fields(text)); n != 5 && !(n == 1 && strings.HasPrefix(text, "@")) {
		return nil, fmt.Errorf("check cron string is invalid: expected exactly 5 fields, found %d: %q", n, text)
	}
	var err error
	if s.cron, err = cronexpr.Parse(text); err != nil {
		return nil, fmt.Errorf("check cron string is invalid: %w", err)
	}
	return s, nil
}

// Next returns when the check is due after now; the zero time is never.
func (s *Schedule) Next(now time.Time) time.Time {
	if s.cron != nil {
		return s.cron.Next(now.In(s.zone))
	}
	at := uint64(now.UnixNano())
	into := (at - uint64(s.phase)) % uint64(s.interval)
	return now.Add(s.interval - time.Duration(into))
}
