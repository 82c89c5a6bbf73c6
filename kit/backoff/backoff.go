// Package backoff computes retry delays: exponential with full jitter and a cap.
//
// A Backoff belongs to one goroutine. It keeps no time of its own: the caller waits.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Backoff yields growing delays. The zero value uses 100 ms and 10 s.
type Backoff struct {
	Min, Max time.Duration
	tries    uint
}

// Next returns a delay drawn uniformly from (0, min(Max, Min<<tries)] and counts a try.
func (b *Backoff) Next() time.Duration {
	low, high := b.Min, b.Max
	if low == 0 {
		low = 100 * time.Millisecond
	}
	if high == 0 {
		high = 10 * time.Second
	}
	bound := high
	if b.tries < 32 && low<<b.tries > 0 && low<<b.tries < high {
		bound = low << b.tries
	}
	b.tries++
	return 1 + rand.N(bound)
}

// Reset forgets the failures.
func (b *Backoff) Reset() { b.tries = 0 }

// Tries tells how often Next was called since the last Reset.
func (b *Backoff) Tries() int { return int(b.tries) }
