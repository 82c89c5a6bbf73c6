package jobsagentplane

import (
	"cmp"
	"slices"
	"time"

	"corbel.dev/corbel/jobs/client/nodeclient"
	"corbel.dev/corbel/telemetry"
)

const (
	// circling is how many restarts are a circle, if the last one was within circledWithin.
	circling, circledWithin = 3, 10 * time.Minute
	// maxCircles bounds the tasks that are told at once, maxTasksNamed those in a process' life: each is a series.
	maxCircles, maxTasksNamed = 10, 100
)

// reporter tells the doctor of tasks that do not run as they should. One goroutine uses it.
type reporter struct {
	tasks   func() []nodeclient.TaskState
	now     func() time.Time
	metrics *telemetry.Registry
	named   map[string]bool // that were told to restart
	slow    map[[2]string]bool
}

// tell tells of tasks that restart in circles, and of the one that has been made ready for longest.
func (r *reporter) tell() {
	now := r.now()
	circles := map[string]float64{}
	var slowest nodeclient.TaskState
	all := r.tasks()
	slices.SortFunc(all, func(a, b nodeclient.TaskState) int {
		return cmp.Or(cmp.Compare(b.Restarts, a.Restarts), cmp.Compare(a.Name, b.Name))
	})
	for _, t := range all {
		if t.Restarts >= circling && now.Sub(t.LastRestart) < circledWithin && len(circles) < maxCircles &&
			(r.named[t.Name] || len(r.named) < maxTasksNamed) {
			circles[t.Name] = max(circles[t.Name], float64(t.Restarts))
			r.named[t.Name] = true
		}
		if !t.Preparing.IsZero() && (slowest.Preparing.IsZero() || t.Preparing.Before(slowest.Preparing)) {
			slowest = t
		}
	}
	for name := range r.named {
		r.metrics.Gauge("task.circles", "task", name).Set(circles[name])
	}
	key := [2]string{slowest.Name, slowest.Event}
	for old := range r.slow {
		r.gauge(old, 0)
	}
	if slowest.Preparing.IsZero() || !r.slow[key] && len(r.slow) >= maxTasksNamed {
		return
	}
	if took := now.Sub(slowest.Preparing); took > time.Second { // most are ready at once, and need no series
		r.slow[key] = true
		r.gauge(key, float64(took)/float64(time.Millisecond))
	}
}

func (r *reporter) gauge(key [2]string, v float64) {
	r.metrics.Gauge("task.preparing_ms", "task", key[0], "event", key[1]).Set(v)
}
