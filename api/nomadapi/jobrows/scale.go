package jobrows

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"iter"
	"slices"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
)

// scale stores the job with another count of a group.
func scale(q *request) error {
	body, err := nomadrows.Decode[struct {
		Count   *int64
		Target  map[string]string
		Message string
		Error   bool
		Meta    map[string]any
	}](q)
	if err != nil {
		return err
	}
	name := body.Target["Group"]
	switch {
	case name == "":
		return nomadrows.BadRequest("missing task group name for scaling action")
	case body.Error && body.Count != nil:
		return nomadrows.BadRequest("scaling action should not contain count if error is true")
	case body.Count != nil && (*body.Count < 0 || *body.Count > 1<<31-1):
		return nomadrows.BadRequest("invalid scaling target: Count %d", *body.Count)
	}
	if err := rejecting(q); err != nil {
		return err
	}
	v, err := q.Views.View(q.Ctx(), false)
	if err != nil {
		return err
	}
	j := v.State().Job(q.Job())
	if j == nil {
		return nomadrows.NotFound("job " + q.Args["job"] + " not found")
	}
	event := &nomadrows.ScalingEvent{Group: name, Count: body.Count, Error: body.Error, Message: body.Message,
		Meta: body.Meta}
	at := slices.IndexFunc(j.Groups, func(g *jobs.TaskGroup) bool { return g.Name == name })
	switch {
	case at < 0:
		return nomadrows.BadRequest("task group %q specified for scaling does not exist in job", name)
	case j.PerNode():
		return nomadrows.BadRequest("cannot scale jobs of type %s", j.Type)
	case body.Count == nil:
		event.PreviousCount = int64(j.Groups[at].Count)
		w, err := q.Jobs.Scaled(q.Ctx(), j.JobKey, event)
		if err != nil {
			return err
		}
		w.JobModifyIndex = j.JobModifyIndex
		return answered(q, w)
	case v.State().LatestDeployment(j.JobKey).Active():
		return nomadrows.BadRequest("job scaling blocked due to active deployment")
	}
	if err := within(j.Groups[at], *body.Count); err != nil {
		return err
	}
	next, group := *j, *j.Groups[at]
	event.PreviousCount = int64(group.Count)
	group.Count, next.SubmitTime = int(*body.Count), 0 // the plane stamps it
	next.Groups = slices.Clone(j.Groups)
	next.Groups[at] = &group
	w, err := q.Jobs.Register(q.Ctx(), &nomadrows.Registration{Job: &next, Index: &j.JobModifyIndex,
		Trigger: jobs.TriggerScaling, Submission: v.Submission(j.JobKey, j.Version), Scaling: event})
	if err != nil {
		return err
	}
	return answered(q, w)
}

// policy is a group's scaling policy, nil when it has none.
func policy(g *jobs.TaskGroup) *jobwire.ScalingPolicy {
	var p *jobwire.ScalingPolicy
	if text := g.Parts["Scaling"]; text != "" && json.Unmarshal([]byte(text), &p) != nil {
		return nil // a newer version wrote it
	}
	return p
}

// within holds a count to the group's policy.
func within(g *jobs.TaskGroup, count int64) error {
	p := policy(g)
	switch {
	case p == nil:
	case p.Max != nil && count > *p.Max:
		return nomadrows.BadRequest("group count was greater than scaling policy maximum: %d > %d", count, *p.Max)
	case p.Min != nil && count < *p.Min:
		return nomadrows.BadRequest("group count was less than scaling policy minimum: %d < %d", count, *p.Min)
	}
	return nil
}

type groupScale struct {
	Desired, Placed, Running, Healthy, Unhealthy int
	Events                                       []*nomadrows.ScalingEvent
}

func scaleStatus(q *request) error {
	return one(q, func(v nomadrows.View, j *jobs.Job) (any, error) {
		groups := map[string]*groupScale{}
		events := v.Scalings(j.JobKey)
		for _, g := range j.Groups {
			groups[g.Name] = &groupScale{Desired: g.Count, Events: events[g.Name]}
		}
		for a := range v.State().OfJob(j.JobKey) {
			g := groups[a.Group]
			if g == nil || a.Terminal() {
				continue
			}
			g.Placed++
			if a.Client.Status == jobs.ClientRunning {
				g.Running++
			}
			switch a.Rollout.Health {
			case jobs.Healthy:
				g.Healthy++
			case jobs.Unhealthy:
				g.Unhealthy++
			}
		}
		return struct {
			JobID, Namespace               string
			JobCreateIndex, JobModifyIndex uint64
			JobStopped                     bool
			TaskGroups                     map[string]*groupScale
		}{j.ID, j.Namespace, j.CreateIndex, j.ModifyIndex, j.Stop, groups}, nil
	})
}

// target is a group that has a scaling policy.
type target struct {
	job    *jobs.Job
	group  *jobs.TaskGroup
	policy *jobwire.ScalingPolicy
}

// targets yields the groups with a policy of jobs that are not stopped.
func targets(list iter.Seq[*jobs.Job]) iter.Seq[target] {
	return func(yield func(target) bool) {
		for j := range list {
			for _, g := range j.Groups {
				if p := policy(g); p != nil && !j.Stop && !yield(target{j, g, p}) {
					return
				}
			}
		}
	}
}

// policyStub is a policy as lists have it.
type policyStub struct {
	ID, Type                 string
	Enabled                  bool
	Target                   map[string]string
	CreateIndex, ModifyIndex uint64
}

// stub is t's. A policy has its id from what it scales, so that it keeps it from version to version.
func (t target) stub() policyStub {
	sum := sha256.Sum256([]byte(t.job.Namespace + "\x00" + t.job.ID + "\x00" + t.group.Name))
	kind := cmp.Or(t.policy.Type, "horizontal")
	return policyStub{jobs.ID(sum[:16]).String(), kind, t.policy.Enabled == nil || *t.policy.Enabled,
		map[string]string{"Namespace": t.job.Namespace, "Job": t.job.ID, "Group": t.group.Name}, t.job.CreateIndex,
		t.job.ModifyIndex}
}

// policies lists the scaling policies of all jobs.
func policies(q *request) error {
	job, kind := q.Query.Value("job"), q.Query.Value("type")
	return q.Read(nomadrows.Whole(nomadrows.Jobs, func(v nomadrows.View) (any, error) {
		list := []policyStub{}
		for t := range targets(listed(q, v)) {
			stub := t.stub()
			if (job == "" || t.job.ID == job) && (kind == "" || stub.Type == kind) {
				list = append(list, stub)
			}
		}
		return list, nil
	}))
}

// onePolicy is a policy by its id.
func onePolicy(q *request) error {
	return q.Read(nomadrows.Whole(nomadrows.Jobs, func(v nomadrows.View) (any, error) {
		for t := range targets(v.State().Jobs()) {
			stub := t.stub()
			if stub.ID != q.Args["policy"] || !q.Sees(t.job.Namespace, nomadrows.ReadScaling) {
				continue
			}
			p := t.policy
			return struct {
				policyStub
				Namespace string
				Min, Max  *int64
				Policy    map[string]any
			}{stub, t.job.Namespace, p.Min, p.Max, p.Policy}, nil
		}
		return nil, nomadrows.NotFound("policy not found")
	}))
}
