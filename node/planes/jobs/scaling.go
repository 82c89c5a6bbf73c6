package jobsplane

import (
	"context"
	"encoding/json"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/kit/errkind"
)

// Scaled implements nomadrows.JobWriter.
func (w writers) Scaled(ctx context.Context, key jobs.JobKey, e *nomadrows.ScalingEvent) (nomadrows.Written, error) {
	if w.p.store.View().State.Job(key) == nil {
		return nomadrows.Written{}, errkind.New(errkind.NotFound, "job not found")
	}
	return w.do(ctx, "", &jobstore.Command{Scalings: []jobstore.ScalingWrite{scalingWrite(key, e)}})
}

// scalingWrite is an event as it is stored; the plane stamps it.
func scalingWrite(key jobs.JobKey, e *nomadrows.ScalingEvent) jobstore.ScalingWrite {
	out := jobstore.ScalingWrite{JobKey: key, Group: e.Group, Event: jobstore.ScalingEvent{Count: e.Count,
		Previous: e.PreviousCount, Error: e.Error, Message: e.Message}}
	if len(e.Meta) > 0 {
		text, err := json.Marshal(e.Meta)
		if err != nil {
			panic("jobsplane: " + err.Error()) // it was JSON
		}
		out.Event.Meta = string(text)
	}
	return out
}

// scalingEvent is an event as the API shows it.
func scalingEvent(group string, e *jobstore.ScalingEvent) *nomadrows.ScalingEvent {
	out := &nomadrows.ScalingEvent{Group: group, Count: e.Count, PreviousCount: e.Previous, Error: e.Error,
		Message: e.Message, Time: uint64(e.Time), CreateIndex: e.Index}
	if e.Meta != "" {
		decode(e.Meta, &out.Meta)
	}
	if !e.EvalID.IsZero() {
		out.EvalID = new(e.EvalID.String())
	}
	return out
}

// Scalings implements nomadrows.Details.
func (v view) Scalings(key jobs.JobKey) map[string][]*nomadrows.ScalingEvent {
	all := map[string][]*nomadrows.ScalingEvent{}
	for group, list := range v.v.Scalings(key) {
		for i := range list {
			all[group] = append(all[group], scalingEvent(group, &list[i]))
		}
	}
	return all
}

// DropEvaluations implements nomadrows.Settings.
func (w writers) DropEvaluations(ctx context.Context, ids []jobs.ID) (nomadrows.Written, error) {
	return w.do(ctx, "", &jobstore.Command{Sweep: jobstore.Sweep{Evals: ids}})
}
