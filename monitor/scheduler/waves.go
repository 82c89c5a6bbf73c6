package scheduler

import (
	"time"

	"corbel.dev/corbel/monitor/hub"
)

// Thousands of agents that get a request in the same moment answer in the same moment, and their results wait for
// each other. So a request to many goes out over a while: a millisecond for each agent of this server, at most a
// fifth of the check's interval, at most two seconds.
const (
	perAgent   = time.Millisecond
	atMostWave = 2 * time.Second
	// waveStep is how often some of a wave are sent; what would take less than two steps is sent at once.
	waveStep = 10 * time.Millisecond
	// mostStep is as how much time a longer pause of the process counts: no burst follows on it.
	mostStep = 5 * waveStep
)

// wave is one request on its way to many agents. A check that is run by hand meanwhile reaches those in its tail
// first; they leave the older request out, as agents do. There is one at most of each check: it ends before the next
// tick.
type wave struct {
	message *hub.Message
	to      []*hub.Session
	sent    int
	over    time.Duration
	gone    time.Duration // of over
	last    time.Duration // when it was looked at
}

// overTime is how long a request to n agents goes out; interval is 0 for a check with times of day.
func overTime(n int, interval time.Duration) time.Duration {
	over := min(time.Duration(n)*perAgent, atMostWave)
	if interval > 0 {
		over = min(over, interval/5)
	}
	if over < 2*waveStep {
		return 0
	}
	return over
}

// waves are those that are on their way. It is the loop's alone.
type waves struct{ list []*wave }

// add begins one, and returns how many links took it at once.
func (w *waves) add(m *hub.Message, to []*hub.Session, interval, now time.Duration) (sent int) {
	one := &wave{message: m, to: to, over: overTime(len(to), interval), last: now}
	if one.over > 0 {
		w.list = append(w.list, one)
		return 0
	}
	return one.send(len(to))
}

// run sends what is to be sent by now, and returns how many links took it.
func (w *waves) run(now time.Duration) (sent int) {
	left := w.list[:0]
	for _, one := range w.list {
		one.gone += min(now-one.last, mostStep)
		one.last = now
		upTo := len(one.to)
		if one.gone < one.over {
			upTo = int(int64(len(one.to)) * int64(one.gone) / int64(one.over))
			left = append(left, one)
		}
		sent += one.send(upTo)
	}
	clear(w.list[len(left):])
	w.list = left
	return sent
}

func (w *waves) wait() time.Duration {
	if len(w.list) == 0 {
		return atMost
	}
	return waveStep
}

func (w *wave) send(upTo int) (sent int) {
	for ; w.sent < upTo; w.sent++ {
		if w.to[w.sent].Send(w.message) == nil { // who has left meanwhile takes nothing
			sent++
		}
	}
	return sent
}
