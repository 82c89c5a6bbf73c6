package telemetry

import (
	"sync"
	"time"
)

const (
	// maxLaggards bounds the subscribers of a kind that get series of their own; the rest is others.
	maxLaggards = 16
	// leastLag is from how long on somebody is late: less is a busy moment.
	leastLag = time.Second
)

// Laggards tell who does not take what is written for them, for owners that look at all their subscribers from time
// to time: subscriber.lag_ms{kind,who} and subscriber.cut{kind,who}. Who never was late has no series. Safe for
// concurrent use; a nil one does nothing.
type Laggards struct {
	r    *Registry
	kind string

	mu    sync.Mutex // guards what follows
	names map[string]bool
	round map[string]time.Duration
}

// Laggards makes the account of a kind of subscribers.
func (r *Registry) Laggards(kind string) *Laggards {
	if r == nil {
		return nil
	}
	return &Laggards{r: r, kind: kind, names: map[string]bool{}, round: map[string]time.Duration{}}
}

func (l *Laggards) nameLocked(who string) string {
	if !l.names[who] {
		if len(l.names) >= maxLaggards {
			return "others"
		}
		l.names[who] = true
	}
	return who
}

// Late notes for how long the oldest thing written for a subscriber has waited for it.
func (l *Laggards) Late(who string, lag time.Duration) {
	if l == nil || lag < leastLag {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	who = l.nameLocked(who)
	l.round[who] = max(l.round[who], lag)
}

// Tell ends a look at all of them: who was not noted since the last one is not late.
func (l *Laggards) Tell() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for who := range l.names {
		l.r.Gauge("subscriber.lag_ms", "kind", l.kind, "who", who).Set(float64(l.round[who]) / float64(time.Millisecond))
	}
	if len(l.names) >= maxLaggards {
		l.r.Gauge("subscriber.lag_ms", "kind", l.kind, "who",
			"others").Set(float64(l.round["others"]) / float64(time.Millisecond))
	}
	clear(l.round)
}

// Cut counts one that was cut off because it was late for too long.
func (l *Laggards) Cut(who string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	who = l.nameLocked(who)
	l.mu.Unlock()
	l.r.Counter("subscriber.cut", "kind", l.kind, "who", who).Add(1)
}
