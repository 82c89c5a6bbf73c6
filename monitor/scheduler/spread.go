package scheduler

import (
	"container/heap"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/monitor"
)

// sendTime is how long proxy requests are sent before ticks of other checks are looked at.
const sendTime = 20 * time.Millisecond

// spread is the proxy requests of one tick of a check, spread over time.
type spread struct {
	check  *check
	adhoc  bool
	issued int64      // of the first
	items  []proxyRun // in order of after
	begin  time.Duration
	next   int
}

// proxyRun is one proxy request.
type proxyRun struct {
	after  time.Duration
	entity *monitor.EntityConfig
	agent  string // who it is for; "" is all who subscribe
}

func (s *spread) at() time.Duration { return s.begin + s.items[s.next].after }

// spreads are those of all checks: a heap by the time that really passes.
type spreads struct{ list []*spread }

func (q *spreads) Len() int           { return len(q.list) }
func (q *spreads) Less(i, j int) bool { return q.list[i].at() < q.list[j].at() }
func (q *spreads) Swap(i, j int)      { q.list[i], q.list[j] = q.list[j], q.list[i] }
func (q *spreads) Push(x any)         { q.list = append(q.list, x.(*spread)) }
func (q *spreads) Pop() any {
	last := len(q.list) - 1
	s := q.list[last]
	q.list[last] = nil
	q.list = q.list[:last]
	return s
}

// add takes over a tick's requests, and returns how many of another one had to give way.
func (q *spreads) add(s *spread, now time.Duration) (dropped int) {
	if len(q.list) >= maxSpreads {
		first := heap.Pop(q).(*spread)
		dropped = len(first.items) - first.next
	}
	s.begin = now
	heap.Push(q, s)
	return dropped
}

// run sends what is to be sent by now; busy is that there is more.
func (q *spreads) run(now time.Duration, clk clock.Clock, send func(*spread, proxyRun)) (busy bool) {
	began := clk.Now()
	for len(q.list) > 0 && q.list[0].at() <= now {
		if clk.Since(began) > sendTime {
			return true
		}
		s := q.list[0]
		send(s, s.items[s.next])
		if s.next++; s.next == len(s.items) {
			heap.Pop(q)
		} else {
			heap.Fix(q, 0)
		}
	}
	return false
}

func (q *spreads) wait(now time.Duration) time.Duration {
	if len(q.list) == 0 {
		return atMost
	}
	return max(q.list[0].at()-now, 0)
}

// sendProxied sends a request that is filled in to an agent, or to all who subscribe.
func (r *Scheduler) sendProxied(s *spread, filled *monitor.CheckConfig, agent string) {
	p, issued := r.again(s.check, s.issued)
	m := r.message(s.check, p.with(filled, issued))
	if agent == "" {
		r.sent.Add(uint64(r.cfg.Hub.Send(s.check.key.namespace, s.check.shown.Subscriptions, m)))
		return
	}
	if session := r.cfg.Hub.Get(s.check.key.namespace, agent); session != nil && session.Send(m) == nil {
		r.sent.Add(1)
	}
}
