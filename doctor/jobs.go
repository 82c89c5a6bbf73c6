package doctor

import (
	"fmt"
	"time"
)

const (
	// pileUp is how many evaluations may wait for the scheduler, and pileUpSeconds how long it may take to be done.
	pileUp, pileUpSeconds = 500, 30
	// rejectedPart is the part of placements that may be refused because their node has changed.
	rejectedPart = 0.1
	// blockedLong is how long work may find no room before it is told.
	blockedLong = 5 * time.Minute
	// preparesLong is how long a task may be made ready: images, artifacts, templates, secrets.
	preparesLong = 3 * time.Minute
)

// evaluationsPileUp finds a scheduler that does not get done with what there is to decide.
func evaluationsPileUp(v *view) []Finding {
	ready := v.one("broker.total_ready")
	if ready == nil || ready.Now.Value < pileUp || ready.Now.Slope < 0 &&
		ready.Now.Value/-ready.Now.Slope < pileUpSeconds {
		return nil
	}
	f := Finding{Severity: Warning, cause: cause{layer: layerWork, effect: true}, Plane: "jobs", Stage: "schedule",
		Culprit: "evaluations of jobs", subject: "evaluations", Since: ready.Since,
		Title:    fmt.Sprintf("%s: %.0f evaluations of jobs wait for the scheduler", v.Member, ready.Now.Value),
		Evidence: []Line{{Key: ready.Key(), Text: fmt.Sprintf("%+.1f a second", ready.Now.Slope)}},
		Do: []string{"corbel evals list shows which jobs and triggers they are of: one that registers in a loop is usual.",
			"If scheduling is paused, switch it on: corbel jobs scheduler set-config -pause-eval-broker=false."}}
	if s := v.one("plan.submit"); s != nil && s.Now.Count >= fewest {
		f.Evidence = append(f.Evidence, Line{Key: s.Key(), Text: fmt.Sprintf("a plan takes %s to be committed, %s at the "+
			"99th percentile", millis(s.Now.Mean), millis(s.Now.P99))})
	}
	return []Finding{f}
}

// plansRejected finds placements that do not fit any more when they are committed.
func plansRejected(v *view) []Finding {
	rejected, placed := v.one("plan.node_rejected"), v.one("plan.placed")
	if rejected == nil || rejected.Now.Sum < 4*fewest {
		return nil
	}
	all := rejected.Now.Sum
	if placed != nil {
		all += placed.Now.Sum
	}
	if rejected.Now.Sum < rejectedPart*all {
		return nil
	}
	return []Finding{{Severity: Warning, cause: cause{layer: layerWork}, Plane: "jobs", Stage: "plan",
		Culprit: "plans of the scheduler", subject: "plans", Since: rejected.Since,
		Title: fmt.Sprintf("%s: %.0f of %.0f placements were refused when they were to be committed", v.Member,
			rejected.Now.Sum, all),
		Evidence: []Line{{Key: rejected.Key(), Text: fmt.Sprintf("%.0f in %s", rejected.Now.Sum, v.Window)}},
		Do: []string{"corbel jobs nodes status: nodes that come, go, or change their eligibility all the time are usual.",
			"Each is tried again by itself; fewer jobs.schedulers decide less beside each other."}}}
}

// nodesUnheard finds nodes that stopped to beat.
func nodesUnheard(v *view) []Finding {
	silent := v.one("heartbeat.invalidate")
	if silent == nil || silent.Now.Sum < 1 {
		return nil
	}
	f := Finding{Severity: Warning, cause: cause{layer: layerWork, effect: true}, Plane: "jobs", Stage: "heartbeat",
		Culprit: "nodes that run jobs", subject: "nodes", Since: silent.Since,
		Title:    fmt.Sprintf("%.0f nodes were not heard of in time: their allocations are replaced", silent.Now.Sum),
		Evidence: []Line{{Key: silent.Key(), Text: fmt.Sprintf("%.0f marked in %s", silent.Now.Sum, v.Window)}},
		Do: []string{"corbel jobs nodes status names them. Check their hosts, and the way to the servers.",
			"disconnect { lost_after } in a group keeps its allocations through such a time."}}
	if n, ok := v.value("heartbeat.active"); ok {
		f.Evidence = append(f.Evidence, Line{Key: "heartbeat.active", Text: fmt.Sprintf("%.0f nodes are heard of", n)})
	}
	return []Finding{f}
}

// workBlocked finds jobs that have waited long for room, and says for what.
func workBlocked(v *view) []Finding {
	oldest, _ := v.value("blocked_evals.oldest_ms")
	if oldest < millisOf(blockedLong) {
		return nil
	}
	count, _ := v.value("blocked_evals.total_blocked")
	f := Finding{Severity: Warning, cause: cause{layer: layerWork}, Plane: "jobs", Stage: "place",
		Culprit: "room for jobs", subject: "blocked", Since: v.ago(oldest),
		Title: fmt.Sprintf("%.0f jobs wait for room, the oldest for %s", count, millis(oldest)),
		Do: []string{"corbel jobs why JOB says what would have to change.",
			"Add nodes of the class, stop what is not needed, or ask for less."}}
	for _, s := range v.all("blocked_evals.lacks") {
		if s.Now.Value > 0 {
			f.Evidence = append(f.Evidence, Line{Key: s.Key(), Text: fmt.Sprintf("%.0f jobs: %s", s.Now.Value,
				s.Label("what"))})
		}
	}
	if len(f.Evidence) == 0 {
		f.Evidence = []Line{{Key: "blocked_evals.oldest_ms", Text: "what they lack is not known"}}
	}
	return []Finding{f}
}

// tasksStartSlowly finds tasks that take long to be made ready.
func tasksStartSlowly(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("task.preparing_ms") {
		if s.Now.Value < millisOf(preparesLong) {
			continue
		}
		task := s.Label("task")
		out = append(out, Finding{Severity: Warning, cause: cause{layer: layerWork}, Plane: "jobs", Stage: "prepare",
			Culprit: "task " + task, subject: "prepare " + task, Since: v.ago(s.Now.Value),
			Title:    fmt.Sprintf("%s: the task %s has been made ready for %s", v.Member, task, millis(s.Now.Value)),
			Evidence: []Line{{Key: s.Key(), Text: "its last event: " + s.Label("event")}},
			Do: []string{"corbel allocs status ALLOC shows its events: an image or an artifact, a template or a secret.",
				"Keep images and artifacts near the nodes; a template waits until all its keys exist."}})
	}
	return out
}

// tasksRestart finds tasks that start and end in circles.
func tasksRestart(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("task.circles") {
		if s.Now.Value < 1 {
			continue
		}
		task := s.Label("task")
		out = append(out, Finding{Severity: Warning, cause: cause{layer: layerWork}, Plane: "jobs", Stage: "run",
			Culprit: "task " + task, subject: "restart " + task, Since: s.Since,
			Title:    fmt.Sprintf("%s: the task %s restarts in circles", v.Member, task),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%.0f restarts, the last within ten minutes", s.Now.Value)}},
			Do: []string{"corbel allocs logs -stderr ALLOC TASK says what it ended with.",
				"corbel jobs revert JOB VERSION goes back; update { auto_revert = true } does it by itself."}})
	}
	return out
}

func millisOf(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
