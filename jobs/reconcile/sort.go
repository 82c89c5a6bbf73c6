package reconcile

import (
	"slices"
	"time"

	"corbel.dev/corbel/jobs"
)

// work is one group while it is decided.
type work struct {
	in      *Input
	result  *Result
	tg      *jobs.TaskGroup
	d       *jobs.Deployment // that goes on, or begins
	failed  bool             // the deployment of this version failed
	out     Group
	updated map[*jobs.Job]bool // by old version: needs new processes

	keep    []*jobs.Allocation // run, or are done for good; they have their index
	canary  []*jobs.Allocation // of this deployment, waiting for promotion
	migrate []*jobs.Allocation
	lost    []*jobs.Allocation
	again   []*jobs.Allocation // failed, to be replaced now
	away    []*jobs.Allocation // unknown: on disconnected nodes

	complete bool // nothing is left to do for the deployment
}

// canarying reports whether new versions wait for promotion.
func (g *work) canarying() bool {
	if g.d == nil {
		return false
	}
	s := g.d.Groups[g.tg.Name]
	return s != nil && s.DesiredCanaries > 0 && !s.Promoted
}

// sort puts each allocation where it belongs.
func (g *work) sort(list []*jobs.Allocation) {
	slices.SortFunc(list, byIndex)
	replaced := map[jobs.ID]*jobs.Allocation{}
	for _, a := range list {
		if p := a.Lineage.Previous; !p.IsZero() && !a.Terminal() {
			replaced[p] = a
		}
	}
	gone := map[jobs.ID]bool{} // replacements whose original came back, and the other way round
	for _, a := range list {
		if r := replaced[a.ID]; r != nil && a.Client.Status == jobs.ClientUnknown && !a.ServerTerminal() {
			if n := g.in.Node(a.NodeID); n != nil && n.Duty.Status == jobs.NodeReady {
				loser, why := a, "alloc not needed: its replacement is kept"
				if g.original(a, r) {
					loser, why = r, "alloc not needed: its original reconnected"
				}
				gone[loser.ID] = true
				g.stop(loser, why)
			}
		}
	}
	for _, a := range list {
		if !gone[a.ID] {
			g.place(a, replaced[a.ID] != nil)
		}
	}
}

// original decides between an allocation that reconnects and its replacement (NS-30).
func (g *work) original(a, replacement *jobs.Allocation) bool {
	if a.Job.Version != g.in.Job.Version || a.Job.CreateIndex != g.in.Job.CreateIndex {
		return false
	}
	if g.tg.Disconnect == nil {
		return true
	}
	switch g.tg.Disconnect.Reconcile {
	case "keep_original":
		return true
	case "keep_replacement":
		return false
	case "longest_running":
		return replacement.Client.StartedAt == 0 || a.Client.StartedAt <= replacement.Client.StartedAt
	}
	return g.in.Better == nil || g.in.Better(a, replacement)
}

// place sorts one allocation.
func (g *work) place(a *jobs.Allocation, replaced bool) {
	once := g.in.Job.RunsOnce()
	old := a.Job.Version < g.in.Job.Version || a.Job.CreateIndex != g.in.Job.CreateIndex
	switch {
	case once && a.Client.Status == jobs.ClientComplete:
		if !old { // what has run need not run again (trap 15), but for a new version
			g.keep = append(g.keep, a)
		}
	case a.ServerTerminal():
	case a.Client.Status == jobs.ClientFailed && replaced, a.Client.Status == jobs.ClientComplete:
	case once && old && a.ClientTerminal():
	case a.Rollout.Canary && (g.d == nil || a.Rollout.Deployment != g.d.ID):
		g.stop(a, "alloc is a canary of an older deployment")
	case a.Client.Status == jobs.ClientLost:
		g.lost = append(g.lost, a)
	case a.Client.Status == jobs.ClientFailed:
		g.failure(a)
	default:
		g.running(a, replaced)
	}
}

// running sorts an allocation that its node does not call over.
func (g *work) running(a *jobs.Allocation, replaced bool) {
	n := g.in.Node(a.NodeID)
	wait := g.tg.Disconnect
	switch {
	case n == nil || n.Duty.Status == jobs.NodeDown && (wait == nil || wait.LostAfter == 0):
		g.lost = append(g.lost, a)
	case n.Duty.Status == jobs.NodeDown, n.Duty.Status == jobs.NodeDisconnected:
		g.disconnected(a, wait, n.Duty.Since, replaced)
	case a.Client.Status == jobs.ClientUnknown && !replaced:
		g.keepRunning(a) // it is back, and nothing took its place
	case a.Desired.Migrate:
		g.migrate = append(g.migrate, a)
	case a.Desired.Reschedule:
		g.again = append(g.again, a)
	default:
		g.keepRunning(a)
	}
}

func (g *work) keepRunning(a *jobs.Allocation) {
	if a.Rollout.Canary && g.canarying() {
		g.canary = append(g.canary, a)
		return
	}
	g.keep = append(g.keep, a)
}

// disconnected waits for a node that may come back (NS-30).
func (g *work) disconnected(a *jobs.Allocation, wait *jobs.Disconnect, since jobs.Time, replaced bool) {
	if wait == nil || wait.LostAfter == 0 {
		g.lost = append(g.lost, a)
		return
	}
	if a.Client.Status == jobs.ClientUnknown && a.Client.UnknownSince > 0 {
		since = a.Client.UnknownSince
	}
	until := since.Add(wait.LostAfter)
	if until <= g.in.Now {
		g.lost = append(g.lost, a)
		return
	}
	if a.Client.Status != jobs.ClientUnknown {
		id := g.result.followup(g.in, until, jobs.TriggerMaxDisconnect)
		g.result.Stop = append(g.result.Stop, jobs.Stopping{Alloc: a.ID, Node: a.NodeID, Client: jobs.ClientUnknown,
			Description: "alloc is unknown since its node is disconnected", Followup: id})
	}
	if !wait.Replace || replaced {
		if !replaced {
			g.keep = append(g.keep, a)
		}
		return
	}
	g.away = append(g.away, a)
}

// failure sorts a failed allocation: replaced now, later, or never.
func (g *work) failure(a *jobs.Allocation) {
	n := g.in.Node(a.NodeID)
	judged := g.d != nil && a.Rollout.Deployment == g.d.ID
	switch {
	case a.Desired.Reschedule, n != nil && a.Desired.Migrate && !g.in.Job.RunsOnce():
		g.again = append(g.again, a)
		return
	case judged && g.d.Active(): // the deployment says when (Rollout)
		g.keepRunning(a)
		return
	}
	at, _, eligible := RescheduleAt(a, g.tg.Reschedule)
	switch {
	case !eligible:
		g.keepRunning(a)
	case at <= g.in.Now || a.Lineage.Followup == g.in.EvalID && !g.in.EvalID.IsZero():
		g.again = append(g.again, a)
	default:
		if a.Lineage.Followup.IsZero() {
			next := *a
			next.Lineage.Followup = g.result.followup(g.in, at, jobs.TriggerReschedule)
			g.result.Update = append(g.result.Update, &next)
		}
		g.keepRunning(a)
	}
}

// RescheduleAt says when a failed allocation may be replaced, with the delay that its policy put before
// it, and whether it may be at all (NS-29, NO-10).
func RescheduleAt(a *jobs.Allocation, p *jobs.ReschedulePolicy) (at jobs.Time, delay time.Duration, eligible bool) {
	if p == nil || !p.Unlimited && p.Attempts == 0 {
		return 0, 0, false
	}
	failed := a.Client.FinishedAt
	if failed == 0 {
		failed = a.ModifyTime
	}
	past := a.Lineage.Reschedules
	if !p.Unlimited {
		recent := 0
		for _, r := range past {
			if failed.Sub(r.At) < p.Interval {
				recent++
			}
		}
		if recent >= p.Attempts {
			return 0, 0, false
		}
	}
	delay = delayOf(p, past, failed)
	return failed.Add(delay), delay, true
}

// delayOf is the next delay. A policy that grows begins anew after an allocation that ran longer than the most.
func delayOf(p *jobs.ReschedulePolicy, past []jobs.Rescheduled, failed jobs.Time) time.Duration {
	if len(past) == 0 || p.Function == "constant" || p.Function == "" {
		return p.Delay
	}
	last := past[len(past)-1]
	next := 2 * time.Duration(last.Delay)
	if p.Function == "fibonacci" {
		next = time.Duration(last.Delay)
		if len(past) > 1 {
			next += time.Duration(past[len(past)-2].Delay)
		}
	}
	if p.MaxDelay > 0 && next > p.MaxDelay {
		next = p.MaxDelay
		if time.Duration(last.Delay) >= p.MaxDelay && failed.Sub(last.At) > p.MaxDelay {
			next = p.Delay
		}
	}
	return max(next, p.Delay)
}
