package counter

import (
	"time"

	"corbel.dev/corbel/kit/clock"
)

// ages are batches in the order in which they came. Those that have ended go when they are the first. The lock of the
// queue guards it.
type ages []*waiting

// add takes a batch in.
func (a *ages) add(w *waiting, now time.Time) {
	a.forget()
	w.since = now
	*a = append(*a, w)
}

// oldest is how long the first that has not ended has waited; zero where there is none.
func (a *ages) oldest(c clock.Clock) time.Duration {
	if a.forget(); len(*a) == 0 {
		return 0
	}
	return c.Since((*a)[0].since)
}

func (a *ages) forget() {
	for len(*a) > 0 {
		select {
		case <-(*a)[0].done:
			(*a)[0] = nil
			*a = (*a)[1:]
		default:
			return
		}
	}
}

// Oldest is how long the oldest batch has waited to be stored and counted; zero where none waits.
func (c Share) Oldest() time.Duration {
	c.queueMu.Lock()
	defer c.queueMu.Unlock()
	return c.ages.oldest(c.cfg.Clock)
}
