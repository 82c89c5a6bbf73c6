package check

import (
	"container/heap"
	"context"
	"time"

	"corbel.dev/corbel/catalog"
)

// idle is how long the scheduler waits when nothing is scheduled; Add wakes it.
const idle = time.Hour

// Run schedules checks until ctx ends, cancels the runs under way and returns
// when all of them have ended.
func (r *Runner) Run(ctx context.Context) error {
	defer r.wg.Wait()
	timer := r.cfg.Clock.NewTimer(idle)
	defer timer.Stop()
	for {
		expired, wait := r.turn(ctx)
		for _, e := range expired {
			e.it.notify(e.seq, e.res)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.wake:
		}
	}
}

// lapse is a TTL check that fell silent.
type lapse struct {
	it  *item
	seq uint64
	res Result
}

// turn takes everything that is due: TTL checks lapse, probes get a slot or
// queue up. It returns the lapses and the time until the next is due.
func (r *Runner) turn(ctx context.Context) ([]lapse, time.Duration) {
	now := r.cfg.Clock.Now()
	var lapses []lapse
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.due) > 0 && !r.due[0].at.After(now) {
		it := heap.Pop(&r.due).(*item)
		if it.spec.Kind == KindTTL {
			it.flap.Status = catalog.Critical
			it.seq++
			lapses = append(lapses, lapse{it, it.seq,
				Result{Status: catalog.Critical, Output: expiredOutput(it.output, it.spec.OutputMaxSizeBytes)}})
			continue
		}
		it.lane.ready = append(it.lane.ready, it)
	}
	r.fillLocked(ctx, &r.network)
	r.fillLocked(ctx, &r.scripts)
	wait := idle
	if len(r.due) > 0 {
		wait = max(r.due[0].at.Sub(now), 0)
	}
	return lapses, wait
}

func expiredOutput(last string, limit int) string {
	if last == "" {
		return "TTL expired"
	}
	return "TTL expired (last output before timeout follows): " + tail(last, limit)
}

// fillLocked starts a worker for each waiting check while there are slots.
func (r *Runner) fillLocked(ctx context.Context, l *lane) {
	for l.running < l.limit {
		it := l.nextLocked()
		if it == nil {
			return
		}
		l.running++
		r.wg.Go(func() { r.work(ctx, l, it) })
	}
}

// nextLocked takes the longest waiting check that still exists.
func (l *lane) nextLocked() *item {
	for len(l.ready) > 0 {
		it := l.ready[0]
		l.ready[0] = nil
		l.ready = l.ready[1:]
		if !it.gone {
			return it
		}
	}
	l.ready = nil
	return nil
}

// work runs a check and then those that wait for a slot in the same lane.
func (r *Runner) work(ctx context.Context, l *lane, it *item) {
	for it != nil {
		r.once(ctx, it)
		r.mu.Lock()
		if it = nil; ctx.Err() == nil {
			it = l.nextLocked()
		}
		if it == nil {
			l.running--
		}
		r.mu.Unlock()
	}
}

// once runs a check, notifies what is to be shown and schedules the next run.
func (r *Runner) once(ctx context.Context, it *item) {
	began := r.cfg.Clock.Now()
	probeCtx, cancel := context.WithTimeout(ctx, it.spec.Timeout)
	defer cancel()
	r.mu.Lock()
	if it.gone {
		r.mu.Unlock()
		return
	}
	it.cancel = cancel
	due := it.at
	r.mu.Unlock()
	r.runs.Add(1)
	r.late.Observe(max(began.Sub(due), 0))

	res := it.probe(probeCtx)
	res.Output = tail(res.Output, it.spec.OutputMaxSizeBytes)

	r.mu.Lock()
	it.cancel = nil
	if it.gone || ctx.Err() != nil { // a probe cut short by the stop says nothing
		r.mu.Unlock()
		return
	}
	next, show := Step(it.flap, res.Status, Thresholds{it.spec.SuccessBeforePassing,
		it.spec.FailuresBeforeWarning, it.spec.FailuresBeforeCritical})
	if it.spec.Kind == KindAlias {
		next, show = Flap{Status: res.Status}, true
	}
	it.flap, res.Status = next, next.Status
	fresh := show && (!it.shown || res.Output != it.output || res.Status != it.last)
	if fresh {
		it.shown, it.output, it.last = true, res.Output, res.Status
		it.seq++
	}
	seq := it.seq
	r.scheduleLocked(it, nextRun(began, r.cfg.Clock.Now(), it.spec.Interval))
	r.mu.Unlock()
	if fresh {
		it.notify(seq, res)
	}
}

// nextRun keeps a check on its own beat: the first multiple of interval after
// began that is still ahead.
func nextRun(began, now time.Time, interval time.Duration) time.Time {
	late := now.Sub(began)
	if late < interval {
		return began.Add(interval)
	}
	return began.Add((late/interval + 1) * interval)
}
