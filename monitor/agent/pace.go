package agent

import (
	"context"
	"time"
)

// pace lets events go at a rate, with a burst; nil lets them go at once. It belongs to one goroutine.
type pace struct {
	interval time.Duration
	burst    time.Duration // how far the next may lie behind now
	due      time.Time     // when the next may go, if there were no burst
}

// newPace makes a pace of perSecond; a negative rate is none.
func newPace(perSecond float64, burst int) *pace {
	if perSecond < 0 {
		return nil
	}
	interval := max(1, time.Duration(float64(time.Second)/perSecond))
	return &pace{interval: interval, burst: interval * time.Duration(max(burst, 1)-1)}
}

var always = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// next takes a turn, and is ready when it has come.
func (p *pace) next() <-chan time.Time {
	if p == nil {
		return always
	}
	now := time.Now()
	if oldest := now.Add(-p.burst); p.due.Before(oldest) {
		p.due = oldest
	}
	due := p.due
	p.due = due.Add(p.interval)
	if !due.After(now) {
		return always
	}
	return time.After(due.Sub(now))
}

func (p *pace) wait(ctx context.Context) error {
	select {
	case <-p.next():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
