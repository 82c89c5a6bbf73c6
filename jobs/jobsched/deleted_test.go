package jobsched

import (
	"testing"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobstore"
)

// TestDeletedEvaluations: what is deleted while nothing is evaluated, or while it waits for room, is not evaluated
// afterwards, and what comes later is.
func TestDeletedEvaluations(t *testing.T) {
	inWorld(t, 0, func(w *world) {
		set := func(paused string) {
			w.do(&jobstore.Command{Head: w.head(""), Names: jobstore.NameWrites{Docs: []jobstore.DocWrite{{
				Document: jobstore.Document{Table: jobstore.Scheduler, Body: `{"PauseEvalBroker":` + paused + `}`}}}}})
		}
		drop := func() {
			c := &jobstore.Command{Head: w.head("")}
			for e := range w.store.View().State.Evaluations() {
				c.Sweep.Evals = append(c.Sweep.Evals, e.ID)
			}
			w.do(c)
		}
		w.register(job("blocked", 1))
		pass(time.Second)
		set("true")
		pending := w.register(job("pending", 1))
		drop()
		set("false")
		w.addNodes(0, 1)
		pass(5 * time.Second)
		if n, _ := w.running("blocked"); n != 0 {
			t.Error("what waited for room was evaluated after its deletion")
		}
		if n, _ := w.running("pending"); n != 0 || w.store.View().State.Evaluation(pending.Evals[0]) != nil {
			t.Error("what was pending was evaluated after its deletion")
		}
		w.do(&jobstore.Command{Head: w.head(jobstore.EvaluationUpdated), Jobs: jobstore.JobWrites{
			Eval: []jobstore.EvalOrder{{JobKey: jobs.JobKey{Namespace: "default", ID: "pending"}}}}})
		w.wantRunning(5*time.Second, "pending", 1)
	})
}
