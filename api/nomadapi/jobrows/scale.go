package jobrows

import (
	"encoding/json"
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
	at := slices.IndexFunc(j.Groups, func(g *jobs.TaskGroup) bool { return g.Name == name })
	switch {
	case at < 0:
		return nomadrows.BadRequest("task group %q specified for scaling does not exist in job", name)
	case j.PerNode():
		return nomadrows.BadRequest("cannot scale jobs of type %s", j.Type)
	case body.Count == nil:
		return answered(q, nomadrows.Written{Index: v.State().Index(), JobModifyIndex: j.JobModifyIndex})
	case v.State().LatestDeployment(j.JobKey).Active():
		return nomadrows.BadRequest("job scaling blocked due to active deployment")
	}
	if err := within(j.Groups[at], *body.Count); err != nil {
		return err
	}
	next, group := *j, *j.Groups[at]
	group.Count, next.SubmitTime = int(*body.Count), 0 // the plane stamps it
	next.Groups = slices.Clone(j.Groups)
	next.Groups[at] = &group
	w, err := q.Jobs.Register(q.Ctx(), &nomadrows.Registration{Job: &next, Index: &j.JobModifyIndex,
		Trigger: jobs.TriggerScaling, Submission: v.Submission(j.JobKey, j.Version)})
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
	Events                                       []any
}

func scaleStatus(q *request) error {
	return one(q, func(v nomadrows.View, j *jobs.Job) (any, error) {
		groups := map[string]*groupScale{}
		for _, g := range j.Groups {
			groups[g.Name] = &groupScale{Desired: g.Count}
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

// policies lists the scaling policies of all jobs.
func policies(q *request) error {
	return q.Read(nomadrows.Whole(nomadrows.Jobs, func(v nomadrows.View) (any, error) {
		list := []any{}
		for j := range listed(q, v) {
			for _, g := range j.Groups {
				p := policy(g)
				if p == nil || j.Stop {
					continue
				}
				list = append(list, struct {
					ID, Type                 string
					Enabled                  bool
					Target                   map[string]string
					CreateIndex, ModifyIndex uint64
				}{j.Namespace + "/" + j.ID + "/" + g.Name, p.Type, p.Enabled == nil || *p.Enabled,
					map[string]string{"Namespace": j.Namespace, "Job": j.ID, "Group": g.Name}, j.CreateIndex, j.ModifyIndex})
			}
		}
		return list, nil
	}))
}
