package monitor

import (
	"fmt"
	"time"
)

// KeepaliveCheck is the name of the check that stands for an agent itself.
const KeepaliveCheck = "keepalive"

// defaultKeepalive is after how many seconds without a keepalive an agent is missed that does not say so itself.
const defaultKeepalive = 120

// AppendKeepaliveOutput appends what a keepalive's event says that came at a time (Unix seconds).
func AppendKeepaliveOutput(b []byte, entity string, at int64) []byte {
	b = append(append(append(b, "Keepalive last sent from "...), entity...), " at "...)
	return time.Unix(at, 0).UTC().AppendFormat(b, time.RFC3339)
}

// Lifetime is how long a result holds, in seconds; it is for ever where Warn is 0.
type Lifetime struct {
	Warn uint32 // then its check warns, and again as often
	Fail int64  // from then on it is critical; 0 is never
}

// LifetimeOf returns how long results of a check hold: a keepalive's by its timeout and time to live, another one's
// by its time to live.
func LifetimeOf(c *Check) Lifetime {
	switch {
	case c.Name == KeepaliveCheck && c.Timeout == 0:
		return Lifetime{defaultKeepalive, max(c.TTL, 0)}
	case c.Name == KeepaliveCheck:
		return Lifetime{c.Timeout, max(c.TTL, 0)}
	case c.TTL > 0:
		return Lifetime{Warn: uint32(min(c.TTL, 1<<32-1))}
	}
	return Lifetime{}
}

// Next returns after how many seconds of silence the next alarm is due, silent being those that have passed.
func (l Lifetime) Next(silent int64) int64 {
	next := (silent/int64(l.Warn) + 1) * int64(l.Warn)
	if l.Fail > silent {
		next = min(next, l.Fail)
	}
	return max(next, int64(l.Warn))
}

// Overdue returns the status of a check of which nothing was heard for so many seconds, and what its output says.
func (l Lifetime) Overdue(check, entity string, silent int64) (status uint32, output string) {
	if check != KeepaliveCheck {
		return 1, fmt.Sprintf("Last check execution was %d seconds ago", silent)
	}
	if l.Fail > 0 && silent >= l.Fail {
		return 2, fmt.Sprintf("No keepalive sent from %s for %d seconds (>= %d)", entity, silent, l.Fail)
	}
	return 1, fmt.Sprintf("No keepalive sent from %s for %d seconds (>= %d)", entity, silent, l.Warn)
}
