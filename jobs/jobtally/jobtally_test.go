package jobtally

import (
	"reflect"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/state"
)

func id(n byte) (id jobs.ID) { id[15] = n; return id }

func key(name string) jobs.JobKey { return jobs.JobKey{Namespace: "default", ID: name} }

func world(t *testing.T) *state.State {
	t.Helper()
	s := state.Empty()
	e := s.Edit(1)
	evals := byte(0)
	put := func(name, parent string, groups ...string) *jobs.Job {
		j := &jobs.Job{JobKey: key(name), Type: jobs.Service, Origin: jobs.Origin{ParentID: parent}}
		for _, g := range groups {
			j.Groups = append(j.Groups, &jobs.TaskGroup{Name: g, Count: 1})
		}
		evals++
		e.PutEvaluation(&jobs.Evaluation{ID: id(100 + evals), JobKey: key(name), Status: jobs.EvalPending})
		return e.PutJob(j)
	}
	web := put("web", "", "api", "site")
	put("batch", "", "g")
	put("batch/dispatch-1", "batch", "g")
	put("zoo", "", "g")
	e.PutNode(&jobs.Node{ID: id(9), Duty: jobs.Duty{Status: jobs.NodeReady}})
	for i, status := range []string{jobs.ClientRunning, jobs.ClientRunning, jobs.ClientFailed} {
		e.PutAllocation(&jobs.Allocation{ID: id(byte(20 + i)), Job: web, Group: "api", NodeID: id(9), Grant: &jobs.Grant{},
			Desired: jobs.Desired{Status: jobs.Run}, Client: jobs.Client{Status: status}})
	}
	e.PutEvaluation(&jobs.Evaluation{ID: id(30), JobKey: key("web"), Status: jobs.EvalBlocked,
		Outcome: jobs.Outcome{Queued: map[string]int{"site": 4}}})
	for i, d := range []jobs.Deployment{
		{JobKey: key("web"), JobVersion: 0, Status: jobs.DeploySuccessful, Stamp: jobs.Stamp{CreateTime: 10, ModifyTime: 20}},
		{JobKey: key("web"), JobVersion: 1, Status: jobs.DeployFailed, Stamp: jobs.Stamp{CreateTime: 30, ModifyTime: 40}},
		{JobKey: key("web"), JobVersion: 2, Status: jobs.DeployRunning, Stamp: jobs.Stamp{CreateTime: 50, ModifyTime: 60}},
		{JobKey: key("web"), JobVersion: 1, Status: jobs.DeployFailed, Stamp: jobs.Stamp{CreateTime: 5, ModifyTime: 6}},
	} {
		d.ID = id(byte(40 + i))
		e.PutDeployment(&d)
	}
	return e.Done()
}

func TestCount(t *testing.T) {
	s := world(t)
	got := Count(s, 3)
	want := Jobs{Pending: 3, Running: 1, Untold: 1, Groups: []Group{
		{"default", "batch", "g", jobwire.GroupSummary{}},
		{"default", "web", "api", jobwire.GroupSummary{Running: 2, Failed: 1}},
		{"default", "web", "site", jobwire.GroupSummary{Queued: 4}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestDeployments(t *testing.T) {
	s := world(t)
	want := []Deployment{
		{key("web"), 2, jobs.DeployRunning, 50, 0},
		{key("web"), 1, jobs.DeployFailed, 30, 40},
		{key("web"), 0, jobs.DeploySuccessful, 10, 20}}
	if got := Deployments(s, 9); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := Deployments(s, 1); !reflect.DeepEqual(got, want[:1]) {
		t.Errorf("the newest: %+v", got)
	}
}
