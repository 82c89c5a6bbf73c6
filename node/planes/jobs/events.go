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
	for _, d := range c.Docs {
		if e := nameEvent(d); e != nil {
			e.Index = c.Index
			out.Events = append(out.Events, e)
		}
	}
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
	return out
}

// nameEvent is the event about something that has a name, nil for none. Its type is its own, whatever the command's.
func nameEvent(d jobstore.DocChange) *nomadrows.Event {
	doc, what := d.After, "Upserted"
	if doc == nil {
		doc, what = d.Before, "Deleted"
	}
	switch doc.Table {
	case jobstore.Services:
		kind := map[string]string{"Upserted": "ServiceRegistration", "Deleted": "ServiceDeregistration"}[what]
		s := serviceOf(doc)
		return &nomadrows.Event{Topic: "Service", Type: kind, Key: s.ID, Namespace: s.Namespace,
			FilterKeys: []string{s.JobID, s.ServiceName}, Payload: payload("Service", s)}
	case jobstore.Pools:
		return &nomadrows.Event{Topic: "NodePool", Type: "NodePool" + what, Key: doc.Name,
			Payload: payload("NodePool", poolOf(doc))}
	case jobstore.Scalings:
		if d.After == nil {
			return nil
		}
		group, newest := d.After.NewestScaling()
		return &nomadrows.Event{Topic: "Scaling", Type: "ScalingEventRegistered", Key: doc.Name,
			Namespace: doc.Namespace, FilterKeys: []string{group},
			Payload: payload("ScalingEvent", struct {
				Namespace, JobID, TaskGroup string
				*nomadrows.ScalingEvent
			}{doc.Namespace, doc.Name, group, scalingEvent(group, newest)})}
	}
	return nil
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
