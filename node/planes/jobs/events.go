package jobsplane

import (
	"encoding/json"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/state"
)

// eventsOf are the events of one command: every object that it touched, with its type (NA-24).
func eventsOf(v *jobstore.View, c *jobstore.Changed) *nomadrows.Events {
	out := &nomadrows.Events{Index: c.Index}
	if c.Kind == "" { // what is swept is not told
		return out
	}
	for _, change := range c.Core {
		object := change.After
		if object == nil {
			if _, ok := change.Before.(*state.Use); !ok && c.Kind != jobstore.JobDeregistered {
				continue
			}
			object = change.Before
		}
		e := eventOf(v, object)
		e.Type, e.Index = c.Kind, c.Index
		out.Events = append(out.Events, e)
	}
	for _, d := range c.Docs {
		doc, kind := d.After, "ServiceRegistration"
		if doc == nil {
			doc, kind = d.Before, "ServiceDeregistration"
		}
		if doc.Table != jobstore.Services {
			continue
		}
		s := serviceOf(doc)
		out.Events = append(out.Events, &nomadrows.Event{Topic: "Service", Type: kind, Key: s.ID, Namespace: s.Namespace,
			FilterKeys: []string{s.JobID, s.ServiceName}, Index: c.Index, Payload: payload("Service", s)})
	}
	return out
}

func payload(name string, object any) json.RawMessage {
	text, err := json.Marshal(map[string]any{name: object})
	if err != nil {
		panic("jobsplane: " + err.Error()) // jobwire's types have nothing that JSON cannot say
	}
	return text
}

func keys(ids ...jobs.ID) (list []string) {
	for _, id := range ids {
		if !id.IsZero() {
			list = append(list, id.String())
		}
	}
	return list
}

// eventOf is an event about an object, but for its type and index.
func eventOf(v *jobstore.View, object any) *nomadrows.Event {
	switch o := object.(type) {
	case *jobs.Job:
		w := jobwire.FromJob(o)
		return &nomadrows.Event{Topic: "Job", Key: o.ID, Namespace: o.Namespace, Payload: payload("Job", w)}
	case *jobs.Allocation:
		var node *jobs.Node
		if u := v.State.Node(o.NodeID); u != nil {
			node = u.Node
		}
		w := jobwire.FromAllocation(o, node, nil)
		w.TaskStates = view{v}.Tasks(o.ID)
		return &nomadrows.Event{Topic: "Allocation", Key: o.ID.String(), Namespace: o.Job.Namespace,
			FilterKeys: append([]string{o.Job.ID}, keys(o.Rollout.Deployment)...), Payload: payload("Allocation", w)}
	case *jobs.Evaluation:
		return &nomadrows.Event{Topic: "Evaluation", Key: o.ID.String(), Namespace: o.Namespace,
			FilterKeys: append([]string{o.JobKey.ID}, keys(o.DeploymentID)...),
			Payload:    payload("Evaluation", jobwire.FromEvaluation(o))}
	case *jobs.Deployment:
		return &nomadrows.Event{Topic: "Deployment", Key: o.ID.String(), Namespace: o.Namespace,
			FilterKeys: []string{o.JobKey.ID}, Payload: payload("Deployment", jobwire.FromDeployment(o))}
	case *state.Use:
		return &nomadrows.Event{Topic: "Node", Key: o.Node.ID.String(), Payload: payload("Node", jobwire.FromNode(o.Node,
			o.Class))}
	}
	return &nomadrows.Event{}
}
