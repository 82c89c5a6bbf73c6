package httpx

import (
	"math/rand/v2"
	"strconv"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// The contract's waits for blocking queries.
const (
	DefaultQueryTime = 300 * time.Second
	MaxQueryTime     = 600 * time.Second
	jitterFraction   = 16
)

// WaitLimits bound how long a blocking query may be held. Zero fields mean
// DefaultQueryTime and MaxQueryTime.
type WaitLimits struct{ Default, Max time.Duration }

// Blocking is what a request asks of a blocking query.
type Blocking struct {
	// Index is the index that the client has seen; 0 asks for an answer at once.
	Index uint64
	// Wait is how long to hold the request, jitter not yet added; it is 0
	// exactly when Index is 0.
	Wait time.Duration
}

// ParseBlocking reads the parameters index and wait. Errors are of kind Invalid
// with the contract's text. A wait without an index is legal and does not block.
func ParseBlocking(q Query, limits WaitLimits) (Blocking, error) {
	if q == "" {
		return Blocking{}, nil
	}
	var b Blocking
	if v, _ := q.Get("wait"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			return Blocking{}, errkind.New(errkind.Invalid, "Invalid wait time")
		}
		b.Wait = d
	}
	if v, _ := q.Get("index"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return Blocking{}, errkind.New(errkind.Invalid, "Invalid index")
		}
		b.Index = n
	}
	if b.Index == 0 {
		return Blocking{}, nil
	}
	b.Wait = limits.clamp(b.Wait)
	return b, nil
}

func (l WaitLimits) clamp(d time.Duration) time.Duration {
	if d <= 0 {
		d = l.Default
		if d <= 0 {
			d = DefaultQueryTime
		}
	}
	most := l.Max
	if most <= 0 {
		most = MaxQueryTime
	}
	return min(d, most)
}

// Jitter adds uniform(0, d/16), so that watchers that began together do not
// time out together. Clients size their own timeouts by this bound.
func Jitter(d time.Duration) time.Duration {
	if d < jitterFraction {
		return d
	}
	return d + rand.N(d/jitterFraction)
}
