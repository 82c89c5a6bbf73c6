package jobstore

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/dispatch"
)

// withParent is a View with a parameterized job.
func withParent(t *testing.T, env int) (*View, *jobs.Job) {
	t.Helper()
	task := &jobs.Task{Name: "t", Driver: "mock_driver", Env: map[string]string{}}
	for i := range env {
		task.Env[fmt.Sprint("SETTING_", i)] = fmt.Sprint("the value of setting ", i)
	}
	j := &jobs.Job{JobKey: jobs.JobKey{Namespace: "default", ID: "p"}, Name: "p", Type: jobs.Batch, Priority: 50,
		Dispatch: &jobs.DispatchRules{Payload: dispatch.Optional}, Meta: map[string]string{"of": "parent"},
		Groups: []*jobs.TaskGroup{{Name: "g", Count: 1, Tasks: []*jobs.Task{task}}}}
	v := apply1(t, Empty(), JobWrite{Job: j})
	return v, v.State.Job(j.JobKey)
}

// apply1 stores a job by a command that went over the wire.
func apply1(t *testing.T, v *View, w JobWrite) *View {
	t.Helper()
	c, err := Decode((&Command{Head: Head{Now: 5, Seed: 2, Kind: JobRegistered},
		Jobs: JobWrites{Put: []JobWrite{w}}}).Encode())
	if err != nil {
		t.Fatal(err)
	}
	next, results, _ := v.Apply([]*Command{c})
	if results[0].Err != nil {
		t.Fatal(results[0].Err)
	}
	return next
}

var request = dispatch.Request{Payload: []byte("what to do"), Meta: map[string]string{"a": "b"}, Token: "t",
	Priority: 70}

// TestChildrenShareTheirParent: a dispatched job is stored as it came, and shares the rest with its parent, also after
// a snapshot; one that was made of another version is whole.
func TestChildrenShareTheirParent(t *testing.T) {
	v, parent := withParent(t, 3)
	for _, r := range []dispatch.Request{request, {}} {
		want := dispatch.Named(parent, "p/dispatch-1", r, 3)
		v := apply1(t, v, JobWrite{Job: want, Index: new(uint64(0))})
		v = apply1(t, v, JobWrite{Job: dispatch.Named(parent, "p/dispatch-2", dispatch.Request{}, 4)})
		var b bytes.Buffer
		if _, err := v.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		again, err := ReadView(&b)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []*View{v, again} {
			got := v.State.Job(want.JobKey)
			same := *want
			same.Revision = got.Revision
			if !reflect.DeepEqual(got, &same) || got.SubmitTime != 3 {
				t.Errorf("stored %+v\nwant %+v", got, same)
			}
			for _, child := range v.State.Children(parent.JobKey) {
				if !child.SharesBody(v.State.Job(parent.JobKey)) {
					t.Errorf("%s does not share its parent's groups", child.ID)
				}
			}
		}
	}
	newer := *parent
	newer.Groups = []*jobs.TaskGroup{{Name: "other", Count: 1, Tasks: parent.Groups[0].Tasks}}
	v = apply1(t, v, JobWrite{Job: &newer})
	v = apply1(t, v, JobWrite{Job: dispatch.Named(parent, "p/dispatch-1", request, 3)})
	child := v.State.Children(parent.JobKey)[0]
	if child.SharesBody(v.State.Job(parent.JobKey)) || child.Groups[0].Name != "g" {
		t.Errorf("the child of the version before is %+v", child)
	}
}
