package jobsplane

import (
	"context"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/groupfate"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/node/plane"
)

const (
	troubleEvery = 10 * time.Second
	// maxTroubled bounds the groups that are judged at once, maxToldAtOnce the events of one look: the rest has its turn
	// at the next.
	maxTroubled, maxToldAtOnce = 10_000, 200
)

// troubles makes events of groups whose allocations fail or restart. One goroutine uses it.
type troubles struct {
	p    *Plane
	told map[groupfate.Group]uint32 // since this server leads; at most maxTroubled
}

// run looks while this server leads.
func (t *troubles) run(ctx context.Context) error {
	to := plane.Find[plane.Monitor](t.p.d.Planes)
	if to == nil {
		<-ctx.Done()
		return nil
	}
	for {
		timer := t.p.d.Clock.NewTimer(troubleEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		if !t.p.Leads() {
			t.told = nil
			continue
		}
		t.look(ctx, to)
	}
}

// look tells what has changed. A group that is fine is told of once by each leader while failures of it are kept: its
// predecessor may have told of them. What cannot be told is told at a later look.
func (t *troubles) look(ctx context.Context, to plane.Monitor) {
	v, now := t.p.store.View(), t.p.now()
	restarted := func(a *jobs.Allocation) jobs.Time { return lastRestart(view{v}.Tasks(a.ID)) }
	before := t.told
	t.told = map[groupfate.Group]uint32{}
	list := groupfate.Suspects(v.State, restarted, now, maxTroubled)
	for _, g := range list {
		if status, ok := before[g]; ok {
			t.told[g] = status
		}
	}
	for g, status := range before {
		if _, ok := t.told[g]; !ok && status != groupfate.Fine && len(t.told) < maxTroubled {
			t.told[g] = status // its failures are forgotten, or its restarts long ago
			list = append(list, g)
		}
	}
	events := 0
	for _, g := range list {
		verdict, settled := groupfate.Judge(v.State, g, restarted, now)
		if status, ok := t.told[g]; !settled || ok && status == verdict.Status {
			continue
		}
		if events++; events > maxToldAtOnce || ctx.Err() != nil {
			return
		}
		name := plane.MonitorName
		err := to.TellResult(ctx, "job."+name(g.Namespace)+"."+name(g.Job), "group."+name(g.Group),
			verdict.Status, verdict.Output, nil)
		if err != nil {
			t.p.d.Log.Debug("jobs: events wait for the monitor plane", "error", err)
			return
		}
		t.told[g] = verdict.Status
	}
}

func lastRestart(tasks map[string]*jobwire.TaskState) (at jobs.Time) {
	for _, s := range tasks {
		if s != nil && s.Restarts > 0 && !s.LastRestart.IsZero() {
			at = max(at, jobs.Time(s.LastRestart.UnixNano()))
		}
	}
	return at
}
