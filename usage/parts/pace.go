package parts

import (
	"context"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
)

// pace is a bucket of bytes: what a server gives to others that are cold takes from it, so that what is counted
// meanwhile has the network, and the disks of both, for itself. A burst of a second is free.
type pace struct {
	clock clock.Clock
	rate  float64 // bytes a second; zero is without end

	mu   sync.Mutex // guards what follows
	left float64
	at   time.Time
}

// take waits until so many bytes may go. What is larger than a burst goes, and is waited for afterwards.
func (p *pace) take(ctx context.Context, bytes int) error {
	if p.rate <= 0 {
		return ctx.Err()
	}
	p.mu.Lock()
	now := p.clock.Now()
	if p.at.IsZero() {
		p.left = p.rate
	} else {
		p.left = min(p.left+p.rate*now.Sub(p.at).Seconds(), p.rate)
	}
	p.at = now
	p.left -= float64(bytes)
	wait := time.Duration(0)
	if p.left < 0 {
		wait = time.Duration(-p.left / p.rate * float64(time.Second))
	}
	p.mu.Unlock()
	if wait == 0 {
		return ctx.Err()
	}
	t := p.clock.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}
