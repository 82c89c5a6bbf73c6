package issue

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/mesh/ca"
)

// limitWait is how long a request may wait for the operator's limit (contract 18.6).
const limitWait = 500 * time.Millisecond

// ErrLimited is what a request gets that did not come to its turn within the operator's limit.
var ErrLimited = errkind.New(errkind.Overloaded, "Rate limit reached, try again later")

// limiter is the operator's limit. Its gate has one slot when it is about a rate: who holds that waits for
// the next instant at which one may pass, so that the nodes take turns here too.
type limiter struct {
	perSecond  float64
	concurrent int
	clock      clock.Clock
	gate       *limit.Gate
	interval   time.Duration // between two; zero without a rate
	next       time.Time     // when the next may pass; belongs to who holds the slot
}

// newLimiter is nil when the operator set no limit.
func newLimiter(c *ca.Config, clk clock.Clock) *limiter {
	perSecond, concurrent := c.SigningLimits()
	if perSecond <= 0 && concurrent <= 0 {
		return nil
	}
	l := &limiter{perSecond: perSecond, concurrent: concurrent, clock: clk}
	slots := concurrent
	if perSecond > 0 {
		slots, l.interval = 1, time.Duration(float64(time.Second)/perSecond)
	}
	l.gate = limit.NewGate(limit.GateConfig{Name: "certificate signing", Slots: slots, MaxWaiting: maxWaiting,
		MaxPerKey: maxPerNode, MaxWait: limitWait, Clock: clk})
	return l
}

func (l *limiter) same(other *limiter) bool {
	return l != nil && other != nil && l.perSecond == other.perSecond && l.concurrent == other.concurrent
}

// acquire waits for the limit. release is to be called when the certificate is signed.
func (l *limiter) acquire(ctx context.Context, who string) (release func(), err error) {
	until := l.clock.Now().Add(limitWait)
	permit, err := l.gate.Acquire(ctx, who)
	if err != nil {
		if ctx.Err() != nil && !errkind.Is(err, errkind.Overloaded) {
			return nil, err
		}
		return nil, ErrLimited
	}
	if l.interval == 0 {
		return permit.Release, nil
	}
	defer permit.Release()
	now := l.clock.Now()
	if l.next.After(until) {
		return nil, ErrLimited
	}
	if wait := l.next.Sub(now); wait > 0 {
		t := l.clock.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	l.next = later(l.next, now).Add(l.interval)
	return func() {}, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
