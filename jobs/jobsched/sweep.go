package jobsched

import (
	"context"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/state"
)

// History is how long what is over is kept (NS-33), and how much of it. Zero means the default.
type History struct {
	Job, Eval, BatchEval, Deployment, Node time.Duration // 4 h, 1 h, 24 h, 1 h, 24 h
	Evals                                  int           // evaluations; 100,000
	Every                                  time.Duration // 5 min
}

func (h *History) complete() {
	def := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&h.Job, 4*time.Hour)
	def(&h.Eval, time.Hour)
	def(&h.BatchEval, 24*time.Hour)
	def(&h.Deployment, time.Hour)
	def(&h.Node, 24*time.Hour)
	def(&h.Every, 5*time.Minute)
	if h.Evals == 0 {
		h.Evals = 100_000
	}
}

// crowded is how often the number of evaluations is looked at.
const crowded = 10 * time.Second

// maxSwept bounds what one command forgets.
const maxSwept = 20_000

func (s *Sched) sweepLoop(ctx context.Context) error {
	last := s.now()
	for ctx.Err() == nil {
		t := s.cfg.Clock.NewTimer(crowded)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		now := s.now()
		if ctx.Err() != nil || now.Sub(last) < s.cfg.History.Every &&
			s.cfg.Store().State.EvaluationCount() < s.cfg.History.Evals {
			continue
		}
		last = now
		if err := s.sweep(ctx, false); err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("cannot forget what is over; trying again later", "error", err)
		}
	}
	return nil
}

// sweep forgets what is over and old; all that is over, with all.
func (s *Sched) sweep(ctx context.Context, all bool) error {
	for {
		sweep := Over(s.cfg.Store(), s.cfg.History, s.now(), all)
		if sweep == nil {
			return nil
		}
		c := &jobstore.Command{Head: s.head(""), Sweep: *sweep}
		if _, err := s.cfg.Propose(ctx, c); err != nil {
			return err
		}
	}
}

// sweeper collects what is over.
type sweeper struct {
	v   *jobstore.View
	h   History
	now jobs.Time
	all bool
	out jobstore.Sweep
	n   int
}

// Over is what is to be forgotten now, at most maxSwept objects; nil when there is nothing. With all, age does not
// count.
func Over(v *jobstore.View, h History, now jobs.Time, all bool) *jobstore.Sweep {
	s := &sweeper{v: v, h: h, now: now, all: all}
	gone := s.jobs()
	s.evals(gone)
	s.allocs(gone)
	for d := range v.State.Deployments() {
		if !d.Active() && s.n < maxSwept && (gone[d.JobKey] || s.old(d.ModifyTime, h.Deployment) && !s.newest(d)) {
			s.out.Deployments = append(s.out.Deployments, d.ID)
			s.n++
		}
	}
	for u := range v.State.Uses() {
		if u.Node.Duty.Status == jobs.NodeDown && s.old(u.Node.Duty.Since, h.Node) && s.empty(u.Node.ID) {
			s.out.Nodes = append(s.out.Nodes, u.Node.ID)
			s.n++
		}
	}
	if s.n == 0 {
		return nil
	}
	return &s.out
}

func (s *sweeper) old(at jobs.Time, keep time.Duration) bool { return s.all || s.now.Sub(at) > keep }

// newest reports whether a deployment is the last of a job that lives: its status is asked for.
func (s *sweeper) newest(d *jobs.Deployment) bool {
	j := s.v.State.Job(d.JobKey)
	latest := s.v.State.LatestDeployment(d.JobKey)
	return j != nil && !j.Stop && latest != nil && latest.ID == d.ID
}

func (s *sweeper) empty(node jobs.ID) bool {
	for a := range s.v.State.OnNode(node) {
		if !a.Terminal() {
			return false
		}
	}
	return true
}

// jobs are those that are dead, with nothing that changed lately.
func (s *sweeper) jobs() map[jobs.JobKey]bool {
	gone := map[jobs.JobKey]bool{}
	for j := range s.v.State.Jobs() {
		if s.n >= maxSwept {
			break
		}
		if !j.Stop && !j.RunsOnce() {
			continue
		}
		if status, _ := s.v.State.JobStatus(j); status != state.JobDead || !s.quiet(j) {
			continue
		}
		gone[j.JobKey] = true
		s.out.Jobs = append(s.out.Jobs, jobstore.SweptJob{JobKey: j.JobKey, ModifyIndex: j.ModifyIndex})
		s.n++
	}
	return gone
}

// quiet reports whether nothing of a job is under way or new.
func (s *sweeper) quiet(j *jobs.Job) bool {
	last := j.SubmitTime
	for a := range s.v.State.OfJob(j.JobKey) {
		if a.Counts() && !s.lostNode(a) {
			return false
		}
		last = max(last, a.ModifyTime)
	}
	for e := range s.v.State.EvaluationsOf(j.JobKey) {
		if e.Status == jobs.EvalPending || e.Status == jobs.EvalBlocked {
			return false
		}
		last = max(last, e.ModifyTime)
	}
	return s.old(last, s.h.Job)
}

// lostNode reports whether nobody can say any more that a is over.
func (s *sweeper) lostNode(a *jobs.Allocation) bool { return s.v.State.Node(a.NodeID) == nil }

func (s *sweeper) evals(gone map[jobs.JobKey]bool) {
	crowd := s.v.State.EvaluationCount() - s.h.Evals*9/10
	for e := range s.v.State.Evaluations() {
		if s.n >= maxSwept {
			return
		}
		if e.Status == jobs.EvalPending || e.Status == jobs.EvalBlocked {
			continue
		}
		keep := s.h.Eval
		if e.Type == jobs.Batch || e.Type == jobs.SysBatch {
			keep = s.h.BatchEval
		}
		if !gone[e.JobKey] && !s.old(e.ModifyTime, keep) {
			// Too many: those that are a few minutes old and led to nothing that waits go early.
			if crowd <= 0 || s.now.Sub(e.ModifyTime) < time.Minute {
				continue
			}
			crowd--
		}
		s.out.Evals = append(s.out.Evals, e.ID)
		s.n++
	}
}

// allocs are those that are over and that nothing needs: a batch job's are what it has done, as long as it is there,
// and the last of several tries says how many there were.
func (s *sweeper) allocs(gone map[jobs.JobKey]bool) {
	for a := range s.v.State.Allocations() {
		if s.n >= maxSwept {
			return
		}
		if a.Counts() && !(a.ServerTerminal() && s.lostNode(a)) {
			continue
		}
		j := s.v.State.Job(a.Job.JobKey)
		switch {
		case j == nil, gone[a.Job.JobKey]:
		case !s.old(a.ModifyTime, s.h.Eval):
			continue
		case j.RunsOnce() && !j.Stop && a.Lineage.Next.IsZero():
			continue
		case !a.ServerTerminal() && a.Lineage.Next.IsZero() && !j.Stop:
			continue
		}
		s.out.Allocs = append(s.out.Allocs, a.ID)
		s.n++
	}
}
