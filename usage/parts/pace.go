package parts

import (
	"context"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/uplink"
)

// pace is a bucket of bytes: what a server gives to others that are cold takes from it, so that what is counted
// meanwhile has the network, and the disks of both, for itself. A burst of a second is free.
type pace struct {
	clock clock.Clock
	link  func() uplink.State // nil: the rate is what it is, zero is without end

	mu     sync.Mutex // guards what follows; held while the card is asked, which is a file or two
	rate   float64    // bytes a second
	budget budget
	left   float64
	at     time.Time
}

func newPace(cfg *Config) pace {
	if cfg.Warmup < 0 {
		return pace{clock: cfg.Clock, link: cfg.Link}
	}
	return pace{clock: cfg.Clock, rate: float64(cfg.Warmup)}
}

// now is the rate of the last look.
func (p *pace) now() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rate
}

// take waits until so many bytes may go. What is larger than a burst goes, and is waited for afterwards.
func (p *pace) take(ctx context.Context, bytes int) error {
	p.mu.Lock()
	if p.link == nil && p.rate <= 0 {
		p.mu.Unlock()
		return ctx.Err()
	}
	now := p.clock.Now()
	if p.link != nil && p.budget.due(now) {
		p.rate = p.budget.next(now, p.link())
	}
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

// What a warm-up may take of a link.
const (
	linkShare   = 0.3      // of its speed: usage.md of the contracts, section 7
	unknownLink = 64 << 20 // in bytes a second, where the speed is not known
	leastRate   = 1 << 20
	budgetLook  = time.Second
	budgetStale = 10 * time.Second
	leastPart   = 1. / 16
	partGrows   = 1.25 // each look without a drop: from the least to all of it in 13 s
)

// budget is what may go over a link: a share of its speed, and with each look that finds packets dropped half of that,
// until there are no more.
type budget struct {
	part    float64
	dropped uint64
	at      time.Time
}

// due says whether it is time to look.
func (b *budget) due(now time.Time) bool { return b.at.IsZero() || now.Sub(b.at) >= budgetLook }

// next is the rate from now on, in bytes a second. What was dropped while nothing went says nothing.
func (b *budget) next(now time.Time, s uplink.State) float64 {
	switch {
	case b.at.IsZero() || now.Sub(b.at) > budgetStale:
		b.part = 1
	case s.Dropped > b.dropped:
		b.part = max(b.part/2, leastPart)
	default:
		b.part = min(b.part*partGrows, 1)
	}
	b.dropped, b.at = s.Dropped, now
	full := s.Speed * linkShare
	if full <= 0 {
		full = unknownLink
	}
	return max(full*b.part, leastRate)
}
