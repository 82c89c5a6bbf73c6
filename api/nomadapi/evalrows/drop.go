package evalrows

import (
	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
)

// maxDropped is how many evaluations one request may delete.
const maxDropped = 7281

// drop deletes evaluations by their ids or by a filter, while nothing is evaluated: what a scheduler has in its hands
// would come back.
func drop(q *request) error {
	b, err := nomadrows.Decode[struct {
		EvalIDs []string
		Filter  string
	}](q)
	if err != nil {
		return err
	}
	switch {
	case len(b.EvalIDs) > 0 && b.Filter != "":
		return nomadrows.BadRequest("evals cannot be deleted by both ID and filter")
	case len(b.EvalIDs) == 0 && b.Filter == "":
		return nomadrows.BadRequest("evals must be deleted by either ID or filter")
	case len(b.EvalIDs) > maxDropped:
		return nomadrows.BadRequest("request includes %v evaluation IDs, must be %v or fewer", len(b.EvalIDs), maxDropped)
	}
	v, err := q.Views.View(q.Ctx(), false)
	if err != nil {
		return err
	}
	if !v.Scheduler().PauseEvalBroker {
		return nomadrows.BadRequest("eval broker is enabled; eval broker must be paused to delete evals " +
			"(operator scheduler set-config -pause-eval-broker=true)")
	}
	ids, err := dropped(v, b.EvalIDs, b.Filter)
	if err != nil {
		return err
	}
	w := nomadrows.Written{Index: v.State().Index()}
	if len(ids) > 0 {
		if w, err = q.Settings.DropEvaluations(q.Ctx(), ids); err != nil {
			return err
		}
	}
	return q.Wrote(w.Index, struct{ Count int }{len(ids)})
}

// dropped are the evaluations that a deletion names, at most maxDropped of those that a filter fits.
func dropped(v nomadrows.View, texts []string, text string) (ids []jobs.ID, err error) {
	for _, text := range texts {
		id, ok := nomadrows.ParseID(text)
		if !ok {
			return nil, nomadrows.BadRequest("invalid evaluation ID %q: UUID must be 36 characters", text)
		}
		if v.State().Evaluation(id) == nil {
			return nil, nomadrows.Failed("eval not found: %s", text)
		}
		ids = append(ids, id)
	}
	if text == "" {
		return ids, nil
	}
	fits, err := nomadrows.EvaluationFilter(text)
	if err != nil {
		return nil, err
	}
	for e := range v.State().Evaluations() {
		if len(ids) < maxDropped && fits(e) {
			ids = append(ids, e.ID)
		}
	}
	return ids, nil
}
