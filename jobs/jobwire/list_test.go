package jobwire

import (
	"maps"
	"testing"

	"corbel.dev/corbel/jobs"
)

// TestLists: what lists of jobs, allocations and nodes have, and what they leave out.
func TestLists(t *testing.T) {
	j := &jobs.Job{JobKey: jobs.JobKey{Namespace: "n", ID: "j"}, Type: jobs.Batch, Priority: 7, Periodic: &jobs.Periodic{},
		Groups: []*jobs.TaskGroup{{Name: "g", Tasks: []*jobs.Task{{Name: "t", Resources: jobs.Resources{CPU: 5}}}}},
		Meta:   map[string]string{"a": "b"}, Revision: jobs.Revision{Version: 3, SubmitTime: 9, ModifyIndex: 4}}
	var allocs []*jobs.Allocation
	for i, status := range []string{"", jobs.ClientPending, jobs.ClientRunning, jobs.ClientComplete, jobs.ClientFailed,
		jobs.ClientLost, jobs.ClientUnknown} {
		for range i + 1 {
			allocs = append(allocs, &jobs.Allocation{Job: j, Group: "g", Client: jobs.Client{Status: status},
				Desired: jobs.Desired{Status: jobs.Run}, Grant: &jobs.Grant{}, Stamp: jobs.Stamp{ModifyIndex: 40}})
		}
	}
	allocs = append(allocs, &jobs.Allocation{Job: j, Group: "g", Desired: jobs.Desired{Status: jobs.Stop}},
		&jobs.Allocation{Job: j, Group: "former", Client: jobs.Client{Status: jobs.ClientRunning}})
	counts := map[string]jobs.Counts{}
	for _, a := range allocs {
		n := counts[a.Group]
		n.Add(a, 1)
		counts[a.Group] = n
	}
	summary := Summarize(j, maps.All(counts), 40, map[string]int{"g": 83})
	node := &jobs.Node{Name: "n1", Attributes: map[string]string{"nomad.version": "1.6.5"},
		Drivers: map[string]jobs.Driver{"docker": {Healthy: true}}, Duty: jobs.Duty{Status: jobs.NodeReady}}
	for _, test := range []struct {
		of   any
		want map[string]string
	}{
		{summary, map[string]string{"Summary.g.Queued": "83", "Summary.g.Starting": "3", "Summary.g.Running": "3",
			"Summary.g.Complete": "4", "Summary.g.Failed": "5", "Summary.g.Lost": "6", "Summary.g.Unknown": "7",
			"Summary.former.Running": "1", "Children.Pending": "0", "ModifyIndex": "40"}},
		{JobListed(j, summary, false), map[string]string{"ID": `"j"`, "Periodic": "true", "ParameterizedJob": "false",
			"Meta": "null", "JobSummary.JobID": `"j"`, "Version": "3", "SubmitTime": "9", "Priority": "7"}},
		{JobListed(j, nil, true), map[string]string{"Meta.a": `"b"`, "JobSummary": "null"}},
		{AllocListed(allocs[0], node, false), map[string]string{"AllocatedResources": "null", "Job": "null",
			"JobType": `"batch"`, "JobVersion": "3", "NodeName": `"n1"`, "ModifyIndex": "40"}},
		{AllocListed(allocs[0], node, true), map[string]string{"AllocatedResources.Tasks.t.Cpu.CpuShares": "5"}},
		{NodeListed(node, "10.0.0.1", false), map[string]string{"Address": `"10.0.0.1"`, "Version": `"1.6.5"`,
			"Drivers.docker.Healthy": "true", "NodeResources": "null", "SchedulingEligibility": `"eligible"`}},
		{NodeListed(node, "", true), map[string]string{"NodeResources.MaxDynamicPort": "32000"}},
	} {
		for path, want := range test.want {
			if got := at(t, test.of, path); got != want {
				t.Errorf("%T: %s = %s, want %s", test.of, path, got, want)
			}
		}
	}
}
