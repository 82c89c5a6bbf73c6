package jobscmd

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd/jobview"
	"corbel.dev/corbel/client/nomad"
	"corbel.dev/corbel/jobs/jobwire"
)

// CodeUnplaced is how `job run` ends when not all could be placed.
const CodeUnplaced = command.ExitCode(2)

// said prints a line of a monitor with the time.
func (c *Call) said(head bool, format string, args ...any) error {
	mark := "   "
	if head {
		mark = "==>"
	}
	return c.Printf("%s %s: %s\n", mark, time.Now().Format(time.RFC3339), fmt.Sprintf(format, args...))
}

// follow reads path again and again, each time when it has changed, until each reports that it is done. Whoever waits
// for an object that the server does not have yet gets it when it is there.
func follow[T any](c *Call, path string, each func(v *T) (done bool, err error)) error {
	query, index := url.Values{}, uint64(0)
	for misses := 0; ; {
		if index > 0 {
			query = url.Values{"index": {strconv.FormatUint(index, 10)}, "wait": {"10s"}}
		}
		v := new(T)
		meta, err := c.Client.Get(c.Ctx(), path, query, v)
		if nomad.IsNotFound(err) && misses < 3 { // a server that does not have it yet
			misses++
			command.Wait(c.Ctx(), time.Second)
			continue
		}
		if err != nil {
			return err
		}
		done, err := each(v)
		if done || err != nil {
			return err
		}
		index = max(meta.Index, 1)
	}
}

// monitorEval follows an evaluation to its end, and then the deployment that it began.
func (c *Call) monitorEval(id string) error {
	if err := c.said(true, "Monitoring evaluation %q", c.short(id)); err != nil {
		return err
	}
	seen := &evalSeen{c: c, allocs: map[string]bool{}}
	var last *jobwire.Evaluation
	err := follow(c, "evaluation/"+id, func(e *jobwire.Evaluation) (bool, error) {
		last = e
		return seen.look(e)
	})
	if err != nil {
		return err
	}
	if err := c.said(true, "Evaluation %q finished with status %q", c.short(last.ID), last.Status); err != nil {
		return err
	}
	unplaced := len(last.FailedTGAllocs) > 0
	if unplaced {
		if err := c.failures(last.FailedTGAllocs); err != nil {
			return err
		}
		if last.BlockedEval != "" {
			if err := c.Printf("Evaluation %q waiting for additional capacity to place remainder\n",
				c.short(last.BlockedEval)); err != nil {
				return err
			}
		}
		if err := c.Printf("`%s %s` says what would help\n", c.Tool("job why", "jobs why"), last.JobID); err != nil {
			return err
		}
	}
	deployment := last.DeploymentID
	if deployment == "" {
		deployment = seen.deployment
	}
	if deployment != "" && !unplaced {
		return c.monitorDeployment(deployment)
	}
	switch {
	case unplaced:
		return CodeUnplaced
	case last.Status != "complete":
		return fmt.Errorf("the evaluation ended as %s: %s", last.Status, last.StatusDescription)
	}
	return nil
}

// evalSeen is what a monitor has told of an evaluation.
type evalSeen struct {
	c          *Call
	status     string
	told       bool
	allocs     map[string]bool
	deployment string
}

func (s *evalSeen) look(e *jobwire.Evaluation) (done bool, err error) {
	c := s.c
	if !s.told {
		s.told = true
		about := fmt.Sprintf("job %q", e.JobID)
		if e.NodeID != "" {
			about = fmt.Sprintf("node %q", c.short(e.NodeID))
		}
		if err := c.said(false, "Evaluation triggered by %s", about); err != nil {
			return false, err
		}
	}
	var allocs []*jobwire.AllocStub
	if err := c.Get("evaluation/"+e.ID+"/allocations", nil, &allocs); err != nil {
		return false, err
	}
	for _, a := range allocs {
		if s.deployment == "" {
			s.deployment = a.DeploymentID
		}
		if s.allocs[a.ID] {
			continue
		}
		s.allocs[a.ID] = true
		what := "created"
		if a.CreateIndex < e.CreateIndex {
			what = "modified"
		}
		if err := c.said(false, "Allocation %q %s: node %q, group %q", c.short(a.ID), what, c.short(a.NodeID),
			a.TaskGroup); err != nil {
			return false, err
		}
	}
	if s.status != "" && s.status != e.Status {
		if err := c.said(false, "Evaluation status changed: %q -> %q", s.status, e.Status); err != nil {
			return false, err
		}
	}
	s.status = e.Status
	return e.Status != "pending", nil
}

// failures prints why groups could not be placed whole.
func (c *Call) failures(failed map[string]*jobwire.AllocationMetric) error {
	for _, group := range slices.Sorted(maps.Keys(failed)) {
		m := failed[group]
		c.Say("Task Group %q (failed to place %d allocation%s):\n%s", group, m.CoalescedFailures+1,
			jobview.Plural(m.CoalescedFailures+1), jobview.Metric(m, "  "))
	}
	return nil
}

// monitorDeployment follows a deployment to its end. One that waits for its promotion ends the monitor too.
func (c *Call) monitorDeployment(id string) error {
	if err := c.said(true, "Monitoring deployment %q", c.short(id)); err != nil {
		return err
	}
	last := ""
	var end *jobwire.Deployment
	err := follow(c, "deployment/"+id, func(d *jobwire.Deployment) (bool, error) {
		end = d
		if text := deploymentText(c, d); text != last {
			last = text
			if err := c.said(false, "%s", text); err != nil {
				return false, err
			}
		}
		return d.Status != "running" && d.Status != "paused" && d.Status != "pending" || waitsForPromotion(d), nil
	})
	switch {
	case err != nil:
		return err
	case waitsForPromotion(end):
		return c.said(true, "Deployment %q waits for its promotion: %s %s", c.short(id),
			c.Tool("deployment promote", "deployments promote"), c.short(id))
	}
	if err := c.said(true, "Deployment %q %s: %s", c.short(id), end.Status, end.StatusDescription); err != nil {
		return err
	}
	if end.Status == "successful" {
		return nil
	}
	return errors.Join(fmt.Errorf("the deployment ended as %s", end.Status))
}

// waitsForPromotion reports whether all that a deployment still waits for is a person.
func waitsForPromotion(d *jobwire.Deployment) bool {
	waits := false
	for _, g := range d.TaskGroups {
		if g.DesiredCanaries > 0 && !g.Promoted && !g.AutoPromote {
			if g.HealthyAllocs < g.DesiredCanaries {
				return false
			}
			waits = true
		}
	}
	return waits && d.Status == "running"
}

// deploymentText is the state of a deployment on one line.
func deploymentText(c *Call, d *jobwire.Deployment) string {
	text := d.Status
	for _, name := range slices.Sorted(maps.Keys(d.TaskGroups)) {
		g := d.TaskGroups[name]
		text += fmt.Sprintf(", %s: %d placed, %d healthy, %d unhealthy of %d", name, g.PlacedAllocs, g.HealthyAllocs,
			g.UnhealthyAllocs, max(g.DesiredTotal, g.DesiredCanaries))
		if g.DesiredCanaries > 0 && !g.Promoted {
			text += fmt.Sprintf(" (%d canaries)", g.DesiredCanaries)
		}
	}
	return text
}

// order asks for a change that makes an evaluation, and follows that, or names it.
func (c *Call) order(detach bool, path string, q url.Values, body any) error {
	var answer registered
	if err := c.Client.Put(c.Ctx(), path, q, body, &answer); err != nil {
		return err
	}
	return c.detachOr(detach, answer.EvalID)
}

// detachOr follows an evaluation, or names it.
func (c *Call) detachOr(detach bool, eval string) error {
	switch {
	case eval == "":
		return nil
	case detach:
		return c.Printf("Evaluation ID: %s\n", eval)
	}
	return c.monitorEval(eval)
}
