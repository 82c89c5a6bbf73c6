package monitor

import (
	"testing"
	"time"
)

// Whatever a check's cron line says, the next time is after now, or never, and found soon.
func FuzzSchedule(f *testing.F) {
	for _, line := range []string{"* * * * *", "0 0 31 2 *", "*/5 8-18 * * MON-FRI", "@hourly", "@every 90s",
		"CRON_TZ=Europe/Paris 30 3 * * *", "TZ=America/New_York 0 2 8-14 3 0",
		"0 0 29 2 *", "59 23 L * *", "0 12 15W * *", "0 0 * * 5#3", "1,2,3-9/2 * ? * *", "@every 1ns", "CRON_TZ= * * * * *"} {
		f.Add(line, int64(1_700_000_000))
	}
	f.Fuzz(func(t *testing.T, line string, at int64) {
		s, err := NewSchedule("check", 0, line)
		if err != nil {
			return
		}
		now := time.Unix(at%(1<<33), 0) // years that a machine's clock shows
		for range 5 {
			begun := time.Now()
			next := s.Next(now)
			if took := time.Since(begun); took > 10*time.Second {
				t.Fatalf("%q: the next time after %s took %s", line, now, took)
			}
			if next.IsZero() {
				return
			}
			if !next.After(now) {
				t.Fatalf("%q: %s is next after %s", line, next, now)
			}
			now = next
		}
	})
}
